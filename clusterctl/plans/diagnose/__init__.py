"""Plans and results of the tests between nodes.

`mesh` is the connection test, `collective` the deep check. Not here: the tests themselves (`node/diagnose`).
"""
