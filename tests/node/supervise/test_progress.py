"""When a rank gets on: what a look at it and its recorders show; and how an attempt ends in which none does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_effects import call, make_run

from clusterctl.node.lifecycle.ending import judge, on_stalled
from clusterctl.node.lifecycle.run import Phase, RunState, new_attempt
from clusterctl.node.runtime.event_loop import Loop
from clusterctl.node.runtime.processes import identify
from clusterctl.node.supervise.ranks import progress
from clusterctl.node.supervise.ranks.progress import (
    MUCH,
    Recorded,
    StallWatch,
    Usage,
    WorkerProgress,
    read_usage,
    summarize,
)
from clusterctl.protocol.messages.gang import Failed

pytestmark = pytest.mark.unit

IDLE, WAITS, OVER = Usage(10, 5.0, 0), Recorded(True, "#4 waits", 70.0), Recorded(False, "#4 is over", 70.0)


def progress_after(first: Usage, second: Usage, *answers: Recorded | None) -> float:
    """Return when a worker made progress last: its use is read at 0 and 100, its recorders answer at 20, 40 ..."""
    worker = WorkerProgress(0.0)
    worker.on_usage(0.0, first)
    for number, answer in enumerate(answers, 1):
        cost = first._replace(busy=first.busy + number, moved=first.moved + number)  # of the answer itself
        worker.on_answer(20.0 * number, answer, cost)
    worker.on_usage(100.0, second)
    return worker.last


@pytest.mark.parametrize(
    ("second", "answers", "last"),
    [
        (IDLE, [], 0.0),
        (IDLE._replace(output=11), [WAITS], 100.0),
        (IDLE._replace(output=3), [WAITS], 100.0),  # its middle was dropped
        (IDLE._replace(moved=MUCH + 1), [WAITS], 100.0),
        (IDLE._replace(moved=MUCH - 1), [WAITS], 0.0),
        (IDLE._replace(busy=4.0, moved=-1), [], 0.0),  # a child has gone
        (IDLE._replace(busy=105.0), [], 100.0),
        (IDLE._replace(busy=9.0), [], 0.0),
        (IDLE._replace(busy=9.0, moved=MUCH), [None, OVER], 0.0),  # within the cost of two answers
        (IDLE._replace(busy=105.0), [None], 100.0),
        (IDLE._replace(busy=105.0), [OVER], 100.0),
        (IDLE._replace(busy=105.0), [WAITS], 0.0),
        (IDLE._replace(busy=105.0), [WAITS, OVER], 100.0),
        (IDLE._replace(busy=105.0), [OVER, WAITS], 40.0),
        (IDLE, [OVER._replace(age=5.0)], 15.0),
        (IDLE, [WAITS, WAITS._replace(mark="#5 waits", age=30.0)], 40.0),
    ],
)
def test_when_a_rank_has_got_on(second: Usage, answers: list[Recorded | None], last: float) -> None:
    """Processor time is no progress in a collective, where NCCL computes while it waits; elsewhere it is."""
    assert progress_after(IDLE, second, *answers) == last


def test_processor_time_alone_is_a_reason_to_ask() -> None:
    """NCCL computes while it waits: without an answer that looks like work."""
    worker = WorkerProgress(0.0)
    worker.on_usage(0.0, IDLE)
    worker.on_usage(100.0, IDLE._replace(busy=105.0))
    assert (worker.last, worker.certain) == (100.0, 0.0)
    worker.on_answer(101.0, WAITS, IDLE._replace(busy=106.0))
    assert worker.last == worker.certain == 31.0


def entry(number: int, age: float, *, over: bool) -> list[Any]:
    """Write a collective as a node condenses it."""
    return [number, None, "gloo:all_reduce", "[[1]]", "Float", over, age]


def test_what_is_kept_of_a_stall_does_not_end_it() -> None:
    """A rank with a full recorder uses 0.1 s and more to say where it is: no progress, but output since then is."""
    for output, last in ((10, 0.0), (11, 20.0)):
        worker = WorkerProgress(0.0)
        worker.on_usage(0.0, IDLE)
        worker.on_asked(20.0, IDLE._replace(busy=9.0, output=output))
        worker.on_usage(22.0, IDLE._replace(busy=9.0, output=output))
        assert worker.last == last


def test_recorders_of_one_worker_are_one_answer() -> None:
    """It waits where all of its processes do; another age alone is nothing new."""
    waiting, moving = (
        {"0": [entry(3, 9.0, over=True), entry(4, 7.0, over=False)]},
        {"0": [entry(4, 8.0, over=True)]},
    )
    assert summarize([]) is None
    assert summarize([{}]) is None
    one = summarize([waiting])
    assert one is not None and (one.waiting, one.age) == (True, 7.0)
    later = summarize([{"0": [[*each[:-1], each[-1] + 60.0] for each in waiting["0"]]}])
    assert later is not None and (later.mark, later.age) == (one.mark, 67.0)
    both = summarize([waiting, moving])
    assert both is not None and not both.waiting and both.mark != one.mark


def test_what_a_process_uses_is_read() -> None:
    """Of one that is gone nothing is."""
    busy, moved = read_usage(os.getpid(), with_children=True)
    assert busy > 0.0 and moved > 0
    assert read_usage(1 << 22, with_children=False) == (0.0, 0)


def test_a_stalled_attempt_fails_with_the_grace_of_the_run() -> None:
    """SIGTERM first; a stop that is under way already is not hurried."""
    spec: Any = {"attempt": 1, "module": "", "processes": 1, "master_addr": "", "grace": 5.0}
    state = RunState(new_attempt(spec, idle=False), False, now=100.0, time=1000.0)
    state = state.change(phase=Phase.RUNNING, torchrun_runs=True)
    run, calls = make_run(state)
    on_stalled(run, 600.4)
    assert run.phase is Phase.ENDING and run.attempt.kill.workers_at == 105.0
    reason = "no rank made progress for 10m"
    assert call.terminate_torchrun() in calls and call.gang.report(Failed(1, reason)) in calls
    assert judge(run.attempt, {}) == ("FAILED", reason)
    stopped, calls = make_run(state.change(cancelled="stopped"))
    on_stalled(stopped, 600.0)
    assert calls == []


class FoundStall:
    """A watch of one worker, this very process, that has just found a stall and waits to end the attempt."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.ends: list[Any] = []  # what the timer would call
        self.ended: list[float] = []
        self.worker: Any = SimpleNamespace(identity=identify(os.getpid()), ended=False, folder=None)
        loop: Any = SimpleNamespace(after=self.set_timer, cancel=self.cancel)
        record: Any = SimpleNamespace(
            rundir=str(folder), state={}, set=lambda _: None, add_event=lambda *_: None
        )
        spec: Any = {"stall": {"after": 60.0, "then": "stop"}, "attempt": 1}
        self.watch = StallWatch(loop, record, spec, self.ended.append)
        monkeypatch.setattr(self.watch, "keep", lambda _: None)
        self.watch.watch(lambda: [self.worker], None)
        monkeypatch.setattr(StallWatch, "quiet", property(lambda own: 61.0 if own._progress else 0.0))
        self.watch.on_gang_quiet(61.0)

    def set_timer(self, _seconds: float, name: str, then: Any) -> None:
        """Keep the timer that ends the attempt."""
        if name == "stalled":
            self.ends = [then]

    def cancel(self, name: str) -> None:
        """Forget it."""
        if name == "stalled":
            self.ends.clear()


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FoundStall:
    """Find one."""
    return FoundStall(monkeypatch, tmp_path)


