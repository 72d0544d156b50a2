"""The only process of a node, for jobs that start their workers themselves: `mp.spawn`, a shell script."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import List

from .launcher import restore_signals
from .verdict import split_status

ROUND = 0.02


class Program:
    """A program in a session of its own, its output in files, as torchrun starts a worker."""

    def __init__(self, argv: List[str], folder: str) -> None:
        os.makedirs(folder, 0o700, exist_ok=True)
        self.error_file = os.path.join(folder, "error.json")
        self._asked = False
        signal.signal(signal.SIGTERM, lambda *_: self.ask())
        self.pid = os.fork()
        if self.pid == 0:
            become(argv, folder)

    def ask(self) -> None:
        """Pass SIGTERM on to the whole session: a shell alone would die and leave what it waits for."""
        self._asked = True
        try:
            os.killpg(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def wait(self) -> int:
        """Wait for the end; returns it as `Popen.returncode`."""
        code, number = split_status(os.waitpid(self.pid, 0)[1])
        return -number if number is not None else code or 0

    def see_off(self) -> None:
        """After SIGTERM give the others of the session their time too; the agent ends them at the end of grace."""
        while self._asked and lives(self.pid):
            time.sleep(ROUND)


def lives(group: int) -> bool:
    """Whether a process group has a member left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def become(argv: List[str], folder: str) -> None:
    """Take the files as output and exec; a failing exec is told in the program's own stderr."""
    try:
        os.setsid()
        for descriptor, name in ((1, "stdout.log"), (2, "stderr.log")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            os.dup2(os.open(os.path.join(folder, name), flags, 0o600), descriptor)
        restore_signals()
        os.execvp(argv[0], argv)
    except BaseException as error:  # noqa: BLE001, RUF100 - this is a forked child: nothing may return from here
        os.write(2, f"cannot start {argv[0]}: {error}\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(127)
