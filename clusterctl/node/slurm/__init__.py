"""A run on a Slurm cluster: its task on each node, and what the login node submits and reads.

`task` is what srun starts; `job_files` is the folder that tasks and login node share. Not here: the agents, which are
those of every run (`node/supervise`).
"""
