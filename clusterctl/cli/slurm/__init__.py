"""What the verbs do otherwise for a run on a Slurm cluster: `launch`, and what waits in the queue.

`launch` submits, waits in the queue, then attaches or stops; `check` has a short job report the facts of its nodes.
Not here: what is asked of Slurm (`client/slurm`, `node/slurm`) and the batch script (`plans/slurm`). Start
with `launch`.
"""
