"""The commands of `after`: run on a node when all its ranks have ended; the end stays what it is, whatever they do."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Mapping

from .chore import Chore, Report
from .ending import Sweep
from .environments import reach_programs
from .evidence import Evidence
from .host import Host
from .launcher import make_places, plan_environment
from .provision import about_node, in_environment
from .state import mark_of

Facts = Dict[str, Any]
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
