"""A run on one node: guardian, agent, one attempt, its end.

`guardian` ends everything if the agent dies; `agent` turns what arrives into events, `node/lifecycle` has the rules of
what follows, `executor` and `attempt` the effects that these call; `gate` becomes torchrun, `gate_process` is the
agent's end of it; `evidence` reads what failed ranks wrote; `gang_orders` begins further attempts. Not here: agreement
with other nodes, and when a run is started again (`node/gang`). Start with `agent`.
"""
