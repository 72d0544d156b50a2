"""What client and node must agree on: the reader of untrusted JSON, run ids, which rank exited first.

Pure, standard library only, Python 3.8: these modules are sent to the nodes, beside `node`. Start with
`untrusted`, which reads everything that another machine or another account has written.
"""
