"""The agents of one run among each other: node 0 is the hub, the others are peers.

`membership` has the limits and what both roles share, `hub` and `peer` the roles, `failover` the next hub,
`restarts` and `roster` what further attempts need, `messages` the messages, `channel` and `listener` the authenticated
sockets. Not here: processes of the job (`node/supervise`). Start with `membership`.
"""
