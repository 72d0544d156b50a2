"""Checkpoints that nodes keep for each other, by a process for each agent.

`keeper` is that process, `scanning` finds checkpoints, `manifests` describes them, `mirror` holds what is here in
`folders`, `kept` reads it later, `transfers` fetches and restores, `claim` keeps two runs apart, `io_class` leaves the
disk to the ranks. Not here: which generation is copied where, and restored (`node/gang`). The messages are in
`protocol/messages/checkpoints`. Start with `keeper`.
"""
