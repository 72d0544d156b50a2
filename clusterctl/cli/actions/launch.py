"""One launch, step by step; what can go wrong at each step stands beside it."""

from __future__ import annotations

import os
import secrets as random_source
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from clusterctl.cli.actions.attach import Report, watch_run
from clusterctl.cli.actions.notify import check_hooks, remember_hooks, remind
from clusterctl.cli.actions.preflight import Proof, choose, prove
from clusterctl.cli.context.code import read_code, read_provision, tell_unaware
from clusterctl.cli.context.nodes import interpreter, launch_record, notice
from clusterctl.client.launch import prepare
from clusterctl.client.launch.locks import Manners
from clusterctl.client.launch.setup import Provision, Supply
from clusterctl.client.maintenance import remove_run
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.sync.distribute import Passing, Place
from clusterctl.client.sync.scan import ScanResult
from clusterctl.client.watch.monitor import Watch
from clusterctl.console.findings import render_findings
from clusterctl.console.progress import Detail, Phases, render_freight, render_supply
from clusterctl.console.terminal import err, say
from clusterctl.errors import ClusterctlError, NodesBusy, UsageError
from clusterctl.plans.checks.python import NOT_MADE
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.launch.agent_spec import render_spec
from clusterctl.plans.launch.launchers import vendor_of
from clusterctl.plans.launch.network import resolve_network
from clusterctl.plans.launch.placement import Member, plan_devices
from clusterctl.plans.launch.plan import LaunchPlan, Measured, NodePlan, plan_launch
from clusterctl.plans.launch.setup import setup_to_spec
from clusterctl.plans.runs.gang_record import warn_of_losses
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import counted, redact


@dataclass(frozen=True)
class Wishes:
    """How this launch shall behave."""

    detach: bool
    no_check: bool
    as_json: bool
    wait: bool = False
    command: str = "clusterctl"  # how hints begin, with the `-i` that was given
    big: bool = False


