"""What client and nodes must agree on.

Pure, standard library only, Python 3.8: sent to nodes together with `node`. Start with `untrusted`, which reads
everything that another machine or account has written, and with `root_cause`, which chooses why a run ended:
`end_record` and `tracebacks` read for it, `known_errors` are its rules, `reasons` its words for a restart. `messages`
has one class for each message.
"""
