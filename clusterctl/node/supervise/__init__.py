"""A run on one node: guardian, agent, one attempt, its end.

`guardian` ends everything if the agent dies; `events` passes what arrives to the rules of `node/lifecycle`;
`agent` and `attempt` do what these call; `gate` becomes torchrun, `gate_process` is the agent's end of it; `evidence`
reads what failed ranks wrote. Not here: agreement with other nodes, and when a run is started again (`node/gang`).
Start with `agent`.
"""
