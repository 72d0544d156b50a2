"""The ground of the attacks: a real cluster, what ran on it, and the client as a command in a world of its own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from node import CASES

from clusterctl.lab.labs import Lab
from clusterctl.plans.notify import Hooks, hooks_to_record
from clusterctl.specs.job.model import OnEnd

HERE = Path(__file__).parent
STUB = HERE.parent / "stub"
NODES = ("gpu01", "gpu02", "gpu03")
LIAR = "gpu02"
MAX_MEMORY = 300 << 20
ADDRESS_SPACE = 3 << 30  # an attack that succeeds must not harm the machine that runs the tests
HANG = 300.0  # seconds; far beyond every limit that these commands have
ENOUGH = 6.0  # seconds of a stream that may go on for ever, before Ctrl-C
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069]")
VERBS_OF_THE_PAYLOAD = (
    "probe",
    "sync",
    "start",
    "follow",
    "stop",
    "ps",
    "exec",
    "files",
    "clean",
    "orphans",
    "staged",
    "top",
    "diagnose",
    "history",
    "any",  # lies in all of them
)
SCRIPT = """
import os, sys, pathlib
folder = pathlib.Path(os.environ["CLUSTERCTL_OUTPUT_DIR"])
folder.mkdir(parents=True, exist_ok=True)
(folder / "model.bin").write_bytes(b"weights of rank " + os.environ["RANK"].encode() * 4096)
print("hello from rank", os.environ["RANK"])
print("a warning", file=sys.stderr)
"""

# Each rank writes a part of a checkpoint, and ends when copies of all are on other nodes.
KEPT = """
import glob, os, pathlib, time
folder = pathlib.Path(os.environ["CLUSTERCTL_OUTPUT_DIR"], "step-1")
folder.mkdir(parents=True, exist_ok=True)
(folder / os.environ["NODE_RANK"]).write_bytes(b"part of rank " + os.environ["NODE_RANK"].encode() * 4096)
if os.environ["NODE_RANK"] == "0":
    (folder / "done").touch()
states = os.path.expanduser("~/.clusterctl/runs/" + os.environ["CLUSTERCTL_RUN_ID"] + "/*/state.json")
while '"safe"' not in pathlib.Path(glob.glob(states)[0]).read_text():
    time.sleep(0.1)
