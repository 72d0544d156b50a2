"""A launch on all nodes: everything up to the gate, then GO (`prepare`), locks of other runs, files of
`setup`.

What will run is decided in `plans/launch`.
"""
