"""A test that finds nothing left on the nodes of a lab has looked for everything."""

from __future__ import annotations

from typing import Any

import driving
import pytest

pytestmark = pytest.mark.unit

PAYLOAD = "python -I -S /w/bin/ab12/payload-cpython-311-ab12.zip"
GUARDIAN = f"{PAYLOAD} guardian /w/runs/r/0-gpu01 5"
NO_LAB: Any = None  # the processes are made up
GATE = f"{PAYLOAD} gate 11 14 torch.distributed.run"


@pytest.mark.parametrize(
    ("looks", "left"),
    [
        ([[GUARDIAN, GUARDIAN], [GUARDIAN], []], []),
        ([[GATE], []], [GATE]),
        ([[GUARDIAN, "python train.py"], []], [GUARDIAN, "python train.py"]),
        ([[GUARDIAN], [GUARDIAN, "sleep 99"], []], [GUARDIAN, "sleep 99"]),
    ],
    ids=["guardian", "torchrun", "worker", "late"],
)
def test_only_a_guardian_may_still_be_exiting(
    monkeypatch: pytest.MonkeyPatch, looks: list[list[str]], left: list[str]
) -> None:
    """Torchrun runs from the payload too, and must be gone when the end is reported, as workers must."""
    seen = iter(looks)
    monkeypatch.setattr(driving, "running_processes", lambda _: {"n": now} if (now := next(seen)) else {})
    assert driving.leftovers(NO_LAB) == ({"n": left} if left else {})


def test_a_guardian_that_stays_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for, but not for ever."""
    monkeypatch.setattr(driving, "HANG", 0.2)
    monkeypatch.setattr(driving, "running_processes", lambda _: {"n": [GUARDIAN]})
    assert driving.leftovers(NO_LAB) == {"n": [GUARDIAN]}
