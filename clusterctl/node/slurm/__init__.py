"""What runs on a Slurm cluster: one task on each node of a job, and on the login node what reads and submits.

`task` is what srun starts; `job_files` has the folder in which tasks and login node meet. Not here: the agents, which
are those of every other run (`node/supervise`).
"""
