"""A real gate without an agent: it imports torch, becomes torchrun on GO, and its workers' ends and output are kept."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from noderun import payload_zip
from waiting import HANG, wait_until

from clusterctl.node.fork.warm_client import close_all, pack_variables, receive, send
from clusterctl.node.runtime.processes import restore_signals, set_subreaper

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
        if self.start == "waiting":
            let_gates_wait(archive)
        self.attempt = self.root / "attempt-1"
        self.attempt.mkdir()
        if self.start in ("warm", "waiting"):
            with start_warm_server(self, archive) as connection:
                self._connect(lambda words, pipes: fork_gate(self, connection, words, pipes))
        else:
            self._connect(lambda words, pipes: start_gate(self, words, pipes))

    def _connect(self, start: Callable[[list[str], tuple[int, int]], Process]) -> None:
        """Start the process at the ends of two pipes."""
        go, self._go = os.pipe()
        report_read, report = os.pipe()
        self._reports = os.fdopen(report_read)
        plan = self.plan()
        words = [str(go), str(report), self.module, *([json.dumps(plan)] if plan else [])]
        self.process = start([self.python, str(self.root / "payload.zip"), "gate", *words], (go, report))
        os.close(go)
        os.close(report)

    def plan(self) -> dict[str, Any]:
        """How it is to start workers; nothing for new interpreters."""
        if self.start == "exec":
            return {}
        mode = "fork" if self.start in ("warm", "waiting") else self.start
        return {"mode": mode, "workers": self.workers, "preload": list(self.preload)}

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


class Process(Protocol):
    """The gate's process."""

    pid: int

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""

    def wait(self) -> int:
        """Wait for the end."""


class Adopted:
    """A child that another process has forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the end."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code


def start_gate(gate: Gate, words: list[str], descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """Start a gate with a new interpreter."""
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


LET_GATES_WAIT = """
import os, time
from clusterctl.node.fork.warm_server import Server

serve_agent = Server.serve_agent

def serve_next_agent(server, connection):
    while os.getppid() != {agent}:
        time.sleep(0.001)
    server._open = [connection]
    server._prepare_gate()
    serve_agent(server, connection)

Server.serve_agent = serve_next_agent
del Server._fork_again  # there is no other gate than the one that waits
"""


def let_gates_wait(archive: Path) -> None:
    """Have the server start its gate before there are words for it, as that of a run that is to come does."""
    with zipfile.ZipFile(archive) as plain:
        texts = {name: plain.read(name) for name in plain.namelist()}
    texts["__main__.py"] = LET_GATES_WAIT.format(agent=os.getpid()).encode("ascii") + texts["__main__.py"]
    with zipfile.ZipFile(archive, "w") as changed:
        for name, text in texts.items():
            changed.writestr(name, text)


@contextmanager
def start_warm_server(gate: Gate, archive: Path) -> Iterator[socket.socket]:
    """Start a gate that forks a warm server, and end it; this process adopts the server, as an agent does."""
    set_subreaper()
    own_end, end = socket.socketpair()
    own_end.settimeout(HANG)
    pipes = [os.open(os.devnull, os.O_RDWR) for _ in range(2)]  # no one gives GO or reads reports
    plan = json.dumps({**gate.plan(), "warm": end.fileno()})
    words = [gate.python, str(archive), "gate", *map(str, pipes), gate.module, plan]
    with own_end:
        first = start_gate(gate, words, (*pipes, end.fileno()))
        end.close()
        close_all(pipes)
        greeting, _ = receive(own_end)
        first.kill()
        first.wait()
        assert greeting is not None
        yield own_end
    os.waitpid(greeting.count("pid"), 0)
    set_subreaper(enabled=False)


def fork_gate(gate: Gate, connection: socket.socket, words: list[str], pipes: tuple[int, int]) -> Adopted:
    """Let a warm server fork the gate."""
    with (gate.attempt / "torchrun.log").open("w") as log:
        request: Any = {
            "do": "gate",
            "argv": words,
            "env": pack_variables(gate.variables()),
            "cwd": str(gate.root),
        }
        send(connection, request, (*pipes, log.fileno()))
    answer, _ = receive(connection)
    assert answer is not None
    assert answer.count("pid"), answer
    return Adopted(answer.count("pid"))


def read(path: Path) -> str:
    """Read a file that may be missing."""
    return path.read_text(errors="backslashreplace") if path.exists() else ""


def read_error(folder: Path) -> dict[str, Any] | None:
    """Read what torch's `record` wrote of an error."""
    path = folder / "error.json"
    content: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return content


Start = Callable[..., Gate]
