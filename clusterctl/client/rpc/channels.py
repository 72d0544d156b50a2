"""A command that runs on a node, over a connection of paramiko's or by a process of the user's ssh.

The two classes have the same methods. `send`, `find_failure` and `close` wait a little, nothing else does.
"""

from __future__ import annotations

import fcntl
import os
import select
import selectors
import subprocess
import termios
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import paramiko

from clusterctl.client.rpc import errors
from clusterctl.client.ssh.sockets import SshSocket
from clusterctl.client.ssh.timeouts import WATCHDOG
from clusterctl.errors import ClusterctlError
from clusterctl.plans.ssh import REMOTE_COMMAND, with_english_messages
from clusterctl.translation import tr

READ_SIZE = 64 << 10
WINDOW_TICK = 0.2  # seconds that `send` waits for room
STATUS_WAIT = 1.0  # seconds between the end of a stream and the exit status that follows it
CLOSE_LIMIT = 2.0
TRANSPORT_ERRORS = (OSError, EOFError, paramiko.SSHException)
SSH_FAILED = 255  # ssh's own failure, and what it makes of a command that a signal ended
STDERR_KEPT = 4096
DRAIN_LIMIT = 0.2  # seconds for the master to fetch what was sent last
END_LIMIT = 1.0
REFUSED_MESSAGES = ("session request failed", "Session open refused", "request failed on channel")


class WakeupPipe:
    """A descriptor that is readable while any of its channels has something; rung from another thread.

    paramiko has one of its own, but closes its two ends before it notes that they are closed. What arrives in that
    moment is rung on a closed descriptor, and the error ends the whole connection with every session on it; or on one
    that has been taken for something else meanwhile, and a stray byte goes there.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._lock = threading.Lock()
        self._set_events: set[str] = set()
        self._closed = False

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._reader

    def event(self, name: str) -> Any:
        """Return what paramiko takes for an event: it is set while there is something to read, or no more will come."""
        return SimpleNamespace(set=partial(self.set, name), clear=partial(self.clear, name))

    def set(self, name: str) -> None:
        """Ring, unless it rings."""
        with self._lock:
            if not self._closed and not self._set_events:
                os.write(self._writer, b"*")
            self._set_events.add(name)

    def clear(self, name: str) -> None:
        """Make the descriptor unreadable again if no other channel has something."""
        with self._lock:
            last = self._set_events == {name}
            self._set_events.discard(name)
            if last and not self._closed:
                os.read(self._reader, 1)

    def close(self) -> None:
        """Release both ends; ringing does nothing from here on."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._reader)
                os.close(self._writer)


def create_wakeup_pipe(owner: object) -> WakeupPipe:
    """Make a wakeup pipe that is closed with its owner at the latest."""
    pipe = WakeupPipe()
    weakref.finalize(owner, pipe.close)
    return pipe


class ParamikoChannel:
    """A channel of paramiko's."""

    def __init__(self, transport: paramiko.Transport, verb: str, limit: float) -> None:
        self._transport = transport
        self._sock = cast(SshSocket, transport.sock)
        self.node = self._sock.node
        with WATCHDOG.limit(limit, self._sock.abort) as alarm:
            try:
                self._channel = transport.open_session(timeout=limit + 1)
                self._channel.settimeout(WINDOW_TICK)
                self._channel.exec_command(REMOTE_COMMAND)
            except TRANSPORT_ERRORS as error:
                if alarm.expired:
                    raise errors.step_timed_out(
                        self.node, tr("channel for {verb}", verb=verb), limit
                    ) from error
                if transport.is_active():
                    raise errors.channel_refused(self.node, str(error)) from error
                raise self._connection_lost() from error
        self._wakeup = create_wakeup_pipe(self)
        buffers = {"stdout": self._channel.in_buffer, "stderr": self._channel.in_stderr_buffer}
        for name, buffer in buffers.items():
            buffer.set_event(self._wakeup.event(name))

    @property
    def at_eof(self) -> bool:
        """Return whether nothing more will come than what is here already."""
        return bool(self._channel.closed or self._channel.eof_received)

    @property
    def status(self) -> int:
        """Return the exit status, or NO_STATUS."""
        return self._channel.exit_status

    def fileno(self) -> int:
        """Return a descriptor that is readable when something arrived or the channel is over."""
        return self._wakeup.fileno()

    def read_stdout(self) -> bytes:
        """Take what is here of stdout."""
        return self._channel.recv(READ_SIZE) if self._channel.recv_ready() else b""

    def read_stderr(self) -> bytes:
        """Take what is here of stderr."""
        return self._channel.recv_stderr(READ_SIZE) if self._channel.recv_stderr_ready() else b""

    def send(self, data: bytes) -> int:
        """Send and return how many bytes went; 0 when the other side has closed."""
        try:
            return self._channel.send(data)
        except TimeoutError:
            raise
        except TRANSPORT_ERRORS:
            return 0

    def find_failure(self) -> ClusterctlError | None:
        """Distinguish a lost connection from a command that ended."""
        self._channel.status_event.wait(STATUS_WAIT)
        # When a process ends the server sends an end of its output; of a lost connection nothing is sent.
        return None if self._channel.eof_received else self._connection_lost()

    def abort(self) -> None:
        """End the connection; paramiko waits without a limit in places."""
        self._sock.abort()

    def close(self) -> None:
        """Close the channel."""
        with WATCHDOG.limit(CLOSE_LIMIT, self.abort), suppress(*TRANSPORT_ERRORS):
            self._channel.close()
        self._wakeup.close()

    def _connection_lost(self) -> ClusterctlError:
        return errors.connection_lost(
            self.node, "\n".join(filter(None, (self._disconnect_reason(), self._sock.describe_end())))
        )

    def _disconnect_reason(self) -> str:
        disconnect_message, error = (
            getattr(self._transport, "disconnect_message", ""),
            self._transport.saved_exception,
        )
        if disconnect_message:
            return tr("the server reported: {message}", message=disconnect_message)
        return f"{type(error).__name__}: {error}" if error is not None else ""


