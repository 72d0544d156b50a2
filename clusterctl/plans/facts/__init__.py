"""What nodes report about themselves, as values.

`facts` is the whole, `records` its parts, `untrusted` the parser. Not here: how a node finds out (`node/probe`) and
what it means (`plans/checks`). Start with `records`.
"""
