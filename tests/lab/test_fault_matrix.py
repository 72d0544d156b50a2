"""Every fault of fault_table.py once, for real: noticed, on the screen, and nothing left; tests/bench times it.

All run side by side on one lab, so that those which take twenty seconds to be noticed do so at the same time.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from driving import Result, cctl, make_project
from fault_table import FAULTS, Fault
from faulting import SETTINGS, Seen, Setting, inventory_of, observe
from noderun import leave_payload_in_lab
from one_end import End, ask_all, find_differences, shown_state
from variants import VARIANT
from victims import Struck, begin
from waiting import wait_until

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab

NICS = ("mgmt0+enp65s0f0", "mgmt0+ib0np0", "mgmt0+eno2")  # SSH does not go over the NIC that is cut
# What ./test strikes; the others are like one of these, and left to ./test --all.
# Third proofs: a killed worker, guardian and agent are in node/supervise/test_kill.py too, a halted torchrun in
# test_halted_lab.py, workers that ignore SIGTERM in test_launch.py.
STRUCK = (
    *("worker-raises", "worker-stopped", "hub-killed", "agent-stopped", "power-off", "power-off-node-0"),
    *("nic-down", "launcher-killed", "stale-store", "port-stolen"),
)
# Of these every verb is asked afterwards: one of each kind of end, and each way in which a node may be dark then.
ASKED = ("worker-raises", "worker-stopped", "hub-killed", "agent-stopped", "power-off-node-0", "nic-down")
NEEDED = ("agent-stopped", "power-off", "stale-store", "port-stolen")  # by tests of their own
# Faults of whole nodes have nodes of their own; all others share the first three.
PLACES = {"power-off-node-0": 1, "power-off": 2, "nic-down": 3, "nic-5s": 4, "sshd-killed": 4}
BATCHES = (  # few at a time: other tests run beside
    ("power-off-node-0", "power-off", "nic-down", "agent-stopped"),
    ("nic-5s", "worker-raises", "worker-killed", "worker-segfault"),
    ("torchrun-killed", "worker-stopped", "torchrun-stopped", "agent-killed", "hub-killed"),
    ("guardian-killed", "guardian-stopped", "ignores-term", "launcher-killed"),
    ("stale-store", "port-stolen", "disk-full", "workdir-full", "clock-off", "sshd-killed", "child-left"),
)


@dataclass(frozen=True)
class Matrix:
    """What came of each fault, and what the verbs reported while a node was dark."""

    lab: Lab
    seen: Mapping[str, Future[Seen]]
    ends: Mapping[str, Future[dict[str, End]]]  # what each verb reports of it afterwards
    dark: Mapping[str, Future[Result]]


@pytest.fixture(scope="module")
def matrix(
    namespaces: None,  # noqa: ARG001  (skips where there can be no lab)
    request: pytest.FixtureRequest,
) -> Iterator[Matrix]:
    """Strike the faults that are asked for, batch by batch; what comes of each is there when it is looked at."""
    struck = selected(request.session, test_a_fault)
    asked = selected(request.session, test_every_verb_reports_the_same_end)
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="cl-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        state = folder / "s" / "clusterctl" / "lab"
        places = [PLACES.get(name, 0) for name in {*NEEDED, *struck, *asked}]
        lab = up(state, LabOptions(name="matrix", count=3 * max(places) + 3, nics=NICS, bound=True))
        stack.callback(labs.down, state)
        leave_payload_in_lab(lab)
        pool = stack.enter_context(ThreadPoolExecutor(2 * len(FAULTS)))
        seen: dict[str, Future[Seen]] = {}
        ends: dict[str, Future[dict[str, End]]] = {}
        dark: dict[str, Future[Result]] = {}
        for batch in BATCHES:
            strike(
                lab,
                folder,
                [fault for fault in FAULTS if fault.name in {*NEEDED, *struck, *asked}.intersection(batch)],
                pool,
                seen,
                ends,
                asked,
            )
            if "power-off" in batch:
                dark = ask_in_the_dark(lab, folder, pool)
        yield Matrix(lab, seen, ends, dark)


def selected(session: pytest.Session, test: Callable[..., None]) -> set[str]:
    """Name the faults with which a test is about to run."""
    items = [item for item in session.items if isinstance(item, pytest.Function) and item.function is test]
    return {item.callspec.params["fault"].name for item in items}


def strike(
    lab: Lab,
    folder: Path,
    batch: Sequence[Fault],
    pool: ThreadPoolExecutor,
    seen: dict[str, Future[Seen]],
    ends: dict[str, Future[dict[str, End]]],
    asked: Collection[str],
) -> None:
    """Launch the runs of a batch side by side, strike each, and ask all verbs about those that are to be `asked`."""
    runs = {}
    for fault in batch:
        first = 3 * PLACES.get(fault.name, 0)
        nodes = lab.nodes[first : first + 3]
        prepare = SETTINGS.get(fault.name)
        setting = prepare(lab, nodes, folder / fault.name) if prepare else Setting()
        runs[fault.name] = begin(fault.name, lab, nodes, folder, inventory=setting.inventory)
    for fault in batch:
        wait_until(runs[fault.name].settled, f"{fault.name} settled: {runs[fault.name].err}")
        seen[fault.name] = pool.submit(observe, fault, runs[fault.name])
        if fault.name in asked:
            ends[fault.name] = pool.submit(
                ask_afterwards, seen[fault.name], runs[fault.name], folder / fault.name
            )


def ask_afterwards(seen: Future[Seen], run: Struck, folder: Path) -> dict[str, End]:
    """Ask all verbs how a run ended, once it has; a node that has no power stays without."""
    seen.result()
    return ask_all(lambda *words: cctl(None, "-i", run.inventory, *words), run.run, folder / "page.html")


def ask_in_the_dark(lab: Lab, folder: Path, pool: ThreadPoolExecutor) -> dict[str, Future[Result]]:
    """Ask side by side about nodes of which one has no power: each verb waits out its own time limits."""
    first = 3 * PLACES["power-off"]
    wait_until(lambda: not lab.nodes[first + 1].read_state().is_on, "no power")
    inventory = inventory_of(lab, lab.nodes[first : first + 3], folder / "dark")
    job = make_project(folder / "dark" / "p", "print('never')")
    verbs = (("check", "--json"), ("launch", job), ("ps", "--json"))
    return {words[0]: pool.submit(cctl, None, "-i", inventory, *words) for words in verbs}


@pytest.mark.parametrize(
    "fault",
    [pytest.param(one, id=one.name, marks=[] if one.name in STRUCK else [VARIANT]) for one in FAULTS],
)
def test_a_fault(matrix: Matrix, fault: Fault) -> None:
    """The node's name on the screen, the exit code, and no process left anywhere."""
    seen = matrix.seen[fault.name].result()
    node = f"gpu{3 * PLACES.get(fault.name, 0) + fault.place + 1:02}"

    print(fault.name, seen.seconds, seen.said)
    for text in fault.says:
        assert text.replace("{node}", node) in seen.said
    assert seen.exit == fault.exit
    assert seen.left == {}
    assert (seen.seconds is None) == (fault.within is None)


