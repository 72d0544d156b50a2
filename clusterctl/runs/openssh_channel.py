"""A session of the user's own ssh program: one process over a master, its pipes read without waiting."""

from __future__ import annotations

import fcntl
import os
import select
import selectors
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from clusterctl.errors import ClusterctlError
from clusterctl.runs import endings
from clusterctl.runs.channels import PIECE, STATUS_WAIT, WINDOW_TICK

SSH_FAILED = 255  # ssh's own failure, and what it makes of a command that a signal ended
SAID_KEPT = 4096
DRAIN_LIMIT = 0.2  # seconds for the master to fetch what was sent last
END_LIMIT = 1.0
REFUSED = ("session request failed", "Session open refused", "request failed on channel")


class OpensshChannel:
    """One command on a node, run by a client of a master; `alive` tells whether that master still is."""

    def __init__(self, node: str, argv: Sequence[str], alive: Callable[[], bool]) -> None:
        self.node = node
        self._alive = alive
        # A session of its own: Ctrl-C at the terminal must not cut it.
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin, self._stdout, self._stderr = (
            self._process.stdin,
            self._process.stdout,
            self._process.stderr,
        )
        self._selector = (
            selectors.DefaultSelector()
        )  # its own descriptor is readable when one of its files is
        for stream in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(stream.fileno(), False)
        for stream in (self._stdout, self._stderr):
            self._selector.register(stream, selectors.EVENT_READ)
        self._over = self._silent = False
        self._unread, self._said = b"", b""
        self._sending = threading.Lock()

    @property
    def over(self) -> bool:
        """Tell whether stdout has ended."""
        return self._over

    @property
    def status(self) -> int:
        """Return the exit status, or NO_STATUS."""
        status = self._process.returncode
        return endings.NO_STATUS if status is None or status < 0 or status == SSH_FAILED else status

    def fileno(self) -> int:
        """Return a descriptor that is readable when something arrived or stdout has ended."""
        return self._selector.fileno()

    def take(self) -> bytes:
        """Take what is here of stdout; its end is remembered, and keeps the descriptor readable."""
        if self._stdout.closed:
            return b""
        piece = self._stdout.read(PIECE)
        self._over = self._over or piece == b""
        return piece or b""

    def take_stderr(self) -> bytes:
        """Take what is here of stderr, what ssh itself says included."""
        if self._unread:
            piece, self._unread = self._unread, b""
            return piece
        return self._read_stderr()

    def _read_stderr(self) -> bytes:
        if self._silent or self._stderr.closed:
            return b""
        piece = self._stderr.read(PIECE)
        if piece == b"":
            self._silent = True
            self._selector.unregister(self._stderr)
        self._said = (self._said + (piece or b""))[-SAID_KEPT:]
        return piece or b""

    def send(self, data: bytes) -> int:
        """Send and say how much went; 0 when nobody listens any more."""
        if (sent := self._write(data)) is not None:
            return sent
        poller = select.poll()
        with suppress(OSError, ValueError):  # it is being closed
            poller.register(self._stdin, select.POLLOUT)
            if not self._over:  # pipes are small: whoever waits for room must read what comes as it comes
                poller.register(self._selector.fileno(), select.POLLIN)
            poller.poll(WINDOW_TICK * 1000)
        if (sent := self._write(data)) is None:
            raise TimeoutError
        return sent

    def _write(self, data: bytes) -> int | None:
        """Write what there is room for; None when there is none."""
        with self._sending:
            try:
                return self._stdin.write(data)
            except (OSError, ValueError):
                return 0

    def find_failure(self) -> ClusterctlError | None:
        """Tell a client or master that died, and a session that was refused, from a command that ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STATUS_WAIT)
        with suppress(OSError, ValueError):
            while piece := self._read_stderr():
                self._unread += piece
        said, status = self._said.decode("utf-8", "replace").strip(), self._process.returncode
        if status is not None and status < 0:
            return endings.lost(self.node, said or f"the ssh program was ended by signal {-status}")
        if status != SSH_FAILED:
            return None
        if any(words in said for words in REFUSED):
            return endings.channel_refused(self.node, said)
        return None if self._still_alive() else endings.lost(self.node, said)

    def _still_alive(self) -> bool:
        """Ask twice: a master that ends lets go of its sessions first, and then of its socket."""
        if not self._alive():
            return False
        time.sleep(0.1)
        return self._alive()

    def hang_up(self) -> None:
        """End the client, and with it every wait in this channel."""
        self._process.terminate()

    def close(self) -> None:
        """End the client once the master has what was sent; the command sees the end of its stdin."""
        self._over = True
        if self._process.poll() is None:
            self._await_drained()
            self.hang_up()
        with self._sending:
            self._selector.close()
            for stream in (self._stdin, self._stdout, self._stderr):
                with suppress(OSError):
                    stream.close()
        try:
            self._process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _await_drained(self) -> None:
        deadline = time.monotonic() + DRAIN_LIMIT
        with suppress(OSError, ValueError):
            while time.monotonic() < deadline and self._process.poll() is None:
                if not any(fcntl.ioctl(self._stdin.fileno(), termios.FIONREAD, bytes(4))):
                    return
                time.sleep(0.002)
