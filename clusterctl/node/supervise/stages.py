"""Setup, before and after, driven by the agent."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Mapping, Optional, Protocol

from ..runtime.processes import ProcessTree
from ..state.environments import Environment, append_programs_to_path, environment_folder, find_environment
from ..state.run_record import run_tag_prefix
from .agent_api import AgentApi
from .evidence import Evidence
from .spawn import HelperProcess, Report, make_paths, plan_environment

JsonObject = Dict[str, Any]
OnFailed = Callable[[str, JsonObject], None]


class StagedAttempt(Protocol):
    """The attempt, as far as it is provided for."""

    agent: AgentApi
    spec: JsonObject
    evidence: Evidence

    def report(self, event: str, **facts: Any) -> None:
        """Tell who leads the start what happens."""


def with_environment(rundir: str, spec: JsonObject) -> JsonObject:
    """Return a spec with the Python of the job's own environment in it, if one has been made."""
    environment = find_run_environment(rundir, spec)
    if environment is None or not environment.prefix:
        return spec
    return {**spec, "python": environment.python, "environment": environment.prefix}


def find_run_environment(rundir: str, spec: JsonObject) -> Optional[Environment]:
    """Look for the environment that a run wants."""
    workdir = os.path.dirname(os.path.dirname(os.path.dirname(rundir)))
    return (
        find_environment(environment_folder(workdir, spec["setup"]["content"])) if spec.get("setup") else None
    )


class SetupStage:
    """Makes, and runs, before the gate and GO; `on_failed` hears of what did not work."""

    def __init__(self, attempt: StagedAttempt, on_failed: OnFailed) -> None:
        self._attempt = attempt
        self._on_failed = on_failed
        self._setup: Optional[JsonObject] = attempt.spec.get("setup")
        self._environment: Optional[Environment] = None
        self._process: Optional[HelperProcess] = None
        self._before_pending = bool(attempt.spec.get("before"))
        self.begun = False  # whether the commands of `before` have been started
        self._secrets: Mapping[str, str] = {}

    # the environment

    @property
    def has_setup(self) -> bool:
        """Whether the job has a setup."""
        return self._setup is not None

    def is_made(self) -> bool:
        """Look whether nothing has to be made."""
        if self._setup is None:
            return True
        self._environment = find_run_environment(self._attempt.agent.rundir, self._attempt.spec)
        if self._environment is not None:
            self._environment.mark_used()
        return self._environment is not None

    @property
    def spec(self) -> JsonObject:
        """The attempt's spec with the environment's own Python in it."""
        return with_environment(self._attempt.agent.rundir, self._attempt.spec)

    def make(self, secrets: Mapping[str, str], on_done: Callable[[], None]) -> None:
        """Make the environment, once."""
        assert self._setup is not None
        if self._process is not None:
            return
        self._secrets = secrets
        agent = self._attempt.agent
        agent.record.add_event("setup")
        agent.record.set(reason="setup")
        log = os.path.join(agent.rundir, "setup.log")

        def on_report(report: Report) -> None:
            if "done" in report and self.is_made():
                agent.record.set(reason="")
                agent.record.add_event("setup_done")
                self._process = None
                on_done()
            elif "doing" in report:
                self._attempt.report("doing", text=self._attempt.evidence.shorten(report["doing"]))
            else:
                self._fail("setup", "setup.log", report, "CC-SETUP-001", "CC-SETUP-002")

        self._start("setup", [agent.rundir], log, self._setup["time_limit"], on_report)

    # before

    @property
    def awaits_before(self) -> bool:
        """Whether the commands of `before` have not come to their end."""
        return self._before_pending

    def run_before(self, secrets: Mapping[str, str], on_done: Callable[[], None]) -> None:
        """Run the commands of `before`, once."""
        if not self._before_pending or self._process is not None:
            return
        self._secrets = secrets
        agent, spec = self._attempt.agent, self._attempt.spec
        agent.record.add_event("before")
        self.begun = True
        name = os.path.join("attempt-%s" % spec["attempt"], "before.log")

        def on_report(report: Report) -> None:
            if "done" in report:
                self._before_pending, self._process = False, None
                on_done()
            elif "doing" in report:
                self._attempt.report("doing", text=self._attempt.evidence.shorten(report["doing"]))
            else:
                self._fail("before", name, report, "CC-SETUP-005", "CC-SETUP-005")

        log = os.path.join(agent.rundir, name)
        self._start("hook", [agent.rundir, "before", log], log, spec["before"]["time_limit"], on_report)

    # both

    def _start(
        self, role: str, arguments: list[str], log: str, limit: float, on_report: Callable[[Report], None]
    ) -> None:
        agent, spec = self._attempt.agent, self.spec
        paths = make_paths(agent.rundir, spec)
        env, _ = plan_environment(os.environ, spec, self._secrets, paths)
        env.update(node_variables(spec))
        makes_environment = role == "setup" and spec["setup"]["kind"]
        if not makes_environment:  # in there no other pip may stand in for one that is missing
            append_programs_to_path(env, spec["python"])
        self._process = HelperProcess(agent.loop, role, on_report)
        self._process.start(arguments, log, env, float(limit))

    def _fail(self, stage: str, log: str, report: Report, code: str, overdue_code: str) -> None:
        failure = report.get("failed") or {
            "reason": "it left no environment",
            "text": "",
            "code": "",
            "again": "",
        }
        hide, text = self._attempt.evidence.redact, self._attempt.evidence.shorten(str(failure["text"]))
        details = {"text": text, "again": hide(str(failure["again"]))}
        code = str(failure["code"]) or (overdue_code if failure.get("overdue") else code)
        why = hide("%s: %s" % (stage, failure["reason"]))
        self._on_failed(why, {**details, "why": why, "code": code, "log": log})

    def on_child_exit(self, pid: int, status: int) -> None:
        """Take the end of a child."""
        if self._process is not None:
            self._process.on_child_exit(pid, status)


