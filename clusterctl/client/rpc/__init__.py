"""Talk to nodes: one session per verb and node, frames in both directions.

`tasks` has one function per verb; `session` is one conversation, `frames` its format, `channels` the two transports,
`bundle` what is sent, `cluster` has the connections and does the same on many nodes. Not here: the node's side
(`node/boot`, `node/verbs`) and connecting (`client/ssh`). Start with `tasks`.
"""