@pytest.mark.parametrize(
    "fault",
    [pytest.param(one, id=one.name, marks=[] if one.name in ASKED else [VARIANT]) for one in FAULTS],
)
def test_every_verb_reports_the_same_end(matrix: Matrix, fault: Fault) -> None:
    """State, cause and exit code are those of `launch`, in each verb, also while a node has no power."""
    seen, ends = matrix.seen[fault.name].result(), matrix.ends[fault.name].result()

    assert find_differences(ends, shown_state(seen.said), seen.exit) == []


def test_a_halted_agent_is_not_taken_for_a_lost_node(matrix: Matrix) -> None:
    """Its node answers connections: it has the whole limit, and its guardian ends it at the same time."""
    said = matrix.seen["agent-stopped"].result().said

    assert "silent for 20 s" in said
    assert "its node does not answer" not in said


def test_the_port_was_another_one(matrix: Matrix) -> None:
    """A stale store and a thief hurt no one: the run's port was another one of the four."""
    stale, stolen = matrix.seen["stale-store"].result(), matrix.seen["port-stolen"].result()
    taken = re.findall(r"settled (\d+)", stolen.out)
    ports = [int(re.findall(r"master \S+:(\d+)", seen.said)[-1]) for seen in (stale, stolen)]

    assert ports[0] in range(21001, 21004)
    assert len(taken) == 1
    assert ports[1] in {*range(21100, 21104)} - {int(taken[0])}


def test_a_powered_off_node_is_named_while_the_others_answer(matrix: Matrix) -> None:
    """check shows two nodes and names the third; launch starts nothing; the others still tell their runs."""
    check, launch, ps = (matrix.dark[verb].result() for verb in ("check", "launch", "ps"))
    dark = matrix.lab.nodes[3 * PLACES["power-off"] + 1].name

    assert check.code == 4
    findings = json.loads(check.out)["findings"]
    assert [found["nodes"] for found in findings if found["code"].startswith("CC-SSH")] == [[dark]]
    assert launch.code == 4
    assert dark in launch.err
    assert ps.code == 5
    assert dark in ps.err
    assert len(json.loads(ps.out)["runs"]) == 1
