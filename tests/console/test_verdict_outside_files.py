"""Files outside the output directory, in a line that stays one."""

from __future__ import annotations

from clusterctl.console.run.verdict import render_outside, render_outside_note
from clusterctl.plans.sync.listed_files import OutsideFiles


def test_the_line_counts_names_and_shows_where() -> None:
    """With the command that downloads them, as long as there is any."""
    parts = {"gpu01": OutsideFiles(2, 13_200_000, ("0.ckpt", "1.ckpt"))}
    assert render_outside_note(parts, "r-1", "clusterctl -i lab.yaml") == [
        "note: 2 files outside ${output_dir}: 0.ckpt, 1.ckpt (13.2 MB) on gpu01",
        "    next: clusterctl -i lab.yaml pull 1 --all",
    ]
    assert render_outside_note({}, "r-1", "clusterctl") == []


def test_many_files_of_many_nodes_are_one_line() -> None:
    """The same names on all nodes are named once; a line break in a name makes no line."""
    one = OutsideFiles(9, 1000, ("a", "b\nc", "d", "e", "f"), more=True)
    parts = {"gpu01": one, "gpu02": one}
    assert render_outside(parts) == (
        "at least 18 files outside ${output_dir}: a, b\\nc, d, ... (2.0 kB) on gpu[01-02]"
    )
