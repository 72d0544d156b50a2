"""What agents recorded and reported when each of these runs was first recorded is what they record and report today.

A run whose file in `recorded_runs` was removed is recorded again. One of each kind; other ends are in test_kill.py,
test_time_limit.py, test_guarded.py, tests/node/test_setup_stages.py and tests/node/gang.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gangs import GangRun
from noderun import NodeRun
from restarting import RestartGang, vanish
from tracing import read_trace, split, traced
from variants import first
from waiting import wait_until

Make = Callable[..., NodeRun]
RECORDED = Path(__file__).with_name("recorded_runs")

# The one rank waits for a file that holds what it is to do.
WAITS = """
import os, signal, subprocess, sys, time
place = os.environ["TEST_MARK"] + "/order"
print("settled", flush=True)
while not os.path.exists(place):
    time.sleep(0.01)
exec(open(place).read())
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen(place + '.heard', 'w')\ntime.sleep(600)"


class Alone:
    """A run of one node that is traced."""

    def __init__(self, make: Make, torchrun: str = "", **changes: Any) -> None:
        self.run = traced(make(WAITS, was_here=False, **changes).use_stub(torchrun))

    def settle(self, **options: Any) -> NodeRun:
        """Go, and wait until the rank waits."""
        run = self.begin(**options)
        self.give_go()
        run.hear("listening")
        run.hear("end")
        run.running()
        wait_until(lambda: "settled" in run.output(0), "settled")
        return run

    def begin(self, wanted: str = "ready", **options: Any) -> NodeRun:
        """Start, and wait for an event."""
        self.run.start({"KEY": "s3cret-word"}, **options)
        self.run.hear("started")
        for name in ("setup", "before"):
            if self.run.spec.get(name):
                self.send(name)
        if wanted != "started":
            self.run.hear(wanted)
        return self.run

    def send(self, order: str, **facts: Any) -> None:
        """Send an order as the client."""
        assert self.run.session is not None
        self.run.session.send({"do": order, **facts})

    def give_go(self, port: int | None = None) -> None:
        """Give GO."""
        self.send("go", master_port=self.run.port if port is None else port)

    def tell(self, code: str) -> None:
        """Let the rank do something."""
        aside = self.run.root / "order.new"
        aside.write_text(code)
        aside.rename(self.run.root / "order")

    def ended(self) -> dict[str, list[str]]:
        """Wait for the end; returns the trace."""
        wait_until(lambda: not self.run.is_alive(), "nothing left")
        return {"gpu01": read_trace(self.run)}


Trace = dict[str, list[str]]


def rank_ends_with(make: Make, code: str, **changes: Any) -> Trace:
    """The rank does something, and ends."""
    alone = Alone(make, **changes)
    alone.settle()
    alone.tell(code)
    return alone.ended()


def guardian_is_killed(make: Make) -> Trace:
    """SIGKILL to the guardian of a rank that ignores SIGTERM."""
    alone = Alone(make)
    run = alone.settle()
    alone.tell(STUBBORN)
    wait_until((run.root / "order.heard").exists, "the rank has heard")
    os.kill(run.pid("guardian"), signal.SIGKILL)
    return alone.ended()


def gate_is_killed(make: Make) -> Trace:
    """SIGKILL to a gate that waits for GO."""
    alone = Alone(make)
    os.kill(alone.begin().pid("torchrun"), signal.SIGKILL)
    return alone.ended()


def gate_fails(make: Make) -> Trace:
    """No such interpreter."""
    alone = Alone(make, python="/no/such/python")
    alone.begin("gate_failed")
    return alone.ended()


def stopped(make: Make) -> Trace:
    """SIGTERM to the guardian while it runs, as `stop` does."""
    alone = Alone(make)
    os.kill(alone.settle().pid("guardian"), signal.SIGTERM)
    return alone.ended()


def port_is_taken(make: Make) -> Trace:
    """Somebody else listens on the port: torchrun is started again with another."""
    alone = Alone(make)
    run = alone.begin()
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        alone.give_go(other.getsockname()[1])
        run.hear("listening")
        run.running()
        alone.tell("pass")
        return alone.ended()


def own_error_before_go(make: Make) -> Trace:
    """An error of the agent's own."""
    alone = Alone(make)
    alone.begin()
    alone.send("go", master_port={})
    return alone.ended()


def is_alive(run: NodeRun, name: str) -> bool:
    """Whether a part of a run lives."""
    return Path(f"/proc/{run.pid(name)}").exists() and run.pid(name) in run.left()


