"""A hostile holder of a lock: any account of the machine may bind the name, and answer visitors what it likes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket

NOBODY = 65534


class Holder:
    """A process that holds a lock's name; as another account if it is to, which needs root."""

    def __init__(self, name: str, answer: bytes, uid: int | None = None) -> None:
        ready, told = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            with contextlib.suppress(BaseException):
                _serve(name, answer, uid, told)
            os._exit(0)
        os.close(told)
        assert os.read(ready, 1) == b".", "it could not take the lock"
        os.close(ready)

    @property
    def pid(self) -> int:
        """The process, as the kernel sends it."""
        return self._pid

    def end(self) -> None:
        """Kill it."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _serve(name: str, answer: bytes, uid: int | None, told: int) -> None:
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("\0" + name)
        door.listen(16)
        os.write(told, b".")
        while True:
            visitor = door.accept()[0]
            with contextlib.suppress(OSError), visitor:
                visitor.sendall(answer)
