"""How a run ended: state, verdict, root cause; and which run is meant.

`root_cause` chooses the cause by the texts of `plans/known_errors`, `tracebacks` parses what a rank wrote,
`gang_record` what the nodes recorded together. Not here: following a run (`client/watch`). Start with `verdict`.
"""
