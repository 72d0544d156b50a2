"""Write down what honest nodes send, as the seeds of the fuzz: python tests/hostile/recording.py

Runs of every kind are made on a lab of three nodes, and looked at by every verb. What names this machine is taken out.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ground import HERE, Ground, World

from clusterctl.lab import labs
from clusterctl.lab.building import up

FRAMES = HERE / "frames"
ROOT = HERE.parents[1]
PER_SHAPE = 2  # frames with the same keys that are kept
LONGEST = 40  # items of a list that are kept
PRIVATE = ("environment", "packages", "installed", "routing", "nics", "ports", "locks")
FAILS = """
import os, time
time.sleep(0.5)
if os.environ["RANK"] == "1":
    raise ValueError("no such layer")
time.sleep(60)
"""
AGAIN = """
import os, time
time.sleep(0.3)
if (os.environ["RANK"], os.environ["CLUSTERCTL_ATTEMPT"]) == ("1", "1"):
    os.kill(os.getpid(), 9)
"""
LIVES = """
import time
for step in range(600):
    print("step", step, flush=True)
    time.sleep(0.2)
"""


def main() -> None:
    """Make the runs, look at them, and write what was sent."""
    folder = Path(tempfile.mkdtemp(prefix="ch-"))
    try:
        lab = up(folder / "lab", name="record", count=3, bound=True, backend="inproc")
        ground = Ground(lab, folder)
        ground.prepare()
        world = ground.world("record", "any.record", "all")
        make_runs(ground, world)
        homes = [Path(lab.plan.home(node.plan)) for node in lab.nodes]
        write(
            [line for home in homes for line in (home / "recorded.jsonl").read_text().splitlines()],
            str(folder),
        )
    finally:
        labs.down(folder / "lab")
        shutil.rmtree(folder, ignore_errors=True)


def make_runs(ground: Ground, world: World) -> None:
    """Let jobs succeed, fail, start again and be stopped, and ask of them in every way."""
    for job, script, more in (
        ("demo", None, {}),
        ("fails", FAILS, {}),
        ("again", AGAIN, {"restart": {"max": 1}}),
    ):
        launch(ground, world, job, script, more)
        world.run(["launch", "job.yaml"])
        for words in (
            ["ps"],
            ["status"],
            ["status", job],
            ["attach", job],
            ["logs", "-t", job],
            ["pull", job],
        ):
            world.run(words)
    launch(ground, world, "lives", LIVES, {})
    watching = subprocess.Popen(
        [sys.executable, "-m", "clusterctl", "launch", "job.yaml"],
        cwd=world.folder / "work",
        env=world.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(8)
    for words in (
        ["status", "lives"],
        ["top", "--once"],
        ["check"],
        ["exec", "--", "sleep", "3"],
        ["clean", "-y"],
    ):
        world.run(words)
    orphan(ground)
    for words in (["stop", "-y", "lives"], ["clean", "-y", "--keep", "0"], ["sync", "job.yaml"]):
        world.run(words)
    watching.wait(60)


def orphan(ground: Ground) -> None:
    """Leave a process of a run without its agent and guardian on one node."""
    for process in ground.lab.nodes[2].processes():
        if "guardian" in process.command or "agent" in process.command:
            os.kill(process.pid, 9)


def launch(ground: Ground, world: World, job: str, script: str | None, more: dict[str, object]) -> None:
    """Write a job into the world."""
    ground.project(world, job)
    if script:
        (world.folder / "work/train.py").write_text(script, encoding="ascii")
    file = world.folder / "work/job.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}), encoding="utf-8")


def write(lines: list[str], folder: str) -> None:
    """Keep a few frames of each shape, without what names this machine."""
    kept: dict[str, list[object]] = {}
    seen: dict[str, int] = {}
    for line in lines:
        verb, header, body = json.loads(clean(line, folder))
        shape = f"{verb} {sorted(header)} {header.get('event')} {states(header)}"
        seen[shape] = seen.get(shape, 0) + 1
        if seen[shape] <= PER_SHAPE:
            kept.setdefault(verb, []).append([shorten(header), body[:20_000]])
    FRAMES.mkdir(exist_ok=True)
    for verb, frames in kept.items():
        text = "[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in frames) + "\n]\n"
        (FRAMES / f"{verb}.json").write_text(text, encoding="ascii")


def states(header: dict[str, object]) -> str:
    """Tell frames about one run's state apart by that state."""
    state = header.get("state")
    return f"{state.get('state')} {bool(state.get('roster'))}" if isinstance(state, dict) else ""


def shorten(value: object) -> object:
    """Cut long lists, and leave out what a probe tells of this machine's surroundings."""
    if isinstance(value, dict):
        return {key: shorten(one) if key not in PRIVATE else type(one)() for key, one in value.items()}
    return [shorten(one) for one in value[:LONGEST]] if isinstance(value, list) else value


def clean(line: str, folder: str) -> str:
    """Replace the names of places, people and machines."""
    names = {
        folder: "/lab",
        str(ROOT): "/home/ada/clusterctl",
        sys.base_prefix: "/usr",
        f"{getpass.getuser()}@{socket.gethostname()}": "ada@laptop",
        f'"{socket.gethostname()}"': '"node"',
        f'"{getpass.getuser()}"': '"ada"',
        os.uname().release: "6.1.0",
    }
    for name, other in names.items():
        line = line.replace(name, other)
    return re.sub(r"/root\b", "/home/ada", line)


main()
