"""The playbooks of stacks on a lab: does each run, are its ranks found, is a broken rank named, is nothing left?

    python -m tests.bench stacks [NAME ...] [--nodes NODES] [--wheels FOLDER]

Each is launched twice, without and with its environment in place, then once more with an exception in the last rank:
node, rank and line must be named. The nodes have no network: packages are downloaded here first, which is not timed;
FOLDER keeps them for the next time. Not part of `./test`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from measuring import Bar, Cell, Table, options_for, report, tell

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab
from clusterctl.lab.layout import DEFAULT_NICS
from clusterctl.specs.job.parse import parse_job

PLAYBOOKS = Path(__file__).parents[2] / "playbooks" / "stacks"
COMMAND = (sys.executable, "-m", "clusterctl")
TORCH_RANK = 'int(__import__("os").environ["RANK"])'
MAX_WAIT = 10.0  # seconds that processes have to exit after the run has ended


@dataclass(frozen=True)
class Stack:
    """What is particular to a playbook.

    `package` is the one whose version is shown. The last rank raises before the first line of the script that
    contains `before`; `rank` is how the script knows its rank, and `greeting` what it prints of it, in front of
    ` on NODE` if the order of the ranks is not ours. `cause` is in the result of the broken run, besides the line.
    """

    package: str
    before: str
    rank: str = TORCH_RANK
    greeting: str = "rank {last} of {count}"
    cause: str = "rank {last} on {node}: ValueError: broken on purpose"
    script: str = "train.py"


STACKS: Mapping[str, Stack] = {
    "nested-torchrun": Stack("torch", "loss.backward()"),
    "accelerate": Stack("accelerate", "optimizer.step()"),
    "hf-trainer": Stack("transformers", "return {"),
    "fsdp2-dcp": Stack("torch", "loss.backward()"),
    "lightning": Stack("lightning", "x, y = batch"),
    "deepspeed": Stack("deepspeed", "engine.backward(loss)"),
    "jax": Stack("jax", "x = jax.make_array", "jax.process_index()", "process {last} of {count}"),
    "ray-rl": Stack("ray", "chances, gradient", "self.number", cause="in ray::Player.play() on {node}"),
    "ray-train": Stack("ray", "loss.backward()", "rank", cause="in RayTrainWorker (rank {last}) on {node}"),
    "mpi-allreduce": Stack("mpi4py", "size, found, failed =", "world.rank", script="bench.py"),
}


@dataclass(frozen=True)
class Launch:
    """A launch that has ended."""

    code: int
    seconds: float
    text: str
    ranks: int
    left: tuple[str, ...]


def main() -> None:
    """Run the playbooks that are named, or all."""
    options = options_for(__doc__, rounds=1)
    options.add_argument("-n", "--nodes", type=int, default=2)
    options.add_argument("--wheels", type=Path, help="keep what is downloaded in this folder")
    options.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(STACKS)}")
    asked = options.parse_args()
    if unknown := set(asked.names) - set(STACKS):
        raise SystemExit(f"no such playbook: {', '.join(unknown)}; there are: {', '.join(STACKS)}")
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        os.environ.update(XDG_STATE_HOME=folder, CLUSTERCTL_LANG="en")
        state = Path(folder) / "clusterctl" / "lab"
        lab = up(state, LabOptions(name="bench", count=asked.nodes, nics=DEFAULT_NICS, bound=True))
        try:
            rows = [measure(lab, Path(folder), name, asked) for name in asked.names or STACKS]
        finally:
            labs.down(state)
    columns = (
        "stack",
        "version",
        "launcher",
        "ranks",
        "result",
        "with setup, s",
        "again, s",
        "broken",
        "left",
    )
    wrong = [row for row in rows if (row[4], row[7], row[8]) != ("ok", "rank, node, line", 0)]
    bars = [Bar("stacks that did not run, or whose broken rank was not named", len(wrong), 0)]
    raise SystemExit(report("stacks", [Table(f"Stacks on {asked.nodes} nodes", columns, rows)], bars, asked))


def measure(lab: Lab, folder: Path, name: str, asked: argparse.Namespace) -> list[Cell]:
    """Launch one playbook twice, and once broken; gives its row."""
    project = folder / name
    shutil.copytree(PLAYBOOKS / name, project)
    job = parse_job((project / "job.yaml").read_text(encoding="utf-8"), "job.yaml")
    wheels = (asked.wheels or folder / "wheels") / name
    if job.setup is not None:
        download(project / "requirements.txt", wheels, visible=job.setup.system_site_packages)
    first = launch(lab, project, wheels)
    again = launch(lab, project, wheels) if job.setup is not None else first
    stack, count = STACKS[name], asked.nodes * int(job.nproc_per_node)
    found = asked.nodes if job.launcher == "ray" else count  # Ray's workers are not ranks of ours
    line = break_rank(project / stack.script, stack, count - 1)
    broken = launch(lab, project, wheels)
    greeting = stack.greeting.format(last=count - 1, count=count)
    cause = stack.cause.format(last=count - 1, node=node_of(greeting, broken.text, lab))
    named = judge(broken, cause, f"{stack.script}:{line} ")
    greeted = greeting in first.text and greeting in again.text
    result = f"exit code {first.code}, {again.code}"
    if first.code == again.code == 0:
        result = "ok" if greeted else f"not seen: {greeting}"
    left = {*first.left, *again.left, *broken.left}
    tell(f"{name}: {result}, {named}, {first.seconds:.1f} s, {again.seconds:.1f} s, left {sorted(left)}")
    if result != "ok":
        tell(first.text + again.text)
    return [
        name,
        version_of(stack.package, wheels),
        job.launcher,
        again.ranks if again.ranks == found else f"{again.ranks}, expected {found}",
        result,
        round(first.seconds, 1) if job.setup is not None else None,
        round(again.seconds, 1),
        named,
        len(left),
    ]


def download(requirements: Path, wheels: Path, *, visible: bool) -> None:
    """Fill a wheelhouse with what the nodes' Python does not have; nothing is done if there is one."""
    if wheels.is_dir():
        return
    with tempfile.TemporaryDirectory(prefix="cb-venv-") as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(Path(folder) / "bin" / "python")
        if visible:
            inside = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/outer.pth"
            outer = sysconfig.get_path("purelib")
            (Path(folder) / inside).write_text(f"import site; site.addsitedir({outer!r})\n")
        plan = Path(folder) / "plan.json"
        words = [python, "-m", "pip", "-qq", "install", "--dry-run", "--report", str(plan)]
        subprocess.run([*words, "-r", str(requirements)], check=True)
        found = [entry["metadata"] for entry in json.loads(plan.read_text())["install"]]
        names = [f"{entry['name']}=={entry['version']}" for entry in found]
        aside = wheels.with_name(f"{wheels.name}.part")
        words = [python, "-m", "pip", "-qq", "wheel", "--no-deps", "--wheel-dir", str(aside)]
        subprocess.run([*words, *names], check=True)
        aside.rename(wheels)


