"""The ground on which clients are attacked: one cluster for all tests of this folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ground import Ground

from clusterctl.lab import labs
from clusterctl.lab.building import up


@pytest.fixture(scope="session")
def ground() -> Iterator[Ground]:
    """Three nodes on which two jobs have run; leave it as you found it."""
    folder = Path(tempfile.mkdtemp(prefix="ch-"))
    try:
        lab = up(folder / "lab", name="hostile", count=3, bound=True, backend="inproc")
        ground = Ground(lab, folder)
        ground.prepare()
        yield ground
    finally:
        labs.down(folder / "lab")
        shutil.rmtree(folder, ignore_errors=True)
