"""A forked worker is, for all that a job can observe, what a new interpreter would have been."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from gates import Ended, Gate, Start
from variants import first
from worker_scripts import CASES, DUMPING, Case


def run_both(gate: Start, case: Case, method: str) -> tuple[dict[int, Ended], dict[int, Ended]]:
    """Run a job with exec'ed workers, then with those of a gate that was exec'ed, or had waited."""
    return run(gate, "exec", case).ended(), run(gate, method, case).ended()


def run(gate: Start, method: str, case: Case) -> Gate:
    """Run a job; forked workers must really have been forked."""
    started = gate(method, workers=case.workers, env=case.env)
    write_files(started, case)
    started.read_report("ready")
    started.go(case.argv).ended()
    assert started.method == (("", "") if method == "exec" else ("fork", "")), started.log()
    return started


def write_files(started: Gate, case: Case) -> None:
    """Put the job's files where it runs."""
    for name, text in {"train.py": case.script, **case.files}.items():
        path = started.code / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="latin-1" if "latin-1 -*-" in text else "utf-8")


CHANGING = [
    (r"(exec|fork|waiting)-\d+/", "GATE/"),
    (r"test_\w{8}/attempt_0", "LOGS"),
    (r"0x[0-9a-f]+", "ADDRESS"),
    (r"(MASTER_PORT\W{1,5})\d+", r"\1PORT"),
    (r"\[rank\d+\]:(?=\[W|W\d{4})?[^\n]*Warning[^\n]*", "WARNING"),
    (r"\d+:\d+:\d+\.\d+", "TIME"),
]

# A line of a stack dump, and the line of source that some print with it.
OUR_FRAMES = re.compile(
    r'^  File "(?:<frozen runpy>|[^"]*payload\.zip/[^"]*|[^"]*/runpy\.py)", .*\n(?:    .*\n)*', re.MULTILINE
)


def settled(text: str) -> str:
    """Take out what differs between two runs of the same kind."""
    for pattern, name in CHANGING:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text


def settled_end(ended: Ended) -> tuple[Any, ...]:
    """Give what must be the same."""
    error = dict(ended.error["message"]) if ended.error else {}
    error.get("extraInfo", {}).pop("timestamp", None)
    return ended.code, settled(ended.stdout), settled(ended.stderr), json.loads(settled(json.dumps(error)))


@pytest.mark.parametrize("method", first(0, ["fork", "waiting"]))
@pytest.mark.parametrize("name", first(0, [name for name in CASES if name != "observe"]))
def test_a_job_sees_no_difference(gate: Start, name: str, method: str) -> None:
    """Its exit code or signal, output, traceback and error file are the same."""
    by_exec, by_fork = run_both(gate, CASES[name], method)

    assert by_fork.keys() == by_exec.keys()
    for rank, ended in by_exec.items():
        forked = by_fork[rank]
        if name in DUMPING:
            forked = replace(
                forked, **{key: OUR_FRAMES.sub("", getattr(forked, key)) for key in ("stdout", "stderr")}
            )
        assert settled_end(forked) == settled_end(ended)


def observations(ended: dict[int, Ended]) -> list[dict[str, Any]]:
    """Read what the workers saw."""
    assert {worker.code for worker in ended.values()} == {0}, ended
    return [json.loads(settled(worker.stdout)) for _, worker in sorted(ended.items())]


@pytest.mark.parametrize("method", first(1, ["fork", "waiting"]))
def test_a_worker_observes_the_same(gate: Start, method: str) -> None:
    """Arguments, paths, variables, descriptors, signals, limits, threads, streams and torch; random numbers differ."""
    by_exec, by_fork = map(observations, run_both(gate, CASES["observe"], method))

    for exec_worker, fork_worker in zip(by_exec, by_fork, strict=True):
        for name, value in exec_worker["seen"].items():
            assert (name, fork_worker["seen"][name]) == (name, value)
    own = [worker["own"] for worker in by_fork]
    assert not set(own[0]) & set(own[1]), "no two workers begin with the same random numbers"
