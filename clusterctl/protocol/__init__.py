"""What client and node must agree on: the reader of untrusted JSON, run ids, and the judge of a run's end.

Pure, standard library only, Python 3.8: these modules are sent to the nodes, beside `node`. Start with
`untrusted`, which reads everything that another machine or another account has written, and with `root_cause`:
`end_record` and `tracebacks` read for it, `known_errors` and `leaver` are its rules, `reasons` its words for a restart.
"""
