"""A node behind a command: `ssh.proxy_command` as the byte stream to it.

A socketpair, not paramiko.ProxyCommand: that one spins when its command dies, and never notices.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import threading
from contextlib import suppress
from typing import IO

from clusterctl.errors import Unreachable
from clusterctl.runs.sockets import Line

STDERR_KEPT = 8 << 10
GRACE = 1.0  # seconds between asking the command to end and making it


def expand_proxy_command(
    template: str, *, host: str, port: int, user: str, alias: str = "", node: str = ""
) -> str:
    """Fill in `%h %p %r %n %%` as OpenSSH does, each value quoted for the shell."""
    values = {"h": host, "n": alias or host, "p": str(port), "r": user}

    def fill(match: re.Match[str]) -> str:
        letter = match.group(1)
        if letter == "%":
            return "%"
        if letter not in values:
            raise Unreachable(
                f"`ssh.proxy_command` contains %{letter}, which means nothing here",
                code="CC-SSH-013",
                node=node,
                evidence=template,
                fix="use %h (host), %p (port), %r (user), and %% for a percent sign",
            )
        return shlex.quote(values[letter])

    return re.sub(r"%(.?)", fill, template, flags=re.DOTALL)


class ProxyLine(Line):
    """Our end of a socketpair whose other end is the command's stdin and stdout."""

    proxied = True

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        super().__init__(fileno=descriptor)
        self._process = process
        self._said = bytearray()
        self._ending = threading.Lock()
        self._listener = threading.Thread(target=self._listen, name="proxy command's stderr", daemon=True)
        self._listener.start()

    @property
    def status(self) -> int | None:
        """Return the command's exit status once it has ended; waits a moment, as its stream ends first."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.25)
        return self._process.returncode

    def describe_end(self) -> str:
        """Return what the command wrote to stderr, the end of it."""
        if self._process.returncode is not None:
            self._listener.join(0.25)
        return bytes(self._said).decode("utf-8", "replace").strip()

    def close(self) -> None:
        """End the stream, then the command and what it started, and collect it."""
        super().close()
        with self._ending:
            if self._process.poll() is None:
                self._signal(signal.SIGTERM)
                try:
                    self._process.wait(GRACE)
                except subprocess.TimeoutExpired:
                    self._signal(signal.SIGKILL)
                    self._process.wait()

    def _signal(self, number: int) -> None:
        # The command leads a process group of its own, made for it: nobody else is in it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _listen(self) -> None:
        stream: IO[bytes] | None = self._process.stderr
        if stream is None:
            return
        with stream:
            while piece := os.read(stream.fileno(), 4096):
                self._said += piece
                del self._said[:-STDERR_KEPT]


def open_proxy(node: str, command: str) -> ProxyLine:
    """Start a command, already expanded, and return the stream through it."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            # A session of its own: Ctrl-C at the terminal must not cut the connection.
            process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise Unreachable(
                "`ssh.proxy_command` cannot be started", code="CC-SSH-013", node=node, evidence=str(error)
            ) from error
    line = ProxyLine(ours.detach(), process)
    line.node = node
    return line
