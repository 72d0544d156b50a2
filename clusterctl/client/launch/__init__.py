"""A launch on all nodes, from the first agent to GO.

`prepare` starts the agents, sends the code and sends GO; `locks` handles GPUs that other runs hold, `setup` the
files of the job's environment. Not here: what will run (`plans/launch`). Start with `prepare`.
"""
