"""A run on a Slurm cluster: its task on each node, and what the login node submits and reads.

On each node: `task` is what srun starts, `board` what the tasks send each other, `job_files` the folder that they
share with the login node, `check` the check inside the allocation, `spec` this node's spec, `requeue` a job's further
starts.
On the login node: `queue` submits and waits, `states` and `clean` are by run, `part` follows and stops one node's part;
`commands` runs Slurm's programs. Not here: the agents, which are those of every run (`node/supervise`). Start with
`task`.
"""
