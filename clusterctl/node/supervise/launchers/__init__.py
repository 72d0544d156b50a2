"""Launchers that serve a program on node 0 from all nodes: Ray.

Start with `ray`, the program of each node; `ray_files` is the agent's part. Not here: torchrun, see `../gate`.
"""
