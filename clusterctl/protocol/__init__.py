"""What client and node must agree on: the reader of untrusted JSON, and the form of a run's name.

Pure, standard library only, Python 3.8: these modules are shipped to the nodes beside the payload. Start with
`untrusted`, through which everything passes that another machine or another account has written.
"""