"""
CHECKPOINTS = {"path": "${output_dir}/step-*", "complete": "done"}


@dataclass(frozen=True)
class Seen:
    """What a command printed, how it ended, what it used, and what it changed on this machine."""

    code: int
    out: str
    err: str
    ended: bool
    memory: int
    cpu: float
    changed: tuple[str, ...]
    leaked: tuple[str, ...] = ()  # what has come where it must not be

    @property
    def documents(self) -> list[Any]:
        """Read stdout as JSON, one document or one in each line."""
        try:
            return [json.loads(self.out)]
        except ValueError:
            return [json.loads(line) for line in self.out.splitlines()]

    @property
    def both(self) -> str:
        """Everything that was printed."""
        return self.out + self.err


def machine_environment() -> dict[str, str]:
    """Copy the variables of this process: pytest changes one for each test, also while a thread reads them."""
    while True:
        try:
            return dict(os.environ)
        except (KeyError, RuntimeError):
            continue


@dataclass
class World:
    """The machine of one user: home, state directory, working directory and a canary, below one folder."""

    folder: Path

    def make(self, id_file: Path, known_hosts: Path) -> None:
        """Furnish it: the user is the one whose id this is."""
        for name in ("home/.ssh", "home/.docker", "state/clusterctl/ends", "work", "canary"):
            (self.folder / name).mkdir(parents=True, mode=0o700)
        (self.folder / "home/.docker/config.json").write_text('{"auths": {}}', encoding="ascii")
        (self.folder / "home/.ssh/authorized_keys").write_text("ours\n", encoding="ascii")
        shutil.copy(known_hosts, self.folder / "home/.ssh/known_hosts")
        shutil.copy(id_file, self.folder / "state/clusterctl/id")
        self.plant(self.folder / "home/planted-20991122T071140-03b1.json")

    def plant(self, file: Path) -> None:
        """Write a hook file whose command touches the canary."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.hook, encoding="ascii")

    @property
    def hook(self) -> str:
        """A hook file as clusterctl itself writes it, with a command that must never run."""
        command = ("touch", str(self.folder / "canary" / "SANG"))
        end = OnEnd(command=command, when=())
        return json.dumps(hooks_to_record(Hooks("demo", "lab", "/", end, ())))

    @property
    def environment(self) -> dict[str, str]:
        """The variables of this user's commands."""
        here = machine_environment()
        kept = {key: value for key, value in here.items() if not key.startswith(("CLUSTERCTL_", "XDG_"))}
        mine = {
            "HOME": str(self.folder / "home"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "CLUSTERCTL_INVENTORY": str(self.folder / "inventory.yaml"),
        }
        return {**kept, **mine}

    def listing(self) -> dict[str, str]:
        """Every file here and a hash of what it holds or where it leads."""
        return {
            str(path.relative_to(self.folder)): str(path.readlink())
            if path.is_symlink()
            else hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.folder.rglob("*"))
            if path.is_symlink() or path.is_file()
        }

    def run(
        self, argv: Sequence[str], *, hang: float = HANG, interrupt: bool = False, **variables: str
    ) -> Seen:
        """Run clusterctl to its end, or end it when it hangs; `interrupt` is a user who has seen enough."""
        # not before the settings of this machine are shut out, which is when conftest.py has been imported
        from commands import can_fork, measure_command

        environment, before = {**self.environment, **variables}, self.listing()
        if can_fork(environment) and not interrupt:
            work = self.folder / "work"
            done, spent = measure_command(
                argv, cwd=work, env=environment, timeout=hang, address_space=ADDRESS_SPACE
            )
            ends = done.returncode, done.stdout, done.stderr, True, spent.memory << 10, spent.seconds
        else:
            ends = self._run_alone(argv, environment, hang, interrupt=interrupt)
        after = self.listing()
        changed = tuple(sorted(path for path in {*before, *after} if before.get(path) != after.get(path)))
        return Seen(*ends, changed)

    def _run_alone(
        self, argv: Sequence[str], environment: Mapping[str, str], hang: float, *, interrupt: bool
    ) -> tuple[int, str, str, bool, int, float]:
        """Run it in an interpreter of its own, to which a Ctrl-C can come."""
        used = self.folder / "used.json"
        words = [sys.executable, "-I", "-S", str(HERE / "measured.py"), str(used), str(ADDRESS_SPACE)]
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [*words, sys.executable, "-m", "clusterctl", *argv],
                cwd=self.folder / "work",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            if interrupt:
                self._await_words(process)
            ended = _ends(process, ENOUGH if interrupt else hang)
            if interrupt and not ended:
                _signal_child(process, signal.SIGINT)
                ended = _ends(process, hang)
            if not ended:
                _signal_child(process, signal.SIGKILL)
                process.wait()
        told = json.loads(used.read_text())
        texts = [
            (self.folder / name).read_bytes().decode("utf-8", "surrogateescape") for name in ("out", "err")
        ]
        for name in ("out", "err", "used.json"):
            (self.folder / name).unlink()
        return told["code"], texts[0], texts[1], ended, told["kib"] << 10, told["cpu"]

    def _await_words(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the command has said which inventory it uses: then it is about to connect."""
        while process.poll() is None and not (self.folder / "err").stat().st_size:
            time.sleep(0.05)


def _ends(process: subprocess.Popen[bytes], limit: float) -> bool:
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        return False
    return True


def _signal_child(process: subprocess.Popen[bytes], number: int) -> None:
    """Signal the command itself, which its runner waits for."""
    with suppress(OSError):
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(pid), number)


@dataclass
class Ground:
    """A cluster of three nodes, a user who has launched three jobs on it, and room for worlds of his."""

    lab: Lab
    folder: Path
    runs: dict[str, str] = field(default_factory=dict)  # by job

    def prepare(self) -> None:
        """Put the liar's program and an honest one in place, and launch the jobs honestly."""
        for home in self._homes.values():
            self._put_programs(home)
        owner = self.folder / "owner"
        owner.mkdir()
        (owner / "id").write_text("0123456789abcdef\n", encoding="ascii")
        for job, nodes in (("kept", "all"), ("solo", "gpu03"), ("demo", "all")):
            world = self.world(f"launch-{job}")
            self.project(world, job)
            wish = [] if nodes == "all" else ["--nodes", nodes]
            seen = world.run(["launch", "job.yaml", *wish])
            assert seen.code == 0, seen.both
            found = re.search(rf"{job}-\d{{8}}T\d{{6}}-[0-9a-f]+", seen.err)
            assert found is not None, seen.err
            self.runs[job] = found[0]

    @cached_property
    def _homes(self) -> Mapping[str, Path]:
        return {node.name: Path(self.lab.plan.home_directory(node.plan)) for node in self.lab.nodes}

    def _put_programs(self, home: Path) -> None:
        honest = home / "honest"
        honest.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
        honest.chmod(0o755)
        text = (HERE / "node.py").read_text(encoding="utf-8")
        (home / "node.py").write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
        (home / "node.py").chmod(0o755)

    def _put_lie(self, lie: str, liar: str) -> None:
        """Give every home a Python of that name: on the liar it lies, on the other nodes it is an honest one."""
        verb, _, case = lie.partition(".")
        assert verb in VERBS_OF_THE_PAYLOAD and case in CASES, lie
        for name, home in self._homes.items():
            (home / f"lies-{liar}").mkdir(exist_ok=True)
            with suppress(FileExistsError):
                (home / f"lies-{liar}" / lie).symlink_to(
                    "../node.py" if liar in (name, "all") else "../honest"
                )

    def project(self, world: World, job: str) -> None:
        """Write a job and its script into the working directory of a world."""
        work = world.folder / "work"
        keeps = {"launcher": "python", "restart": {}, "checkpoints": CHECKPOINTS} if job == "kept" else {}
        (work / "train.py").write_text(KEPT if keeps else SCRIPT, encoding="utf-8")
        wish = {
            "name": job,
            "script": "train.py",
            "nproc_per_node": 1,
            "backend": "gloo",
            "grace": "2s",
            **keeps,
        }
        (work / "job.yaml").write_text(
            json.dumps({**wish, "env": {"PYTHONPATH": str(STUB)}}), encoding="utf-8"
        )

    def world(self, name: str, lie: str = "", liar: str = LIAR) -> World:
        """Make a world whose inventory leads to nodes of which one lies."""
        world = World(self.folder / name)
        world.make(self.folder / "owner" / "id", self.lab.directory / "known_hosts")
        text = self.lab.inventory.read_text(encoding="utf-8")
        if lie:
            self._put_lie(lie, liar)
            text = re.sub("(?m)^python: .*", f"python: ~/lies-{liar}/{lie}", text)
        (world.folder / "inventory.yaml").write_text(text, encoding="utf-8")
        return world

    def lost(self, job: str, liar: str) -> list[str]:
        """Name what is gone of a job's run on the honest nodes."""
        parts = {"demo": ("0-gpu01", "1-gpu02", "2-gpu03"), "solo": ("0-gpu03",)}[job]
        homes = self._homes
        held = [
            homes[part[2:]] / ".clusterctl/runs" / self.runs[job] / part for part in parts if part[2:] != liar
        ]
        return [str(folder) for folder in held if not (folder / "spec.json").exists()]

    @cached_property
    def hosts(self) -> Mapping[str, str]:
        """The addresses of the nodes by name."""
        return {node.name: node.plan.host for node in self.lab.nodes}
