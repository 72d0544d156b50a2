"""What `attach` shows of the lines from before it came."""

from __future__ import annotations

import pytest

from clusterctl.cli.actions.attach import RecentLogs
from clusterctl.client.watch.follower import LogLines


class Heard:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []

    def show(self, entry: LogLines) -> None:
        """Remember each line with its offset."""
        self.lines += zip(entry.offsets, entry.lines, strict=True)


@pytest.mark.parametrize(
    ("before", "shown", "first"),
    [(0, 2, 0), (12, 2, 2), (10, 2, 1), (16, 2, 3), (16, 0, 4), (20, 0, 5), (24, 0, None), (99, 2, 4)],
)
def test_old_lines_are_cut_to_their_end_and_new_ones_are_all_shown(
    before: int, shown: int, first: int | None
) -> None:
    """Six lines of four bytes from offset 0: those that begin below `before` are old."""
    heard = Heard()
    lines = tuple(f"l{number}x" for number in range(6))
    entry = LogLines("gpu01", 0, "stdout", "f", 0, None, lines, (4,) * 6, initial_size=before)

    RecentLogs(heard, shown).show(entry)

    assert heard.lines == [] if first is None else [(4 * number, f"l{number}x") for number in range(first, 6)]
