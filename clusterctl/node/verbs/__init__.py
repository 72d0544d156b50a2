"""One module per verb that a client can ask for; `node/boot` calls its `run`.

A verb is sent with all modules that it imports: an import here makes a bundle larger. Not here: the client's side
(`client/rpc/tasks`). Start with `ps`, the shortest, then `start`.
"""
