"""What a node did during a run: sampled by the agent, kept in a ring, read by the verb `history`.

Start with recorder.py (the agent's side) and ring.py (the files). Numbers that ranks print are read by scalars.py and
tensorboard.py when a report is made; nothing is recorded of them.
"""
