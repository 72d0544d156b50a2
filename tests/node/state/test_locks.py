"""Locks of GPUs and nodes: abstract sockets of real processes; those of another account are in test_lock_holders."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from session import PAYLOAD
from waiting import HANG, wait_until

# Stands for an agent: takes what its spec asks for, says what came of it, and serves until its stdin ends.
HOLD = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from clusterctl.node.state.locks import Locks
from clusterctl.node.runtime.event_loop import Loop
loop, spec = Loop(), json.loads(sys.argv[2])
locks = Locks(loop, spec, lambda: spec.get("going", True))
def say(holders):
    print(json.dumps([locks.held, holders]), flush=True)
def obey():
    word = sys.stdin.readline().strip()
    if not word:
        sys.exit()
    say(getattr(locks, word)() or [])
loop.watch(0, obey)
say(locks.acquire())
loop.run()
"""
ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from clusterctl.node.state.lock_holders import query_holders, names_in_use
wanted = sys.argv[2:]
print(json.dumps([query_holders(wanted), [name for name in names_in_use() if name in wanted]]))
"""


class Holding:
    """A process that wants locks."""

    def __init__(self, spec: dict[str, Any]) -> None:
        words = [sys.executable, "-c", HOLD, str(PAYLOAD.parents[1]), json.dumps(spec)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer = self.read()

    def read(self) -> Any:
        """Take what the process says next: whether it holds all, and who is in the way."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def tell(self, order: str) -> Any:
        """Give an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return self.read()

    @property
    def runs_in_the_way(self) -> set[str]:
        """Name who is in the way; a real run of this machine that is too busy to answer has no name."""
        return {holder.get("run", "") for holder in self.answer[1]}

    def wait_until_named(self, run: str) -> set[str]:
        """Look again until a run in the way has said its name: one without a processor for a second has none."""

        def is_named() -> bool:
            if run not in self.runs_in_the_way:
                self.answer = self.tell("find_holders")
            return run in self.runs_in_the_way

        wait_until(is_named, f"{run} is named")
        return self.runs_in_the_way

    def end(self) -> None:
        """Kill the process as nothing else would."""
        self.process.kill()
        self.process.communicate()


Hold = Callable[..., Holding]


@pytest.fixture
def gpu() -> Callable[[int], dict[str, Any]]:
    """Invent GPUs that no other test knows."""
    mark = secrets.token_hex(4)
    return lambda index: {"index": index, "id": f"GPU-{mark}-{index}"}


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Start processes that want locks; all are ended after the test."""
    made: list[Holding] = []

    def start(run: str, *gpus: dict[str, Any], **more: Any) -> Holding:
        about = {"run": run, "job": "j", "node": "gpu01", "launched_by": "alice@laptop", "submitted": 5.0}
        made.append(Holding({**about, "gpus": list(gpus), **more}))
        return made[-1]

    yield start
    for one in made:
        one.end()


