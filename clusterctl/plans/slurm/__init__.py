"""A job on a Slurm cluster: the options of sbatch, the batch script, and the template of all specs.

Start with `batch_script`. Not here: the self-contained script of `export slurm` (`plans/export/slurm`).
"""
