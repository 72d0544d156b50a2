"""Setup, before and after, driven by the agent."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Mapping, Optional, Protocol

from ..runtime.processes import Sweep
from ..state.environments import Made, find_made, folder_of, reach_programs
from ..state.run_record import mark_of
from .agent_api import Host
from .evidence import Evidence
from .spawn import Chore, Report, make_places, plan_environment

Facts = Dict[str, Any]
Failed = Callable[[str, Facts], None]


class Provided(Protocol):
    """The attempt, as far as it is provided for."""

    agent: Host
    spec: Facts
    evidence: Evidence

    def tell(self, event: str, **facts: Any) -> None:
        """Tell who leads the start what happens."""


def in_environment(rundir: str, spec: Facts) -> Facts:
    """Return a spec with the Python of the job's own environment in it, if one has been made."""
    made = look_for(rundir, spec)
    if made is None or not made.prefix:
        return spec
    return {**spec, "python": made.python, "environment": made.prefix}


def look_for(rundir: str, spec: Facts) -> Optional[Made]:
    """Look for the environment that a run wants."""
    workdir = os.path.dirname(os.path.dirname(os.path.dirname(rundir)))
    return find_made(folder_of(workdir, spec["setup"]["content"])) if spec.get("setup") else None


class Provision:
    """Makes, and runs, before the gate and GO; `failed` hears of what did not work."""

    def __init__(self, attempt: Provided, failed: Failed) -> None:
        self._attempt = attempt
        self._failed = failed
        self._wish: Optional[Facts] = attempt.spec.get("setup")
        self._made: Optional[Made] = None
        self._chore: Optional[Chore] = None
        self._runs_before = bool(attempt.spec.get("before"))
        self.begun = False  # whether the commands of `before` have been started
        self._secrets: Mapping[str, str] = {}

    # the environment

    @property
    def wanted(self) -> bool:
        """Whether the job has a setup."""
        return self._wish is not None

    def is_made(self) -> bool:
        """Look whether nothing has to be made."""
        if self._wish is None:
            return True
        self._made = look_for(self._attempt.agent.rundir, self._attempt.spec)
        if self._made is not None:
            self._made.use()
        return self._made is not None

    @property
    def spec(self) -> Facts:
        """The attempt's spec with the environment's own Python in it."""
        return in_environment(self._attempt.agent.rundir, self._attempt.spec)

    def make(self, secrets: Mapping[str, str], then: Callable[[], None]) -> None:
        """Make the environment, once."""
        assert self._wish is not None
        if self._chore is not None:
            return
        self._secrets = secrets
        agent = self._attempt.agent
        agent.record.note("setup")
        agent.record.set(reason="setup")
        log = os.path.join(agent.rundir, "setup.log")

        def take(report: Report) -> None:
            if "done" in report and self.is_made():
                agent.record.set(reason="")
                agent.record.note("setup_done")
                self._chore = None
                then()
            elif "doing" in report:
                self._attempt.tell("doing", text=self._attempt.evidence.shorten(report["doing"]))
            else:
                self._fail("setup", "setup.log", report, "CC-SETUP-001", "CC-SETUP-002")

        self._start("setup", [agent.rundir], log, self._wish["time_limit"], take)

    # before

    @property
    def awaits_before(self) -> bool:
        """Whether the commands of `before` have not come to their end."""
        return self._runs_before

    def run_before(self, secrets: Mapping[str, str], then: Callable[[], None]) -> None:
        """Run the commands of `before`, once."""
        if not self._runs_before or self._chore is not None:
            return
        self._secrets = secrets
        agent, spec = self._attempt.agent, self._attempt.spec
        agent.record.note("before")
        self.begun = True
        name = os.path.join("attempt-%s" % spec["attempt"], "before.log")

        def take(report: Report) -> None:
            if "done" in report:
                self._runs_before, self._chore = False, None
                then()
            elif "doing" in report:
                self._attempt.tell("doing", text=self._attempt.evidence.shorten(report["doing"]))
            else:
                self._fail("before", name, report, "CC-SETUP-005", "CC-SETUP-005")

        log = os.path.join(agent.rundir, name)
        self._start("hook", [agent.rundir, "before", log], log, spec["before"]["time_limit"], take)

    # both

    def _start(
        self, role: str, words: list[str], log: str, limit: float, take: Callable[[Report], None]
    ) -> None:
        agent, spec = self._attempt.agent, self.spec
        places = make_places(agent.rundir, spec)
        env, _ = plan_environment(os.environ, spec, self._secrets, places)
        env.update(about_node(spec))
        makes_environment = role == "setup" and spec["setup"]["kind"]
        if not makes_environment:  # in there no other pip may stand in for one that is missing
            reach_programs(env, spec["python"])
        self._chore = Chore(agent.loop, role, take)
        self._chore.start(words, log, env, float(limit))

    def _fail(self, what: str, log: str, report: Report, code: str, overdue: str) -> None:
        told = report.get("failed") or {
            "reason": "it left no environment",
            "text": "",
            "code": "",
            "again": "",
        }
        hide, text = self._attempt.evidence.hide, self._attempt.evidence.shorten(str(told["text"]))
        about = {"text": text, "again": hide(str(told["again"]))}
        code = str(told["code"]) or (overdue if told.get("overdue") else code)
        why = hide("%s: %s" % (what, told["reason"]))
        self._failed(why, {**about, "why": why, "code": code, "log": log})

    def reaped(self, pid: int, status: int) -> None:
        """Take the end of a child."""
        if self._chore is not None:
            self._chore.reaped(pid, status)


