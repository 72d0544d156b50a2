"""Runs on this machine for the tests: a spec, the dialogue up to GO, and proof that nothing is left."""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import shutil
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from session import PAYLOAD, Session
from waiting import HANG, wait_until

from clusterctl.client.rpc import bundle
from clusterctl.lab.labs import Lab
from clusterctl.node.state.payload import build
from clusterctl.node.state.workdir import workdir_id
from clusterctl.protocol.messages.environment import CLEARED_NAMES, CLEARED_PREFIXES

STUB = Path(__file__).parents[1] / "stub"  # stands in for torch


@cache
def payload_zip() -> bytes:
    """Build the zip that guardian and gate run from."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py"), "from clusterctl.node.main import main\nmain()\n")
        archive.writestr(zipfile.ZipInfo("clusterctl/__init__.py"), "")
        for folder in ("node", "protocol"):
            for path in sorted((PAYLOAD.parent / folder).rglob("*.py")):
                name = path.relative_to(PAYLOAD.parents[1]).as_posix()
                archive.writestr(zipfile.ZipInfo(name), path.read_bytes())
    return content.getvalue()


@cache
def byte_code(archive: bytes) -> tuple[str, bytes]:
    """Compile a zip once for all tests: the name under which a node keeps the result, and the result."""
    content = build(archive)
    assert content is not None
    return f"payload-{sys.implementation.cache_tag}-{hashlib.sha256(content).hexdigest()}.zip", content


def leave_payload(workdir: Path, archive: bytes) -> None:
    """Leave in a work directory what an earlier run leaves: the payload and its byte code, which takes long to make."""
    folder = workdir / "bin" / hashlib.sha256(archive).hexdigest()
    for made in (folder.parent, folder):
        made.mkdir(mode=0o700, exist_ok=True)
    for name, content in (("payload.zip", archive), byte_code(archive)):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)


def leave_payload_in_lab(lab: Lab) -> None:
    """Do that on all nodes of a lab, for tests of which none is about the first run on a node."""
    for home in {lab.plan.home_directory(node.plan) for node in lab.nodes}:
        workdir = Path(home, ".clusterctl")
        workdir.mkdir(mode=0o700)
        workdir_id(str(workdir))  # as every launch does, so that `clean` knows it for a work directory
        leave_payload(workdir, bundle.payload_zip()[1])


def processes_with(text: str) -> dict[int, str]:
    """List living processes whose environment or command line holds a text."""
    found = {int(folder.name): command_with(folder, text) for folder in Path("/proc").glob("[0-9]*")}
    return {pid: command for pid, command in found.items() if command is not None and pid != os.getpid()}


def command_with(folder: Path, text: str) -> str | None:
    """Give a living process's command line, if that or its environment holds a text."""
    try:
        content = (folder / "environ").read_bytes() + b"\0" + (folder / "cmdline").read_bytes()
        if text.encode() not in content:
            return None
        state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return None
    return None if state in (b"Z", b"X") else content.rpartition(b"\0\0")[2].replace(b"\0", b" ").decode()


