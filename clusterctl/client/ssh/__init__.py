"""SSH connections by paramiko: configuration, hosts and bastions on the way, host keys, logins.

Connections by the user's own ssh are in `client/openssh`; what is said over a connection is in
`client/rpc`. Start with `connect`, which lists its errors; `route` decides over which hosts.
"""