def test_a_stall_that_goes_on_ends_the_attempt(found: FoundStall) -> None:
    """After the time in which each node keeps where its ranks are."""
    found.ends[0]()
    assert found.ended == [61.0]


def test_ranks_that_end_are_not_stalled(found: FoundStall) -> None:
    """The run is quiet for exactly 0 seconds then, or its worker has ended before the gang's next beat."""
    found.watch.on_gang_quiet(0.0)
    assert not found.ends
    found.watch.on_gang_quiet(61.0)
    found.worker.ended = True
    found.ends[0]()
    assert not found.ended and not found.ends


@pytest.mark.parametrize(("goes_on", "events_of_it"), [(False, ["stalled"]), (True, ["stall_over"])])
def test_a_stall_that_is_over_before_all_have_answered_is_not_kept(
    found: FoundStall, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool, events_of_it: list[str]
) -> None:
    """Else `status` shows a run that goes on as one that hangs, until it ends."""
    answered: list[Any] = []
    states: list[Any] = []
    names: list[str] = []
    monkeypatch.setattr(progress, "call_in_thread", lambda *arguments: answered.append(arguments[-1]))
    monkeypatch.setattr(found.watch._record, "set", states.append)
    monkeypatch.setattr(found.watch._record, "add_event", lambda name, _: names.append(name))
    StallWatch.keep(found.watch, "stall")
    if goes_on:
        found.watch.on_gang_quiet(0.0)
    answered[0](True)
    assert names == events_of_it
    assert (states[-1]["diagnosed"] is None) == goes_on


