"""The agent's end of the gate, whose process becomes torchrun or starts a program, and what it reports of its workers.

The other end is `gate`. The command line of torchrun comes with the spec (`plans/launch/launchers.py`).

A gate may import torch before there is an attempt for it (`SpareGate`). The agent starts one once its ranks run, if the
run may start again. One for the next run comes with the agent, whose process has started it and waited beside it
(`node/fork/standby.py`). Such a gate gets its attempt by a line before GO, and becomes a new interpreter by itself if
it would have imported something else (`gate.await_run`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Mapping, Optional, Set

from ...protocol.exit_status import split_status
from ...protocol.run_paths import RunPaths
from ..diagnose.rank import VARIABLE
from ..fork.imports import TORCHRUN
from ..lifecycle.ending import on_start_method, on_workers_started
from ..lifecycle.starting import on_gate_ready, on_warm_gate
from ..logs.log_file import read_tail
from ..runtime.event_loop import Loop
from ..runtime.processes import Stat, find_process
from ..runtime.reports import Reports
from ..state.environments import append_programs_to_path
from ..state.run_record import Record
from .launchers.temp_files import make_mpi_order, make_order
from .ranks.workers import Worker, Workers, WorkerWatch
from .spawn import (
    AttemptPaths,
    Gate,
    gate_start,
    plan_environment,
    prepare_diagnosis,
    render_template,
    start_gate,
    start_waiting,
)

if TYPE_CHECKING:
    from ...protocol.messages.files import SentTemplate, Spec, TorchrunRecord
    from ...protocol.messages.local import GateOrder, GateReport, GateRun
    from ..lifecycle.run import Event


PIPE_BYTES = 64 << 10  # what a pipe takes at once; more would hold up the agent while the gate imports


def is_waiting(gate: Gate) -> bool:
    """Return whether a gate has not ended; what it reports before it has an attempt is read."""
    os.set_blocking(gate.report, False)
    try:
        while os.read(gate.report, 1 << 16):
            pass
    except BlockingIOError:
        stat = find_process(gate.identity)
        return stat is not None and stat.running
    return False


class SpareGate:
    """The gate of one agent that waits, if there is one."""

    def __init__(self, record: Record, gate: Optional[Gate]) -> None:
        self._record = record
        self._gate = gate
        self.spared: Set[int] = set()  # what must not be signalled when an attempt ends
        if gate is not None:
            self._keep(gate)

    def _keep(self, gate: Gate) -> None:
        self._gate = gate
        self.spared.add(gate.identity.pid)
        self._record.set({"warm": {"pid": gate.identity.pid, "starttime": gate.identity.starttime}})

    def pop(self, spec: Spec) -> Optional[Gate]:
        """Return the gate, for the attempt of this spec; None if there is none that lives or could be used."""
        gate, self._gate = self._gate, None
        if gate is not None:
            self.spared.discard(gate.identity.pid)
        if gate is not None and "start" in spec and spec["module"] == TORCHRUN and is_waiting(gate):
            return gate
        if gate is not None:
            close_gate(gate)
        return None

    def start_next(self, spec: Spec, env: Mapping[str, str]) -> None:
        """Start the gate of the next attempt, if there may be one, beside the ranks of this one."""
        if self._gate is None and "start" in spec and spec["module"] == TORCHRUN and spec.get("restart"):
            self._keep(start_waiting(spec, env))

    def on_child_exit(self, pid: int) -> None:
        """Forget the gate if it has ended: another process may get its pid."""
        if self._gate is not None and pid == self._gate.identity.pid:
            close_gate(self._gate)
            self._gate = None
            self.spared.discard(pid)

    def stay(self, spec: Spec) -> None:
        """Record until when the node waits for the next run, with `keep_warm`; the guardian starts what waits."""
        start = spec.get("start")
        seconds = start.get("keep_warm") if start and spec["module"] == TORCHRUN else None
        if seconds:
            self._record.set({"warm": {"until": time.time() + seconds}})


def close_gate(gate: Gate) -> None:
    """Close the pipes of a gate that waits, which ends it."""
    os.close(gate.go)
    os.close(gate.report)


def send_attempt(gate: Gate, spec: Spec, env: Mapping[str, str], paths: AttemptPaths) -> bool:
    """Send a gate that waits its attempt; returns False, the gate closed, if it cannot take it."""
    order: GateRun = {
        "argv": [spec["python"], sys.argv[0]],
        "start": gate_start(spec),
        "env": dict(env),
        "cwd": paths.rundir,
        "log": paths.torchrun_log,
    }
    content = json.dumps(order).encode("utf-8") + b"\n"
    with suppress(BrokenPipeError):
        if len(content) <= PIPE_BYTES:
            os.write(gate.go, content)
            return True
    close_gate(gate)
    return False


class GateProcess:
    """The gate, then torchrun, and its workers."""

    def __init__(
        self,
        loop: Loop,
        spec: Spec,
        paths: AttemptPaths,
        post: Callable[[Event], None],
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called when `find_ended` may find something."""
        self.spec = spec
        self.paths = paths
        self.workers = Workers(paths.rundir)
        self.ended = False
        self.exit: Optional[int] = None
        self.signal: Optional[int] = None
        self.failure = ""
        self._loop = loop
        self._post, self._on_change = post, on_change
        self._watch = WorkerWatch(loop, self.workers, "poll", on_change)
        self._gate: Optional[Gate] = None
        self._templates: Dict[str, SentTemplate] = {}
        self._diagnosis = self._search_path = ""
        self._secrets: Mapping[str, str] = {}
        self._inherited: Mapping[str, str] = {}
        self._spare: Optional[SpareGate] = None
        self._reports: Optional[Reports] = None
        self._go_sent = self._closed = False

    @property
    def pid(self) -> Optional[int]:
        """The process, while it has not ended."""
        return self._gate.identity.pid if self._gate is not None and not self.ended else None

    @property
    def log(self) -> str:
        """Where torchrun's own output goes."""
        return self.paths.torchrun_log

    def logs(self) -> List[str]:
        """Name this and what the workers write to."""
        return [self.log, *self.workers.logs()]

    def start(
        self, inherited: Mapping[str, str], secrets: Mapping[str, str], spare: Optional[SpareGate] = None
    ) -> None:
        """Start the gate, or take one that waits: its secrets come with GO."""
        self._inherited, self._spare = inherited, spare
        waiting = spare.pop(self.spec) if spare is not None else None
        if waiting is not None:
            self._secrets, secrets = secrets, {}
        env, self._templates = plan_environment(inherited, self.spec, secrets, self.paths)
        if not self.spec["module"]:
            append_programs_to_path(env, self.spec["python"])
        self._diagnosis, self._search_path = env.get(VARIABLE, ""), env.get("PYTHONPATH", "")
        if waiting is not None and send_attempt(waiting, self.spec, env, self.paths):
            self._gate = waiting
        else:
            self._gate = start_gate(self.spec, env, self.paths)
        self._reports = Reports(self._loop, self._gate.report, self._on_change)

    def send_go(self, address: str, port: int, token: str = "") -> None:
        """Send GO, with the master's address and port; a gate that has just died is noticed by its end.

        `token` is what the nodes of a run prove to each other.
        """
        assert self._gate is not None
        self._go_sent = True
        values = {**self.paths.values, "master_addr": address, "master_port": str(port)}
        code = RunPaths(self.paths.rundir).code
        env = {
            **self._secrets,
            "PWD": code,
            **{key: render_template(template, values) for key, template in self._templates.items()},
        }
        if self._diagnosis:
            search_path = env.get("PYTHONPATH", self._search_path)
            env["PYTHONPATH"] = prepare_diagnosis(
                self._diagnosis, search_path, debug=bool(self.spec.get("debug"))
            )
        argv = [render_template(word, values) for word in self.spec["argv"]]
        order: GateOrder = {
            "cwd": code,
            "env": env,
            "argv": argv,
            "attempt": self.paths.attempt,
            "node_rank": self.spec["node_rank"],
        }
        if "ray" in self.spec:
            order["ray"] = make_order(self.spec, address, port, token)
        if "mpi" in self.spec:
            order["mpi"] = make_mpi_order(self.spec, address, port, token)
        unsent = memoryview(json.dumps(order).encode("utf-8") + b"\n")
        with suppress(OSError):
            while unsent:
                unsent = unsent[os.write(self._gate.go, unsent) :]
        os.close(self._gate.go)

    def close(self) -> None:
        """Close the pipes once the process has ended."""
        if self._gate is not None and self._reports is not None and self.ended and not self._closed:
            self._closed = True
            self._reports.close()
            if not self._go_sent:
                os.close(self._gate.go)

    def stat(self) -> Optional[Stat]:
        """Look at the process, while it has not ended."""
        return find_process(self._gate.identity) if self._gate is not None and not self.ended else None

    def as_dict(self) -> Optional[TorchrunRecord]:
        """Render for state.json."""
        if self._gate is None:
            return None
        return {**self._gate.identity.as_dict(), "exit": self.exit, "signal": self.signal}

    def on_child_exit(self, pid: int, status: int) -> Iterator[Worker]:
        """Take the end of a child, and yield the workers whose end that shows; torchrun may have left them to us."""
        if pid == self.pid:
            yield from self.find_ended()
            self.ended = True
            self.exit, self.signal = split_status(status)
            return
        worker = self.workers.on_child_exit(pid, status)
        if worker is not None:
            self._watch.remove(worker)
            yield worker

    def find_ended(self) -> Iterator[Worker]:
        """Yield the workers that have ended: first those that torchrun has reported, in its order.

        Of several ends that are seen at once, as by an agent that was halted, the first is the cause of the others.
        """
        for report in self._reports.read() if self._reports is not None else ():
            worker = self._apply_report(report)
            if worker is not None:
                self._watch.remove(worker)
                yield worker
        yield from self._watch.check()

    def fill_unseen_ends(self) -> List[Worker]:
        """Fill in what only torchrun saw of its workers; returns those of them that failed."""
        return self.workers.fill_unseen_ends(self.exit, read_tail(self.log, 1 << 20))

    def _apply_report(self, report: GateReport) -> Optional[Worker]:
        """Apply a report, and return the worker whose end it is of, if that was not known."""
        if "ended" in report:
            return self.workers.record_end(report["ended"]["rank"], report["ended"]["code"])
        if "ready" in report:
            self._post(partial(on_gate_ready, torch=report["ready"]))
        elif "failed" in report:
            self.failure = report["failed"]
        elif "worker" in report:
            self._watch.add(self.workers.announce(report["worker"]))
            if len(self.workers.by_rank) == self.spec["processes"]:
                self._post(partial(on_workers_started, ranks=sorted(self.workers.by_rank)))
                if self._spare is not None:
                    env = plan_environment(self._inherited, self.spec, {}, self.paths)[0]
                    self._spare.start_next(self.spec, env)
        elif "warm" in report:
            self._post(partial(on_warm_gate, method=report["warm"], text=report["text"]))
        elif "start" in report:
            self._post(partial(on_start_method, method=report["start"], text=report["text"]))
        return None
