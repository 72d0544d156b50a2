"""What a login node of a Slurm cluster does: takes code, submits a job, waits in its queue, cancels it."""

from __future__ import annotations

import re
import secrets as random_source
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.bundle import judge_zip, payload_zip
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.frames import FrameLimits, limits_for
from clusterctl.client.rpc.session import Interpreter, Session, SessionLimits
from clusterctl.client.sync.upload import SyncResult, TreeUpload
from clusterctl.errors import NodeError
from clusterctl.plans.facts.untrusted import clean_text
from clusterctl.plans.slurm.judge import parse_report
from clusterctl.plans.slurm.submission import Submission
from clusterctl.protocol.ranks import Slot
from clusterctl.protocol.run_id import ALLOCATION, RunId
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.values import MAX_NODE_NAME, is_node_name

if TYPE_CHECKING:
    from clusterctl.protocol.messages.allocation import JudgedNode, QueueFacts, TaskFailure
    from clusterctl.protocol.messages.facts import Facts
    from clusterctl.protocol.messages.verbs import (
        CancelRequest,
        QueueRequest,
        SubmitRequest,
    )

SUBMIT_LIMIT = 90.0  # seconds; sbatch itself has 60 there
SILENCE_LIMIT = (
    30.0  # seconds; the login node sends something every 2 s, or every 20 s while Slurm does not answer
)
CANCEL_LIMIT = 60.0
MAX_REASON, MAX_NODES = 1000, 300
JOB_NUMBER = re.compile("[0-9]{1,20}")
MAX_NICS = 256
MAX_NEEDS = 2  # zips that a login node can lack
# the facts of one node, as `probe` sends them, or what a check found on all
REPORT_FRAMES = FrameLimits(header=limits_for("probe").header, values=300_000)


@dataclass(frozen=True)
class LoginNode:
    """The login node and how it is reached."""

    cluster: Cluster
    node: Node
    interpreter: Interpreter


# a node of a check: where it would train, and its facts; None if it gave none
AllocatedNode = tuple["JudgedNode", "Facts | None"]