def test_an_answer_that_comes_in_the_next_attempt_is_not_of_that_one(
    found: FoundStall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the new attempt is shown as stalled; who waits for the answer, a stop, goes on."""
    answered: list[Any] = []
    monkeypatch.setattr(progress, "call_in_thread", lambda *arguments: answered.append(arguments[-1]))
    changed: list[Any] = []
    record: Any = found.watch._record
    record.state["attempt"] = 1
    StallWatch.keep(found.watch, "stall", lambda: changed.append("went on"))
    record.state["attempt"] = 2
    monkeypatch.setattr(record, "set", changed.append)
    monkeypatch.setattr(record, "add_event", lambda *event: changed.append(event))
    answered[0](True)
    assert changed == ["went on"]


def test_no_look_counts_what_an_answer_costs(found: FoundStall, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the ranks are asked where they are, their processor time is that of the answer."""
    looks: list[int] = []
    monkeypatch.setattr(progress, "call_in_thread", lambda *_: None)
    monkeypatch.setattr(found.watch, "_measure", lambda pid: looks.append(pid) or IDLE)
    found.watch._scan()
    assert looks == [os.getpid()]
    StallWatch.keep(found.watch, "stall")
    found.watch._scan()
    assert looks == [os.getpid()]


def test_daemons_of_the_ranks_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A child of the agent that is no worker works for the ranks, unless it is excluded."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(3)]
    try:
        worker, daemon, torchrun = (child.pid for child in children)
        found = FoundStall(monkeypatch, tmp_path)
        found.worker.identity = identify(worker)
        found.watch._excluded = lambda: [torchrun]
        groups = found.watch._find_groups()
        assert groups[worker] == [worker]
        assert daemon in groups[os.getpid()] and torchrun not in groups[os.getpid()]
        found.worker.ended = True
        assert found.watch._find_groups() == {}
    finally:
        for child in children:
            child.communicate()


def test_a_torchrun_that_outlives_its_ranks_is_no_progress(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A halted one does not notice that they have ended: the node's quiet counts from then, until the attempt ends."""
    now = [1000.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0]))
    worker: Any = SimpleNamespace(identity=identify(os.getpid()), ended=False, folder=None)
    loop: Any = SimpleNamespace(after=lambda *_: None, cancel=lambda _: None)
    record: Any = SimpleNamespace(rundir=str(tmp_path), state={}, set=lambda _: None)
    spec: Any = {"stall": {"after": 60.0, "then": ""}, "attempt": 1}
    watch = StallWatch(loop, record, spec, lambda _: None)
    monkeypatch.setattr(watch, "_measure", lambda _: IDLE)
    monkeypatch.setattr(watch, "_request_records", lambda: None)
    watch.watch(lambda: [worker], None)
    quiet = []
    for seconds, ended in ((50.0, False), (10.0, True), (30.0, True), (40.0, True)):
        now[0] += seconds
        worker.ended = ended
        watch._scan()
        quiet.append(watch.quiet)
    watch.stop()

    assert quiet[1:] == [0.0, 30.0, 70.0]
    assert watch.quiet == 0.0


def test_samples_come_soon_and_then_at_twice_the_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So that the newest is of the second half of a run; no more than half an hour lies between two."""
    due: list[tuple[float, Any]] = []
    loop: Any = SimpleNamespace(
        after=lambda seconds, name, then: due.append((seconds, then)) if name == "sample" else None,
        cancel=lambda _: None,
    )
    monkeypatch.setattr(progress, "call_in_thread", lambda *_: None)
    record: Any = SimpleNamespace(rundir=str(tmp_path), state={}, set=lambda _: None)
    watch = StallWatch(loop, record, {"stall": {"after": 0.0, "then": ""}, "attempt": 1}, lambda _: None)  # type: ignore[typeddict-item]  # what is read of it
    watch.watch(list, None)
    moment, moments = 0.0, []
    while len(moments) < 10:
        seconds, sample = due.pop()
        moment += seconds
        moments.append(moment)
        sample()
    assert moments == [25.0 * 2**number for number in range(8)] + [5000.0, 6800.0]
    watch.watch(list, None)  # of the next attempt
    assert due.pop()[0] == 25.0


def test_a_node_without_ranks_yet_is_not_quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is nothing that could have ended."""
    loop: Any = SimpleNamespace(after=lambda *_: None, cancel=lambda _: None)
    record: Any = SimpleNamespace(rundir=str(tmp_path), state={}, set=lambda _: None)
    spec: Any = {"stall": {"after": 60.0, "then": ""}, "attempt": 1}
    watch = StallWatch(loop, record, spec, lambda _: None)
    watch.watch(list, None)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 1e9, time=lambda: 1e9))
    assert watch.quiet == 0.0


def test_a_file_system_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the way to the output directory is looked at but in a thread: the agent has to beat."""
    hangs = threading.Event()
    monkeypatch.setattr(os.path, "realpath", lambda _: hangs.wait())
    monkeypatch.setattr(progress, "SCAN_LIMIT", 0.1)
    results: list[bool | None] = []

    loop = Loop()
    compared = progress.OutputProgress(loop, str(tmp_path), "**")
    compared.begin()
    compared.finish(lambda found: (results.append(found), loop.stop()))
    loop.run()

    hangs.set()
    assert results == [None]


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("**", "a/b.pt", True),
        ("*.pt", "b.pt", True),
        ("*.pt", "a/b.pt", False),
        ("**/*.pt", "b.pt", True),
        ("**/*.pt", "a/c/b.pt", True),
        ("ckpt/**", "ckpt/a/b", True),
        ("ckpt/**", "ckpt2/a", False),
        ("step-?.[x]", "step-1.[x]", True),
    ],
)
def test_patterns_of_progress(pattern: str, path: str, matches: bool) -> None:
    """One star stays within a name, two do not."""
    assert (progress.glob_to_regex(pattern).fullmatch(path) is not None) is matches
