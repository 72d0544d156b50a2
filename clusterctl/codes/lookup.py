"""The table of codes and its families; it is loaded when the first code is looked up, since most commands need none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterctl.codes.entry import Case, Entry, Same
from clusterctl.translation import translate

REPORTED = "reported"  # the case of an error whose message comes from a node, which may send any code
_AS_REPORTED = Case(Same("{message}"))
_UNKNOWN = Entry("error", "")


# in the order in which they are listed
FAMILIES: Mapping[str, str] = {
    "SSH": "Connecting to a node",
    "PY": Same("Python"),
    "TORCH": Same("torch"),
    "GPU": "GPUs",
    "NET": "The training network",
    "DEEP": "Collectives",
    "DISK": "Disks",
    "SYS": "The system",
    "TIME": "Clocks",
    "CODE": "The job's code",
    "SPEC": "Inventory and job files",
    "USE": "The command line",
    "KEYS": "Installing keys",
    "SYNC": "Sending the code",
    "SETUP": "Creating environments",
    "RUN": "Starting and following a run",
    "JOB": "How a rank ended",
    "HANG": "A run that hangs",
    "END": "After a run has ended",
    "PULL": "Downloading results",
    "COPY": "Copying files",
    "STAGE": "Copying models and data to nodes",
    "CKPT": "Checkpoints on several nodes",
    "CLEAN": "Cleaning up",
    "SLURM": "Slurm clusters",
    "LAB": "The lab",
    "BUG": "Bugs",
}


@cache
def entries() -> Mapping[str, Entry]:
    """Return every entry by its code."""
    from clusterctl.codes import (
        checkpoints,
        gpu,
        network,
        python,
        ranks,
        runs,
        specs,
        ssh,
        staging,
        system,
        usage,
    )

    tables = (ssh, python, gpu, network, system, specs, usage, runs, staging, checkpoints, ranks)
    return {code: entry for table in tables for code, entry in table.ENTRIES.items()}


def find_entry(code: str) -> Entry:
    """Return the entry of a code; one without texts for a code that this version does not know."""
    return entries().get(code, _UNKNOWN)


def word(code: str, case: str, facts: Mapping[str, object]) -> tuple[str, str]:
    """Return message and fix of one case of a code, in the language in use."""
    cases = find_entry(code).cases
    message, fix = cases.get(case, _AS_REPORTED) if case == REPORTED else cases[case]
    return translate(message, facts), translate(fix, facts)


def family_of(code: str) -> str:
    """Return the middle of a code."""
    return code.split("-")[1]
