"""What Python programs call: launch, attach, check, run; each starts the command and reads its JSON.

Not here: what a verb does, which is in `cli`, and what its documents hold, which is in `console/documents`.
Start with `run` for runs of a job, with `call` for a function that is run on all ranks.
"""
