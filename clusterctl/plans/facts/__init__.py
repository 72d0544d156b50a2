"""What nodes report about themselves, as values.

`facts` is the whole, `utilization` how busy nodes are, `untrusted` cleans texts. Not here: how a node finds out
(`node/probe`) and what it means (`plans/checks`). Start with `facts`.
"""
