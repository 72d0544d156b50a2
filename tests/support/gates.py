"""A real gate without an agent: it imports torch, becomes torchrun on GO, and its workers' ends and output are kept."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noderun import payload_zip
from waiting import wait_until

from clusterctl.node.runtime.processes import restore_signals

# Below those that Linux gives to outgoing connections (ip_local_port_range).
MASTER_PORTS = range(20000, 30000)


def choose_master_port() -> int:
    """Return a port on which torchrun can listen a moment later: no outgoing connection can take it until then."""
    for port in random.sample(MASTER_PORTS, 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("100 ports are taken")


@dataclass(frozen=True)
class Ended:
    """What one worker did: its files, its exit code as `Popen` has it, and the error file of torch's `record`."""

    code: int | None
    stdout: str
    stderr: str
    error: dict[str, Any] | None


@dataclass
class Gate:
    """One gate; `start` is how it is to start workers, `code` the working directory."""

    root: Path
    code: Path
    start: str
    workers: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    preload: Sequence[str] = ()
    module: str = "torch.distributed.run"
    python: str = sys.executable
    reports: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start it."""
        self.root.mkdir()
        archive = self.root / "payload.zip"
        archive.write_bytes(payload_zip())
        self.attempt = self.root / "attempt-1"
        self.attempt.mkdir()
        go, self._go = os.pipe()
        report_read, report = os.pipe()
        self._reports = os.fdopen(report_read)
        plan = self.plan()
        waits = self.start == "waiting"
        words = [str(go), str(report), self.module, *([json.dumps({**plan, "waits": waits})] if plan else [])]
        self.process = start_gate(self, [self.python, str(archive), "gate", *words], (go, report))
        os.close(go)
        os.close(report)
        if waits:
            self.give_attempt([self.python, str(archive)], self.variables())

    def give_attempt(self, argv: list[str], env: Mapping[str, str]) -> None:
        """Give a gate that waits its attempt."""
        start, log = self.plan(), str(self.attempt / "torchrun.log")
        attempt = {"argv": argv, "start": start, "env": dict(env), "cwd": str(self.root), "log": log}
        os.write(self._go, json.dumps(attempt).encode() + b"\n")

    def plan(self) -> dict[str, Any]:
        """How it is to start workers; nothing for new interpreters."""
        if self.start == "exec":
            return {}
        return {"workers": self.workers, "preload": list(self.preload)}

    def variables(self) -> dict[str, str]:
        """Give the environment of the gate."""
        return {**os.environ, "PYTHONUNBUFFERED": "1", **self.env}

    def read_report(self, name: str) -> dict[str, Any]:
        """Read up to a report of a name."""
        while True:
            line = self._reports.readline()
            assert line, f"the gate has ended: {self.log()}"
            self.reports.append(json.loads(line))
            if name in self.reports[-1]:
                return self.reports[-1]

    def go(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Gate:
        """Give GO for a script or a module, with torchrun's own way of writing either."""
        port = choose_master_port()
        flags = {
            "--nnodes": 1,
            "--nproc-per-node": self.workers,
            "--rdzv-backend": "static",
            "--rdzv-id": "test",
            "--master-addr": "127.0.0.1",
            "--master-port": port,
            "--max-restarts": 0,
            "--redirects": 3,
            "--log-dir": self.attempt,
        }
        words = [str(word) for pair in flags.items() for word in pair]
        is_module = argv[0] == "--module"
        program = [*(["--module"] if is_module else []), "--", *argv[int(is_module) :]]
        order = {
            "cwd": str(self.code),
            "env": {"PWD": str(self.code), **(env or {})},
            "argv": [*words, *program],
        }
        node = {"attempt": str(self.attempt), "node_rank": 0}
        os.write(self._go, json.dumps({**order, **node}).encode() + b"\n")
        os.close(self._go)
        return self

    def ended(self) -> dict[int, Ended]:
        """Wait for the end of torchrun; returns what its workers did, by rank."""
        self.reports += [json.loads(line) for line in self._reports]
        self.process.wait()
        codes = {entry["ended"]["rank"]: entry["ended"]["code"] for entry in self.reports if "ended" in entry}
        return {
            rank: Ended(
                codes.get(rank), read(folder / "stdout.log"), read(folder / "stderr.log"), read_error(folder)
            )
            for rank, folder in self.folders().items()
        }

    def folders(self) -> dict[int, Path]:
        """Name the directories of the workers."""
        workers = [entry["worker"] for entry in self.reports if "worker" in entry]
        return {int(entry["RANK"]): Path(entry["TORCHELASTIC_ERROR_FILE"]).parent for entry in workers}

    @property
    def method(self) -> tuple[str, str]:
        """How the workers were started, and why not forked."""
        found = [(entry["start"], entry["text"]) for entry in self.reports if "start" in entry]
        return found[0] if found else ("", "")

    def log(self) -> str:
        """Read what the gate and torchrun wrote."""
        return (self.attempt / "torchrun.log").read_text()

    def kill(self) -> None:
        """End what is left of it."""
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not self.left(), "the end of the gate's processes")

    def left(self) -> list[int]:
        """List the processes that have the gate's directory in their command line or open files."""
        return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if self._is_ours(folder)]

    def _is_ours(self, folder: Path) -> bool:
        try:
            state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
            words = (folder / "cmdline").read_bytes()
            output = str((folder / "fd" / "1").readlink())
        except OSError:
            return False
        mark = f"{self.root}/"
        return state not in (b"Z", b"X") and (mark.encode() in words or output.startswith(mark))


def start_gate(gate: Gate, words: list[str], descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """Start a gate; one that waits opens the log when it has an attempt."""
    with (gate.attempt / "torchrun.log").open("w") as log:
        return subprocess.Popen(
            words,
            pass_fds=descriptors,
            env=gate.variables(),
            cwd=gate.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=restore_signals,  # noqa: PLW1509 - as the agent does; nothing here has threads
        )


def read(path: Path) -> str:
    """Read a file that may be missing."""
    return path.read_text(errors="backslashreplace") if path.exists() else ""


def read_error(folder: Path) -> dict[str, Any] | None:
    """Read what torch's `record` wrote of an error."""
    path = folder / "error.json"
    content: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return content


Start = Callable[..., Gate]
