"""Nodes as network namespaces with a real sshd: `backend`, PID 1 of a node (`init`), a relay for ProxyCommand
(`relay`).
"""
