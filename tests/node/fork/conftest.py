"""Gates of the tests of forked workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gates import Gate, Start


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Start]:
    """Start gates on this machine; whatever they leave is ended after the test."""
    gates: list[Gate] = []
    code = tmp_path / "code"
    code.mkdir()

    def start(method: str, **options: Any) -> Gate:
        gates.append(Gate(tmp_path / f"{method}-{len(gates)}", code, method, **options))
        return gates[-1]

    yield start
    for found in gates:
        found.kill()
