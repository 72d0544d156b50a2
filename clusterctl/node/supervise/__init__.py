"""A run on one node: guardian, agent, one attempt, its end.

`guardian` ends everything if the agent dies; `agent` runs `attempt`, which goes through `startup` and `gate` to
`torchrun`; `shutdown` ends processes; `evidence` reads what failed ranks wrote. Not here: agreement with other
nodes (`node/gang`). Start with `agent`.
"""