def about_node(spec: Facts) -> Dict[str, str]:
    """Return what commands of a job are told of where they are."""
    names = {"CLUSTERCTL_NODE": "node", "CLUSTERCTL_NODE_RANK": "node_rank", "CLUSTERCTL_NNODES": "nnodes"}
    return {name: str(spec[key]) for name, key in names.items()}


LOG = "after.log"


class Afterwards:
    """What is done between the end of an attempt's last rank and the word of it."""

    def __init__(self, agent: Host, spec: Facts) -> None:
        self._agent = agent
        self._spec = spec
        self._chore = Chore(agent.loop, "hook", self._take)
        self._evidence = Evidence(agent.rundir, {})
        self._done: Callable[[], None] = lambda: None
        self._running = False

    @property
    def wanted(self) -> bool:
        """Whether the job has such commands, and a place to run them in."""
        return bool(self._spec.get("after")) and os.path.isdir(os.path.join(self._agent.rundir, "code"))

    def run(
        self, end: Mapping[str, str], secrets: Mapping[str, str], evidence: Evidence, done: Callable[[], None]
    ) -> None:
        """Run them, told how it ended; `done` is called in any case."""
        if not self.wanted:
            done()
            return
        self._evidence, self._done, self._running = evidence, done, True
        self._agent.record.set(after="")
        self._agent.record.note("after")
        try:
            self._start(end, secrets)
        except Exception as error:  # noqa: BLE001, RUF100 - it must not keep the run from its end
            self._take({"failed": {"reason": str(error)}})

    def _start(self, end: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        spec = in_environment(self._agent.rundir, self._spec)
        places = make_places(self._agent.rundir, spec)
        env, _ = plan_environment(os.environ, spec, secrets, places)
        env.update(about_node(spec), **end)
        reach_programs(env, spec["python"])
        log = os.path.join(places.attempt, LOG)
        self._chore.start([self._agent.rundir, "after", log], log, env, float(spec["after"]["time_limit"]))

    def cut(self) -> None:
        """End them before their time, if they run."""
        self._take({"failed": {"reason": "was ended by a second stop"}})

    def _take(self, report: Report) -> None:
        if "doing" in report or not self._running:
            return
        self._running = False
        Sweep(mark_of(self._spec)).kill_all()  # what it has left behind
        if "failed" in report:
            text = self._evidence.hide(f"after: {report['failed']['reason']}")
            self._agent.record.note(
                "after_failed", reason=text, text=self._evidence.shorten(report["failed"].get("text", ""))
            )
            self._agent.record.set(after=text)
        self._done()

    def reaped(self, pid: int, status: int) -> None:
        """Take the end of a child."""
        self._chore.reaped(pid, status)
