"""Run a program on this machine and read what it writes, with limits on time and size.

Ansible runs code for an inventory: plug-ins, and scripts where the file can be executed. So a file that another account
can write is refused, and so is a script; the user can run Ansible on both and pass on what it lists.
"""

from __future__ import annotations

import os
import selectors
import signal
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clusterctl.client.local.private_files import NotOursError, check_not_planted
from clusterctl.errors import UsageError
from clusterctl.plans.ssh import with_english_messages
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

PROGRAM = "ansible-inventory"
LISTING_LIMIT = 120.0  # seconds; a plug-in may ask the servers of a cloud
CONFIGURATION = Path("ansible.cfg")  # of the current directory, which Ansible reads too
# A file that cannot be read is an error and not an empty inventory; the variables of groups are those of their hosts.
SETTINGS = {
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
    "ANSIBLE_INVENTORY_EXPORT": "0",
    "ANSIBLE_NOCOLOR": "1",
}
MAX_EVIDENCE = 2000  # characters of what Ansible reports


@dataclass(frozen=True)
class ProgramLimits:
    """How long a program may run, in seconds, and how many bytes it may write."""

    seconds: float
    size: int


def run_program(
    command: Sequence[str], limits: ProgramLimits, environment: Mapping[str, str]
) -> tuple[int, bytes, bytes]:
    """Run a program in a session of its own and return its exit code and both outputs.

    What it started ends with it. Raises OSError and subprocess.TimeoutExpired.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = _read_outputs(process, limits)
            process.wait(limits.seconds)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, stdout, stderr


def _read_outputs(process: subprocess.Popen[bytes], limits: ProgramLimits) -> tuple[bytes, bytes]:
    """Read both outputs to their end, as long and as much as the limits allow."""
    pipes = [pipe.fileno() for pipe in (process.stdout, process.stderr) if pipe is not None]
    outputs: dict[int, bytearray] = {pipe: bytearray() for pipe in pipes}
    deadline = time.monotonic() + limits.seconds
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, limits.seconds)
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                outputs[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
            if sum(map(len, outputs.values())) > limits.size:
                raise OSError(tr("it wrote more than {limit} MiB", limit=limits.size >> 20))
    return bytes(outputs[pipes[0]]), bytes(outputs[pipes[1]])


def list_ansible_inventory(file: Path) -> str:
    """Return what Ansible lists of an inventory, as JSON; raises UsageError."""
    from clusterctl.specs.importers.ansible import MAX_LISTING

    command = [PROGRAM, "-i", str(file.absolute()), "--list"]
    shown = command_line(PROGRAM, "-i", str(file), "--list")
    _refuse_unsafe(file, shown)
    try:
        status, stdout, stderr = run_program(
            command,
            ProgramLimits(LISTING_LIMIT, MAX_LISTING),
            {**with_english_messages(os.environ), **SETTINGS},
        )
    except FileNotFoundError as error:
        raise UsageError("CC-SPEC-053", "missing", file=file) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError("CC-SPEC-053", "failed", file=file, command=shown, evidence=str(error)) from error
    if status != 0:
        evidence = stderr.decode("utf-8", "replace")[-MAX_EVIDENCE:].strip()
        raise UsageError("CC-SPEC-053", "failed", file=file, command=shown, evidence=evidence)
    return stdout.decode("utf-8", "replace")


def _refuse_unsafe(file: Path, shown: str) -> None:
    """Raise UsageError for a script, and for a file that another account can write, also Ansible's configuration."""
    try:
        for path in (file, CONFIGURATION):
            check_not_planted(path.absolute())
        if file.stat().st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
            raise UsageError("CC-SPEC-053", "executable", file=file, command=shown)
    except NotOursError as error:
        raise UsageError(
            "CC-SPEC-053", "planted", file=file, path=error.filename, reason=error.strerror, command=shown
        ) from error
