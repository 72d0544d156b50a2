"""The agent as values: which events change the state of a run on a node, and which actions follow.

`transitions` has the table; `starting` and `ending` the transitions, `state`, `events` and `actions` their values.
Not here: anything with an effect (`node/supervise`). Start with `transitions`.
"""
