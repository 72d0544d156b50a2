"""Whoever holds a lock may say what it likes: it is held, whose it is the kernel says, and nothing breaks."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hostile.holder import NOBODY, Holder
from noderun import NodeRun
from waiting import wait_until

from clusterctl.node.runtime.event_loop import Loop
from clusterctl.node.state.lock_holders import MAX_ANSWER, belongs_to, query_holders, read_answer
from clusterctl.node.state.locks import Locks

Make = Callable[..., NodeRun]
Hold = Callable[..., str]
RUN = "job-20261120T110000-0123"
HUGE = "1" + "0" * 400
ANSWERS = {
    "a huge time": f'{{"run": "x", "since": {HUGE}}}',
    "a time without end": '{"run": "x", "since": 1e999}',
    "no number": '{"run": "x", "since": "long ago", "submitted": NaN}',
    "depth": "[" * MAX_ANSWER,
    "a list": "[1, 2]",
    "control characters": json.dumps({"run": "x", "by": "\x1b]0;owned\x07", "job": "\u202e" * 4000}),
    "odd types": json.dumps(
        {"run": {"a": 1}, "by": ["x"], "job": 7, "going": "yes", "agent": -1, "submitted": True}
    ),
    "half a pair": '{"by": "\\ud800"}',
    "too much": json.dumps({"by": "x" * 100_000}),
    "nothing": "\n",
}


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Let somebody hold the lock of a GPU that no other test knows; gives the GPU's id."""
    made: list[Holder] = []

    def start(answer: str, uid: int | None = None) -> str:
        gpu = f"GPU-{secrets.token_hex(6)}"
        made.append(Holder(f"clusterctl/gpu/{gpu}", answer.encode("utf-8", "surrogatepass"), uid))
        return gpu

    yield start
    for one in made:
        one.end()


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_read_in_bounds(hold: Hold, name: str) -> None:
    """It counts as held; what it says is cut, clean, of known types, and can be sent on; its pid is the kernel's."""
    gpu = hold(ANSWERS[name])
    (holder,) = query_holders([f"clusterctl/gpu/{gpu}"])

    assert set(holder) <= {
        "name",
        "age",
        "user",
        "pid",
        "uid",
        "run",
        "job",
        "node",
        "by",
        "since",
        "submitted",
        "agent",
        "going",
    }
    assert (holder["name"], holder["uid"]) == (f"clusterctl/gpu/{gpu}", os.geteuid())
    assert holder["age"] is None
    assert all(len(text) <= 300 and text.isprintable() for text in holder.values() if isinstance(text, str))
    assert json.loads(json.dumps(holder).encode()) == holder
    json.dumps(holder, allow_nan=False)


def test_an_honest_answer_is_read_whole() -> None:
    """What `Locks` says of itself arrives."""
    spec = {
        "run": RUN,
        "node": "gpu01",
        "job": "job",
        "launched_by": "ann@desk",
        "submitted": 5.0,
        "gpus": [],
    }
    said = read_answer(Locks(Loop(), spec, lambda: True)._render_answer())

    assert (said["run"], said["node"], said["job"], said["by"]) == (RUN, "gpu01", "job", "ann@desk")
    assert (said["submitted"], said["going"], said["agent"]) == (5.0, True, os.getpid())
    assert abs(said["since"] - time.time()) < 60


def answers(gpu: str) -> list[dict[str, Any]]:
    """Ask who holds a GPU's lock; no holder, where it had no processor while the answer was waited for."""
    return [dict(holder) for holder in query_holders([f"clusterctl/gpu/{gpu}"]) if "run" in holder]


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two accounts")


@needs_root
def test_who_claims_our_run_from_another_account_is_none_of_ours(hold: Hold) -> None:
    """Knowing the run's name is not enough: another account is in the way, whatever it says."""
    for uid, ours in ((None, True), (NOBODY, False)):
        gpu = hold(json.dumps({"run": RUN}), uid)
        (holder,) = wait_until(lambda gpu=gpu: answers(gpu), "an answer in time")
        assert holder["run"] == RUN
        assert belongs_to(holder, RUN) is ours
        locks = Locks(
            Loop(), {"run": RUN, "node": "gpu01", "gpus": [{"id": gpu}], "submitted": 1.0}, lambda: False
        )
        wanted = [] if ours else [f"clusterctl/gpu/{gpu}"]
        wait_until(lambda locks=locks: [one["name"] for one in locks.find_holders()] == wanted, f"{wanted}")  # noqa: B023 - it is asked here


@needs_root
@pytest.mark.parametrize("name", ["a huge time", "depth", "our run"])
def test_a_launch_says_that_it_is_held_by_another_account(node: Make, hold: Hold, name: str) -> None:
    """The agent lives, waits, and names the account that holds the GPU; a traceback is nowhere."""
    one = node("pass").use_stub()
    gpu = hold(ANSWERS.get(name) or json.dumps({"run": one.spec["run"]}), NOBODY)
    one.spec["gpus"] = [{"index": 0, "id": gpu}]
    one.start()
    answer: dict[str, Any] = one.hear("locks")

    (holder,) = answer["holders"]
    assert answer["held"] is False
    assert (holder["uid"], holder["gpu"], holder["name"]) == (NOBODY, 0, f"clusterctl/gpu/{gpu}")
    assert holder["user"] in ("nobody", f"uid {NOBODY}")
    assert one.state()["state"] == "WAITING"
    assert one.session is not None
    one.session.send({"do": "cancel"})
    assert one.ended()["state"] == "STOPPED"
    assert "Traceback" not in one.agent_log()
