"""A launch on a Slurm cluster: the code and the job go to the login node, and Slurm starts it when it is its turn."""

from __future__ import annotations

import secrets as random_source
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from clusterctl.cli.actions.launch import make_run_id, read_secrets
from clusterctl.cli.actions.notify import check_hooks, remember_hooks, warn_not_notified
from clusterctl.cli.context.code import read_code
from clusterctl.cli.context.load import remember_runs
from clusterctl.cli.context.nodes import interpreter, launch_record
from clusterctl.cli.context.run_output import RunOutput
from clusterctl.cli.context.settings import LaunchOptions
from clusterctl.cli.slurm.follow import follow_from_queue
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.slurm import LoginNode, Submission, submit_job
from clusterctl.client.sync.scan import ScanResult
from clusterctl.client.sync.upload import TreeUpload
from clusterctl.console.progress import Phases, render_size, render_upload
from clusterctl.console.terminal import info
from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.plans.slurm.request import (
    choose_slurm_nodes,
    describe_request,
    plan_options,
    refuse_unsupported,
    render_script,
)
from clusterctl.plans.slurm.template import make_template
from clusterctl.protocol.ranks import Slot
from clusterctl.protocol.redact import redact
from clusterctl.protocol.run_id import ALLOCATION, RunId
from clusterctl.protocol.states import CANCELLED, FAILED_SETUP
from clusterctl.specs.inventory.model import Inventory, Slurm
from clusterctl.specs.job.model import Job
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import LaunchRecord


class SlurmLaunch:
    """One launch: holds what the steps share."""

    def __init__(
        self,
        inventory: Inventory,
        slurm: Slurm,
        job: Job,
        choice: tuple[str | None, str | None],
        options: LaunchOptions,
    ) -> None:
        refuse_unsupported(job, slurm)
        self._inventory, self._slurm, self._job, self._options = inventory, slurm, job, options
        self._nodes = choose_slurm_nodes(job, *choice)
        self._login = inventory.nodes[0]
        self._run_id = make_run_id(job.name)
        self._phases = Phases([self._login.name], in_one_line=True)
        self._output = RunOutput(options.as_json, options.command)
        self._began = time.time()

    def show_plan(self) -> str:
        """Write what would be asked of Slurm, and the batch script."""
        lines = [
            describe_request(plan_options(self._job, self._slurm, self._nodes, RunId("<run_id>"))),
            "",
            render_script(self._job, self._login).rstrip("\n"),
        ]
        return "\n".join(lines)

    def run(self, cluster: Cluster) -> int:
        """Go through the steps; the exit code is the verdict's."""
        secrets: dict[str, str] = {}
        self._phases.set_steps(cluster.steps)
        try:
            secrets = read_secrets(self._job)
            if not self._options.detach:
                check_hooks(self._job)
            code = read_code(self._job, big=self._options.allow_big)
            return self._start_run(cluster, code, secrets)
        except ClusterctlError as error:
            error.message = redact(error.message, secrets.values())
            error.evidence = redact(error.evidence, secrets.values())
            self._output.write_end(FAILED_SETUP, error.exit_code, error=f"{error.code} {error.message}")
            raise
        except KeyboardInterrupt:
            self._output.write_end(CANCELLED, 130)
            raise
        finally:
            self._phases.break_off()

    def _start_run(self, cluster: Cluster, code: ScanResult, secrets: Mapping[str, str]) -> int:
        login = LoginNode(cluster, self._login, interpreter(self._login))
        self._phases.announce(
            trn(
                "run {run}: {n} node of the Slurm cluster {cluster}",
                "run {run}: {n} nodes of the Slurm cluster {cluster}",
                self._nodes.total,
                run=self._run_id,
                cluster=self._inventory.cluster,
            )
        )
        self._send_code(login, code)
        number = self._submit(login, secrets)
        remember_hooks(self._job, self._inventory, self._run_id)
        remember_runs([self._run_id])
        if self._options.detach:
            return self._detach()
        self._phases.conclude(f"submit {time.time() - self._began:.1f} s", f"Slurm job {number}")
        return follow_from_queue(
            login, self._run_id, self._nodes.total, self._output, tuple(secrets.values()), self._began
        )

    def _send_code(self, login: LoginNode, code: ScanResult) -> None:
        from dataclasses import replace

        self._phases.start("code")
        place = replace(self._login, name=ALLOCATION)
        synced = tasks.sync(
            login.cluster.connection(self._login),
            place,
            login.interpreter,
            self._run_id,
            Slot(0),
            TreeUpload(code),
            lambda count: self._phases.add_bytes(self._login.name, count),
        )
        self._phases.mark_done("code", self._login.name)
        files, size = code.manifest.files, code.manifest.size
        label = f"code {render_size(synced.sent)}" if synced.sent else ""
        self._phases.finish("code", render_upload(files, size, synced.sent), label)

    def _submit(self, login: LoginNode, secrets: Mapping[str, str]) -> str:
        self._phases.start("submit")
        record: LaunchRecord = {
            "cluster": self._inventory.cluster,
            **launch_record(),
            "submitted": time.time(),
        }
        submission = Submission(
            make_template(self._job, self._slurm, self._login, self._nodes, self._run_id, record),
            plan_options(self._job, self._slurm, self._nodes, self._run_id),
            render_script(self._job, self._login),
            secrets,
            random_source.token_hex(32),
        )
        number = submit_job(login, submission)
        self._phases.mark_done("submit", self._login.name)
        self._phases.finish("submit", tr("Slurm job {number}", number=number))
        self._output.write_json({"run": self._run_id, "slurm_job": number})
        return number

    def _detach(self) -> int:
        if not self._options.as_json:
            print(self._run_id, flush=True)
        self._output.write_json({"run": self._run_id, "detached": True})
        warn_not_notified(self._run_id, self._output.hint("attach", self._run_id))
        info(self._output.describe_commands(self._run_id))
        return 0


def refuse_options(options: LaunchOptions) -> None:
    """Raise UsageError for options that mean nothing where Slurm gives the nodes."""
    if options.wait:
        raise UsageError("CC-SLURM-001", "wait")
