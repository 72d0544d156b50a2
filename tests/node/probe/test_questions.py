"""Questions asked side by side: each fails, or hangs, alone."""

from __future__ import annotations

import threading
from pathlib import Path

from waiting import HANG

from clusterctl.node.probe.questions import answer_all, list_folder, problem_of, read_int, read_text


def test_hanging_question_costs_its_own_answer() -> None:
    """One question waits for ever; the others are answered."""
    never = threading.Event()
    answers = answer_all({"hangs": never.wait, "works": lambda: 7, "slower": lambda: 8}, {"hangs": 0.1}, HANG)
    never.set()
    assert answers == {"hangs": {"problem": "no answer within 0.1 s"}, "works": 7, "slower": 8}


def test_failing_question_costs_its_own_answer() -> None:
    """An exception becomes that question's problem."""
    answers = answer_all({"fails": lambda: 1 / 0, "works": dict}, {}, HANG)
    assert answers == {"fails": {"problem": "ZeroDivisionError: division by zero"}, "works": {}}


def test_problem_is_one_short_line() -> None:
    """However long and broken the message, the problem is one line."""
    problem = problem_of(OSError("a\nb " * 1000))["problem"]
    assert problem.startswith("OSError: a b") and len(problem) <= 500 and "\n" not in problem


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """What is not there, or is no number, reads as None."""
    (tmp_path / "word").write_text("many\n")
    assert read_text(str(tmp_path / "gone")) is None and read_text(str(tmp_path)) is None
    assert read_text(str(tmp_path / "word")) == "many"
    assert read_int(str(tmp_path / "word")) is None and read_int(str(tmp_path / "gone")) is None
    assert list_folder(str(tmp_path / "gone")) == []
    assert list_folder(str(tmp_path), "w*") == [str(tmp_path / "word")]
