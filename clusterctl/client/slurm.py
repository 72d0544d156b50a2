"""What is asked of the login node of a Slurm cluster: submit a job, wait in its queue, cancel it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterctl.client.rpc.bundle import payload_zip
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.session import Interpreter, Session, SessionLimits
from clusterctl.errors import NodeError
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node

if TYPE_CHECKING:
    from clusterctl.protocol.messages.verbs import (
        CancelRequest,
        QueueRequest,
        SlurmTemplate,
        SubmitRequest,
    )

SUBMIT_LIMIT = 90.0  # seconds; sbatch itself has 60 there
SILENCE_LIMIT = (
    30.0  # seconds; the login node sends something every 2 s, or every 20 s while Slurm does not answer
)
CANCEL_LIMIT = 60.0
LONGEST_NUMBER, LONGEST_REASON, LONGEST_NODES = 20, 1000, 300


@dataclass(frozen=True)
class LoginNode:
    """The login node and how it is reached."""

    cluster: Cluster
    node: Node
    interpreter: Interpreter


@dataclass(frozen=True)
class Submission:
    """What is handed to Slurm: options of sbatch, the batch script, and what the tasks read."""

    template: SlurmTemplate
    options: Sequence[str]
    script: str
    secrets: Mapping[str, str]
    token: str


@dataclass(frozen=True)
class QueueState:
    """How Slurm sees a job: `waits` in the queue, has `begun` on all nodes, or is `over` for this reason."""

    job: str
    state: str
    reason: str
    start: float | None
    nodes: str
    waits: bool
    begun: bool
    over: str


def submit_job(login: LoginNode, submission: Submission) -> str:
    """Submit a job and give its number."""
    digest, payload = payload_zip()
    request: SubmitRequest = {
        "workdir": login.node.workdir,
        "do": "submit",
        "template": submission.template,
        "options": list(submission.options),
        "script": submission.script,
        "secrets": dict(submission.secrets),
        "token": submission.token,
        "payload": {"sha256": digest, "size": len(payload)},
    }
    connection = login.cluster.connection(login.node)
    with Session(connection, "slurm", request, login.interpreter) as session:
        while (frame := session.receive(SUBMIT_LIMIT)) is not None:
            if frame[0].text("need", 40) == "payload":
                session.send({"payload": True}, payload)
            elif number := frame[0].record("submitted").text("job", LONGEST_NUMBER):
                return number
    raise NodeError("CC-RUN-032", node=login.node.name, evidence=session.stderr)


def watch_queue(login: LoginNode, run_id: str, count: int) -> Iterator[QueueState]:
    """Give how a job waits whenever that changes, until all its nodes have begun or it is over."""
    request: QueueRequest = {"workdir": login.node.workdir, "do": "queue", "run": run_id, "count": count}
    connection = login.cluster.connection(login.node)
    limits = SessionLimits(silence=SILENCE_LIMIT)
    with Session(connection, "slurm", request, login.interpreter, limits=limits) as session:
        while (frame := session.receive()) is not None:
            if frame[0].has_record("queue"):
                yield parse_queue_state(frame[0].record("queue"))


def parse_queue_state(raw: Untrusted) -> QueueState:
    """Read a report about a job that waits."""
    return QueueState(
        job=raw.text("job", LONGEST_NUMBER),
        state=raw.text("state", 40),
        reason=raw.text("reason", LONGEST_REASON),
        start=raw.moment("start"),
        nodes=raw.text("nodes", LONGEST_NODES),
        waits=raw.flag("waits"),
        begun=raw.flag("begun"),
        over=raw.text("over", 40),
    )


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
    return frame[0].record("cancelled").text("job", LONGEST_NUMBER)
