"""Messages between machines: one class for each, its name and keys written once.

`gang` has those of the agents of one run among each other.
"""
