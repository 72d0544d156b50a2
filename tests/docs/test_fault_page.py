"""Every row of the page on faults is shown by tests that exist, and was measured where it has a limit."""

from __future__ import annotations

import json
import sys

import pytest
from pages import ROOT

sys.path.insert(0, str(ROOT / "tests" / "lab"))

from fault_table import CHECKPOINT_FAULTS, FAULTS, CheckpointFault, Fault


@pytest.mark.parametrize("fault", (*FAULTS, *CHECKPOINT_FAULTS), ids=lambda fault: fault.breaks)
def test_a_row_names_tests_that_exist(fault: Fault | CheckpointFault) -> None:
    """A test that is renamed takes its row with it."""
    for test in fault.tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_what_has_a_limit_was_measured() -> None:
    """A new row asks for a run of the bench."""
    found = json.loads((ROOT / "tools" / "docs" / "measured" / "faults.json").read_text(encoding="utf-8"))

    assert {fault.name for fault in FAULTS if fault.within is not None} <= set(found["seconds"])
