"""What client and nodes send each other, and what a node keeps, as types; one module per conversation.

Imported for types only: what is sent to a node does not hold this folder. Start with `verbs`, the requests and answers
of each verb; `agent` is what goes on over the session of `start`, `files` are the files of a run.
Not here: what the agents of a run send each other (`node/gang/messages.py`), and the facts of a probe.
"""
