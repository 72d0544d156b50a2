"""Environment variables; start gate and helper processes."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ...protocol import run_paths
from ...protocol.exit_status import describe_end, describe_limit, split_status
from ...protocol.run_paths import ERROR_FILE, RunPaths
from ..diagnose import breakpoint as debugged_rank
from ..diagnose import rank as diagnosed_rank
from ..runtime.children import start_child
from ..runtime.event_loop import Loop
from ..runtime.processes import PRIVATE_ENV, Identity, identify, interpreter_options
from ..runtime.reports import Reports
from ..state.environments import activate_environment
from ..state.run_record import run_tag
from ..state.workdir import make_private, make_shared

if TYPE_CHECKING:
    from types import ModuleType

    from ...protocol.messages.files import SentTemplate, Spec
    from ...protocol.messages.local import GateStart, HelperReport


class Gate(NamedTuple):
    """The process that is torchrun after GO, or starts the node's only process."""

    identity: Identity
    go: int
    report: int


class AttemptPaths(NamedTuple):
    """Absolute paths of one attempt."""

    rundir: str
    attempt: str
    torchrun_log: str
    output: str
    values: Dict[str, str]  # what the spec's holes may name before GO


def make_paths(rundir: str, spec: Spec) -> AttemptPaths:
    """Make the attempt's directory and the output directory, which outlives runs."""
    attempt = make_private(RunPaths(rundir).attempt(spec["attempt"]))
    output = make_shared(spec["output_dir"])
    values = {"run_dir": rundir, "output_dir": output, "attempt": str(spec["attempt"])}
    values["node_rank"] = str(spec["node_rank"])
    values["environment"] = str(spec.get("environment") or "")
    torchrun_log = os.path.join(rundir, run_paths.torchrun_log(spec["attempt"]))
    return AttemptPaths(rundir, attempt, torchrun_log, output, values)


def render_template(template: SentTemplate, values: Mapping[str, str]) -> str:
    """Put values into the holes of a text."""
    if isinstance(template, str):
        return template
    return "".join(part if isinstance(part, str) else values[part["fill"]] for part in template)


def can_render(template: SentTemplate, values: Mapping[str, str]) -> bool:
    """Whether every hole of a text has a value."""
    return isinstance(template, str) or all(
        isinstance(part, str) or part["fill"] in values for part in template
    )


def plan_environment(
    inherited: Mapping[str, str], spec: Spec, secrets: Mapping[str, str], paths: AttemptPaths
) -> Tuple[Dict[str, str], Dict[str, SentTemplate]]:
    """Return the gate's environment, and what can only be set at GO."""
    prefixes = tuple(spec["unset_prefixes"])
    remaining = {
        key: value
        for key, value in inherited.items()
        if key not in (*spec["unset"], *PRIVATE_ENV) and not key.startswith(prefixes)
    }
    renderable = {
        key: template for key, template in spec["env"].items() if can_render(template, paths.values)
    }
    env = {"PYTHONUNBUFFERED": "1", **remaining}
    env.update({key: render_template(template, paths.values) for key, template in renderable.items()})
    env.update(secrets)
    if spec.get("environment"):
        activate_environment(env, spec["environment"], spec["setup"]["kind"] or "")
    env.update(
        CLUSTERCTL_RUN=run_tag(spec),
        CLUSTERCTL_RUN_ID=spec["run"],
        CLUSTERCTL_ATTEMPT=str(spec["attempt"]),
        CLUSTERCTL_PYTHON=spec["python"],
        CLUSTERCTL_OUTPUT_DIR=paths.output,
        TORCHELASTIC_ERROR_FILE=os.path.join(paths.attempt, ERROR_FILE),
    )
    if spec.get("diagnose") is not False or spec.get("debug"):
        env[diagnosed_rank.VARIABLE] = RunPaths(paths.rundir).diagnosis(spec["attempt"])
    return env, {key: template for key, template in spec["env"].items() if key not in renderable}


def read_source(module: ModuleType) -> str:
    """Read the source of a module of the payload, which is a zip file."""
    return module.__loader__.get_source(module.__name__) or ""  # type: ignore[union-attr]


