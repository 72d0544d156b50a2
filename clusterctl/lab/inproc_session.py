"""A session on a node without namespaces: a command, its streams, and what befalls it when the client goes."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import paramiko

    from clusterctl.lab.inproc_children import Child, Children

_CHUNK = 1 << 15
_ANSWER_SECONDS = 1.0  # some clients do not ask whether their command began
_LOOK = 0.2  # seconds between looks whether the client is still there
_HANGUP_SECONDS = 1.0  # between the polite signal and the hard one
# A session leader without a terminal gets the first one that it opens.
_ON_TERMINAL = 'exec <>"$1" >&0 2>&0; shift; exec "$@"'


class Terminal:
    """A pseudo-terminal, once it is open; sizes are in characters."""

    def __init__(self, kind: str, width: int, height: int) -> None:
        self.kind = kind
        self.size = (height, width)
        self.master: int | None = None

    def open(self) -> tuple[int, int]:
        """Both ends: ours, the process's."""
        self.master, slave = os.openpty()
        self.resize(self.size[1], self.size[0])
        return self.master, slave

    def resize(self, width: int, height: int) -> None:
        """Give it another size."""
        self.size = (height, width)
        if self.master is not None:
            with suppress(OSError):
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


class Session:
    """A command on a channel."""

    def __init__(
        self,
        channel: paramiko.Channel,
        children: Children,
        argv: Sequence[str],
        cwd: str,
        env: dict[str, str],
        terminal: Terminal | None,
    ) -> None:
        self.channel = channel
        self.children = children
        self.argv = list(argv)
        self.cwd = cwd
        self.env = env
        self.terminal = terminal

    def start(self, answered: threading.Event) -> bool:
        """Start the command, and serve it once the client has its answer; False if it cannot be started."""
        try:
            child, stdin, outputs = self._on_terminal() if self.terminal else self._on_pipes()
        except OSError:
            return False
        self._thread(self._serve, answered, child, stdin, outputs)
        return True

    def _serve(
        self,
        answered: threading.Event,
        child: Child,
        stdin: int,
        outputs: list[tuple[int, Callable[[bytes], object]]],
    ) -> None:
        answered.wait(_ANSWER_SECONDS)
        pumps = [self._thread(self._copy_out, number, send) for number, send in outputs]
        self._thread(self._copy_in, stdin)
        self._attend(child, pumps)

    def _on_pipes(self) -> tuple[Child, int, list[tuple[int, Callable[[bytes], object]]]]:
        inner, ours = [], []
        try:
            for kind in range(3):
                readable, writable = os.pipe()
                inner.append(readable if kind == 0 else writable)
                ours.append(writable if kind == 0 else readable)
            child = self.children.start(self.argv, self.cwd, self.env, (inner[0], inner[1], inner[2]))
        except OSError:
            for number in ours:
                os.close(number)
            raise
        finally:
            for number in inner:
                os.close(number)
        return child, ours[0], [(ours[1], self.channel.sendall), (ours[2], self.channel.sendall_stderr)]

    def _on_terminal(self) -> tuple[Child, int, list[tuple[int, Callable[[bytes], object]]]]:
        assert self.terminal is not None
        master, slave = self.terminal.open()
        name = os.ttyname(slave)
        words = ["/bin/sh", "-c", _ON_TERMINAL, "sh", name, *self.argv]
        env = {**self.env, "TERM": self.terminal.kind, "SSH_TTY": name}
        try:
            child = self.children.start(words, self.cwd, env, (slave, slave, slave))
        except OSError:
            os.close(master)
            raise
        finally:
            os.close(slave)
        return child, os.dup(master), [(master, self.channel.sendall)]

    def _thread(self, task: Callable[..., None], *args: object) -> threading.Thread:
        thread = threading.Thread(target=task, args=args, daemon=True)
        thread.start()
        return thread

    def _copy_in(self, stdin: int) -> None:
        with suppress(OSError):
            while data := self.channel.recv(_CHUNK):
                while data:
                    data = data[os.write(stdin, data) :]
        os.close(stdin)

    def _copy_out(self, number: int, send: Callable[[bytes], object]) -> None:
        """Until the last process that holds the stream has closed it, or the client has gone."""
        with suppress(OSError):  # a terminal ends by an error
            while data := os.read(number, _CHUNK):
                send(data)
        os.close(number)

    def _attend(self, child: Child, pumps: list[threading.Thread]) -> None:
        """Tell the client how the command ended, or the command that the client is gone."""
        while not child.ended.wait(_LOOK):
            if self.channel.closed:
                self.children.signal(child, signal.SIGHUP)
                if not child.ended.wait(_HANGUP_SECONDS):
                    self.children.signal(child, signal.SIGKILL)
                return
        with suppress(OSError):
            self.channel.send_exit_status(child.status or 0)
        for pump in pumps:
            while (
                pump.is_alive() and not self.channel.closed
            ):  # a process in the background may hold a stream
                pump.join(_LOOK)
        self.channel.close()
