"""The keys of an ssh-agent, asked once and shared by all threads."""

from __future__ import annotations

import socket
import threading

import paramiko

from clusterctl.runs.keyfiles import Candidate

AGENT_LIMIT = 30.0  # seconds; a key in the agent may want to be confirmed by a person


class _SharedAgent(paramiko.Agent):
    """One connection to ssh-agent for all threads."""

    def __init__(self, place: str) -> None:
        self._turn = threading.Lock()
        self._dead = False
        paramiko.agent.AgentSSH.__init__(self)  # paramiko.Agent's own asks the agent of SSH_AUTH_SOCK only
        conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        conn.settimeout(AGENT_LIMIT)
        conn.connect(place)
        self._connect(conn)  # type: ignore[attr-defined]  # paramiko's own, not in its type information

    def _send_message(self, msg):  # type: ignore[no-untyped-def]  # paramiko's own, not in its type information
        with self._turn:
            if self._dead:
                raise paramiko.SSHException("ssh-agent does not answer")
            try:
                return super()._send_message(msg)  # type: ignore[misc]  # the same
            except OSError as error:
                self._dead = True  # one wait is enough for all nodes
                raise paramiko.SSHException(f"ssh-agent does not answer: {error}") from error


def ask(place: str) -> list[Candidate]:
    """List the keys of the agent at a socket; none if it does not answer."""
    try:
        keys = _SharedAgent(place).get_keys()
    except (paramiko.SSHException, OSError):
        return []
    for key in keys:
        inner = getattr(key, "inner_key", None)
        key.public_blob = (
            inner and inner.public_blob
        )  # without it paramiko shows a certificate as a plain key
    return [Candidate(f"ssh-agent: {key.comment or key.get_name()}", key) for key in keys]
