"""A run on a Slurm cluster: its task on each node, and what the login node submits and reads.

On each node: `task` is what srun starts, `allocation` what the tasks do together before an agent starts, `spec` this
node's spec, `job_files` the folder that they share with the login node.
On the login node: `queue` submits and waits, `states` and `clean` are by run; `commands` runs Slurm's programs. What
follows and stops a part is in the verb `slurm`. Not here: the agents, which are those of every run
(`node/supervise`). Start with `task`.
"""
