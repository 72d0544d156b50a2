"""SSH connections with paramiko: configuration, bastions, host keys, logins.

`route` decides the hops to a node, `connect` opens one and lists its errors. Not here: connections with the user's
own ssh (`client/openssh`) and what is sent over a connection (`client/rpc`). Start with `connect`.
"""
