"""Checkpoints that the nodes keep for each other, with real processes: a further attempt goes on from the newest."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from noderun import NodeRun
from restarting import RestartGang, vanish
from waiting import wait_until

Make = Callable[..., NodeRun]

# Each rank waits for files of its own, one after another, which hold what it is to do.
SCRIPT = """
import os, signal, time
out, attempt, rank = (os.environ[name] for name in ("CLUSTERCTL_OUTPUT_DIR", "CLUSTERCTL_ATTEMPT", "RANK"))

def save(name):
    os.makedirs(out + "/" + name, exist_ok=True)
    with open(out + "/" + name + "/" + rank + ".bin", "w") as file:
        file.write(name + " of rank " + rank + "\\n")
    if rank == "0":
        open(out + "/" + name + "/.metadata", "w").close()

resume = os.environ["CLUSTERCTL_RESUME"]
print("goes on from", resume, "=", os.environ["RESUME"], flush=True)
print("settled in attempt", attempt, "rank", rank, "of", os.environ["WORLD_SIZE"], flush=True)
step = 0
while True:
    place = os.environ["GANG_MARK"] + "/" + attempt + "." + rank + "." + str(step)
    while not os.path.exists(place):
        time.sleep(0.01)
    step += 1
    exec(open(place).read())
"""


class KeptGang(RestartGang):
    """Nodes whose ranks write checkpoints, each to a disk of its own."""

    def __init__(self, make: Make, count: int = 2, spares: int = 1, **settings: Any) -> None:
        super().__init__(make, count, spares, script=SCRIPT)
        self.steps: dict[tuple[int, int], int] = {}
        path = [{"fill": "output_dir"}, "/step-*"]
        usual = {"path": path, "complete": ".metadata", "copies": 2, "keep": 2, "rate": None, "needs": "all"}
        for node in self.nodes:
            node.spec["checkpoints"] = {**usual, **settings}
            node.spec["checkpoint_look"] = 0.1
            node.spec["output_dir"] = str(node.root / "out")
            node.spec["env"]["RESUME"] = [{"fill": "resume"}]

    def do(self, attempt: int, rank: int, code: str) -> None:
        """Send a rank another order."""
        step = self.steps.get((attempt, rank), 0)
        self.steps[attempt, rank] = step + 1
        aside = self.orders.parent / f"{attempt}.{rank}.new"
        aside.write_text(code)
        aside.rename(self.orders / f"{attempt}.{rank}.{step}")

    def save(self, attempt: int, name: str) -> None:
        """Write a checkpoint on all ranks."""
        for rank in range(self.count):
            self.do(attempt, rank, f"save({name!r})")

    def save_until_safe(self, attempt: int, pattern: str) -> str:
        """Write one checkpoint after another until one is not skipped; return its name."""
        for number in range(50):
            name = pattern.format(number)
            self.save(attempt, name)
            wait_until(
                lambda name=name: self.checkpoints(0).get(name) in ("safe", "skipped"), f"the end of {name}"
            )
            if self.checkpoints(0)[name] == "safe":
                return name
        raise AssertionError("all are skipped")

    def finish_all(self, attempt: int) -> None:
        """End all ranks with success."""
        for rank in range(self.count):
            self.do(attempt, rank, "raise SystemExit")
        self.ended()

    def wait_for(self, seat: int, name: str, state: str = "safe") -> None:
        """Wait until a node has recorded how far a checkpoint is."""
        wait_until(lambda: self.checkpoints(seat).get(name) == state, f"{name} {state} on {seat}")

    def checkpoints(self, seat: int) -> dict[str, str]:
        """Return the states of the checkpoints, as a node has recorded them."""
        return {one["name"]: one["state"] for one in self.nodes[seat].state().get("checkpoints", ())}

    def files(self, seat: int, name: str) -> dict[str, str]:
        """Read the files of a checkpoint on a node."""
        folder = self.nodes[seat].root / "out" / name
        return {path.name: path.read_text() for path in folder.iterdir()} if folder.is_dir() else {}

    def said(self, seat: int, rank: int) -> str:
        """Return what a rank goes on from, as it printed it."""
        (line,) = [line for line in self.nodes[seat].output(rank).splitlines() if line.startswith("goes on")]
        return line


def whole(name: str, ranks: int = 2) -> dict[str, str]:
    """Return the files of a checkpoint of all ranks."""
    return {".metadata": "", **{f"{rank}.bin": f"{name} of rank {rank}\n" for rank in range(ranks)}}


def test_a_spare_goes_on_from_the_checkpoint_of_the_node_that_it_replaces(node: Make) -> None:
    """It has the files of all ranks in their place before its ranks start, and their path in the environment."""
    gang = KeptGang(node).begin()
    gang.save(1, "step-1")
    gang.wait_for(0, "step-1")
    gang.save(1, "step-2")
    gang.wait_for(0, "step-2")
    gang.wait_for(2, "step-2")
    vanish(gang.nodes[1])
    gang.settled(2, [0, 2])
    said = gang.said(2, 1)
    found = [gang.files(seat, "step-2") for seat in (0, 2)]
    resumed = [gang.nodes[seat].state()["resumed"] for seat in (0, 2)]
    gang.save(2, "step-3")
    gang.wait_for(0, "step-3")
    gang.finish_all(2)

    place = gang.nodes[2].root / "out" / "step-2"
    assert said == f"goes on from {place} = {place}"
    assert found == [whole("step-2")] * 2
    assert resumed == ["step-2"] * 2
    assert gang.nodes[2].event("resume")["name"] == "step-2"
    assert [gang.nodes[seat].state()["state"] for seat in (0, 2)] == ["SUCCEEDED"] * 2


def test_the_hub_is_lost_with_the_first_part(node: Make) -> None:
    """The next hub asks all nodes what they have."""
    gang = KeptGang(node, count=3, spares=1).begin()
    gang.save(1, "step-1")
    gang.wait_for(1, "step-1")
    vanish(gang.nodes[0])
    gang.settled(2, [1, 2, 3])
    found = gang.files(3, "step-1")
    gang.finish_all(2)
    assert found == whole("step-1", 3)


def test_a_killed_rank_goes_on_from_files_that_are_in_place(node: Make) -> None:
    """What no node has whole, written by half when the rank was killed, is no checkpoint."""
    gang = KeptGang(node, spares=0, complete="").begin()
    gang.save(1, "step-1")
    gang.wait_for(0, "step-1")
    gang.do(1, 0, "save('step-2')")
    gang.do(1, 1, "os.makedirs(out + '/step-2', exist_ok=True); os.kill(os.getpid(), signal.SIGKILL)")
    gang.settled(2, [0, 1])
    said = gang.said(0, 0)
    gang.finish_all(2)
    assert said.endswith("/out/step-1")


def test_a_keeper_that_is_killed_costs_no_run_and_nothing_that_is_safe(node: Make) -> None:
    """Another one finds what is on the disk, and keeps what is written from then on, in the same attempt."""
    gang = KeptGang(node, spares=0).begin()
    gang.save(1, "step-1")
    gang.wait_for(0, "step-1")
    for keeper in keepers(gang.nodes[1]):
        os.kill(keeper, signal.SIGKILL)
    newest = gang.save_until_safe(1, "step-2-{}")
    gang.do(1, 1, "os.kill(os.getpid(), signal.SIGKILL)")
    gang.settled(2, [0, 1])
    said = gang.said(1, 1)
    gang.save(2, "step-3")
    gang.wait_for(0, "step-3")
    gang.finish_all(2)

    assert said.endswith(f"/out/{newest}")
    notes = [event.get("note", "") for event in gang.nodes[1].events() if event["event"] == "checkpoint"]
    assert any("the process that keeps checkpoints has ended" in note for note in notes)


def keepers(run: NodeRun) -> list[int]:
    """Return the pids of the keepers of a node."""
    return [pid for pid, command in run.left().items() if " keeper " in command]


def test_nodes_that_write_to_one_directory_copy_nothing(node: Make) -> None:
    """It is noted once, and the next attempt goes on from the files where they are."""
    gang = KeptGang(node)
    for one in gang.nodes:
        one.spec["output_dir"] = str(gang.nodes[0].root / "out")
    gang.begin()
    gang.save(1, "step-1")
    gang.wait_for(0, "step-1")
    vanish(gang.nodes[1])
    gang.settled(2, [0, 2])
    said = gang.said(2, 1)
    (state,) = gang.nodes[0].state()["checkpoints"]
    mirrored = [path for one in gang.nodes for path in (one.workdir / "mirror").rglob("*") if path.is_file()]
    copied = [path for path in mirrored if path.read_bytes().startswith(b"step-1 of rank")]
    gang.finish_all(2)

    assert said.endswith(f"{gang.nodes[0].root}/out/step-1")
    assert state["shared"]
    assert copied == []


def test_a_byte_of_the_only_copy_is_wrong_and_the_one_before_is_taken(node: Make) -> None:
    """Nothing that is not what its node has written is ever loaded."""
    gang = KeptGang(node).begin()
    for name in ("step-1", "step-2"):
        gang.save(1, name)
        gang.wait_for(0, name)
    for path in (gang.nodes[0].workdir / "mirror").rglob("*"):
        if path.is_file() and path.read_bytes() == b"step-2 of rank 1\n":
            path.chmod(0o600)
            path.write_bytes(b"step-2 of rank 7\n")
    for path in (gang.nodes[2].workdir / "mirror").rglob("*"):
        if path.is_file() and path.read_bytes() == b"step-2 of rank 1\n":
            path.unlink()
    vanish(gang.nodes[1])
    gang.settled(2, [0, 2])
    said = gang.said(2, 1)
    found = gang.files(2, "step-1")
    gang.finish_all(2)

    assert said.endswith("/out/step-1")
    assert found == whole("step-1")


def begin_slow_restore(node: Make) -> KeptGang:
    """Lose a node, and halt the keeper of the only other one that has its files before they are fetched."""
    gang = KeptGang(node, count=3, spares=2)
    for one in gang.nodes:
        one.spec["restart"]["pause"] = 8.0  # seconds in which the keeper is halted, on a loaded machine too
    gang.begin()
    gang.save(1, "step-1")
    gang.wait_for(0, "step-1")
    vanish(gang.nodes[1])
    wait_until(lambda: "pausing" in [event["event"] for event in gang.nodes[3].events()], "all have reported")
    for keeper in keepers(gang.nodes[2]):
        os.kill(keeper, signal.SIGSTOP)
    wait_until(lambda: gang.nodes[3].state()["attempt"] == 2, "the next attempt")
    return gang


def test_a_stop_while_files_are_fetched_ends_all(node: Make) -> None:
    """The keepers end with their agents, halted ones too."""
    gang = begin_slow_restore(node)
    os.kill(gang.nodes[0].pid("guardian"), signal.SIGTERM)
    gang.ended()
    assert [gang.nodes[seat].state()["state"] for seat in (0, 2, 3)] == ["STOPPED"] * 3


def test_a_node_dies_while_others_fetch_its_files(node: Make) -> None:
    """Two neighbours are gone: what both had is lost, which the journal says, and the run begins from scratch."""
    gang = begin_slow_restore(node)
    halted = keepers(gang.nodes[2])
    vanish(gang.nodes[2])
    for keeper in halted:
        os.kill(keeper, signal.SIGKILL)
    gang.settled(3, [0, 3, 4])
    said = [line for line in gang.nodes[3].output(1).splitlines() if line.startswith("goes on from")]
    notes = [
        (event["name"], event["state"], event["note"])
        for event in gang.nodes[0].events()
        if event["event"] == "checkpoint"
    ]
    gang.finish_all(3)

    assert said == ["goes on from  = "]
    assert notes == [("step-1", "safe", ""), ("step-1", "lost", "no checkpoint is left")]
