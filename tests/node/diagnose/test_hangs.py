"""The table of hangs: real ranks with Gloo that hang in each way, and what is answered about them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import hangs
import pytest
from hangs import CASES, Hang
from prepared_ranks import ask_ranks
from waiting import wait_until

from clusterctl.node.runtime.processes import Identity, identify
from clusterctl.plans.diagnose.evidence import compare_stacks
from clusterctl.plans.diagnose.hang import Judgement, judge

LEAST_WAIT = 1.0  # seconds: these ranks do nothing else
BATCH = 12  # cases at once
COMMON = [name for name, case in CASES.items() if case.common]
OTHERS = [name for name, case in CASES.items() if not case.common]


@contextmanager
def hanging(folder: Path, names: list[str]) -> Iterator[dict[str, dict[int, Identity]]]:
    """Start the ranks of some cases; all end with the test, and what they have started."""
    argv = [sys.executable, hangs.__file__, str(folder), *names]
    package = Path(__file__).parents[3]
    env = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    starter = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    found: dict[str, dict[int, Identity]] = {name: {} for name in names}
    try:
        assert starter.stdout is not None
        for line in starter.stdout:
            if line == "started\n":
                break
            name, rank, pid = line.split()
            found[name][int(rank)] = identify(int(pid))
        yield found
    finally:
        os.killpg(starter.pid, signal.SIGKILL)
        starter.wait()
        for stream in filter(None, (starter.stdin, starter.stdout)):
            stream.close()


def ask(folder: Path, processes: dict[int, Identity]) -> Judgement:
    """Look twice where once is not enough, as `clusterctl diagnose` does."""
    first = ask_ranks(folder, processes).ranks
    judgement = judge(first, world=len(processes), least_wait=LEAST_WAIT)
    if not judgement.is_thin:
        return judgement
    second = compare_stacks(ask_ranks(folder, processes).ranks, first)
    return judge(second, world=len(processes), least_wait=LEAST_WAIT)


def is_right(case: Hang, answer: Judgement) -> bool:
    """Return whether an answer names the cause, the ranks and the line."""
    named = (answer.code, answer.suspects) == (case.code, case.suspects)
    return named and all(words in answer.sentence for words in case.says)


def find_wrong(folder: Path, names: list[str]) -> dict[str, str]:
    """Return the last answers of the cases that are never answered as they must be."""
    answers: dict[str, str] = {}

    def are_all_right() -> bool:
        for name in [name for name in names if answers.get(name) != ""]:
            answer = ask(folder / name, found[name])
            right = is_right(CASES[name], answer)
            answers[name] = "" if right else f"{answer.sentence} ({answer.code}) {answer.suspects}"
        return not any(answers.values())

    with hanging(folder, names) as found, suppress(AssertionError):
        wait_until(are_all_right, "all answers")
    return {name: answer for name, answer in answers.items() if answer}


def test_common_hangs_are_named(tmp_path: Path) -> None:
    """Which rank, which collective and which line, or which circle; and runs that do not hang."""
    assert find_wrong(tmp_path, COMMON) == {}


@pytest.mark.variant
@pytest.mark.parametrize("start", range(0, len(OTHERS), BATCH))
def test_other_hangs_are_named(tmp_path: Path, start: int) -> None:
    """The rest of the table."""
    assert find_wrong(tmp_path, OTHERS[start : start + BATCH]) == {}
