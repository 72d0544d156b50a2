"""One torchrun on this node, or the one program in its place, from the warm interpreter to the last worker's end."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any, Callable, Dict, List, Mapping, Optional

from .client import tail_of
from .environments import reach_programs
from .launcher import Gate, Places, fill, plan_environment, start_gate
from .loop import Loop
from .processes import Stat, look
from .verdict import split_status
from .workers import Worker, Workers

POLL = 0.1  # seconds between looks at known workers where the kernel or Python has no pidfd

Notify = Callable[..., None]


class Torchrun:
    """The gate, then torchrun, and its workers; tells `notify` what it hears of them."""

    def __init__(self, loop: Loop, spec: Dict[str, Any], places: Places, notify: Notify) -> None:
        self.spec = spec
        self.places = places
        self.workers = Workers(places.rundir)
        self.over = False
        self.exit: Optional[int] = None
        self.signal: Optional[int] = None
        self.failure = ""
        self._loop = loop
        self._notify = notify
        self._gate: Optional[Gate] = None
        self._late: Dict[str, Any] = {}
        self._reports = b""
        self._went = self._closed = False

    @property
    def pid(self) -> Optional[int]:
        """The process, while it has not ended."""
        return self._gate.identity.pid if self._gate is not None and not self.over else None

    @property
    def log(self) -> str:
        """Where torchrun's own output goes."""
        return os.path.join(self.places.attempt, "torchrun.log")

    def logs(self) -> List[str]:
        """Name this and what the workers write to."""
        folders = [
            os.path.join(self.places.rundir, worker.folder) for worker in self.workers if worker.folder
        ]
        streams = ("stdout.log", "stderr.log")
        return [self.log, *(os.path.join(folder, stream) for folder in folders for stream in streams)]

    def start(self, inherited: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        """Start the gate."""
        env, self._late = plan_environment(inherited, self.spec, secrets, self.places)
        if not self.spec["module"]:
            reach_programs(env, self.spec["python"])
        self._gate = start_gate(self.spec["python"], self.spec["module"], env, self.places)
        self._loop.watch(self._gate.report, self._hear)

    def go(self, address: str, port: int) -> None:
        """Give GO, with the master's address and port; a gate that has just died is noticed by its end."""
        assert self._gate is not None
        self._went = True
        values = {**self.places.values, "master_addr": address, "master_port": str(port)}
        code = os.path.join(self.places.rundir, "code")
        env = {"PWD": code, **{key: fill(text, values) for key, text in self._late.items()}}
        argv = [fill(word, values) for word in self.spec["argv"]]
        place = {"attempt": self.places.attempt, "node_rank": self.spec["node_rank"]}
        order = {"cwd": code, "env": env, "argv": argv, **place}
        rest = memoryview(json.dumps(order).encode("utf-8") + b"\n")
        with suppress(OSError):
            while rest:
                rest = rest[os.write(self._gate.go, rest) :]
        os.close(self._gate.go)

    def close(self) -> None:
        """Let go of the pipes once the process has ended."""
        if self._gate is not None and self.over and not self._closed:
            self._closed = True
            self._loop.forget(self._gate.report)
            os.close(self._gate.report)
            if not self._went:
                os.close(self._gate.go)

    def stat(self) -> Optional[Stat]:
        """Look at the process, while it has not ended."""
        return look(self._gate.identity) if self._gate is not None and not self.over else None

    def as_dict(self) -> Optional[Dict[str, Any]]:
        """Render for state.json."""
        if self._gate is None:
            return None
        return {**self._gate.identity.as_dict(), "exit": self.exit, "signal": self.signal}

    def reaped(self, pid: int, status: int) -> None:
        """Take the end of a child; workers are our children when torchrun died before them."""
        if pid == self.pid:
            self._hear()
            self._see_ends()
            self.over = True
            self.exit, self.signal = split_status(status)
            self._notify("torchrun_exited", exit=self.exit, signal=self.signal)
            return
        worker = self.workers.reaped(pid, status)
        if worker is not None:
            self._forget(worker)

    def conclude(self) -> List[Worker]:
        """Fill in what only torchrun saw of its workers; returns those of them that failed."""
        return self.workers.conclude(self.exit, tail_of(self.log, 1 << 20))

    def _hear(self) -> None:
        assert self._gate is not None
        while True:
            try:
                piece = os.read(self._gate.report, 1 << 16)
            except BlockingIOError:
                break
            if not piece:
                self._loop.forget(self._gate.report)
                break
            self._reports += piece
        *lines, self._reports = self._reports.split(b"\n")
        for line in lines:
            self._take(json.loads(line.decode("utf-8")))

    def _take(self, report: Dict[str, Any]) -> None:
        if "ready" in report:
            self._notify("ready", torch=report["ready"])
        elif "failed" in report:
            self.failure = report["failed"]
        elif "worker" in report:
            self._attend(self.workers.announce(report["worker"]))
            if len(self.workers.by_rank) == self.spec["processes"]:
                self._notify("workers")
        elif "ended" in report:
            worker = self.workers.told(**report["ended"])
            if worker is not None:
                self._forget(worker)

    def _attend(self, worker: Worker) -> None:
        if worker.pidfd is None:
            self._loop.after(POLL, "poll", self._poll_workers)
        else:
            self._loop.watch(worker.pidfd, self._see_ends)

    def _poll_workers(self) -> None:
        self._see_ends()
        if any(not worker.ended for worker in self.workers):
            self._loop.after(POLL, "poll", self._poll_workers)

    def _see_ends(self) -> None:
        for worker in self.workers.gone():
            status = worker.status()
            if status is None:
                self._unwatch(worker)  # torchrun has reaped it, and its report is on the way
            else:
                worker.end(status)
                self._forget(worker)

    def _forget(self, worker: Worker) -> None:
        self._unwatch(worker)
        self._notify("rank_exited", worker=worker)

    def _unwatch(self, worker: Worker) -> None:
        if worker.pidfd is not None:
            self._loop.forget(worker.pidfd)
            os.close(worker.pidfd)
            worker.pidfd = None
