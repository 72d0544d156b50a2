"""The deep check: a small job of ours, launched as any other, whose leader says which node or link is in the way."""

from __future__ import annotations

import secrets as random_source
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from clusterctl.cli.actions.launch import make_run_id, measure
from clusterctl.cli.actions.preflight import Proof
from clusterctl.cli.context.nodes import interpreter, launch_record, notice
from clusterctl.client.launch import prepare
from clusterctl.client.maintenance import remove_run
from clusterctl.client.rpc.bundle import PACKAGE
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.tasks import end_run
from clusterctl.client.sync.scan import ScanResult, scan_source
from clusterctl.client.watch.follower import LogLines
from clusterctl.client.watch.monitor import Attached, Watch
from clusterctl.console.progress import Phases
from clusterctl.errors import ClusterctlError
from clusterctl.plans.checks.registry import evaluate
from clusterctl.plans.diagnose.collective import (
    FOLDER,
    MARK,
    MODULES,
    Deep,
    choose_backend,
    plan_deep_job,
    read_deep,
)
from clusterctl.plans.launch.agent_spec import render_spec
from clusterctl.plans.launch.placement import Member
from clusterctl.plans.launch.plan import LaunchPlan, plan_launch
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job
from clusterctl.specs.text import counted

MOST_LINES = 2000  # of the leader's; a search has some dozens


def deepen(cluster: Cluster, nodes: Sequence[Node], job: Job | None, proof: Proof) -> Proof:
    """Run the deep check on nodes that are fit; its findings join the others. Leaves nothing on the nodes."""
    backend = choose_backend(job, list(proof.facts.values()))
    deep = Deep(backend, tuple(node.name for node in nodes), 0)
    waiting = tuple(name for name, facts in proof.facts.items() if facts.setup.pending)
    if waiting:
        trouble = "the job's `setup` has not made its environment there yet"
        deep = replace(deep, trouble=trouble, fix="launch the job once, then check again", at=waiting)
        return _judged(nodes, job, proof, deep)
    with _packed() as folder:
        wanted = plan_deep_job(job, backend, str(folder))
        deepening = Deepening(cluster, nodes, wanted, proof)
        try:
            deep = deepening.run(deep, scan_source(folder))
        except ClusterctlError as error:
            trouble = f"{error.code} {error.message}" + (f"\n{error.evidence}" if error.evidence else "")
            at = (error.node,) if error.node in deep.names else ()
            deep = replace(deep, trouble=trouble, fix=error.fix, at=at)
    return _judged(nodes, job, proof, deep)


def _judged(nodes: Sequence[Node], job: Job | None, proof: Proof, deep: Deep) -> Proof:
    facts, failures = proof.facts, proof.failures
    findings = evaluate(nodes, facts, failures, job, proof.wire, deep, proof.choice, proof.here)
    return replace(proof, findings=findings, deep=deep)


@contextmanager
def _packed() -> Iterator[Path]:
    """Put what is sent into a folder of its own: a package of the modules that torchrun is to run."""
    folder = Path(tempfile.mkdtemp(prefix="clusterctl-deep-"))
    try:
        for name in MODULES:
            target = folder / FOLDER / f"{name}.py"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PACKAGE / f"{name}.py", target)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Deepening:
    """One deep check: holds what its steps share."""

    def __init__(self, cluster: Cluster, nodes: Sequence[Node], job: Job, proof: Proof) -> None:
        self._cluster, self._nodes, self._job, self._proof = cluster, nodes, job, proof
        self._interpreters = {node.name: interpreter(node, job) for node in nodes}
        self._phases = Phases([node.name for node in nodes])
        self._phases.look_at(cluster.steps)
        self._lines: list[str] = []

    def run(self, deep: Deep, scan: ScanResult) -> Deep:
        """Start the job, hear what its leader says, and remove all traces."""
        members = [Member(node, rank) for rank, node in enumerate(self._nodes)]
        measured = {node.name: measure(self._job, node, self._proof.facts[node.name]) for node in self._nodes}
        plan = plan_launch(self._job, members, measured, run_id=make_run_id(self._job.name))
        began = time.monotonic()
        try:
            self._start(plan, scan)
            trouble = self._hear(plan)
        except BaseException:
            self._end(plan.run_id)
            raise
        finally:
            self._phases.stop()
            remove_run(self._cluster, self._nodes, self._interpreters, plan.run_id)
        told = read_deep(self._lines, replace(deep, ranks=plan.world_size or 0))
        for node in self._nodes:
            self._phases.arrive("deep", node.name)
        self._phases.end("deep", f"{counted(len(told.rounds), 'round')} in {time.monotonic() - began:.1f} s")
        return (
            told if told.found else replace(told, trouble=trouble or "its leader did not say what it found")
        )

    def _start(self, plan: LaunchPlan, scan: ScanResult) -> None:
        record = {**launch_record(), "submitted": time.time()}
        specs = {
            node.name: {
                **render_spec(plan, node, record),
                **_own_python(self._proof.facts[node.name].setup.prefix),
                "output_dir": _inside(plan.run_id, node.member),
            }
            for node in plan.nodes
        }
        self._phases.begin("deep")
        freight = prepare.Freight(specs, scan, {}, random_source.token_hex(32))
        ready = prepare.prepare_all(self._cluster, plan, self._interpreters, freight, _Noting(self._phases))
        prepare.go(self._cluster, plan, self._interpreters, ready)
        prepare.release(ready.values())

    def _hear(self, plan: LaunchPlan) -> str:
        """Listen until the job has ended; gives what went wrong."""
        watch = Watch(plan.run_id, self._nodes, self._interpreters, self._proof.offsets)
        verdict = Attached(self._cluster, watch, show=self._take, notice=notice).watch()
        cause = verdict.cause
        if cause is None:
            return "" if verdict.exit_code == 0 else f"its job ended as {verdict.state}"
        last = cause.failure.tail[-1] if cause.failure.tail else ""
        return f"its job failed on {cause.failure.node}: {cause.failure.exception or last}"

    def _take(self, entry: LogLines) -> None:
        if entry.stream == "stdout":
            told = [line for line in entry.lines if line.startswith(MARK)]
            self._lines += told[: MOST_LINES - len(self._lines)]

    def _end(self, run: str) -> None:
        """End the job wherever it is, also on nodes that were still preparing; nobody else will."""
        end_run(self._cluster, self._nodes, self._interpreters, run, "the deep check was left")


def _own_python(prefix: str | None) -> dict[str, str]:
    """Take the Python of the environment that the job's `setup` has made."""
    return {"python": f"{prefix}/bin/python"} if prefix else {}


def _inside(run: str, member: Member) -> str:
    """Give an output directory that goes with the run."""
    return f"{member.node.workdir}/runs/{run}/{member.node_rank}-{member.name}/outputs"


class _Noting:
    """Hears of the progress of the preparations, of which the screen shows what each node is at."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases

    def arrive(self, phase: str, name: str) -> None:
        """A node is through a phase."""

    def note(self, name: str, what: str) -> None:
        """A node is at this."""
        self._phases.note(name, what)

    def move(self, name: str, count: int) -> None:
        """So many bytes have left."""
