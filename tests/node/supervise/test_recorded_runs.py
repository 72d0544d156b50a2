"""What agents recorded and reported when each of these runs was first recorded is what they record and report today.

A run whose file in `recorded_runs` was removed is recorded anew.
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


def shell(text: str) -> dict[str, Any]:
    """A step of `before` or `after`."""
    return {"programs": ["sh"], "arguments": ["-e", "-c", text], "shown": text}


def hook(text: str, limit: float = 3600.0) -> dict[str, Any]:
    """The commands of `before` or `after`."""
    return {"steps": [shell(text)], "time_limit": limit}


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

    def be_stubborn(self) -> None:
        """Let the rank ignore SIGTERM, and wait until it does."""
        self.tell(STUBBORN)
        wait_until((self.run.root / "order.heard").exists, "the rank has heard")

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


def victim_is_killed(make: Make, victim: str) -> Trace:
    """SIGKILL to a part of a run whose rank ignores SIGTERM."""
    alone = Alone(make)
    run = alone.settle()
    alone.be_stubborn()
    os.kill(run.pid(victim), signal.SIGKILL)
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


def before_fails(make: Make) -> Trace:
    """Nothing starts, and `after` cleans up."""
    alone = Alone(make, before=hook("echo no mount; false"), after=hook("true"))
    alone.begin("setup_failed")
    return alone.ended()


def hooks_run(make: Make, after: str, limit: float = 3600.0) -> Trace:
    """`before` and `after` around a run that ends well."""
    alone = Alone(make, before=hook("true"), after=hook(after, limit))
    alone.settle()
    alone.tell("pass")
    return alone.ended()


def after_is_cut(make: Make) -> Trace:
    """A second stop does not wait for `after`."""
    alone = Alone(make, after=hook("sleep 1000"))
    run = alone.settle()
    alone.tell("pass")
    wait_until(lambda: "after" in [event["event"] for event in run.events()], "after")
    for count in (1, 2):
        os.kill(run.pid("agent"), signal.SIGTERM)
        if count == 1:
            wait_until(lambda: "stopping" in [event["event"] for event in run.events()], "the first stop")
    return alone.ended()


def stopped(make: Make, times: int = 1, *, stubborn: bool = False, grace: float = 5.0) -> Trace:
    """SIGTERM to the guardian while it runs, as `stop` does, so many times."""
    alone = Alone(make, grace=grace)
    run = alone.settle()
    if stubborn:
        alone.be_stubborn()
    for count in range(1, times + 1):
        if count == 2:
            (run.rundir / "stop.json").write_text(json.dumps({"reason": "at once", "grace": 0.1}))
        os.kill(run.pid("guardian"), signal.SIGTERM)
        wait_until(
            lambda count=count: len([e for e in run.events() if e["event"] == "stopping"]) == count,
            "stopping",
        )
    return alone.ended()


def ended_before_go(make: Make, how: str) -> Trace:
    """Somebody ends it while the gate waits."""
    alone = Alone(make)
    run = alone.begin()
    assert run.session is not None
    if how == "cancel":
        alone.send("cancel", reason="cancelled by alice")
    elif how == "hang up":
        run.session.hang_up()
    elif how == "stop":
        os.kill(run.pid("guardian"), signal.SIGTERM)
    else:
        os.kill(run.pid(how), signal.SIGKILL)
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


def port_is_never_free(make: Make) -> Trace:
    """Every port is taken."""
    alone = Alone(make, "import sys\ndef main(argv): sys.exit('DistNetworkError: name: EADDRINUSE')\n")
    alone.begin()
    alone.give_go()
    return alone.ended()


def program(make: Make) -> Trace:
    """No module of torch: a program, whose port is let go."""
    alone = Alone(make, module=None, world_size=None)
    alone.run.spec["argv"] = ["{}".format("true")]
    alone.begin()
    alone.give_go()
    return alone.ended()


def time_is_up(make: Make, code: str = "time.sleep(600)") -> Trace:
    """The job's time limit."""
    alone = Alone(make, time_limit=0.3, grace=0.3)
    alone.tell(code)
    alone.begin()
    alone.give_go()
    return alone.ended()


