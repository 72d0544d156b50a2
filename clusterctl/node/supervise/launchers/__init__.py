"""Launchers that start processes of their own on all nodes: Ray and mpirun.

Start with `ray`, the program of each node; `temp_files` is the agent's part. Not here: torchrun, see `../gate`.
"""
