"""One launch, step by step; what can go wrong at each step stands beside it."""

from __future__ import annotations

import json
import os
import secrets as random_source
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from clusterctl.cli.code import read_code
from clusterctl.cli.proving import Proof, prove
from clusterctl.cli.reaching import interpreter, myself, notice
from clusterctl.console.choice import err, say
from clusterctl.console.findings import render_findings
from clusterctl.console.logs import JsonLogs, LogPrinter
from clusterctl.console.phases import Detail, Phases, render_freight
from clusterctl.console.verdict import show_verdict
from clusterctl.errors import UsageError
from clusterctl.plans.launch import LaunchPlan, Measured, plan_launch, render_spec
from clusterctl.plans.network import resolve_network
from clusterctl.plans.placement import Member
from clusterctl.plans.vendors import vendor_of
from clusterctl.plans.verdict import Verdict, to_json
from clusterctl.runs import preparing
from clusterctl.runs.attached import Attached
from clusterctl.runs.cluster import Cluster
from clusterctl.runs.source import ScanResult
from clusterctl.specs.inventory import Inventory
from clusterctl.specs.job import Job


@dataclass(frozen=True)
class Wishes:
    """How this launch shall behave."""

    detach: bool
    no_check: bool
    as_json: bool


class Launch:
    """One launch: holds what the steps share."""

    def __init__(self, inventory: Inventory, job: Job, members: Sequence[Member], wishes: Wishes) -> None:
        self._inventory, self._job, self._members, self._wishes = inventory, job, members, wishes
        self._nodes = [member.node for member in members]
        self._interpreters = {node.name: interpreter(node, job) for node in self._nodes}
        self._phases = Phases([member.name for member in members])
        self._began = time.monotonic()

    def run(self) -> int:
        """Go through the steps; the exit code is the verdict's."""
        secrets, scan = read_secrets(self._job), read_code(self._job)
        with Cluster(notice) as cluster:
            try:
                return self._run_on(cluster, scan, secrets)
            finally:
                self._phases.stop()

    def _run_on(self, cluster: Cluster, scan: ScanResult, secrets: Mapping[str, str]) -> int:
        proof = self._prove(cluster)
        if stops(proof, no_check=self._wishes.no_check):
            say("nothing was started")
            return proof.exit_code
        plan = self._plan(proof)
        say(f"run {plan.run_id}: {len(plan.nodes)} nodes, world size {plan.world_size}")
        ready = self._prepare(cluster, plan, scan, secrets)
        self._go(plan, ready)
        if self._wishes.detach:
            return self._detach(plan, ready)
        return self._follow(cluster, plan, proof, ready, secrets)

    def _prove(self, cluster: Cluster) -> Proof:
        self._phases.begin("check")
        proof = prove(cluster, self._nodes, self._job, lambda name: self._phases.arrive("check", name))
        self._phases.end("check", f"{len(proof.findings)} findings" if proof.findings else "all fit")
        if proof.findings:
            render_findings(err(), proof.findings)
        return proof

    def _plan(self, proof: Proof) -> LaunchPlan:
        measured = {node.name: measure(proof, node.name, self._members) for node in self._nodes}
        plan = plan_launch(self._job, self._members, measured, run_id=make_run_id(self._job.name))
        for node in plan.nodes:
            if node.missing:
                raise UsageError(
                    f"not known: {', '.join(node.missing)}",
                    code="CC-USE-006",
                    node=node.name,
                    fix="give `ip:`, `nic:` or `gpus:` in the inventory, or a number as nproc_per_node",
                )
        for name in plan.overridden:
            notice(f"the job's env sets {name} itself; its value is used on every node")
        return plan

    def _prepare(
        self, cluster: Cluster, plan: LaunchPlan, scan: ScanResult, secrets: Mapping[str, str]
    ) -> dict[str, preparing.Ready]:
        record = {"cluster": self._inventory.cluster, "launched_by": myself(), "submitted": time.time()}
        specs = {node.name: render_spec(plan, node, record) for node in plan.nodes}
        files, size = len(scan.manifest.entries), scan.manifest.size
        details: dict[str, Detail] = {
            "start": lambda: "",
            "code": lambda: render_freight(files, size, self._phases.sent),
        }
        self._phases.begin("start", "code", "ready", details=details)
        try:
            ready = preparing.prepare_all(
                cluster, plan, self._interpreters, preparing.Freight(specs, scan, secrets), self._phases
            )
        except BaseException:
            self._phases.stop()
            say("nothing was started; what had been prepared is ended")
            raise
        self._phases.end("ready", f"torch {ready[plan.nodes[0].name].torch}")
        return ready

    def _go(self, plan: LaunchPlan, ready: Mapping[str, preparing.Ready]) -> None:
        self._phases.begin("go")
        try:
            port = preparing.go(plan, ready)
        except BaseException:
            preparing.cancel_all(ready)
            raise
        for node in plan.nodes:
            self._phases.arrive("go", node.name)
        seconds = time.monotonic() - self._began
        self._phases.end("go", f"master {plan.nodes[0].ip}:{port}, {seconds:.1f} s after the command")
        preparing.release(ready.values())

    def _detach(self, plan: LaunchPlan, ready: Mapping[str, preparing.Ready]) -> int:
        for node in ready.values():
            node.stream.close()
        if self._wishes.as_json:
            print(json.dumps({"schema": 1, "run": plan.run_id, "detached": True}), flush=True)
        else:
            print(plan.run_id, flush=True)
        notice("nobody watches now: if one node fails, the others are not stopped by it")
        say(come_back(plan.run_id))
        return 0

    def _follow(
        self,
        cluster: Cluster,
        plan: LaunchPlan,
        proof: Proof,
        ready: Mapping[str, preparing.Ready],
        secrets: Mapping[str, str],
    ) -> int:
        names = [node.name for node in plan.nodes]
        printer = (
            JsonLogs(plan.run_id, {node.name: node.member.node_rank for node in plan.nodes})
            if self._wishes.as_json
            else LogPrinter(names, plan.world_size or 1)
        )
        attached = Attached(
            cluster,
            plan.run_id,
            self._nodes,
            self._interpreters,
            proof.offsets,
            show=printer.show,
            notice=notice,
            secrets=secrets.values(),
        )
        try:
            verdict = attached.watch({name: ready[name].stream for name in names})
        except (KeyboardInterrupt, BrokenPipeError) as leaving:
            say(render_leaving(plan.run_id, stopping=attached.stopping))
            if isinstance(leaving, BrokenPipeError):
                raise
            return 130
        return self._tell(verdict)

    def _tell(self, verdict: Verdict) -> int:
        if self._wishes.as_json:
            print(
                json.dumps({"schema": 1, "run": verdict.run, "verdict": to_json(verdict)}, ensure_ascii=False)
            )
            sys.stdout.flush()
        show_verdict(verdict, time.monotonic() - self._began)
        return verdict.exit_code


