"""Messages between processes on different machines: one class for each, with its name and keys written once.

`gang` has those of the agents of one run among each other.
"""
