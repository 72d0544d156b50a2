"""The agents of one run among each other: node 0 is the hub, the others are peers.

`membership` has what an agent asks and the limits, `hub` and `peer` the roles, each a table of phases and events,
`failover` the next hub, `restart_policy` when there is a further attempt, `state` and `roster` what it needs,
`channel` and `endpoints` the authenticated sockets. The messages are in `protocol/messages/gang`. Not here: processes
of the job (`node/supervise`). Start with the tables of `hub` and `peer`.
"""