def version_of(package: str, wheels: Path) -> str:
    """Give the version of the wheel, or of what the nodes have."""
    found = [path.name.split("-")[1] for path in wheels.glob(f"{package}-*.whl")]
    return found[0] if found else importlib.metadata.version(package)


def break_rank(script: Path, stack: Stack, rank: int) -> int:
    """Let one rank raise an exception in its first step; gives the number of that line."""
    lines = script.read_text(encoding="utf-8").splitlines()
    index = next(index for index, line in enumerate(lines) if stack.before in line)
    indent = " " * (len(lines[index]) - len(lines[index].lstrip()))
    condition = f"{indent}if {stack.rank} == {rank}:"
    raising = f'{indent}    raise ValueError("broken on purpose")'
    script.write_text("\n".join([*lines[:index], condition, raising, *lines[index:], ""]), encoding="utf-8")
    return index + 2


def launch(lab: Lab, project: Path, wheels: Path) -> Launch:
    """Launch a playbook to its end, and see what it leaves on the nodes."""
    known = {node.name: {process.pid for process in node.list_processes()} for node in lab.nodes}
    words = [*COMMAND, "-i", str(lab.inventory)]
    more = []
    if wheels.is_dir():
        link = project / "wheels"
        if not link.is_symlink():
            link.symlink_to(wheels.resolve())
        more = ["--set", "setup.wheelhouse=wheels"]
    began = time.monotonic()
    done = subprocess.run(
        [*words, "launch", str(project / "job.yaml"), *more], capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    shown = subprocess.run([*words, "status", "--json"], capture_output=True, text=True, check=False)
    nodes = json.loads(shown.stdout)["nodes"] if shown.returncode == 0 else []  # none if no run was started
    ranks = sum(len(node["ranks"]) for node in nodes)
    return Launch(
        done.returncode,
        seconds,
        done.stderr + done.stdout,
        ranks,
        left_over(lab, known),
    )


def left_over(lab: Lab, known: Mapping[str, set[int]]) -> tuple[str, ...]:
    """Name the processes that a run has left on the nodes, after a moment to exit."""
    deadline = time.monotonic() + MAX_WAIT
    while True:
        found = tuple(
            f"{node.name}: {process.command}"
            for node in lab.nodes
            for process in node.list_processes()
            if process.pid not in known[node.name]
        )
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def node_of(greeting: str, text: str, lab: Lab) -> str:
    """Name the node that a rank said it was on; the last node if it did not say."""
    places = [line.partition(f"{greeting} on ")[2].split() for line in text.splitlines()]
    said = next((words[0] for words in places if words), "")
    return next((node.name for node in lab.nodes if said in (node.name, node.plan.ip)), lab.nodes[-1].name)


def judge(broken: Launch, cause: str, line: str) -> str:
    """Say what of the cause was named."""
    text = " ".join(broken.text.split())
    if broken.code == 1 and cause in text and line in text:
        return "rank, node, line"
    tell(broken.text)
    failed = [text for text in broken.text.splitlines() if "FAILED" in text or "SUCCEEDED" in text]
    return f"not named: {failed[:1]}"


if __name__ == "__main__":
    main()
