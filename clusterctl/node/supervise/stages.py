"""The children that run a job's `setup`, `before` and `after`; what they report becomes events."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Callable, Dict, List, Literal, Mapping, Optional

from ...protocol.exit_status import describe_end, describe_limit, split_status
from ...protocol.run_paths import attempt_folder
from ..lifecycle.ending import on_after_ended
from ..lifecycle.starting import on_before_done, on_doing, on_helper_failed, on_setup_made
from ..runtime.children import start_child
from ..runtime.event_loop import Loop
from ..runtime.processes import interpreter_options
from ..runtime.reports import Reports
from ..state.environments import append_programs_to_path, apply_environment, find_run_environment
from .evidence import Evidence
from .spawn import make_paths, plan_environment

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec, StartFailure
    from ...protocol.messages.local import HelperReport, StepFailure
    from ..lifecycle.run import Event

    AnyStage = Literal["setup", "before", "after"]


SETUP_LOG = "setup.log"
DONE = {"setup": on_setup_made, "before": on_before_done, "after": on_after_ended}
NO_ENVIRONMENT: StepFailure = {"reason": "it created no environment", "text": "", "code": "", "again": ""}


def node_variables(spec: Spec) -> Dict[str, str]:
    """Return the variables that show commands of a job their node."""
    return {
        "CLUSTERCTL_NODE": spec["node"],
        "CLUSTERCTL_NODE_RANK": str(spec["node_rank"]),
        "CLUSTERCTL_NNODES": str(spec["nnodes"]),
    }


class Stages:
    """Starts them one after another, for one attempt."""

    def __init__(
        self,
        loop: Loop,
        rundir: str,
        spec: Spec,
        secrets: Mapping[str, str],
        evidence: Evidence,
        post: Callable[[Event], None],
    ) -> None:
        self._loop = loop
        self._rundir = rundir
        self._spec = spec
        self._secrets = secrets
        self._evidence = evidence
        self._post = post
        self._processes: List[HelperProcess] = []

    # the environment

    def is_made(self) -> bool:
        """Return whether nothing has to be made; what there is counts as used today."""
        environment = find_run_environment(self._rundir, self._spec)
        if environment is not None:
            environment.mark_used()
        return environment is not None or not self._spec.get("setup")

    @property
    def spec(self) -> Spec:
        """The attempt's spec, with the Python of the job's own environment in it, if one has been made."""
        return apply_environment(self._rundir, self._spec)

    @property
    def has_prefix(self) -> bool:
        """Whether the job runs in an environment of its own."""
        return bool(self.spec.get("environment"))

    @property
    def has_after(self) -> bool:
        """Whether the job has commands for after its end, and a place to run them in."""
        return bool(self._spec.get("after")) and os.path.isdir(os.path.join(self._rundir, "code"))

    # the children

    def start(self, stage: AnyStage, end: Optional[Mapping[str, str]] = None) -> None:
        """Run a stage; `after` has the end of the attempt in its environment, and on_after_ended comes in any case."""
        try:
            self._start(stage, end or {})
        except Exception as error:
            if stage != "after":
                raise
            failure: StepFailure = {"reason": str(error), "text": "", "code": "", "again": ""}
            self._on_report(stage, {"failed": failure})

    def _start(self, stage: AnyStage, end: Mapping[str, str]) -> None:
        spec = self.spec
        env, _ = plan_environment(os.environ, spec, self._secrets, make_paths(self._rundir, spec))
        env.update({**node_variables(spec), **end})
        makes_environment = stage == "setup" and spec["setup"]["kind"]
        if not makes_environment:  # in there no other pip may stand in for one that is missing
            append_programs_to_path(env, spec["python"])
        process = HelperProcess(self._loop, partial(self._on_report, stage))
        self._processes.append(process)
        path = os.path.join(self._rundir, self._log(stage))
        process.start([self._rundir, stage, path], path, env, float(spec[stage]["time_limit"]))

    def _log(self, stage: AnyStage) -> str:
        if stage == "setup":
            return SETUP_LOG
        return os.path.join(attempt_folder(self._spec["attempt"]), f"{stage}.log")

    def _on_report(self, stage: AnyStage, report: HelperReport) -> None:
        if "doing" in report:
            if stage != "after":
                self._post(partial(on_doing, text=self._evidence.shorten(report["doing"])))
        elif "done" in report and (stage != "setup" or self.is_made()):
            self._post(partial(DONE[stage]))
        else:
            self._on_failure(stage, report.get("failed") or NO_ENVIRONMENT)

    def _on_failure(self, stage: AnyStage, failure: StepFailure) -> None:
        hide, text = self._evidence.redact, self._evidence.shorten(failure["text"])
        why = hide(f"{stage}: {failure['reason']}")
        if stage == "after":
            self._post(partial(on_after_ended, reason=why, text=text))
            return
        code = "CC-SETUP-002" if failure.get("overdue") else "CC-SETUP-001"
        if stage == "before":
            code = "CC-SETUP-005"
        facts: StartFailure = {"text": text, "again": hide(failure["again"]), "why": why}
        facts.update({"code": failure["code"] or code, "log": self._log(stage)})
        self._post(partial(on_helper_failed, reason=why, facts=facts))

    def on_child_exit(self, pid: int, status: int) -> None:
        """Take the end of a child."""
        for process in self._processes:
            process.on_child_exit(pid, status)


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
        self._reports = Reports(self._loop, reader, self._read_reports)
        self._limit = limit
        self._start_timeout()

    def _start_timeout(self) -> None:
        """Start its time limit now."""
        reason = "took longer than its %s" % describe_limit(self._limit)
        self._loop.after(self._limit, "stage", lambda: self._fail(reason, overdue=True))

    def on_child_exit(self, pid: int, status: int) -> None:
        """Take the end of a child: one that ended before its last report has failed."""
        if pid == self.pid and self._reports is not None:
            self._read_reports()
            self.pid = None
            self._fail(describe_end(*split_status(status)))
            self._reports.close()

    def _read_reports(self) -> None:
        for report in self._reports.read() if self._reports is not None else ():
            self._on_report(report)

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
