"""Runs that wait to be struck by a fault: launched on a lab, seen into, ordered what to do; for tests and the bench."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from driving import COMMAND, STUBBED, environment, make_project, run_id

from clusterctl.lab.labs import Lab, LabNode, NodeProcess

STUB = Path(__file__).parents[1] / "stub" / "torch" / "distributed" / "run.py"

# The worst program: ignores TERM, and so does its child, which left the session and has no tag; it acts on commands.
WORKER = """
import os, signal, subprocess, sys, time
mark = sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([mark, "600"], executable="/bin/sleep", env={}, start_new_session=True)
print("settled", *(open(f).read() for f in ["/tmp/thief.port"] if os.path.exists(f)), flush=True)
while not os.path.exists("/tmp/" + mark):
    time.sleep(0.05)
exec(open("/tmp/" + mark).read())
"""
# One that heeds TERM and has no children.
PLAIN = "".join(
    line for line in WORKER.splitlines(keepends=True) if "SIG_IGN" not in line and "Popen" not in line
)


@dataclass
class Struck:
    """One run on some nodes of a lab, attached to a `launch` whose output goes to files."""

    name: str
    lab: Lab
    nodes: Sequence[LabNode]
    launch: subprocess.Popen[bytes]
    files: tuple[Path, Path]
    inventory: Path
    asking: subprocess.Popen[bytes] | None = None  # a `stop` that is on its way

    @property
    def mark(self) -> str:
        """The word in the command lines of its workers and their children, and of nothing else's."""
        return f"mark-{self.name}-"

    @property
    def out(self) -> str:
        """What the launch printed."""
        return self.files[0].read_text(encoding="utf-8", errors="replace")

    @property
    def err(self) -> str:
        """What the launch reported."""
        return self.files[1].read_text(encoding="utf-8", errors="replace")

    @property
    def run(self) -> str:
        """The run's name; empty before it has one."""
        return run_id(self.err) if "\nrun " in "\n" + self.err else ""

    def settled(self) -> bool:
        """Return whether every node's worker is at work; fails if the launch has ended."""
        assert self.launch.poll() is None, f"{self.name}: {self.err}"
        return self.out.count("settled") >= len(self.nodes)

    def processes(self, node: LabNode) -> list[NodeProcess]:
        """List all that lives of it on a node."""
        run = self.run or "no such run"
        return [
            process
            for process in node.list_processes()
            if self.mark in process.command or run in process.command or process.run_id.startswith(run)
        ]

    def left(self, *, without: Sequence[LabNode] = ()) -> dict[str, list[str]]:
        """List what lives of it on its nodes; empty when nothing does."""
        found = {
            node.name: [process.command for process in self.processes(node)]
            for node in self.nodes
            if node.name not in [other.name for other in without]
        }
        return {name: commands for name, commands in found.items() if commands}

    def traces(self, *, without: Sequence[LabNode] = (), watchers: bool = True) -> list[str]:
        """Give the places in /proc, as seen from here, of what lives of it: cheap to look at often."""
        nodes = [node for node in self.nodes if node.name not in [other.name for other in without]]
        return [
            f"/proc/{init}/root/proc/{process.pid}"
            for node in nodes
            for init in (node.read_state().pid,)
            for process in self.processes(node)
            if watchers or self.mark in process.command
        ]

    def find(self, node: LabNode, part: str) -> NodeProcess:
        """Find guardian, agent, torchrun or worker on a node."""
        ours = self.processes(node)
        if part == "agent":  # the guardian's child, whose command line it shares
            guardian = self.find(node, "guardian").pid
            children = node.run(["cat", f"/proc/{guardian}/task/{guardian}/children"]).stdout.split()
            return next(process for process in ours if str(process.pid) in children)
        word = {"guardian": ".zip guardian", "torchrun": ".zip gate", "worker": "train.py"}[part]
        return next(process for process in ours if word in process.command)

    def signal(self, node: LabNode, part: str, name: str) -> None:
        """Send a signal to one part of it on one node."""
        node.run(["kill", f"-{name}", str(self.find(node, part).pid)])

    def tell(self, node: LabNode, code: str) -> None:
        """Let the worker on a node do something."""
        place = f"/tmp/{self.mark}"
        node.run(["sh", "-c", f"cat > {place}.new && mv {place}.new {place}"], input=code)

    def finish(self) -> None:
        """Let all workers end well."""
        for node in self.nodes:
            self.tell(node, "raise SystemExit(0)")

    def ended(self, seconds: float) -> int:
        """Wait for the end of the launch; gives its exit code."""
        return self.launch.wait(timeout=seconds)


def begin(
    name: str,
    lab: Lab,
    nodes: Sequence[LabNode],
    folder: Path,
    *,
    inventory: Path | None = None,
    stub: bool = True,
    worker: str = WORKER,
    **job: object,
) -> Struck:
    """Launch a run and stay attached; gives it before it is settled."""
    wish = {"name": name, "args": [f"mark-{name}-"], "grace": "30s", **job}
    if stub:
        wish["env"] = STUBBED
    file = make_project(folder / name, worker, **wish)
    files = folder / f"{name}.out", folder / f"{name}.err"
    where = ["-i", str(inventory)] if inventory else []
    names = ",".join(node.name for node in nodes)
    words = [*COMMAND, *where, "launch", str(file), "--nodes", names]
    with files[0].open("wb") as out, files[1].open("wb") as err:
        launch = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment(lab),
            start_new_session=True,
        )
    return Struck(name, lab, nodes, launch, files, inventory or lab.inventory)
