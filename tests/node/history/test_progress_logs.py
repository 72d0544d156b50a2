"""How far a run is: read from the end of a log and a few places of it, whatever its length."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clusterctl.node.history.progress import END, PIECE, PLACES, read_log
from clusterctl.node.history.scalars import MAX_LINE, LogScalars
from clusterctl.plans.runs.progress import Progress, parse_progress
from clusterctl.protocol.untrusted import parse_object


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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step 5/99999999999999999999 loss: 1", Progress(5, None, (1.0,))),
        ("step 5 epoch 2/99999999999999999999 loss: 1", Progress(5, None, (1.0,))),
        ("step 5 loss: 1.79769e308", Progress(5, None, (None,))),
        ("step 5 loss: -1e31", Progress(5, None, (None,))),
        ("step 5 loss: 1 1e-322ms/step", Progress(5, None, (1.0,))),
    ],
)
def test_no_printed_number_makes_a_node_unreadable(tmp_path: Path, line: str, expected: Progress) -> None:
    """What a log says passes the client's parser, in both verbs."""
    log = write(tmp_path / "a.log", [line])
    assert parse_progress(parse_object(json.dumps(read_log(log, {})).encode())) == expected
    scalars = LogScalars({})
    scalars.read(log)
    assert scalars.progress is not None
    assert parse_object(json.dumps(scalars.progress).encode()).integer("step") == 5


@pytest.mark.parametrize(
    ("lines", "losses"),
    [
        (["train_loss: 2.31 aux_loss: 0.01"], [[2.31]]),
        (["loss: 2.31", "loss: 2.2", "eval_loss: 9.5"], [[2.31], [2.2]]),
        (["train_loss: 0.47", "loss: 2.2", "aux_loss: 3"], [[2.2]]),
        (["lm loss: 6.5", "aux_loss: 0.01"], [[6.5]]),
        (["value_loss: 6.5 validation_loss: 1"], [[6.5]]),
        (["\u8bad\u7ec3\u635f\u5931: 2.5"], [[2.5]]),
        (["step 1 loss: 2.5", "validation: loss 9"], [[2.5]]),
    ],
)
def test_one_loss_of_the_training_is_shown(
    tmp_path: Path, lines: list[str], losses: list[list[float | None]]
) -> None:
    """Its name is chosen for the whole log, in the order of a report; an evaluation is none."""
    found = read_log(write(tmp_path / "a.log", lines), {})
    assert found is not None and found["losses"] == losses
    assert read_log(write(tmp_path / "b.log", ["eval_loss: 9.5"]), {}) is None


def test_the_loss_is_the_same_in_all_places_of_a_long_log(tmp_path: Path) -> None:
    """A place where only another one is printed adds nothing."""
    lines = [f"step {number} loss: 2.5" for number in range(2000)]
    lines[1000:1000] = [f"step 1000 aux_loss: 0.{number}" for number in range(1000)]
    found = read_log(write(tmp_path / "a.log", lines), {})
    assert found is not None and {value for (value,) in found["losses"]} == {2.5}
    assert len(found["losses"]) < PLACES


def test_a_number_that_is_cut_counts_nowhere(tmp_path: Path) -> None:
    """Neither at the end of what is read of a long line, nor in one that is still being written."""
    path = tmp_path / "a.log"
    for cut in range(998, 1003):
        before = "step 7 " + "x" * (cut - 14)
        found = read_log(write(path, [f"{before} loss: 2.3456"]), {})
        assert found is not None and found["losses"] == [[2.3456]]
        own = read_log(write(path, [f"{before} verlust 2.3456"]), {"loss": re.compile(r"verlust (\S+)")})
        assert own is None or own["losses"] == []
    assert read_log(write(path, [f"{'x' * MAX_LINE} loss: 2.3456"]), {}) is None
    path.write_text("step 7 loss: 2.5\nstep 8 loss: 1")
    assert read_log(str(path), {}) == {"step": 7, "total": None, "losses": [[2.5]]}
