"""Conversations with nodes: a verb is sent as a bundle of modules, frames go both ways.

`tasks` has one function per verb; `session` is one conversation, `frames` its format, `bundle` what is
sent, `fanout` the same on many nodes, `errors` how it fails. The other side is `node/boot` and
`node/verbs`.
"""
