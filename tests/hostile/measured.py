"""Run a command and write what it used: measured.py FILE MAX_BYTES COMMAND...

A process of its own, small and without threads: the kernel counts the largest memory of a child from its fork on,
which from a large test process would be that process's.
"""

import json
import os
import resource
import signal
import sys


def main() -> None:
    """Run the command with a limit on its address space; it ends as the command does."""
    file, most, *command = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the command
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_AS, (int(most), int(most)))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.execvp(command[0], command)
    _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    with open(file, "w", encoding="ascii") as sink:  # noqa: PTH123 - pathlib would be most of this process
        json.dump({"code": code, "kib": used.ru_maxrss, "cpu": used.ru_utime + used.ru_stime}, sink)
    sys.exit(code if code >= 0 else 128 - code)


main()
