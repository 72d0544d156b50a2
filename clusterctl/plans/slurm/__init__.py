"""A job on a Slurm cluster: what is submitted, and how its nodes are judged.

Start with `submission`. Not here: the self-contained script of `export slurm` (`plans/export/slurm`).
"""
