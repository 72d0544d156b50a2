"""Lets a rank wait at `breakpoint()` for `clusterctl debug`: pdb reads and writes over a socket in the run's directory.

This file is also written into a run's directory, beside `rank.py`, and loaded there at the first breakpoint: so it
imports nothing of ours. The socket is in a directory that only this account can enter, has mode 0600, and takes
connections of this account only. A connection that ends does not end the rank: it waits for the next one.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

MODULE = "clusterctl_breakpoint"  # the name of this file in the run's directory
MAX_KEPT = 16 << 10  # characters of pdb's output that are kept for who connects


def socket_name(rank: int) -> str:
    """Name the socket of a rank that waits."""
    return "rank-%d.pdb" % rank


class Terminal:
    """What pdb takes for its terminal; listens while the rank is at a breakpoint."""

    encoding = "utf-8"

    def __init__(self, folder: str, rank: int) -> None:
        self._folder, self._rank = folder, rank
        self._listener: Any = None
        self._connection: Any = None
        self._file: Any = None
        self._kept = ""

    def open(self, where: str) -> None:
        """Listen, and say on stderr, which is the rank's log, that it waits."""
        if self._listener is None:
            self._listener = self._listen()
        words = (self._rank, where, os.environ.get("CLUSTERCTL_RUN_ID", "RUN"), self._rank)
        sys.stderr.write("clusterctl: rank %d waits at %s: clusterctl debug %s --rank %d\n" % words)
        sys.stderr.flush()

    def close(self) -> None:
        """The rank goes on; the name goes first, since who sees the connection end looks whether it is there."""
        self._unlink()
        for thing in (self._file, self._connection, self._listener):
            if thing is not None:
                thing.close()
        self._listener = self._connection = self._file = None
        self._kept = ""

    def readline(self) -> str:
        """Return the next line that is typed; wait for a connection if there is none."""
        while True:
            if self._file is None:
                self._accept()
            try:
                line = self._file.readline()
            except OSError:
                line = ""
            if line.endswith("\n"):
                return str(line)
            self._file.close()
            self._connection.close()
            self._file = self._connection = None

    def write(self, text: str) -> None:
        """Write to who is connected, and keep the end of it for who comes."""
        self._kept = (self._kept + text)[-MAX_KEPT:]
        if self._connection is not None:
            try:
                self._connection.sendall(text.encode("utf-8", "replace"))
            except OSError:
                return

    def flush(self) -> None:
        """Nothing is held back."""

    def _listen(self) -> Any:
        self._unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        before = os.umask(0o177)
        try:
            # a path of the run's directory may be longer than a socket's address can be
            listener.bind("/proc/self/fd/%d/%s" % (directory, socket_name(self._rank)))
        finally:
            os.umask(before)
            os.close(directory)
        listener.listen(1)
        return listener

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("3i", credentials)[1] == os.geteuid():
                break
            connection.close()
        self._connection = connection
        self._file = connection.makefile("r", encoding="utf-8", errors="replace", newline="\n")
        kept, self._kept = self._kept, ""
        self.write(kept)

    def _unlink(self) -> None:
        try:
            os.unlink(os.path.join(self._folder, socket_name(self._rank)))
        except OSError:
            return


def make_debugger(terminal: Terminal, rank: int) -> Any:
    """Make the debugger of a rank, at its first breakpoint."""
    import pdb

    class Debugger(pdb.Pdb):
        """Pdb that lets go of the terminal when the rank goes on."""

        def set_continue(self) -> None:
            """Go on; without further breakpoints no one has to type again."""
            super().set_continue()
            if not self.breaks:
                terminal.close()

        def set_quit(self) -> None:
            """End the rank."""
            super().set_quit()
            terminal.close()

    files: Any = terminal
    debugger = Debugger(stdin=files, stdout=files, nosigint=True)
    debugger.prompt = "(rank %d) " % rank
    return debugger


def install(folder: str, rank: int) -> None:
    """Make `breakpoint()` of this process wait for `clusterctl debug`."""
    terminal = Terminal(folder, rank)
    debuggers: list[Any] = []

    def hook(*_: object, **__: object) -> None:
        frame: FrameType = sys._getframe(1)
        terminal.open("%s:%d" % (frame.f_code.co_filename, frame.f_lineno))
        if not debuggers:
            debuggers.append(make_debugger(terminal, rank))
        debuggers[0].set_trace(frame)

    sys.breakpointhook = hook


if __name__ == MODULE:
    install(*globals()["ARGUMENTS"])  # type: ignore[record-key]  # given by the rank that executes this file
