"""The ground on which clients are attacked: one cluster for all tests of this folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ground import Ground
from noderun import leave_payload_in_lab

from clusterctl.errors import LabError
from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up


@pytest.fixture(scope="session")
def ground() -> Iterator[Ground]:
    """Three nodes behind SSH servers of our own, on which three jobs have run; leave it as you found it."""
    with laid("inproc") as ground:
        yield ground


@pytest.fixture(scope="session")
def real_ground() -> Iterator[Ground]:
    """The same behind OpenSSH's sshd, in namespaces; skipped, with a reason, where these cannot be had."""
    with laid("netns") as ground:
        yield ground


@contextmanager
def laid(backend: str) -> Iterator[Ground]:
    """Build a lab, and run the jobs on it."""
    folder = Path(tempfile.mkdtemp(prefix="ch-"))
    try:
        lab = up(folder / "lab", LabOptions(name="hostile", count=3, bound=True, backend=backend))
        leave_payload_in_lab(lab)
        ground = Ground(lab, folder)
        ground.prepare()
        yield ground
    except LabError as error:
        if error.code not in ("CC-LAB-001", "CC-LAB-002") or os.environ.get("CLUSTERCTL_REQUIRE_LAB"):
            raise
        pytest.skip(f"{error.message} ({error.fix})")
    finally:
        labs.down(folder / "lab")
        shutil.rmtree(folder, ignore_errors=True)
