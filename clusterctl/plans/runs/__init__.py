"""How a run ended: state, verdict, and which run is meant.

`verdict` shows how a run ended, by which of the nodes' records; `rows` are its nodes and ranks for tables. The cause is
chosen by `protocol/root_cause`, as on the nodes; its meaning and advice are in `codes`.
Not here: following a run (`client/watch`). Start with `verdict`.
"""
