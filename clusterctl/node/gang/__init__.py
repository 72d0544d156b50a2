"""The agents of one run among each other: node 0 is the hub, the others are peers.

`hub` and `peer` are the roles, each a table of phases and events; `membership` what both share and an agent asks,
`timeouts` the limits of time, `end_record` makes the record of a run's end, `failover` finds the next hub,
`restart_policy` decides whether there is a further attempt, `state` and `roster` hold what it needs, `channel` and
`endpoints` are the authenticated sockets. The messages are in `protocol/messages/gang`. Not here: processes of the job
(`node/supervise`). Start with the tables of `hub` and `peer`.
"""
