"""The children that run a job's `setup`, `before` and `after`; what they report becomes events."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, Optional

from ..lifecycle.ending import on_after_ended
from ..lifecycle.starting import on_before_done, on_doing, on_helper_failed, on_setup_made
from ..runtime.event_loop import Loop
from ..state.environments import append_programs_to_path, apply_environment, find_run_environment
from .evidence import Evidence
from .spawn import HelperProcess, make_paths, plan_environment

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec, StartFailure
    from ...protocol.messages.local import HelperReport, StepFailure
    from ...protocol.messages.verbs import Stage
    from ..lifecycle.run import Event


SETUP_LOG = "setup.log"
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

    # before GO

    def start(self, stage: Stage) -> None:
        """Run `setup` or `before`."""
        if stage == "setup":
            self._start(stage, SETUP_LOG, self._spec["setup"]["time_limit"], self._on_setup_report)
        else:
            log, limit = self._attempt_log("before"), self._spec["before"]["time_limit"]
            self._start(stage, log, limit, self._on_before_report)

    def _attempt_log(self, stage: str) -> str:
        return os.path.join("attempt-%s" % self._spec["attempt"], "%s.log" % stage)

    def _on_setup_report(self, report: HelperReport) -> None:
        if "done" in report and self.is_made():
            self._post(partial(on_setup_made))
        elif "doing" in report:
            self._post(partial(on_doing, text=self._evidence.shorten(report["doing"])))
        else:
            failure = report.get("failed") or NO_ENVIRONMENT
            code = "CC-SETUP-002" if failure.get("overdue") else "CC-SETUP-001"
            self._post_failure("setup", SETUP_LOG, failure, code)

    def _on_before_report(self, report: HelperReport) -> None:
        if "done" in report:
            self._post(partial(on_before_done))
        elif "doing" in report:
            self._post(partial(on_doing, text=self._evidence.shorten(report["doing"])))
        else:
            failure = report.get("failed") or NO_ENVIRONMENT
            self._post_failure("before", self._attempt_log("before"), failure, "CC-SETUP-005")

    def _post_failure(self, stage: str, log: str, failure: StepFailure, code: str) -> None:
        hide, text = self._evidence.redact, self._evidence.shorten(failure["text"])
        why = hide("%s: %s" % (stage, failure["reason"]))
        facts: StartFailure = {"text": text, "again": hide(failure["again"]), "why": why}
        facts.update({"code": failure["code"] or code, "log": log})
        self._post(partial(on_helper_failed, reason=why, facts=facts))

    # after

    @property
    def has_after(self) -> bool:
        """Whether the job has such commands, and a place to run them in."""
        return bool(self._spec.get("after")) and os.path.isdir(os.path.join(self._rundir, "code"))

    def start_after(self, end: Mapping[str, str]) -> None:
        """Run them with the end of the attempt in their environment; on_after_ended is posted in any case."""
        log, limit = self._attempt_log("after"), self._spec["after"]["time_limit"]
        try:
            self._start("after", log, limit, self._on_after_report, end)
        except Exception as error:  # noqa: BLE001, RUF100 - it must not keep the run from its end
            self._on_after_report({"failed": {"reason": str(error), "text": "", "code": "", "again": ""}})

    def _on_after_report(self, report: HelperReport) -> None:
        if "failed" in report:
            reason = self._evidence.redact(f"after: {report['failed']['reason']}")
            text = self._evidence.shorten(report["failed"]["text"])
            self._post(partial(on_after_ended, reason=reason, text=text))
        elif "doing" not in report:
            self._post(partial(on_after_ended))

    # all

    def _start(
        self,
        stage: str,
        log: str,
        limit: float,
        on_report: Callable[[HelperReport], None],
        end: Optional[Mapping[str, str]] = None,
    ) -> None:
        spec = self.spec
        env, _ = plan_environment(os.environ, spec, self._secrets, make_paths(self._rundir, spec))
        env.update({**node_variables(spec), **(end or {})})
        makes_environment = stage == "setup" and spec["setup"]["kind"]
        if not makes_environment:  # in there no other pip may stand in for one that is missing
            append_programs_to_path(env, spec["python"])
        process = HelperProcess(self._loop, on_report)
        self._processes.append(process)
        path = os.path.join(self._rundir, log)
        process.start([self._rundir, stage, path], path, env, float(limit))

    def on_child_exit(self, pid: int, status: int) -> None:
        """Take the end of a child."""
        for process in self._processes:
            process.on_child_exit(pid, status)