def prepare_diagnosis(folder: str, search_path: str, *, debug: bool = False) -> str:
    """Write the `sitecustomize` of the workers, by which they can be asked where they are; returns their PYTHONPATH.

    The gate does not get it: it is no rank, and forks only where nothing runs at each start of the interpreter.
    """
    site = os.path.join(folder, diagnosed_rank.SITE)
    modules = {
        diagnosed_rank.MODULE: diagnosed_rank,
        **({debugged_rank.MODULE: debugged_rank} if debug else {}),
    }
    try:
        compiled = os.path.join(site, "__pycache__")  # else made by Python, readable for others
        for parent in (
            os.path.dirname(folder),
            folder,
            site,
            compiled,
        ):  # makedirs gives its mode to the last only
            os.makedirs(parent, 0o700, exist_ok=True)
        texts = {name: read_source(module) for name, module in modules.items()}
        texts["sitecustomize"] = diagnosed_rank.STARTER
        for module, text in texts.items():
            with open(os.path.join(site, module + ".py"), "w", encoding="utf-8") as sink:
                sink.write(text)
    except OSError:  # a full disk: the ranks start without
        return search_path
    return os.pathsep.join(filter(None, (site, search_path)))


class GatePipes(NamedTuple):
    """Both ends of the pipes between agent and gate."""

    go_read: int
    go_write: int
    report_read: int
    report_write: int

    def parent_side(self, pid: int) -> Gate:
        """Keep the agent's ends."""
        os.close(self.go_read)
        os.close(self.report_write)
        return Gate(identify(pid), self.go_write, self.report_read)


def open_gate_pipes() -> GatePipes:
    """Make them."""
    return GatePipes(*os.pipe(), *os.pipe())


def gate_start(spec: Spec) -> GateStart:
    """Return how a gate is to start workers, of a spec that has `start`."""
    start = spec["start"]
    return {"mode": start["mode"], "preload": start["preload"], "workers": spec["nproc"] or 1}


def start_gate(
    spec: Spec, env: Mapping[str, str], paths: AttemptPaths, start: Optional[GateStart] = None
) -> Gate:
    """Start the gate, which will run torch's module or a program; a failing exec is written to torchrun.log."""
    pipes, log = open_gate_pipes(), paths.torchrun_log
    kept = (pipes.go_read, pipes.report_write)
    argv = [spec["python"], sys.argv[0], "gate", *map(str, kept), spec["module"] or ""]
    if start is not None or "start" in spec:
        argv.append(json.dumps(start or gate_start(spec)))
    pid = start_child(argv, env, (log, log), kept=kept, directory=paths.rundir, is_bound=True)
    return pipes.parent_side(pid)


class HelperProcess:
    """One stage of a job as a child of the agent; `callback` takes its reports, the last is `done` or `failed`."""

    def __init__(self, loop: Loop, callback: Callable[[HelperReport], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._reports: Optional[Reports] = None
        self._finished = False
        self._limit = 0.0
        self.pid: Optional[int] = None

    def start(self, arguments: List[str], log: str, env: Mapping[str, str], limit: float) -> None:
        """Start it with the descriptor of its reports as its last word."""
        reader, writer = os.pipe()
        argv = [sys.executable, *interpreter_options(), sys.argv[0], "stage", *arguments, str(writer)]
        self.pid = start_child(argv, env, (log, log), kept=[writer], is_bound=True)
        os.close(writer)
        self._reports = Reports(self._loop, reader, self._on_report)
        self._limit = limit
        self._start_timeout()

    def _start_timeout(self) -> None:
        """Start its time limit now."""
        reason = "took longer than its %s" % describe_limit(self._limit)
        self._loop.after(self._limit, "stage", lambda: self._fail(reason, overdue=True))

    def on_child_exit(self, pid: int, status: int) -> None:
        """Take the end of a child: one that ended before its last report has failed."""
        if pid == self.pid and self._reports is not None:
            self._reports.read()
            self.pid = None
            self._fail(describe_end(*split_status(status)))
            self._reports.close()

    def _on_report(self, report: HelperReport) -> None:
        if report.get("begins") and not self._finished:
            self._start_timeout()
        elif not self._finished:
            if "doing" not in report:
                self._finish()
            self._callback(report)

    def _fail(self, reason: str, *, overdue: bool = False) -> None:
        self._on_report(
            {"failed": {"reason": reason, "text": "", "code": "", "again": "", "overdue": overdue}}
        )

    def _finish(self) -> None:
        self._finished = True
        self._loop.cancel("stage")