class NodeRun:
    """One run of one node; every process of it bears the directory's name in environment or command line."""

    def __init__(self, root: Path, script: str, **changes: Any) -> None:
        self.root = root
        self.workdir = root / "work dir"
        self.zip = payload_zip()
        self.spec: dict[str, Any] = {
            "protocol": 1,
            "run": f"job-20261120T110000-{secrets.token_hex(4)}",  # tests that run at once must not meet
            "job": "job",
            "cluster": "lab",
            "node": "gpu01",
            "node_rank": 0,
            "nnodes": 1,
            "world_size": 1,
            "nproc": 1,
            "launched_by": "alice@laptop",
            "submitted": 1790000000.0,
            "attempt": 1,
            "grace": 5.0,
            "master_addr": "127.0.0.1",
            "ports": None,
            "python": sys.executable,
            "module": "torch.distributed.run",
            "processes": changes.get("nproc", 1),
            "env": {"TEST_MARK": str(root), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            "unset": list(CLEARED_NAMES),
            "unset_prefixes": list(CLEARED_PREFIXES),
            "output_dir": str(root / "outputs"),
        }
        self.args = changes.pop("args", [])
        self.token = changes.pop("token", "")
        was_here = changes.pop("was_here", True)
        self.spec["env"].update(changes.pop("env", {}))
        self.spec.update(changes)
        self.code.mkdir(parents=True, mode=0o700)
        for folder in (self.workdir, self.rundir.parent.parent, self.rundir.parent, self.rundir):
            folder.chmod(0o700)
        (self.code / "train.py").write_text(script)
        if was_here:
            self.provide_payload()
        self.session: Session | None = None
        self.heard: list[dict[str, Any]] = []
        self.port = 0
        self._seen_alive = 0

    @property
    def rundir(self) -> Path:
        """Where the node keeps this run."""
        return self.workdir / "runs" / str(self.spec["run"]) / f"{self.spec['node_rank']}-{self.spec['node']}"

    @property
    def code(self) -> Path:
        """Where the run's code lies."""
        return self.rundir / "code"

    def provide_payload(self) -> None:
        """Leave what an earlier run leaves on a node."""
        leave_payload(self.workdir, self.zip)

    @property
    def tag(self) -> str:
        """The value of CLUSTERCTL_RUN."""
        return f"{self.spec['run']}/{self.spec['node']}/{self.spec['attempt']}"

    def use_stub(self, torchrun: str = "") -> NodeRun:
        """Put a stand-in for torch on the gate's path, which starts in no time; with another torchrun if given."""
        folder = STUB
        if torchrun:
            folder = self.root / "stub"
            shutil.copytree(STUB, folder)
            (folder / "torch" / "distributed" / "run.py").write_text(torchrun)
        self.spec["env"]["PYTHONPATH"] = str(folder)
        return self

    def argv(self) -> list[Any]:
        """The torchrun line that a plan would hold."""
        flags = {
            "--nnodes": self.spec["nnodes"],
            "--node-rank": [{"fill": "node_rank"}],
            "--nproc-per-node": self.spec["nproc"],
            "--rdzv-backend": "static",
            "--rdzv-id": self.spec["run"],
            "--master-addr": [{"fill": "master_addr"}],
            "--master-port": [{"fill": "master_port"}],
            "--max-restarts": "0",
            "--redirects": "3",
            "--log-dir": [{"fill": "run_dir"}, "/attempt-", {"fill": "attempt"}],
        }
        words = [word for pair in flags.items() for word in pair]
        return [word if isinstance(word, list) else str(word) for word in words] + ["train.py", *self.args]

    def start(self, hidden: dict[str, str] | None = None, **options: Any) -> Session:
        """Start the verb; the payload is handed over when the node asks for it."""
        request = {
            "spec": {"argv": self.argv(), **self.spec},
            "secrets": hidden or {},
            "token": self.token,
            "workdir": str(self.workdir),
            "payload": {"sha256": hashlib.sha256(self.zip).hexdigest(), "size": len(self.zip)},
        }
        self.session = Session("start", request, **options)
        return self.session

    def hear(self, *events: str, timeout: float = HANG) -> dict[str, Any]:
        """Read frames up to one of the events."""
        assert self.session is not None
        while True:
            frame = self.session.receive(timeout)
            assert frame is not None, f"the stream ended; heard {self.heard}; {self.agent_log()}"
            header = frame[0]
            self.heard.append(header)
            if "need" in header:
                self.session.send({"payload": True}, self.zip)
            if header.get("event") == "port":
                self.port = header["port"]
            if header.get("event", "") in events or set(events) & set(header):
                return header
            assert "error" not in header, header
            assert "end" not in header, f"ended before {events}: {self.heard}"

    def go(self) -> NodeRun:
        """Start, give GO, and leave as a client does when torchrun listens."""
        self.start()
        self.hear("ready")
        assert self.session is not None
        self.session.send({"do": "go", "master_port": self.port})
        self.hear("listening")
        self.hear("end")
        self.session.close()
        return self

    def state(self) -> dict[str, Any]:
        """Read state.json."""
        content: dict[str, Any] = json.loads((self.rundir / "state.json").read_text())
        return content

    def events(self) -> list[dict[str, Any]]:
        """Read events.jsonl."""
        return [json.loads(line) for line in (self.rundir / "events.jsonl").read_text().splitlines()]

    def event(self, name: str) -> dict[str, Any]:
        """Return the one event of a name."""
        (found,) = [event for event in self.events() if event["event"] == name]
        return found

    def ended(self) -> dict[str, Any]:
        """Wait for a final state with no process left; returns it."""
        final = ("SUCCEEDED", "FAILED", "FAILED_SETUP", "STOPPED", "TIMEOUT")
        wait_until(lambda: self.state()["state"] in final, "a final state")
        wait_until(lambda: not self.is_alive(), "nothing left")
        return self.state()

    def pid(self, name: str) -> int:
        """Return the pid of guardian, agent, torchrun, or of a rank."""
        state = self.state()
        entry = state[name] if name in state else state["ranks"][name]
        return int(entry["pid"])

    def running(self) -> NodeRun:
        """Wait until every worker has a process."""
        wait_until(lambda: "workers" in [event["event"] for event in self.events()], "workers")
        return self

    def left(self) -> dict[int, str]:
        """List what still lives of this run; the client's process is not of it: it waits for the next verb."""
        own = None if self.session is None else self.session.process.pid
        return {pid: command for pid, command in processes_with(str(self.root)).items() if pid != own}

    def is_alive(self) -> bool:
        """Tell whether anything of this run lives, for waits: it looks first at the process that it saw last."""
        if command_with(Path(f"/proc/{self._seen_alive}"), str(self.root)) is None:
            self._seen_alive = next(iter(self.left()), 0)
        return self._seen_alive != 0

    def agent_log(self) -> str:
        """Read what guardian and agent said."""
        path = self.rundir / "agent.log"
        return path.read_text() if path.exists() else ""

    def output(self, rank: int, stream: str = "stdout") -> str:
        """Read what a rank wrote: nothing, as long as its file is not there."""
        file = self.rundir / self.state()["ranks"][str(rank)][stream]
        return file.read_text() if file.exists() else ""

    def verb(self, name: str, **request: Any) -> list[tuple[dict[str, Any], bytes]]:
        """Run another verb about this run and return its frames."""
        about = {"run": self.spec["run"], "node": self.spec["node"], "workdir": str(self.workdir)}
        with Session(name, {**about, **request}) as session:
            return session.frames()

    def clean(self) -> None:
        """End whatever a failed test left."""
        if self.session is not None:
            self.session.close()
        for _ in range(100):
            rest = self.left()
            if not rest:
                return
            for pid in rest:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.02)


def made(root: Path) -> Iterator[Callable[..., NodeRun]]:
    """Make runs below one directory and clean up after them."""
    runs: list[NodeRun] = []

    def make(script: str = "", **changes: Any) -> NodeRun:
        run = NodeRun(root / f"n{len(runs)}", script, **changes)
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.clean()
