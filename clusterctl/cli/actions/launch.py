"""One launch, step by step, with the failures of each step."""

from __future__ import annotations

import os
import secrets as random_source
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

from clusterctl.cli.actions.preflight import (
    Preflight,
    Questions,
    keep_check,
    run_preflight,
)
from clusterctl.cli.context.checks import select_checks
from clusterctl.cli.context.code import read_code, read_job_code, read_job_setup
from clusterctl.cli.context.load import checks_dir, remember_runs
from clusterctl.cli.context.nodes import interpreter, launch_record, notice
from clusterctl.cli.context.run_output import LaunchOptions, RunOutput
from clusterctl.client.launch import prepare
from clusterctl.client.launch.locks import LockPolicy
from clusterctl.client.launch.setup import SetupFiles, SetupUpload
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.sync.distribution import Distribution, TransferAddress
from clusterctl.client.sync.scan import ScanResult
from clusterctl.client.sync.upload import TreeUpload
from clusterctl.console.progress import Detail, Phases, describe_age, render_setup, render_upload
from clusterctl.console.terminal import info, stderr
from clusterctl.errors import ClusterctlError, NodesBusy, UsageError
from clusterctl.interrupts import INTERRUPTS, announce_interrupted
from clusterctl.plans.checks.python import NOT_BUILT
from clusterctl.plans.checks.script import mark_suspected
from clusterctl.plans.launch.agent_spec import describe_node, render_spec
from clusterctl.plans.launch.launchers import vendor_of
from clusterctl.plans.launch.network import resolve_network
from clusterctl.plans.launch.placement import Member, plan_devices, warn_of_losses
from clusterctl.plans.launch.plan import LaunchPlan, NodePlan, PlanFacts, check_measured, plan_launch
from clusterctl.plans.launch.setup import setup_to_spec
from clusterctl.protocol.messages.facts import Facts
from clusterctl.protocol.redact import redact
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import FAILED_SETUP, STOPPED
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line, render_seconds, render_size
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.cli.actions.files.stage import Staging
    from clusterctl.protocol.messages.files import LaunchRecord


CANCEL_LIMIT = 15.0  # seconds for all nodes to confirm that what was prepared has ended
STOP_LIMIT = 60.0  # seconds for all nodes to stop what some of them have started


class LaunchBase(ABC):
    """How every launch begins, over SSH or on a Slurm cluster; holds what the steps share."""

    def __init__(self, inventory: Inventory, job: Job, names: Sequence[str], options: LaunchOptions) -> None:
        self._inventory, self._job, self._options = inventory, job, options
        self._phases = Phases(names, in_one_line=True)
        self._output = RunOutput(options.as_json, options.command)
        self._began = time.time()
        self._setup_files: SetupFiles | None = None
        self._staging: Staging | None = None

    @property
    @abstractmethod
    def _node_count(self) -> int:
        """Count the nodes that take part, without spares."""

    @property
    @abstractmethod
    def _staged_nodes(self) -> Sequence[Node]:
        """Return the nodes that get what the job stages."""

    @abstractmethod
    def _start_run(self, cluster: Cluster, scan: ScanResult, secrets: Mapping[str, str]) -> int:
        """Send the code, start the run and follow it; gives the exit code."""

    def run(self, cluster: Cluster) -> int:
        """Go through the steps; the exit code is the verdict's."""
        secrets: dict[str, str] = {}
        self._phases.set_steps(cluster.steps)
        try:
            with INTERRUPTS.leaving(partial(self._announce_cancelled, tr("interrupted"))):
                self._announce()
                secrets = read_secrets(self._job)
                if self._job.notify and not self._options.detach:
                    from clusterctl.cli.actions.notify import check_hooks  # a job without any saves 80 ms

                    check_hooks(self._job)
                self._setup_files = read_job_setup(self._job)
                code = read_code(self._job, big=self._options.allow_big)
                if self._job.stage:
                    from clusterctl.cli.actions.files.stage import Staging  # imports the engine of `cp`

                    self._staging = Staging(self._job, self._inventory, self._staged_nodes)
                return self._start_run(cluster, code, secrets)
        except ClusterctlError as error:
            error.message = redact(error.message, secrets.values())
            error.evidence = redact(error.evidence, secrets.values())
            self._output.write_failure(FAILED_SETUP, error)
            raise
        except KeyboardInterrupt:  # what it means has been written
            return INTERRUPTS.exit_code
        finally:
            self._phases.break_off()

    def _stage(self, cluster: Cluster, addresses: Mapping[str, TransferAddress] | None = None) -> None:
        """Copy what the job stages, before any node is locked for the run."""
        if self._staging is not None:
            from clusterctl.cli.actions.files.stage import describe_interrupt
            from clusterctl.console.staging import render_summary

            self._phases.start("stage")
            with INTERRUPTS.leaving(partial(self._announce_cancelled, describe_interrupt())):
                self._staging.run(cluster, self._phases, addresses=addresses)
            self._phases.finish("stage", *render_summary(self._staging.staged))

    def _announce_cancelled(self, text: str) -> None:
        """Report a launch that is left before anything runs."""
        announce_interrupted(text)
        self._output.write_end(STOPPED, INTERRUPTS.exit_code)

    def _announce_started(self, run_id: RunId, *, stopping: bool = False) -> None:
        """Report a run that continues after a signal, before it was followed."""
        from clusterctl.cli.actions.notify import announce_detached

        self._remember_hooks(run_id)
        remember_runs([run_id])
        announce_detached(self._output, run_id, stopping=stopping)

    def _remember_hooks(self, run_id: RunId) -> None:
        """Keep the job's notifications and `on_end` for the end of the run, if it has any."""
        if self._job.notify or self._job.on_end is not None:
            from clusterctl.cli.actions.notify import remember_hooks

            remember_hooks(self._job, self._inventory, run_id)

    def _announce(self) -> None:
        if self._job.debug:
            notice(
                tr(
                    "a rank at breakpoint() waits for `{command}`; the others wait in their next collective until its "
                    "timeout (NCCL 10 min, Gloo 30 min, unless the script sets one)",
                    command=command_line("debug", "RUN", "--rank", "N", command=self._options.command),
                )
            )
        if self._job.on_end is not None:
            from clusterctl.console.text import make_visible
            from clusterctl.plans.notify import describe_on_end

            info(make_visible(describe_on_end(self._job.on_end)))

    def _record(self) -> LaunchRecord:
        """Return who launches, when, and in which cluster."""
        record: LaunchRecord = {
            "cluster": self._inventory.cluster,
            **launch_record(),
            "submitted": time.time(),
        }
        return {**record, "staged": self._staging.description} if self._staging else record

    def _detach(self, run_id: RunId) -> int:
        if not self._options.as_json:
            print(run_id, flush=True)
        self._output.write_json({"schema": 1, "run": run_id, "detached": True})
        from clusterctl.cli.actions.notify import warn_not_notified

        warn_not_notified(run_id, self._output.hint("attach", run_id))
        info(self._output.describe_commands(run_id))
        return 0