class OpensshChannel:
    """One command on a node, run by a client of a master; `alive` returns whether that master still is."""

    def __init__(self, node: str, argv: Sequence[str], alive: Callable[[], bool]) -> None:
        self.node = node
        self._check_master = alive
        # A session of its own: Ctrl-C at the terminal must not cut it.
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=with_english_messages(os.environ),
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
        # its own descriptor is readable when one of its files is
        self._selector = selectors.DefaultSelector()
        for stream in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(stream.fileno(), False)
        for stream in (self._stdout, self._stderr):
            self._selector.register(stream, selectors.EVENT_READ)
        self._eof = self._stderr_eof = False
        self._unread_stderr, self._stderr_tail = b"", b""
        self._send_lock = threading.Lock()

    @property
    def at_eof(self) -> bool:
        """Return whether stdout has ended."""
        return self._eof

    @property
    def status(self) -> int:
        """Return the exit status, or NO_STATUS."""
        status = self._process.returncode
        return errors.NO_STATUS if status is None or status < 0 or status == SSH_FAILED else status

    def fileno(self) -> int:
        """Return a descriptor that is readable when something arrived or stdout has ended."""
        return self._selector.fileno()

    def read_stdout(self) -> bytes:
        """Take what is here of stdout; its end is remembered, and keeps the descriptor readable."""
        if self._stdout.closed:
            return b""
        chunk = self._stdout.read(READ_SIZE)
        self._eof = self._eof or chunk == b""
        return chunk or b""

    def read_stderr(self) -> bytes:
        """Take what is here of stderr, ssh's own messages included."""
        if self._unread_stderr:
            chunk, self._unread_stderr = self._unread_stderr, b""
            return chunk
        return self._read_stderr()

    def _read_stderr(self) -> bytes:
        if self._stderr_eof or self._stderr.closed:
            return b""
        chunk = self._stderr.read(READ_SIZE)
        if chunk == b"":
            self._stderr_eof = True
            self._selector.unregister(self._stderr)
        self._stderr_tail = (self._stderr_tail + (chunk or b""))[-STDERR_KEPT:]
        return chunk or b""

    def send(self, data: bytes) -> int:
        """Send and return how many bytes went; 0 when the other side has closed."""
        if (sent := self._write(data)) is not None:
            return sent
        poller = select.poll()
        with suppress(OSError, ValueError):  # it is being closed
            poller.register(self._stdin, select.POLLOUT)
            if not self._eof:  # pipes are small: while waiting for room, read what arrives
                poller.register(self._selector.fileno(), select.POLLIN)
            poller.poll(WINDOW_TICK * 1000)
        if (sent := self._write(data)) is None:
            raise TimeoutError
        return sent

    def _write(self, data: bytes) -> int | None:
        """Write what there is room for; None when there is none."""
        with self._send_lock:
            try:
                return self._stdin.write(data)
            except (OSError, ValueError):
                return 0

    def find_failure(self) -> ClusterctlError | None:
        """Distinguish a client or master that died, and a refused session, from a command that ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STATUS_WAIT)
        with suppress(OSError, ValueError):
            while chunk := self._read_stderr():
                self._unread_stderr += chunk
        stderr, status = self._stderr_tail.decode("utf-8", "replace").strip(), self._process.returncode
        if status is not None and status < 0:
            return errors.connection_lost(
                self.node, stderr or tr("the ssh program was killed by signal {number}", number=-status)
            )
        if status != SSH_FAILED:
            return None
        if any(message in stderr for message in REFUSED_MESSAGES):
            return errors.channel_refused(self.node, stderr)
        return None if self._is_master_alive() else errors.connection_lost(self.node, stderr)

    def _is_master_alive(self) -> bool:
        """Check twice: a master that ends closes its sessions first, and then its socket."""
        if not self._check_master():
            return False
        time.sleep(0.1)
        return self._check_master()

    def abort(self) -> None:
        """End the client, and with it every wait in this channel."""
        self._process.terminate()

    def close(self) -> None:
        """End the client once the master has what was sent; the command sees the end of its stdin."""
        self._eof = True
        if self._process.poll() is None:
            self._await_drained()
            self.abort()
        with self._send_lock:
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


Channel = ParamikoChannel | OpensshChannel
