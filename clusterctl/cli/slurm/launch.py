"""A launch on a Slurm cluster: the code and the job go to the login node, and Slurm starts it when it is its turn."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from clusterctl.cli.actions.launch import LaunchBase, make_run_id
from clusterctl.cli.actions.notify import remember_hooks
from clusterctl.cli.actions.preflight import report_code
from clusterctl.cli.context.code import read_job_code
from clusterctl.cli.context.load import remember_runs
from clusterctl.cli.context.nodes import interpreter
from clusterctl.cli.context.run_output import LaunchOptions
from clusterctl.cli.slurm.follow import Following, follow_from_queue
from clusterctl.client.preflight import read_local_facts
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.slurm import LoginNode, send_tree, submit_job
from clusterctl.client.sync.scan import ScanResult
from clusterctl.client.sync.upload import TreeUpload
from clusterctl.console.progress import render_size, render_upload
from clusterctl.errors import UsageError
from clusterctl.interrupts import INTERRUPTS, announce_interrupted
from clusterctl.plans.checks.registry import AppliedWaiver, CheckSelection, resolve_waivers
from clusterctl.plans.checks.script import mark_suspected
from clusterctl.plans.launch.setup import setup_probe_request, setup_to_spec
from clusterctl.plans.slurm.submission import (
    choose_slurm_nodes,
    describe_request,
    plan_check,
    plan_options,
    plan_submission,
    refuse_unsupported,
    render_script,
)
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import UNKNOWN
from clusterctl.specs.inventory.model import Inventory, Slurm
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import ALL
from clusterctl.specs.text import render_seconds
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.protocol.messages.allocation import CheckPart
    from clusterctl.protocol.messages.files import LaunchRecord


class SlurmLaunch(LaunchBase):
    """One launch on a Slurm cluster, step by step."""

    def __init__(
        self,
        inventory: Inventory,
        slurm: Slurm,
        job: Job,
        choice: tuple[str | None, str | None],
        options: LaunchOptions,
    ) -> None:
        refuse_unsupported(job, slurm)
        self._login = inventory.nodes[0]
        super().__init__(inventory, job, [self._login.name], options)
        self._slurm, self._nodes = slurm, choose_slurm_nodes(job, *choice)
        self._run_id = make_run_id(job.name)

    @property
    def _node_count(self) -> int:
        return self._nodes.count

    def show_plan(self) -> str:
        """Write what would be asked of Slurm, and the batch script."""
        lines = [
            describe_request(plan_options(self._job, self._slurm, self._nodes, RunId("<run_id>"))),
            "",
            render_script(self._job, self._login).rstrip("\n"),
        ]
        return "\n".join(lines)

    def _start_run(self, cluster: Cluster, scan: ScanResult, secrets: Mapping[str, str]) -> int:
        login = LoginNode(cluster, self._login, interpreter(self._login))
        job = self._report_code(scan)
        self._phases.announce(
            trn(
                "run {run}: {n} node of the Slurm cluster {cluster}",
                "run {run}: {n} nodes of the Slurm cluster {cluster}",
                self._nodes.total,
                run=self._run_id,
                cluster=self._inventory.cluster,
            )
        )
        self._send_code(login, scan)
        number = self._submit(login, secrets, job)
        remember_hooks(self._job, self._inventory, self._run_id)
        remember_runs([self._run_id])
        if self._options.detach:
            return self._detach(self._run_id)
        seconds = time.time() - self._began
        self._phases.conclude(
            tr("submit {span}", span=render_seconds(seconds)), tr("Slurm job {number}", number=number)
        )
        hidden = tuple(secrets.values())
        following = Following(login, self._run_id, self._nodes.total, self._output, hidden, self._began)
        return follow_from_queue(following)

    def _report_code(self, scan: ScanResult) -> Job:
        """Print what the code shows, and return the job as it is planned; the address of node 0 is not known yet."""
        code = read_job_code(self._job, self._node_count, scan)
        selection = CheckSelection(frozenset({"CC-CODE-003"}), self._resolve_waivers())
        return mark_suspected(self._job, report_code([self._login], self._job, code, selection))

    def _resolve_waivers(self) -> tuple[AppliedWaiver, ...]:
        """Resolve the waivers as if they were for all nodes: which ones there will be is not known."""
        waivers = (*self._inventory.waive, *self._job.waive)
        return resolve_waivers([replace(one, nodes=ALL) for one in waivers], [self._login.name])

    def _send_code(self, login: LoginNode, code: ScanResult) -> None:
        self._phases.start("code")
        upload = TreeUpload(code, on_expected=self._phases.add_expected)
        add_bytes = partial(self._phases.add_bytes, self._login.name)
        synced = send_tree(login, upload, self._run_id, add_bytes)
        self._phases.mark_done("code", self._login.name)
        files, size = code.manifest.files, code.manifest.size
        label = f"code {render_size(synced.sent)}" if synced.sent else ""
        self._phases.finish("code", render_upload(files, size, synced.sent), label)

    def _send_setup(self, login: LoginNode) -> LaunchRecord:
        """Send what the environment is made of, unless it is there; gives its place in the spec."""
        if self._setup_files is None:
            return {}
        self._phases.start("setup")
        scan = self._setup_files.scan
        sent = send_tree(login, TreeUpload(scan), None).sent
        self._phases.mark_done("setup", self._login.name)
        self._phases.finish("setup", render_upload(scan.manifest.files, scan.manifest.size, sent))
        activate = self._job.activate or self._login.activate
        return {"setup": setup_to_spec(self._setup_files.plan, scan.manifest, activate)}

    def _plan_check(self) -> CheckPart:
        """Plan the check that the nodes make before anything starts."""
        waivers = (*self._inventory.waive, *self._job.waive)
        setup = self._setup_files.plan if self._setup_files else None
        check = plan_check(
            self._job,
            self._login,
            waivers,
            read_local_facts((), self._job, None).script_siblings,
            self._options.command,
            setup_probe_request(setup, self._job.activate or self._login.activate),
        )
        return {**check, "enforce": not self._options.ignore_checks}

    def _announce_submission(self) -> None:
        """Report that the job may be in the queue: the answer was not awaited."""
        command = self._output.hint("stop", self._run_id)
        announce_interrupted(
            tr("interrupted while the job was submitted; to make sure: {command}", command=command)
        )
        self._output.write_end(UNKNOWN, INTERRUPTS.exit_code, run_id=self._run_id)

    def _submit(self, login: LoginNode, secrets: Mapping[str, str], job: Job) -> str:
        check = self._plan_check()
        record: LaunchRecord = {**self._record(), **self._send_setup(login)}
        self._phases.start("submit")
        submission = plan_submission(job, self._slurm, self._login, self._nodes, self._run_id, record, check)
        INTERRUPTS.set_leaving(self._announce_submission)
        number = submit_job(login, submission, secrets)
        INTERRUPTS.set_leaving(partial(self._announce_started, self._run_id))
        self._phases.mark_done("submit", self._login.name)
        self._phases.finish("submit", tr("Slurm job {number}", number=number))
        self._output.write_json({"schema": 1, "run": self._run_id, "slurm_job": number})
        return number


def refuse_options(options: LaunchOptions) -> None:
    """Raise UsageError for options that mean nothing where Slurm gives the nodes."""
    if options.wait:
        raise UsageError("CC-SLURM-001", "wait")
    if options.skip:
        raise UsageError("CC-SLURM-001", "skip")
