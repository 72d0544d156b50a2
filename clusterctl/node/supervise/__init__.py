"""A run on one node: the guardian, the agent below it, one attempt, its end.

`guardian` ends everything if the agent dies; `agent` runs `attempt`, which goes through `startup` and
`gate` to `torchrun`; `shutdown` ends processes; `evidence` keeps what failed ranks wrote. Agreement with
other nodes is in `gang/`.
"""