class Launch(LaunchBase):
    """One launch over SSH, step by step."""

    def __init__(
        self, inventory: Inventory, job: Job, members: Sequence[Member], options: LaunchOptions
    ) -> None:
        super().__init__(inventory, job, [member.name for member in members], options)
        self._members = members
        self._nodes = [member.node for member in members]
        self._interpreters = {node.name: interpreter(node, job) for node in self._nodes}

    @property
    def _node_count(self) -> int:
        return sum(not member.spare for member in self._members)

    @property
    def _staged_nodes(self) -> Sequence[Node]:
        return self._nodes

    def _start_run(self, cluster: Cluster, scan: ScanResult, secrets: Mapping[str, str]) -> int:
        questions = self._make_questions(scan)
        preflight = self._run_preflight(cluster, questions)
        if blocks_launch(preflight, ignore_checks=self._options.ignore_checks):
            info(tr("nothing was started"))
            self._output.write_end(FAILED_SETUP, preflight.exit_code, error="the checks failed")
            return preflight.exit_code
        plan = self._plan(preflight)
        self._phases.announce(render_title(plan, self._inventory.cluster))
        warning = warn_of_losses(len(plan.nodes), len(plan.spares))
        if warning:
            notice(warning)
        self._stage(cluster, addresses_of(plan))
        ready = self._prepare(cluster, plan, scan, secrets, preflight)
        self._start_workers(cluster, plan, ready)
        self._remember_hooks(plan.run_id)
        remember_runs([plan.run_id])
        if self._options.detach:
            return self._detach(plan.run_id)
        code = self._follow(cluster, plan, preflight, secrets)
        if code == 0:
            keep_check(questions, preflight, checks_dir())
        return code

    def _make_questions(self, scan: ScanResult) -> Questions:
        selection = select_checks(self._inventory, self._job, skip=self._options.skip)
        setup = self._setup_files.plan if self._setup_files else None
        command, recheck = self._options.command, self._options.recheck
        code = read_job_code(self._job, self._node_count, scan)
        return Questions(self._nodes, self._job, selection, setup, command, recheck, launches=True, code=code)

    def _run_preflight(self, cluster: Cluster, questions: Questions) -> Preflight:
        self._phases.start("check")
        preflight = run_preflight(cluster, questions, self._phases, checks_dir())
        # the next phase reports it
        shown = [finding for finding in preflight.findings if finding.code != NOT_BUILT]
        if shown:
            from clusterctl.console.findings import render_findings  # which loads tables

            self._phases.finish_apart("check", trn("{n} finding", "{n} findings", len(shown)))
            render_findings(stderr(), shown)
            if preflight.age is not None:
                info(describe_age(preflight.age))
        else:
            self._phases.finish("check", describe_age(preflight.age) if preflight.age else tr("all ok"))
        return preflight

    def _plan(self, preflight: Preflight) -> LaunchPlan:
        measured = {node.name: measure(self._job, node, preflight.facts[node.name]) for node in self._nodes}
        job = mark_suspected(self._job, preflight.findings)
        plan = plan_launch(job, self._members, measured, run_id=make_run_id(self._job.name))
        check_measured(plan)
        for name in plan.overridden:
            notice(tr("the job's env sets {name}; this value is used on every node", name=name))
        return plan

    def _prepare(
        self,
        cluster: Cluster,
        plan: LaunchPlan,
        scan: ScanResult,
        secrets: Mapping[str, str],
        preflight: Preflight,
    ) -> dict[str, prepare.Ready]:
        record = self._record()
        code = scan.manifest.hash
        abouts = {
            node.name: describe_node(node, preflight.facts[node.name], code, secrets) for node in self._nodes
        }
        specs = {
            node.name: render_spec(
                plan, node, {**record, **self._setup_for(node), "about": abouts[node.name]}
            )
            for node in plan.all_nodes
        }
        token = random_source.token_hex(32)
        addresses = addresses_of(plan)
        distribution, setup_upload = (
            Distribution(self._job.sync.via, addresses, notice),
            self._plan_setup_upload(addresses),
        )
        details = self._details(scan, setup_upload)
        self._phases.start(*details, "ready", details=details)
        lock_policy = LockPolicy(self._options.wait, notice)
        inputs = prepare.LaunchInputs(
            specs,
            scan,
            secrets,
            token,
            distribution=distribution,
            lock_policy=lock_policy,
            setup_upload=setup_upload,
        )
        leave = partial(self._announce_cancelled, tr("interrupted; stopping prepared processes"))
        INTERRUPTS.set_leaving(leave, CANCEL_LIMIT)
        try:
            ready = prepare.prepare_all(cluster, plan, self._interpreters, inputs, self._phases)
        except BaseException as error:
            self._phases.break_off()
            if isinstance(error, NodesBusy):  # it was refused, and never was a run
                from clusterctl.client.cleanup import remove_run

                remove_run(tasks.RunHandle(cluster, plan.run_id, self._nodes, self._interpreters))
            info(tr("nothing was started; prepared processes were stopped"))
            raise
        torch = ready[plan.nodes[0].name].torch
        detail = f"torch {torch}" if torch else f"launcher {self._job.launcher}"
        self._phases.finish("ready", detail, f"torch {torch.partition('+')[0]}" if torch else "")
        return ready

    def _setup_for(self, node: NodePlan) -> LaunchRecord:
        """Return a node's part of the setup, if the job has one."""
        setup_files = self._setup_files
        return (
            {"setup": setup_to_spec(setup_files.plan, setup_files.scan.manifest, node.activate)}
            if setup_files
            else {}
        )

    def _plan_setup_upload(self, addresses: Mapping[str, TransferAddress]) -> SetupUpload | None:
        if self._setup_files is None:
            return None
        limit = self._setup_files.plan.setup.time_limit
        distribution = Distribution(self._job.sync.via, addresses, notice)
        phases, scan = self._phases, self._setup_files.scan
        return SetupUpload(TreeUpload(scan, None, distribution, phases.add_expected, phases.add_taken), limit)

    def _details(self, scan: ScanResult, setup_upload: SetupUpload | None) -> dict[str, Detail]:
        """Return what is shown of each phase when all nodes have completed it."""
        files, size = scan.manifest.files, scan.manifest.size

        def sent() -> int:
            return self._phases.transferred - (sum(setup_upload.sent.values()) if setup_upload else 0)

        return {
            "start": lambda: ("", ""),
            **(
                {"setup": lambda: (render_setup(setup_upload.created, sum(setup_upload.sent.values())), "")}
                if setup_upload
                else {}
            ),
            "code": lambda: (
                render_upload(files, size, sent()),
                f"code {render_size(sent())}" if sent() else "",
            ),
        }

    def _start_workers(self, cluster: Cluster, plan: LaunchPlan, ready: Mapping[str, prepare.Ready]) -> None:
        self._phases.start("go")
        leave = partial(
            self._announce_cancelled,
            tr("interrupted before all nodes had started; stopping the run on all nodes"),
        )
        try:
            INTERRUPTS.set_leaving(leave, STOP_LIMIT)
            port = prepare.send_go(plan, ready)
            INTERRUPTS.set_leaving(partial(self._announce_started, plan.run_id))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                INTERRUPTS.announce(error)
            self._phases.break_off()
            self._stop_started(cluster, plan, ready, error)
            raise
        for node in plan.all_nodes:
            self._phases.mark_done("go", node.name)
        seconds = time.time() - self._began
        master = f"{plan.nodes[0].ip}:{port}"
        detail = tr("master {master}, {span} after the command", master=master, span=render_seconds(seconds))
        self._phases.finish("go", detail)
        master = f"{plan.nodes[0].name}:{port}"
        self._phases.conclude(
            tr("launch {span}", span=render_seconds(seconds)), tr("go  master {master}", master=master)
        )
        prepare.close_sessions(ready.values())

    def _stop_started(
        self, cluster: Cluster, plan: LaunchPlan, ready: Mapping[str, prepare.Ready], error: BaseException
    ) -> None:
        """End a run that not all nodes have started, and say on which nodes it may still be there."""
        run_id, reason = plan.run_id, prepare.describe_start_failure(error)
        INTERRUPTS.set_leaving(partial(self._announce_started, run_id, stopping=True), STOP_LIMIT)
        errors = prepare.stop_started(cluster, plan, self._interpreters, ready, error)
        if errors:
            nodes, command = fold_names(errors), self._output.hint("stop", run_id)
            info(
                tr(
                    "{reason}; the run could not be stopped on {nodes}; to make sure: {command}",
                    reason=reason,
                    nodes=nodes,
                    command=command,
                )
            )
            return
        command = self._output.hint("status", run_id)
        info(tr("{reason}; the run was stopped on all nodes; see {command}", reason=reason, command=command))

    def _follow(
        self, cluster: Cluster, plan: LaunchPlan, preflight: Preflight, secrets: Mapping[str, str]
    ) -> int:
        from clusterctl.cli.actions.attach import watch_run  # loads when all is on its way
        from clusterctl.client.watch.monitor import MonitorOptions

        node_ranks = {node.name: node.member.node_rank for node in plan.all_nodes}
        options = MonitorOptions(
            plan.run_id, self._nodes, self._interpreters, preflight.offsets, tuple(secrets.values())
        )
        logs = self._output.logs(plan.run_id, node_ranks, plan.world_size)
        return watch_run(cluster, options, self._output, logs, self._began)


