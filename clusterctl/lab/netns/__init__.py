"""Nodes as network namespaces with a real sshd.

`backend` starts them, `init` is PID 1 of a node, `relay` its ProxyCommand. Not here: nodes without namespaces
(`lab/inproc`). Start with `init`.
"""
