"""The agents of one run among each other: node 0 is the hub, the others are peers.

`hub` and `peer` are the roles, each a table of phases and events; `role` what both share, `membership` what an agent
asks, `limits` bounds times and messages, `attempts` makes the record of an end and decides whether there is a further
attempt, `failover` finds the next hub, `channel` the authenticated sockets. The messages are in
`protocol/messages/gang`. Not here: processes of the job (`node/supervise`). Start with the tables of `hub` and `peer`.
"""
