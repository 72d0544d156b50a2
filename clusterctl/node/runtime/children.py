"""How a program is started as a child."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, List, Mapping, Optional, Sequence, Tuple, Union

from .processes import restore_signals, set_parent_death_signal

if TYPE_CHECKING:
    pass


def open_output(path: str) -> int:
    """Open a log to append to it."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)


def start_child(
    argv: List[str],
    env: Optional[Mapping[str, str]],
    outputs: Tuple[Union[int, str], Union[int, str]],
    *,
    stdin: Optional[int] = None,
    kept: Sequence[int] = (),
    directory: str = "",
    is_bound: bool = False,
) -> int:
    """Start a program in a session of its own, without a terminal; returns its pid.

    `env`: None for our own. `outputs`: stdout and stderr, each a descriptor or the path of a log; an error of the start
    is written to the latter. `kept`: descriptors that it inherits. `is_bound`: it gets SIGTERM when this process dies.
    """
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        streams = [os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin]
        streams += [open_output(output) if isinstance(output, str) else output for output in outputs]
        for target, source in enumerate(streams):
            os.dup2(source, target)
        restore_signals()
        if is_bound:
            set_parent_death_signal(signal.SIGTERM)
        for descriptor in kept:
            os.set_inheritable(descriptor, True)
        if directory:
            os.chdir(directory)
        if is_bound and os.getppid() != parent:
            os._exit(127)  # it died before its death could be announced
        if env is None:
            os.execvp(argv[0], argv)
        os.execvpe(argv[0], argv, dict(env or {}))
    except BaseException as error:  # noqa: BLE001, RUF100 - this is a forked child: nothing may return from here
        os.write(2, f"cannot start {argv[0]}: {error}\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(127)
