"""The keeper: a process beside the agent that finds, hashes, gives, takes and restores checkpoints of the run.

Not here: which generation is kept where and restored (node/gang). The messages are in protocol/messages/checkpoints.
Start with `keeper`.
"""
