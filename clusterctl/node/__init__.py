"""What is sent to nodes and runs there: standard library only, Python 3.8 and later, relative imports only.

`boot` is the first code on a node and runs one of `verbs/`; `main` is the zip's entry: guardian and agent
(`supervise/`), the agents of a run among each other (`gang/`), `setup/`. `state/` and `runtime/` are below
all of them. Small modules stay apart where a verb's bundle would grow. The other side is `client/rpc`.
Start with `verbs/start`.
"""