def own_error(make: Make, when: str) -> Trace:
    """An error of the agent's own."""
    alone = Alone(make, **({"grace": "soon"} if when == "running" else {}))
    if when == "running":
        run = alone.settle()
        alone.be_stubborn()
        os.kill(run.pid("guardian"), signal.SIGTERM)
    else:
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


def make_gang(make: Make, count: int = 2) -> GangRun:
    """Two nodes."""
    gang = GangRun(lambda script, **changes: make(script, was_here=False, **changes), count)
    for one in gang.nodes:
        traced(one)
    return gang


def gang_ends(make: Make, code: str, who: int = 1) -> Trace:
    """A rank of a gang of two does something, the other waits, or ends well, too."""
    gang = make_gang(make).prepare().join().go()
    if code == "pass":
        gang.tell(1 - who, code)
    gang.tell(who, code)
    return traces_of(gang)


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


def guardian_of_a_restart(make: Make) -> Trace:
    """The node without a guardian ends its part, and a spare goes on."""
    gang = restarting(make, spares=1, restart={"on": ["agent_killed"]}).begin()
    os.kill(gang.nodes[1].pid("guardian"), signal.SIGKILL)
    gang.settled(2, [0, 2])
    gang.finish(2)
    return traces_of(gang)


COMMON: dict[str, Callable[[Make], Trace]] = {
    "ends well": lambda make: rank_ends_with(make, "pass"),
    "started again": started_again,
    "rank fails": lambda make: rank_ends_with(make, "sys.stderr.write('bad loss\\n'); sys.exit(3)"),
    "torchrun killed": lambda make: victim_is_killed(make, "torchrun"),
    "guardian killed": lambda make: victim_is_killed(make, "guardian"),
    "gate fails": gate_fails,
    "before fails": before_fails,
    "hooks run": lambda make: hooks_run(make, "true"),
    "stopped": stopped,
    "cancelled before go": lambda make: ended_before_go(make, "cancel"),
    "port taken": port_is_taken,
    "time is up": time_is_up,
    "own error while running": lambda make: own_error(make, "running"),
    "rank of a gang fails": lambda make: gang_ends(make, "sys.exit(3)"),
    "spare called": spare_is_called,
    "gate killed": gate_is_killed,
    "client left": lambda make: ended_before_go(make, "hang up"),
    "port never free": port_is_never_free,
    "own error before go": lambda make: own_error(make, "before go"),
}
VARIANTS: dict[str, Callable[[Make], Trace]] = {
    "after fails": lambda make: hooks_run(make, "echo no room; false"),
    "after takes too long": lambda make: hooks_run(make, "sleep 1000", 0.4),
    "after cut": after_is_cut,
    "stopped, and ignored": lambda make: stopped(make, stubborn=True, grace=0.3),
    "stopped twice": lambda make: stopped(make, 2, stubborn=True, grace=600.0),
    "time is up, and ignored": lambda make: time_is_up(make, STUBBORN),
    "cannot be ended": cannot_be_ended,
    "guardian of a restart": guardian_of_a_restart,
}
SCENARIOS = {**COMMON, **VARIANTS}

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
KILLED_AT_ONCE = {
    *("guardian killed", "own error while running", "guardian of a restart"),
    *("stopped, and ignored", "stopped twice", "time is up, and ignored"),
}


@pytest.mark.parametrize("name", first(len(COMMON), SCENARIOS))
def test_a_run_records_what_it_did(node: Make, name: str) -> None:
    """Journal, state file and events to the client, in their order; what is concurrent, as a set."""
    any_time = AT_ONCE if name in KILLED_AT_ONCE else ANY_TIME
    seen = {who: list(split(trace, any_time)) for who, trace in SCENARIOS[name](node).items()}
    if name in KILLED_AT_ONCE:
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
