"""Nodes as plain processes on loopback addresses.

`backend` starts them, `server` is their SSH server, built with paramiko. Not here: nodes with namespaces
(`lab/netns`).
"""