class Launch:
    """One launch: holds what the steps share."""

    def __init__(self, inventory: Inventory, job: Job, members: Sequence[Member], wishes: Wishes) -> None:
        self._inventory, self._job, self._members, self._wishes = inventory, job, members, wishes
        self._nodes = [member.node for member in members]
        self._interpreters = {node.name: interpreter(node, job) for node in self._nodes}
        self._phases = Phases([member.name for member in members])
        self._report = Report(wishes.as_json, wishes.command)
        self._began = time.time()
        self._provision: Provision | None = None

    def run(self, cluster: Cluster) -> int:
        """Go through the steps; the exit code is the verdict's."""
        secrets: dict[str, str] = {}
        self._phases.look_at(cluster.steps)
        try:
            self._announce()
            secrets = read_secrets(self._job)
            if not self._wishes.detach:
                check_hooks(self._job)
            self._provision = read_provision(self._job)
            code = read_code(self._job, big=self._wishes.big)
            tell_unaware(self._job, sum(not member.spare for member in self._members), code)
            return self._run_on(cluster, code, secrets)
        except ClusterctlError as error:
            error.message = redact(error.message, secrets.values())
            error.evidence = redact(error.evidence, secrets.values())
            self._report.write_end("FAILED_SETUP", error.exit_code, error=f"{error.code} {error.message}")
            raise
        except KeyboardInterrupt:
            self._report.write_end("CANCELLED", 130)
            raise
        finally:
            self._phases.stop()

    def _announce(self) -> None:
        if self._job.on_end is not None:
            from clusterctl.console.text import make_visible
            from clusterctl.plans.notify import announce

            say(make_visible(announce(self._job.on_end)))

    def _run_on(self, cluster: Cluster, scan: ScanResult, secrets: Mapping[str, str]) -> int:
        proof = self._prove(cluster)
        if stops(proof, no_check=self._wishes.no_check):
            say("nothing was started")
            self._report.write_end("FAILED_SETUP", proof.exit_code, error="the nodes are not fit")
            return proof.exit_code
        plan = self._plan(proof)
        say(
            f"run {plan.run_id}: {counted(len(plan.nodes), 'node')}, world size {plan.world_size}{_reserve(plan)}"
        )
        few = warn_of_losses(len(plan.nodes), len(plan.spares))
        if few:
            notice(few)
        ready = self._prepare(cluster, plan, scan, secrets)
        self._go(cluster, plan, ready)
        remember_hooks(self._job, self._inventory, plan.run_id)
        return self._detach(plan) if self._wishes.detach else self._follow(cluster, plan, proof, secrets)

    def _prove(self, cluster: Cluster) -> Proof:
        choice = choose(self._inventory, self._job)
        self._phases.begin("check")
        setup = self._provision.plan if self._provision else None
        proof = prove(cluster, self._nodes, self._job, choice, self._phases, setup)
        told = [finding for finding in proof.findings if finding.code != NOT_MADE]  # the next phase says so
        self._phases.end("check", counted(len(told), "finding") if told else "all fit")
        if told:
            render_findings(err(), told)
        return proof

    def _plan(self, proof: Proof) -> LaunchPlan:
        measured = {node.name: measure(self._job, node, proof.facts[node.name]) for node in self._nodes}
        plan = plan_launch(self._job, self._members, measured, run_id=make_run_id(self._job.name))
        for node in plan.seats:
            unmet = (
                [f"ip@{node.name}"] if self._job.restart and node.ip is None else []
            )  # any may have to lead
            if missing := [*node.missing, *unmet]:
                raise UsageError(
                    f"not known: {', '.join(missing)}",
                    code="CC-USE-006",
                    node=node.name,
                    fix="give `ip:`, `nic:` or `gpus:` in the inventory, or a number as nproc_per_node",
                )
        for name in plan.overridden:
            notice(f"the job's env sets {name} itself; its value is used on every node")
        return plan

    def _prepare(
        self, cluster: Cluster, plan: LaunchPlan, scan: ScanResult, secrets: Mapping[str, str]
    ) -> dict[str, prepare.Ready]:
        record = {"cluster": self._inventory.cluster, **launch_record(), "submitted": time.time()}
        specs = {
            node.name: render_spec(plan, node, {**record, **self._setup_for(node)}) for node in plan.seats
        }
        token = random_source.token_hex(32)
        places = {node.name: Place(node.ip, node.member.node.ports) for node in plan.seats if node.ip}
        passing, supply = Passing(self._job.sync.via, places, notice), self._supply(places)
        details = self._details(scan, supply)
        self._phases.begin(*details, "ready", details=details)
        manners = Manners(self._wishes.wait, notice)
        freight = prepare.Freight(
            specs, scan, secrets, token, passing=passing, manners=manners, supply=supply
        )
        try:
            ready = prepare.prepare_all(cluster, plan, self._interpreters, freight, self._phases)
        except BaseException as error:
            self._phases.stop()
            if isinstance(error, NodesBusy):  # it was refused, and never was a run
                remove_run(cluster, self._nodes, self._interpreters, plan.run_id)
            say("nothing was started; what had been prepared is ended")
            raise
        torch = ready[plan.nodes[0].name].torch
        self._phases.end("ready", f"torch {torch}" if torch else f"launcher {self._job.launcher}")
        return ready

    def _setup_for(self, node: NodePlan) -> dict[str, Any]:
        """Give a node's part of the setup, if the job has one."""
        made = self._provision
        return {"setup": setup_to_spec(made.plan, made.scan.manifest, node.activate)} if made else {}

    def _supply(self, places: Mapping[str, Place]) -> Supply | None:
        if self._provision is None:
            return None
        limit = self._provision.plan.setup.time_limit
        return Supply(self._provision.scan, limit, Passing(self._job.sync.via, places, notice))

    def _details(self, scan: ScanResult, supply: Supply | None) -> dict[str, Detail]:
        """Say what is told of each phase when all nodes are through it."""
        files, size = scan.manifest.files, scan.manifest.size

        def sent() -> int:
            return self._phases.sent - (sum(supply.sent.values()) if supply else 0)

        return {
            "start": lambda: "",
            **({"setup": lambda: render_supply(supply.made, sum(supply.sent.values()))} if supply else {}),
            "code": lambda: render_freight(files, size, sent()),
        }

    def _go(self, cluster: Cluster, plan: LaunchPlan, ready: Mapping[str, prepare.Ready]) -> None:
        self._phases.begin("go")
        try:
            port = prepare.go(cluster, plan, self._interpreters, ready)
        except BaseException as error:
            self._phases.stop()
            why, hint = prepare.describe_break(error), self._report.hint("status", plan.run_id)
            say(f"{why}; the run was ended everywhere. {hint}")
            raise
        for node in plan.seats:
            self._phases.arrive("go", node.name)
        seconds = time.time() - self._began
        self._phases.end("go", f"master {plan.nodes[0].ip}:{port}, {seconds:.1f} s after the command")
        prepare.release(ready.values())

    def _detach(self, plan: LaunchPlan) -> int:
        if not self._wishes.as_json:
            print(plan.run_id, flush=True)
        self._report.write_json({"run": plan.run_id, "detached": True})
        remind(plan.run_id, self._report.hint("attach", plan.run_id))
        say(self._report.come_back(plan.run_id))
        return 0

    def _follow(self, cluster: Cluster, plan: LaunchPlan, proof: Proof, secrets: Mapping[str, str]) -> int:
        ranks = {node.name: node.member.node_rank for node in plan.seats}
        watch = Watch(plan.run_id, self._nodes, self._interpreters, proof.offsets, tuple(secrets.values()))
        logs = self._report.logs(plan.run_id, ranks, plan.world_size)
        return watch_run(cluster, watch, self._report, logs, self._began)


def _reserve(plan: LaunchPlan) -> str:
    spares = fold_names([node.name for node in plan.spares])
    return f"; {counted(len(plan.spares), 'spare')}: {spares}" if plan.spares else ""


def stops(proof: Proof, *, no_check: bool) -> bool:
    """Decide whether the findings forbid a launch; a node that did not answer always does."""
    return bool(proof.failures) or (proof.exit_code != 0 and not no_check)


def measure(job: Job, node: Node, facts: Facts) -> Measured:
    """Reduce a node's facts to what a plan needs."""
    network = resolve_network(node, facts)
    return Measured(
        ip=network.ip,
        nics=network.nics,
        gpus=facts.gpus.count if facts.gpus else None,
        cpus=facts.machine.cpus_allowed if facts.machine else None,
        python=facts.interpreter.executable if facts.interpreter else None,
        vendor=vendor_of(facts),
        devices=plan_devices(job, node, facts),
    )


def make_run_id(job: str) -> RunId:
    """Name a run: job, UTC time, four random hex digits."""
    return RunId(f"{job}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{random_source.token_hex(2)}")


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