def render_title(plan: LaunchPlan, cluster: str) -> str:
    """Return which run it is, and how large: `run digits-...: 3 nodes x 1 = 3 ranks on lab-a`."""
    counts = {node.nproc_per_node for node in plan.nodes}
    facts = {"run": plan.run_id, "ranks": plan.world_size, "cluster": cluster}
    spares = fold_names([node.name for node in plan.spares])
    if len(counts) == 1 and plan.world_size is not None:
        size = trn(
            "run {run}: {n} node x {processes} = {ranks} ranks on {cluster}",
            "run {run}: {n} nodes x {processes} = {ranks} ranks on {cluster}",
            len(plan.nodes),
            processes=next(iter(counts)),
            **facts,
        )
    else:
        size = trn(
            "run {run}: {n} node, {ranks} ranks on {cluster}",
            "run {run}: {n} nodes, {ranks} ranks on {cluster}",
            len(plan.nodes),
            **facts,
        )
    return tr("{run}; spare: {nodes}", run=size, nodes=spares) if spares else size


def blocks_launch(preflight: Preflight, *, ignore_checks: bool) -> bool:
    """Decide whether the findings forbid a launch; a node that did not answer always does."""
    return bool(preflight.failures) or (preflight.exit_code != 0 and not ignore_checks)


def measure(job: Job, node: Node, facts: Facts) -> PlanFacts:
    """Reduce a node's facts to what a plan needs."""
    network = resolve_network(node, facts)
    return PlanFacts(
        ip=network.ip,
        nics=network.nics,
        gpus=facts.gpus.count if facts.gpus else None,
        cpus=facts.machine.cpus_allowed if facts.machine else None,
        python=facts.interpreter.executable if facts.interpreter else None,
        vendor=vendor_of(facts),
        devices=plan_devices(job, node, facts),
    )


def addresses_of(plan: LaunchPlan) -> dict[str, TransferAddress]:
    """Return where the nodes pass on to each other what they get."""
    return {node.name: TransferAddress(node.ip, node.member.node.ports) for node in plan.all_nodes if node.ip}


def make_run_id(job: str) -> RunId:
    """Name a run: job, UTC time, four random hex digits."""
    return RunId(f"{job}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{random_source.token_hex(2)}")


def read_secrets(job: Job) -> dict[str, str]:
    """Take the values of the job's secrets from our own environment."""
    missing = [name for name in job.secrets if name not in os.environ]
    if missing:
        raise UsageError("CC-USE-007", names=", ".join(missing), first=missing[0])
    return {name: os.environ[name] for name in job.secrets}