def ask(*names: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Ask, as any process of the machine may, who holds some names, and which of them are listed."""
    words = [sys.executable, "-c", ASK, str(PAYLOAD.parents[1]), *names]
    holders, listed = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return holders, listed


def name_of(gpu: dict[str, Any]) -> str:
    """Name a GPU's lock."""
    return f"clusterctl/gpu/{gpu['id']}"


def test_a_held_gpu_is_refused_and_its_holder_named(hold: Hold, gpu: Callable[[int], Any]) -> None:
    """The second gets none of what it asked for, also of what was free, and hears who, what and since when."""
    began = time.monotonic()
    hold("first", gpu(1))
    second = hold("second", gpu(0), gpu(1))
    second.wait_until_named("first")

    (holder,) = second.answer[1]
    assert second.answer[0] is False
    assert (holder["run"], holder["by"], holder["job"], holder["going"]) == (
        "first",
        "alice@laptop",
        "j",
        True,
    )
    assert holder["name"] == name_of(gpu(1))
    assert 0 <= holder["age"] <= time.monotonic() - began + 1
    assert ask(name_of(gpu(0))) == ([], []), "all or none"


def test_other_gpus_are_free(hold: Hold, gpu: Callable[[int], Any]) -> None:
    """Two runs on different GPUs of one node both get theirs."""
    assert hold("first", gpu(0), gpu(1)).answer == [True, []]
    assert hold("second", gpu(2)).answer == [True, []]
    assert ask(name_of(gpu(0)), name_of(gpu(2)))[1] == [name_of(gpu(0)), name_of(gpu(2))]


def test_the_kernel_frees_a_killed_holders_locks(hold: Hold, gpu: Callable[[int], Any]) -> None:
    """kill -9 of the holder, and the next one that asks has the lock."""
    first, second = hold("first", gpu(0)), hold("second", gpu(0))
    assert second.answer[0] is False

    first.end()

    assert second.tell("acquire") == [True, []]


def test_a_lock_is_let_go_on_request(hold: Hold, gpu: Callable[[int], Any]) -> None:
    """What one drops another may take; looking takes nothing."""
    first, second = hold("first", gpu(0)), hold("second", gpu(0))

    assert second.wait_until_named("first") == {"first"}
    assert first.tell("release") == [False, []]
    assert second.tell("find_holders") == [False, []]
    assert second.tell("acquire") == [True, []]


def test_of_many_at_once_one_at_most_gets_all(gpu: Callable[[int], Any]) -> None:
    """Six that want the same four GPUs never share them, and each of the others hears of a holder."""
    gpus = [gpu(index) for index in range(4)]
    about = {"job": "j", "node": "n", "launched_by": "a@b", "submitted": 1.0}
    words = [sys.executable, "-c", HOLD, str(PAYLOAD.parents[1])]
    rivals = [
        subprocess.Popen(
            [*words, json.dumps({**about, "run": f"r{n}", "gpus": gpus[::-1] if n % 2 else gpus})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(6)
    ]
    try:
        answers = [json.loads(rival.stdout.readline()) for rival in rivals if rival.stdout]
    finally:
        for rival in rivals:
            rival.kill()
            rival.communicate()

    assert sum(held for held, _ in answers) <= 1
    assert all(holders for held, holders in answers if not held)


def test_the_whole_node_and_its_parts_exclude_each_other(hold: Hold, gpu: Callable[[int], Any]) -> None:
    """A run that wants the node alone is in everybody's way, and everybody in its."""
    sharing = hold("sharing")
    alone = hold("alone", exclusive=True)
    others = alone.wait_until_named("sharing")

    assert sharing.answer == [True, []], "a job without GPUs shares"
    sharing.end()
    if others == {"sharing"}:  # else real runs use this machine, and the tests leave them alone
        assert alone.tell("acquire") == [True, []]
        assert hold("late", gpu(0)).wait_until_named("alone") == {"alone"}
        assert hold("later", exclusive=True).wait_until_named("alone") == {"alone"}


def test_two_nodes_of_one_run_may_be_one_machine(hold: Hold, gpu: Callable[[int], Any]) -> None:
    """A run is not in its own way."""
    assert hold("same", gpu(0)).answer == [True, []]
    assert hold("same", gpu(0), gpu(1), node="gpu02").answer == [True, []]


def test_a_holder_that_does_not_answer_is_named_by_the_kernel(hold: Hold, gpu: Callable[[int], Any]) -> None:
    """A stopped holder is not waited for, and its pid and account are known all the same."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind("\0" + name_of(gpu(0)))
        silent.listen(1)
        (holder,) = hold("second", gpu(0)).answer[1]

    assert (holder.get("run"), holder["pid"]) == (None, os.getpid())


def test_visitors_cannot_hold_the_holder_up(hold: Hold, gpu: Callable[[int], Any]) -> None:
    """Visitors that never read, and write what nobody asked for, keep nobody from an answer."""
    first = hold("first", gpu(0))
    rude = []
    for _ in range(300):
        visitor = socket.socket(socket.AF_UNIX)
        visitor.connect("\0" + name_of(gpu(0)))
        rude.append(visitor)
    for visitor in rude[:100]:
        try:
            visitor.send(b"x" * 1000)
        except OSError:
            continue  # it has hung up already, as it should
    wait_until(lambda: ask(name_of(gpu(0)))[0][0].get("run") == "first", "an answer")
    open_files = len(list(Path(f"/proc/{first.process.pid}/fd").iterdir()))
    for visitor in rude:
        visitor.close()

    assert open_files < 20, "a visitor is seen off at once"


def test_what_a_holder_says_is_bounded(gpu: Callable[[int], Any]) -> None:
    """A name taken by something else, which talks without end, counts as held and does no harm."""
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind("\0" + name_of(gpu(0)))
        stranger.listen(5)
        words = [sys.executable, "-c", ASK, str(PAYLOAD.parents[1]), name_of(gpu(0))]
        asking = subprocess.Popen(words, stdout=subprocess.PIPE)
        visitor, _ = stranger.accept()
        visitor.settimeout(HANG)
        try:
            for _ in range(100):
                visitor.send(b"\xff[" * 5000)
        except OSError:
            pass  # it has heard enough
        out, _ = asking.communicate(timeout=HANG)
        visitor.close()
    ((holder,), _) = json.loads(out)

    assert (holder.get("run"), holder["name"]) == (None, name_of(gpu(0)))
