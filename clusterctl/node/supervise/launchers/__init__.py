"""Launchers of several nodes that are no module of torch: Ray's processes on each node, and the job's program on node 0.

`ray` is the node's program, `ray_files` what the agent does for it. Not here: torchrun (`torchrun`, `gate`).
"""
