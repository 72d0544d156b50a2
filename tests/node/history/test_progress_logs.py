"""How far a run is: read from the end of a log and a few places of it, whatever its length."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clusterctl.node.history.progress import END, PIECE, PLACES, read_log


def write(path: Path, lines: list[str]) -> str:
    """Write a log."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("lines", "step", "total", "losses"),
    [
        (["step 9/500 loss=2.5", "step 10/500 loss=2.25"], 10, 500, [[2.5], [2.25]]),
        (["iteration 100/ 5000 | lm loss: 6.7E+00 |"], 100, 5000, [[6.7]]),
        (["step 7 loss=nan"], 7, None, [[None]]),
        (["step 3 loss=1.0", "step 4 val_loss=3.0 loss=0.5"], 4, None, [[1.0], [0.5]]),
    ],
)
def test_what_a_log_says(
    tmp_path: Path, lines: list[str], step: int | None, total: int | None, losses: list[list[float | None]]
) -> None:
    """The newest step, of how many, and the losses in their order; one that is not finite stays visible."""
    assert read_log(write(tmp_path / "a.log", lines), {}) == {"step": step, "total": total, "losses": losses}


def test_a_log_without_numbers_has_none(tmp_path: Path) -> None:
    """An empty one, too."""
    assert read_log(write(tmp_path / "a.log", ["loading", "ready"]), {}) is None
    assert read_log(write(tmp_path / "b.log", []), {}) is None


def test_a_long_log_costs_no_more_and_no_number_is_cut(tmp_path: Path) -> None:
    """Of places at even distances only whole lines count: what is read never ends within a number."""
    lines = [f"step {number}/40000 loss={1000 + number}.5" for number in range(1, 40_001)]
    found = read_log(write(tmp_path / "a.log", lines), {})
    assert found is not None and (found["step"], found["total"]) == (40_000, 40_000)
    assert len(found["losses"]) <= PLACES + 1
    values = [value for (value,) in found["losses"] if value is not None]
    assert values == sorted(values) and values[0] >= 1000 and values[-1] == 41_000  # five digits
    assert (tmp_path / "a.log").stat().st_size > PLACES * PIECE + END


def test_a_pattern_of_the_job_counts(tmp_path: Path) -> None:
    """It may name what no other trainer does."""
    log = write(tmp_path / "a.log", ["step 1 verlust 3.5"])
    found = read_log(log, {"loss": re.compile(r"verlust (\S+)")})
    assert found is not None and found["losses"] == [[3.5]]
