"""A job on a Slurm cluster: what is asked of Slurm, the batch script, and what the tasks make their specs of.

Start with `request`. Not here: the self-contained script of `export slurm` (`plans/export/slurm`).
"""
