"""Numbers with nouns."""

from __future__ import annotations

import pytest

from clusterctl.specs.text import plural


@pytest.mark.parametrize(("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_counted(number: int, text: str) -> None:
    """Only one is one."""
    assert plural(number, "node") == text
