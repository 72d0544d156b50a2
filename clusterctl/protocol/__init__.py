"""What client and nodes must agree on.

Pure, standard library only, Python 3.8: sent to nodes together with `node`. Start with `messages`, which defines what
is sent and kept, and `untrusted`, which reads everything that another machine or account has written. `states`,
`run_paths`, `frames`, `manifest`, `exit_status`, `redact`: what both sides need of a run. `root_cause` chooses why it
ended: `end_record` and `tracebacks` read for it, `known_errors` are its rules, `reasons` its words for a restart.
"""
