"""Nodes as plain processes at loopback addresses, with an SSH server by paramiko (`server`)."""
