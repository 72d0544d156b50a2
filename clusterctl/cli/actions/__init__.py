"""What a verb does, step by step, with nodes, files and the screen.

`launch` is the longest and a good start; `preflight` checks the nodes, `find_runs` asks them for their
runs. Options are in `cli/commands`; what is decided without effects is in `plans`.
"""
