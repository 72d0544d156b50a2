"""What client and nodes must agree on.

Pure, standard library only, Python 3.8: sent to nodes together with `node`. Start with `untrusted`, which reads
everything that another machine or account has written.
"""