def render_leaving(run: str, *, stopping: bool) -> str:
    """Say what becomes of a run that nobody watches any more."""
    if stopping:
        return f"\nleft while the run was being stopped; make sure that it is: clusterctl stop {run}"
    return f"\ndetached; the run goes on. {come_back(run)}"


def come_back(run: str) -> str:
    """Say how to return to a run."""
    return f"Come back with: clusterctl logs -f {run}   State: clusterctl status {run}   End it: clusterctl stop {run}"


def stops(proof: Proof, *, no_check: bool) -> bool:
    """Decide whether the findings forbid a launch; a node that did not answer always does."""
    return bool(proof.failures) or (proof.exit_code != 0 and not no_check)


def measure(proof: Proof, name: str, members: Sequence[Member]) -> Measured:
    """Reduce a node's facts to what a plan needs."""
    facts = proof.facts[name]
    node = next(member.node for member in members if member.name == name)
    network = resolve_network(node, facts)
    return Measured(
        ip=network.ip,
        nics=network.nics,
        gpus=facts.gpus.count if facts.gpus else None,
        cpus=facts.machine.cpus_allowed if facts.machine else None,
        python=facts.interpreter.executable if facts.interpreter else None,
        vendor=vendor_of(facts),
    )


def make_run_id(job: str) -> str:
    """Name a run: job, UTC time, four random hex digits."""
    return f"{job}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{random_source.token_hex(2)}"


def read_secrets(job: Job) -> dict[str, str]:
    """Take the values of the job's secrets from our own environment."""
    missing = [name for name in job.secrets if name not in os.environ]
    if missing:
        raise UsageError(
            f"secrets not set here: {', '.join(missing)}",
            code="CC-USE-007",
            fix=f"export {missing[0]}=... before `clusterctl launch`",
        )
    return {name: os.environ[name] for name in job.secrets}
