"""Fixtures of the payload's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from noderun import NodeRun, made


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Callable[..., NodeRun]]:
    """Make runs on this machine; whatever they leave is ended after the test."""
    yield from made(tmp_path)
