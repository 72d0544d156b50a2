"""What the verbs do otherwise for a run on a Slurm cluster: `launch`, and what waits in the queue."""
