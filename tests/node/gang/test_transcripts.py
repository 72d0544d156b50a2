"""Recorded gangs: the same inputs at the same moments give the same messages, records and orders, byte for byte.

After an intended change run `python tests/support/gang_transcript.py tests/node/gang/cases/*.txt`, and read the
difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from gang_transcript import cases, play_case, read_case

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("path", list(cases()), ids=lambda path: path.stem)
def test_a_recorded_gang_does_the_same_again(path: Path) -> None:
    """All that comes out of the agents' gangs is as it was recorded."""
    text = path.read_text()
    assert play_case(text).splitlines() == read_case(text)[2].splitlines()
