"""A job as a shell script that runs it without clusterctl.

`slurm` writes a script for sbatch, `bash` one that starts the nodes by ssh; `shell` has what both share,
and what such a script cannot do. Not here: writing the file (`cli/commands/launch`). Start with `slurm`.
"""
