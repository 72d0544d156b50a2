"""The agents of one run among each other: node 0 is the hub, all others are peers.

`membership` is what both have in common, `hub` and `peer` the roles, `failover` the next hub, `restarts`
and `roster` further attempts, `messages` what is sent, `channel` and `listener` the authenticated sockets.
"""