def cannot_be_ended(make: Make) -> Trace:
    """A process that SIGKILL does not end, as one in the kernel's D state."""
    alone = Alone(make)
    run = alone.settle(env={**os.environ, "TEST_IMMORTAL": "sleep"})
    alone.tell("subprocess.Popen(['sleep', '60'], start_new_session=True); raise SystemExit(3)")
    wait_until(lambda: run.state()["state"] == "FAILED", "the end")
    wait_until(lambda: not is_alive(run, "guardian"), "guardian and agent gone")
    return {"gpu01": read_trace(run)}


def traces_of(gang: GangRun) -> Trace:
    """Read the traces of all nodes once nothing is left."""
    wait_until(lambda: not any(one.is_alive() for one in gang.nodes), "nothing left anywhere")
    return {one.spec["node"]: read_trace(one) for one in gang.nodes}


def restarting(make: Make, spares: int = 0, **changes: Any) -> RestartGang:
    """Two nodes that start again, and spares."""
    gang = RestartGang(
        lambda script, **options: make(script, was_here=False, **options), spares=spares, **changes
    )
    for one in gang.nodes:
        traced(one)
    return gang


def started_again(make: Make) -> Trace:
    """A rank is killed, and attempt 2 ends well."""
    gang = restarting(make).begin()
    gang.order(1, 1, KILL)
    gang.settled(2, [0, 1])
    gang.finish(2)
    return traces_of(gang)


def spare_is_called(make: Make) -> Trace:
    """A node is lost, and a spare takes its rank; another is not needed."""
    gang = restarting(make, spares=2).begin()
    vanish(gang.nodes[1])
    gang.settled(2, [0, 2])
    gang.finish(2)
    return {name: lines for name, lines in traces_of(gang).items() if name != "gpu02"}


COMMON: dict[str, Callable[[Make], Trace]] = {
    "ends well": lambda make: rank_ends_with(make, "pass"),
    "started again": started_again,
    "rank fails": lambda make: rank_ends_with(make, "sys.stderr.write('bad loss\\n'); sys.exit(3)"),
    "guardian killed": guardian_is_killed,
    "gate fails": gate_fails,
    "gate killed": gate_is_killed,
    "stopped": stopped,
    "port taken": port_is_taken,
    "spare called": spare_is_called,
    "own error before go": own_error_before_go,
}
SCENARIOS = {**COMMON, "cannot be ended": cannot_be_ended}

# What comes at a time of its own: torchrun listens, its workers start, the nodes of a gang meet.
ANY_TIME = re.compile(
    r"(journal|client) (listening|workers|locks|joined|hub|listener)\b|client ended"
    r'|state {"began"|state {"ranks": {"\d": {"exit": null,[^}]*"signal": null'
)


# Where torchrun and its rank are killed at once, either may be seen first.
AT_ONCE = re.compile(
    ANY_TIME.pattern
    + r'|journal (rank|torchrun)_exited|state {"ranks": |state {"torchrun": {"exit": null,.*"signal": 9'
)


@pytest.mark.parametrize("name", first(len(COMMON), SCENARIOS))
def test_a_run_records_what_it_did(node: Make, name: str) -> None:
    """Journal, state file and events to the client, in their order; what is concurrent, as a set."""
    any_time = AT_ONCE if name == "guardian killed" else ANY_TIME
    seen = {who: list(split(trace, any_time)) for who, trace in SCENARIOS[name](node).items()}
    if name == "guardian killed":
        seen = json.loads(re.sub(r'\\"failures\\": \[.*?\}\]\}\]\}"', '"', json.dumps(seen)))
    file = file_of(name)
    if not file.exists():  # recorded anew after `rm`
        RECORDED.mkdir(exist_ok=True)
        file.write_text(json.dumps(seen, indent=1, ensure_ascii=False) + "\n")
        return
    recorded = json.loads(file.read_text())
    assert set(seen) == set(recorded)
    for who, parts in seen.items():
        for lines, expected in zip(parts, recorded[who], strict=True):
            assert "\n".join(lines) == "\n".join(expected), f"{name}: {who}"


def file_of(name: str) -> Path:
    """Return where a run is recorded."""
    return RECORDED / f"{name.replace(', ', ' ').replace(' ', '_')}.json"


def test_every_run_is_recorded() -> None:
    """A run that is not compares nothing."""
    assert {file_of(name) for name in SCENARIOS} == set(RECORDED.glob("*.json"))
