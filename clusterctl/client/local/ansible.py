"""Have Ansible list the hosts of its own inventory: `ansible-inventory --list`, with limits.

Ansible runs code for an inventory: plug-ins, and scripts where the file can be executed. So a file that another account
can write is refused, and so is a script; the user can run Ansible on both and pass on what it lists.
"""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from clusterctl.client.local.private_files import NotOursError, check_not_planted
from clusterctl.client.local.programs import ProgramLimits, run_program
from clusterctl.errors import UsageError
from clusterctl.plans.ssh import with_english_messages
from clusterctl.specs.importers.ansible import MAX_LISTING
from clusterctl.specs.text import command_line

PROGRAM = "ansible-inventory"
LIMITS = ProgramLimits(120.0, MAX_LISTING)  # a plug-in may ask the servers of a cloud
CONFIGURATION = Path("ansible.cfg")  # of the current directory, which Ansible reads too
# A file that cannot be read is an error and not an empty inventory; the variables of groups are those of their hosts.
SETTINGS = {
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
    "ANSIBLE_INVENTORY_EXPORT": "0",
    "ANSIBLE_NOCOLOR": "1",
}
MAX_EVIDENCE = 2000  # characters of what Ansible reports


def list_ansible_inventory(file: Path) -> str:
    """Return what Ansible lists of an inventory, as JSON; raises UsageError."""
    command = [PROGRAM, "-i", str(file.absolute()), "--list"]
    shown = command_line(PROGRAM, "-i", str(file), "--list")
    _refuse_unsafe(file, shown)
    try:
        status, stdout, stderr = run_program(
            command, LIMITS, {**with_english_messages(os.environ), **SETTINGS}
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
