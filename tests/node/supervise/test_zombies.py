"""Which rank has failed and does not exit: by its last words, its own answer and its stacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded_effects import call, make_run

from clusterctl.node.diagnose.query import MAX_STACK, RankState, StackRequest, find_thread, is_script_over
from clusterctl.node.lifecycle.ending import on_rank_stuck
from clusterctl.node.lifecycle.run import Phase, RunState, new_attempt
from clusterctl.node.runtime.processes import Identity, Stat
from clusterctl.node.supervise.ranks.zombies import is_proof
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.tracebacks import final_exception

pytestmark = pytest.mark.unit

MAIN = 0x7F00
OTHER = (
    'Thread 0x0000000000007f10 (most recent call first):\n  File "t.py", line 3 in wait\n'
    '  File "t.py", line 9 in run\n\n'
)
HEADER = "Thread 0x0000000000007f00 (most recent call first):\n"
JOINS = '  File "/usr/lib/python3.11/threading.py", line 1590 in _shutdown'
IN_SCRIPT = '  File "t.py", line 3 in f\n  File "t.py", line 9 in <module>'
DEEP = "\n".join(100 * ['  File "t.py", line 3 in f']) + "\n  ..."
TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 3, in f\n[rank1]: ValueError: no\n'


@pytest.mark.parametrize(
    ("stacks", "found"),
    [
        (HEADER + JOINS + "\n", JOINS),
        (OTHER + HEADER + JOINS + "\n", JOINS),
        ("Current " + HEADER.replace("T", "t", 1) + JOINS + "\n\n" + OTHER, JOINS),
        (HEADER.replace(" (", " [main] (", 1) + JOINS + "\n", JOINS),
        (HEADER + JOINS + "\n" + HEADER + IN_SCRIPT + "\n", JOINS),
        (OTHER, ""),
        (OTHER + "...\n", ""),
        (OTHER + HEADER, ""),
        (OTHER + HEADER + JOINS, ""),
        (OTHER + HEADER + JOINS + '\n  File "t', ""),
        (OTHER + HEADER + DEEP + "\n", ""),
        (HEADER + "  <invalid frame>\n", ""),
        ("", ""),
    ],
)
def test_only_the_whole_stack_of_the_main_thread_counts(stacks: str, found: str) -> None:
    """It is known by its ident, wherever it stands; another thread is never taken for it."""
    assert find_thread(stacks, MAIN) == found


@pytest.mark.parametrize(
    ("stack", "over"),
    [(JOINS, True), ("  <no Python frame>", True), (IN_SCRIPT, False), (DEEP, False), ("", False)],
)
def test_the_script_is_over_once_no_module_is_in_the_main_thread(stack: str, over: bool) -> None:
    """Of a deep stack the outermost frames are left out, so nothing is known."""
    assert is_script_over(stack) is over


def test_of_many_stacks_the_end_is_read(tmp_path: Path) -> None:
    """The main thread is the last one; a file that is not there is an empty answer."""
    identity = Identity(7, 1)
    request = StackRequest(str(tmp_path), identity, {"main": MAIN})
    assert (request.read_main(), request.read()) == ("", "")
    (tmp_path / "7.stacks").write_text(OTHER * MAX_STACK + HEADER + JOINS + "\n", encoding="ascii")
    assert request.read_main() == JOINS
    assert StackRequest(str(tmp_path), identity, {}).read_main() == ""
    (tmp_path / "7.stacks").unlink()
    (tmp_path / "7.stacks").mkdir()
    assert request.read_main() == ""


@pytest.mark.parametrize(
    ("stderr", "exception"),
    [
        (TRACEBACK, "ValueError: no"),
        (TRACEBACK.replace("[rank1]: ", "") + "  a message\n  of three lines\n", "ValueError: no"),
        (TRACEBACK + "step 3\n", ""),
        (TRACEBACK + 200 * "step 3\n", ""),
        (TRACEBACK.replace("[rank1]: ", "") + 200 * "step 3\n", ""),
        (TRACEBACK + "\r 10%\r 20%", ""),
        (TRACEBACK + TRACEBACK[:40], ""),
        ("step 3\nsaved\n", ""),
        ("", ""),
    ],
)
def test_an_exception_counts_only_as_the_last_words(stderr: str, exception: str) -> None:
    """A caught one that was logged is followed by other lines."""
    assert final_exception(stderr) == exception


@pytest.mark.parametrize(
    ("state", "stacks", "proof"),
    [
        (RankState(uncaught=True, ours=True), [JOINS, JOINS], True),
        (RankState(uncaught=False, ours=True), [JOINS, JOINS], False),
        (None, [JOINS, JOINS], False),
        (RankState(uncaught=True, ours=True), [JOINS], False),
        (RankState(uncaught=True, ours=True), [JOINS, '  File "save.py", line 5 in write'], False),
        (RankState(uncaught=True, ours=True), [IN_SCRIPT, IN_SCRIPT], False),
        (RankState(uncaught=True, ours=True), ["", ""], False),
    ],
)
def test_without_proof_nothing_is_decided(state: RankState | None, stacks: list[str], proof: bool) -> None:
    """The rank itself says that the exception was not caught, and its main thread stays where it is."""
    assert is_proof(state, stacks) is proof


def test_it_has_the_grace_of_the_run() -> None:
    """SIGTERM to the rank; what is left is killed when the grace is over."""
    spec: Any = {"attempt": 1, "module": "", "processes": 1, "master_addr": "", "grace": 5.0}
    state = RunState(new_attempt(spec, idle=False), False, now=100.0, time=1000.0)
    state = state.change(phase=Phase.RUNNING, torchrun_runs=True)
    process = Stat(7, "python", "S", 1, 2, 1, 0)
    run, calls = make_run(state)
    on_rank_stuck(run, Rank(1), process, "ValueError: no", 30.0)
    assert run.phase is Phase.ENDING and run.attempt.kill.workers_at == 105.0
    assert call.signal_all([process], kill=False) in calls
    assert "kill_below" not in [one.name for one in calls]
    assert [one.arguments["seconds"] for one in calls if one.name == "start_timer"] == [5.0]
