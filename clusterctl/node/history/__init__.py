"""What a node did during a run: sampled by the agent, kept in a ring, read by the verb `history`.

Start with machine.py (the agent's side) and ring.py (the files). Numbers that ranks print, or write for TensorBoard,
are read by scalars.py when a report is made; nothing is recorded of them.
"""