def node_variables(spec: JsonObject) -> Dict[str, str]:
    """Return what commands of a job are told of where they are."""
    names = {"CLUSTERCTL_NODE": "node", "CLUSTERCTL_NODE_RANK": "node_rank", "CLUSTERCTL_NNODES": "nnodes"}
    return {name: str(spec[key]) for name, key in names.items()}


LOG = "after.log"


class AfterHook:
    """What is done between the end of an attempt's last rank and the word of it."""

    def __init__(self, agent: AgentApi, spec: JsonObject) -> None:
        self._agent = agent
        self._spec = spec
        self._process = HelperProcess(agent.loop, "hook", self._on_report)
        self._evidence = Evidence(agent.rundir, {})
        self._on_done: Callable[[], None] = lambda: None
        self._running = False

    @property
    def is_needed(self) -> bool:
        """Whether the job has such commands, and a place to run them in."""
        return bool(self._spec.get("after")) and os.path.isdir(os.path.join(self._agent.rundir, "code"))

    def run(
        self,
        end: Mapping[str, str],
        secrets: Mapping[str, str],
        evidence: Evidence,
        on_done: Callable[[], None],
    ) -> None:
        """Run them, told how it ended; `on_done` is called in any case."""
        if not self.is_needed:
            on_done()
            return
        self._evidence, self._on_done, self._running = evidence, on_done, True
        self._agent.record.set(after="")
        self._agent.record.add_event("after")
        try:
            self._start(end, secrets)
        except Exception as error:  # noqa: BLE001, RUF100 - it must not keep the run from its end
            self._on_report({"failed": {"reason": str(error)}})

    def _start(self, end: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        spec = with_environment(self._agent.rundir, self._spec)
        paths = make_paths(self._agent.rundir, spec)
        env, _ = plan_environment(os.environ, spec, secrets, paths)
        env.update(node_variables(spec), **end)
        append_programs_to_path(env, spec["python"])
        log = os.path.join(paths.attempt, LOG)
        self._process.start([self._agent.rundir, "after", log], log, env, float(spec["after"]["time_limit"]))

    def cancel(self) -> None:
        """End them before their time, if they run."""
        self._on_report({"failed": {"reason": "was ended by a second stop"}})

    def _on_report(self, report: Report) -> None:
        if "doing" in report or not self._running:
            return
        self._running = False
        ProcessTree(run_tag_prefix(self._spec)).kill_all()  # what it has left behind
        if "failed" in report:
            text = self._evidence.redact(f"after: {report['failed']['reason']}")
            self._agent.record.add_event(
                "after_failed", reason=text, text=self._evidence.shorten(report["failed"].get("text", ""))
            )
            self._agent.record.set(after=text)
        self._on_done()

    def on_child_exit(self, pid: int, status: int) -> None:
        """Take the end of a child."""
        self._process.on_child_exit(pid, status)
