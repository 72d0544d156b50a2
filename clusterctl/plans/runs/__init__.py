"""What became of a run: its state, its verdict, its root cause, and which run is meant.

`root_cause` chooses the cause, with the texts in `plans/known_errors`; `tracebacks` reads what a rank
wrote; `gang_record` reads what the nodes recorded together.
"""
