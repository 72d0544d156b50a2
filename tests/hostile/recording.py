"""Write down what honest nodes send, as the seeds of the fuzz: python tests/hostile/recording.py

Runs of every kind are made on a lab of three nodes, and looked at by every verb. What names this machine is taken out.
What crashed runs leave behind is not made here: frames/orphans.json was written by hand after node/verbs/orphans.py.
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
from clusterctl.lab.build import LabOptions, up

FRAMES = HERE / "frames"
ROOT = HERE.parents[1]
MAX_TALKS = 8  # of a verb that are kept, each of another kind
MAX_FRAMES = 40
MAX_BODY = 20_000
MAX_ITEMS = 40  # items of a list that are kept
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
        lab = up(folder / "lab", LabOptions(name="record", count=3, bound=True, backend="inproc"))
        ground = Ground(lab, folder)
        ground.prepare()
        world = ground.world("record", "any.record", "all")
        make_runs(ground, world)
        homes = [Path(lab.plan.home_directory(node.plan)) for node in lab.nodes]
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
        ("fine", None, {}),
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
        ["diagnose", "lives"],
        ["report", "lives"],
        ["check"],
        ["exec", "--", "sh", "-c", "echo hi; echo no >&2; sleep 3"],
        ["clean", "-y"],
    ):
        world.run(words)
    for words in (["stop", "-y", "lives"], ["clean", "-y", "--keep", "0"], ["sync", "job.yaml"]):
        world.run(words)
    watching.wait(60)


def launch(ground: Ground, world: World, job: str, script: str | None, more: dict[str, object]) -> None:
    """Write a job into the world."""
    ground.project(world, job)
    if script:
        (world.folder / "work/train.py").write_text(script, encoding="ascii")
    file = world.folder / "work/job.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}), encoding="utf-8")


def write(lines: list[str], folder: str) -> None:
    """Keep one conversation of each kind, without what names this machine."""
    talks: dict[tuple[str, int], list[list[object]]] = {}
    for line in lines:
        verb, pid, header, body = json.loads(clean(line, folder))
        talks.setdefault((verb, pid), []).append([shorten(header), body[:MAX_BODY]])
    kept: dict[str, dict[str, list[list[object]]]] = {}
    for (verb, _), frames in talks.items():
        kinds = sorted({str(shape(header)) for header, _ in frames})
        kept.setdefault(verb, {}).setdefault(str(kinds), frames[:MAX_FRAMES])
    FRAMES.mkdir(exist_ok=True)
    kept.pop("orphans", None)
    for verb, kinds_of in kept.items():
        conversations = list(kinds_of.values())[:MAX_TALKS]
        text = ",\n".join(json.dumps(talk, separators=(",", ":")) for talk in conversations)
        (FRAMES / f"{verb}.json").write_text(f"[\n{text}\n]\n", encoding="ascii")


def shape(value: object, depth: int = 0) -> object:
    """Say what a value is like, so that one of each kind is kept: which keys have something in them."""
    if isinstance(value, dict):
        inner = {key: shape(one, depth + 1) for key, one in value.items() if one not in (None, "", [], {})}
        return sorted(inner) if depth > 3 else sorted((key, str(one)) for key, one in inner.items())
    if isinstance(value, list):
        return [shape(one, depth + 1) for one in value[:1]]
    return value if isinstance(value, str) and value.isupper() else type(value).__name__


def shorten(value: object) -> object:
    """Cut long lists, and leave out what a probe tells of this machine's surroundings."""
    if isinstance(value, dict):
        return {key: shorten(one) if key not in PRIVATE else type(one)() for key, one in value.items()}
    return [shorten(one) for one in value[:MAX_ITEMS]] if isinstance(value, list) else value


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