def send_tree(
    login: LoginNode,
    upload: TreeUpload,
    run_id: RunId | None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> SyncResult:
    """Send the code of a run to the directory that all nodes share; without a run what an environment is made of."""
    place = replace(login.node, name=ALLOCATION) if run_id else login.node
    synced: SyncResult = tasks.sync(
        login.cluster.connection(login.node), place, login.interpreter, run_id, Slot(0), upload, on_bytes
    )
    return synced


def submit_job(login: LoginNode, submission: Submission, secrets: Mapping[str, str]) -> str:
    """Submit a job and give its number."""
    with _open_submission(login, submission, "submit", SessionLimits(), secrets) as session:
        for _ in range(MAX_NEEDS + 1):
            frame = session.receive(SUBMIT_LIMIT)
            if frame is None:
                break
            if number := parse_job_number(frame[0].record("submitted")):
                return number
            _send_needed(session, frame[0])
    raise NodeError("CC-RUN-032", node=login.node.name, evidence=session.stderr)


def gather_facts(
    login: LoginNode, submission: Submission, count: int
) -> Generator[QueueFacts | AllocatedNode, None, None]:
    """Submit a job that reports facts: give how it waits, then its nodes. It does not outlive this session.

    If the check of its template is not all that it does, the session stays open after its last node until it is closed.
    A name stands in commands to paste: what is no node's name is left out, as are more nodes than were asked for.
    """
    from clusterctl.plans.facts.facts import parse_facts

    names: set[str] = set()
    with _open_submission(login, submission, "check", SessionLimits(SUBMIT_LIMIT, REPORT_FRAMES)) as session:
        while (frame := session.receive()) is not None:
            header = frame[0]
            if header.has_record("queue"):
                yield parse_queue_state(header.record("queue"))
            elif header.has_record("member"):
                member = header.record("member")
                name = member.text("node", MAX_NODE_NAME)
                if not is_node_name(name) or name in names or len(names) == count:
                    continue
                names.add(name)
                facts = None if header.is_null("facts") else parse_facts(header.unread("facts"))
                address, nics = clean_text(member.text("address", 15)), member.texts("nics", MAX_NICS, 64)
                yield {"node": name, "address": address, "nics": list(nics)}, facts
            else:
                _send_needed(session, header)


def parse_job_number(raw: Untrusted) -> str:
    """Return a job's number; empty for anything else."""
    number = raw.text("job")
    return number if JOB_NUMBER.fullmatch(number) else ""


def _open_submission(
    login: LoginNode,
    submission: Submission,
    do: Literal["submit", "check"],
    limits: SessionLimits,
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> Session:
    digest, payload = payload_zip()
    judge = None if submission.template["check"]["only"] else judge_zip()
    request: SubmitRequest = {
        "workdir": login.node.workdir,
        "do": do,
        "template": submission.template,
        "options": list(submission.options),
        "script": submission.script,
        "secrets": dict(secrets),
        "token": random_source.token_hex(32),
        "payload": {"sha256": digest, "size": len(payload)},
        "judge": {"sha256": judge[0], "size": len(judge[1])} if judge else None,
    }
    return Session(login.cluster.connection(login.node), "slurm", request, login.interpreter, limits=limits)


def _send_needed(session: Session, header: Untrusted) -> None:
    """Send the zip that the login node lacks, if it names one."""
    need = header.text("need", 40)
    if need:
        session.send({"payload": True}, judge_zip()[1] if need == "judge" else payload_zip()[1])


def watch_queue(login: LoginNode, run_id: str, count: int) -> Iterator[QueueFacts]:
    """Yield how a job waits whenever that changes, until all its nodes have begun or it is over."""
    request: QueueRequest = {"workdir": login.node.workdir, "do": "queue", "run": run_id, "count": count}
    connection = login.cluster.connection(login.node)
    limits = SessionLimits(SILENCE_LIMIT, REPORT_FRAMES)
    with Session(connection, "slurm", request, login.interpreter, limits=limits) as session:
        while (frame := session.receive()) is not None:
            if frame[0].has_record("queue"):
                yield parse_queue_state(frame[0].record("queue"))


def parse_queue_state(raw: Untrusted) -> QueueFacts:
    """Read a report about a job that waits."""
    failure = raw.record("failure")
    return {
        "job": parse_job_number(raw),
        "state": clean_text(raw.text("state", 40)),
        "reason": clean_text(raw.text("reason", MAX_REASON)),
        "start": raw.moment("start"),
        "nodes": clean_text(raw.text("nodes", MAX_NODES)),
        "waits": raw.flag("waits"),
        "begun": raw.flag("begun"),
        "over": clean_text(raw.text("over", 40)),
        "check": parse_report(raw.record("check")),
        "doing": clean_text(raw.text("doing", MAX_REASON)),
        "failure": parse_failure(failure) if failure else None,
        "requeue": raw.flag("requeue"),
    }


def parse_failure(raw: Untrusted) -> TaskFailure:
    """Read what the first task wrote that could not start."""
    name = raw.text("node", MAX_NODE_NAME)
    return {
        "node": name if is_node_name(name) else "?",
        "text": clean_text(raw.text("text")),
        "event": raw.unread("event"),
    }


def cancel_job(login: LoginNode, run_id: str, timeout: float) -> str:
    """Take a job out of Slurm that does not end by itself in so many seconds; gives its number if that was needed."""
    request: CancelRequest = {
        "workdir": login.node.workdir,
        "do": "cancel",
        "run": run_id,
        "timeout": timeout,
    }
    connection = login.cluster.connection(login.node)
    with Session(connection, "slurm", request, login.interpreter) as session:
        frame = session.receive(timeout + CANCEL_LIMIT)
    if frame is None:
        raise NodeError("CC-RUN-032", node=login.node.name, evidence=session.stderr)
    return parse_job_number(frame[0].record("cancelled"))
