"""What became of a run: its state, its verdict, and which run is meant.

`verdict` says how a run ended, `gang_record` which of the nodes' records counts. The cause is chosen by
`protocol/root_cause`, as on the nodes; what is shown of it is in `plans/known_errors`.
"""
