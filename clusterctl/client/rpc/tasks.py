"""The Fabric tasks: one function for each thing that a node is asked, and what it answers as a value.

Each opens a session of a verb. One that goes on is returned open, and is the caller's to close.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from fabric import Connection, task

from clusterctl.client.rpc.bundle import payload_zip
from clusterctl.client.rpc.cluster import Answers, Cluster, collect, fan_out
from clusterctl.client.rpc.errors import start_error, start_timed_out
from clusterctl.client.rpc.frames import Frame, sync_limits
from clusterctl.client.rpc.session import Interpreter, Session, SessionLimits
from clusterctl.errors import ClusterctlError, ConnectTimeout, NodeError
from clusterctl.protocol.frames import SILENCE_LIMIT
from clusterctl.protocol.ranks import Slot
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node

if TYPE_CHECKING:
    from clusterctl.client.sync.upload import SyncResult, TreeUpload
    from clusterctl.plans.diagnose.evidence import NodeEvidence
    from clusterctl.plans.diagnose.kept import KeptEvidence
    from clusterctl.plans.discover import FoundPythons
    from clusterctl.plans.runs.state import NodeState
    from clusterctl.protocol.messages.facts import Facts
    from clusterctl.protocol.messages.files import SetupQuery, Spec
    from clusterctl.protocol.messages.verbs import (
        CleanRequest,
        ConnectRequest,
        DiagnoseRequest,
        EventName,
        ExecRequest,
        FollowChoice,
        FollowRequest,
        FullProbeRequest,
        ProbeRequest,
        PsRequest,
        PythonsRequest,
        Request,
        ShellRequest,
        StartRequest,
        StopRequest,
        StreamName,
        SyncRequest,
        VerbName,
        Workdir,
    )


T = TypeVar("T")

STREAMS: tuple[StreamName, ...] = ("stdout", "stderr")
MAX_LEFT, MAX_NAME = 64, 64  # processes that run on, and characters of each name
NOISY_EXIT = 255  # shown for an answer that holds neither exit code nor signal

OnOutput = Callable[["StreamName", bytes], None]


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended; `truncated` names streams that were sent in part, `still_running` processes that go on."""

    exit: int | None
    signal: int | None
    truncated: tuple[str, ...] = ()
    still_running: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether it ended with 0."""
        return self.exit == 0


@dataclass(frozen=True)
class CommandOutput:
    """All that a command wrote on one node, and how it ended; equal answers are shown once."""

    stdout: bytes
    stderr: bytes
    end: CommandEnd


def receive_output(session: Session, max_bytes: int | None, on_output: OnOutput) -> CommandEnd:
    """Pass on what the command writes until it has ended; a node that sends more than asked is stopped."""
    received = dict.fromkeys(STREAMS, 0)
    while (frame := session.receive()) is not None:
        header, body = frame
        stream = header.one_of("stream", STREAMS)
        if stream:
            received[stream] += len(body)
            if max_bytes is not None and received[stream] > max_bytes:
                break
            on_output(stream, body)
        elif header.has_record("ended"):
            return parse_command_end(header.record("ended"))
    raise NodeError("CC-RUN-004", evidence=session.stderr)


def parse_command_end(raw: Untrusted) -> CommandEnd:
    """Read how a command ended."""
    code, number = raw.integer("exit", 0, 255), raw.integer("signal", 1, 128)
    cut = raw.texts("cut", len(STREAMS))
    truncated = tuple(name for name in STREAMS if name in cut)
    still_running = raw.texts("left", MAX_LEFT, MAX_NAME)
    return CommandEnd(
        NOISY_EXIT if code is None and number is None else code, number, truncated, still_running
    )


class OutputCollector:
    """Keeps what a command writes."""

    def __init__(self) -> None:
        self._parts: dict[StreamName, list[bytes]] = {name: [] for name in STREAMS}

    def append(self, stream: StreamName, data: bytes) -> None:
        """Keep a piece."""
        self._parts[stream].append(data)

    def finish(self, end: CommandEnd) -> CommandOutput:
        """Return all of it."""
        return CommandOutput(b"".join(self._parts["stdout"]), b"".join(self._parts["stderr"]), end)


# Each task imports what it alone needs: `exec` is quicker by the tables of facts and causes.

PROBE_LIMIT = 30.0
ANSWER_LIMIT = 30.0
DIAGNOSE_LIMIT = 10.0  # the node itself waits for a second
READY_LIMIT = 300.0  # `import torch` from a cold network file system takes minutes
GO_LIMIT = 60.0
MAX_PARTS = 1000  # of a run that a login node lists
MAX_WORDS = 20  # of the command that starts a program in a run
MAX_EVENTS = 100  # that an agent reports before GO
FAILURE_EVENTS: tuple[EventName, ...] = ("setup_failed", "gate_failed", "join_failed", "failed")


@dataclass(frozen=True)
class ProbeOptions:
    """What a probe is asked besides: without `stay` the node does not prepare for a network test, and ends.

    With `setup` it reports the packages of that environment, `skip` names questions that it does not answer, and the
    newest checkpoint is that of `job`.
    """

    stay: bool = True
    setup: SetupQuery | None = None
    skip: Sequence[str] = ()
    job: str = ""


@dataclass(frozen=True)
class StopOptions:
    """How a run is stopped: TERM, KILL after `grace` seconds (None: the job's); `dump`: keep first where ranks are."""

    grace: float | None
    reason: str
    dump: bool = False


@dataclass(frozen=True)
class RunHandle:
    """A run and how its nodes are reached."""

    cluster: Cluster
    run_id: str
    nodes: Sequence[Node]
    interpreters: Mapping[str, Interpreter]

    def on(self, nodes: Iterable[Node]) -> RunHandle:
        """Return the same run on some of its nodes."""
        return replace(self, nodes=tuple(nodes))

    def collect(self, work: Callable[[Connection, Node, Interpreter], T]) -> Answers[T]:
        """Do some work on all its nodes at once, with the Python of each, and wait for all."""
        outcomes = self.cluster.each(self.nodes, lambda c, node: work(c, node, self.interpreters[node.name]))
        return collect(self.nodes, outcomes)


@dataclass(frozen=True)
class RunListing:
    """The runs that a node remembers, newest first; `offset` is its clock minus ours, in seconds.

    `invalid` counts its other entries, as no honest node sends them: without the name of a run, or over a login node
    without a name of a node or the number of a Slurm job.
    """

    runs: Sequence[NodeState]
    offset: float
    invalid: int = 0


@dataclass(frozen=True)
class StopReport:
    """What `stop` ended on a node, and what it could not end."""

    ended: tuple[str, ...]
    remaining: tuple[str, ...]
    state: NodeState | None
    other_account: str = ""  # another account of the node, under which the run lives

    @property
    def run_known(self) -> bool:
        """Return whether the node knew anything of the run."""
        return self.state is not None or bool(self.ended or self.remaining)


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def probe(c: Connection, node: Node, interpreter: Interpreter, nodes: Sequence[Node]) -> Facts:
    """Request a node's facts; writes nothing there."""
    from clusterctl.plans.facts.facts import probe_request

    facts, session = _request_facts(
        c, probe_request(node, tuple(nodes), payload_zip()[0]), on_node(node, interpreter)
    )
    session.close()
    return facts


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def find_pythons(c: Connection, node: Node, interpreter: Interpreter, code: str) -> FoundPythons:
    """Request the interpreters of a node; `code` is the folder of the code here, which may be there too."""
    from clusterctl.plans.discover import parse_pythons

    request: PythonsRequest = {"workdir": node.workdir, "node": node.name, "code": code}
    header = query(c, "pythons", request, on_node(node, interpreter), PROBE_LIMIT)
    return parse_pythons(header.unread("pythons"), header.unread("modules"))


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def probe_and_stay(
    c: Connection,
    node: Node,
    interpreter: Interpreter,
    nodes: Sequence[Node],
    options: ProbeOptions,
) -> tuple[Facts, Session]:
    """Request a node's facts; the open session can take part in a network test, and is to be closed."""
    from clusterctl.plans.facts.facts import discard_stale_packages, probe_request

    base = probe_request(node, tuple(nodes), payload_zip()[0])
    request: FullProbeRequest = {
        **base,
        "stay": options.stay,
        "setup": options.setup,
        "skip": list(options.skip),
        "job": options.job,
    }
    facts, session = _request_facts(c, request, on_node(node, interpreter))
    return discard_stale_packages(
        facts, installs_torch=bool(options.setup and options.setup["brings_torch"])
    ), session


def _request_facts(c: Connection, request: ProbeRequest, interpreter: Interpreter) -> tuple[Facts, Session]:
    from clusterctl.plans.facts.facts import parse_facts, with_session_output

    asked_at = time.time()
    session = Session(c, "probe", request, interpreter)
    try:
        header, _ = _receive_answer(session, PROBE_LIMIT)
    except BaseException:
        session.close()
        raise
    facts = parse_facts(header.unread("facts"), sent_at=asked_at, received_at=time.time())
    return with_session_output(facts, session.stderr, session.noise), session


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def sync(
    c: Connection,
    node: Node,
    interpreter: Interpreter,
    run_id: str | None,
    slot: Slot,
    upload: TreeUpload,
    progress: Callable[[int], None],
) -> SyncResult:
    """Send the code to a node by content; the tree there hashes as the tree here, or this raises.

    Without a run only the store is filled.
    """
    from clusterctl.client.sync.upload import send_tree

    scan, distribution = upload.scan, upload.distribution
    offer = distribution.offer(node.name, scan.manifest.size) if distribution else None
    request: SyncRequest = {
        "workdir": node.workdir,
        "run": run_id,
        "node": node.name,
        "node_rank": slot,
        "shared_home": upload.home_locks is not None,
        "provide": offer,
    }
    limits = SessionLimits(frames=sync_limits(len(scan.manifest.blobs)))
    session = Session(c, "sync", request, interpreter, limits=limits)
    try:
        synced = send_tree(session, upload, node=node.name, progress=progress)
    except BaseException:
        session.close()
        raise
    if distribution is not None and offer is not None:
        distribution.keep_open(session)
    else:
        session.finish()
    return synced


def start_ahead(c: Connection, node: Node, interpreter: Interpreter, count: int) -> None:
    """Start processes on a node, beside each other, that wait for verbs which are going to come."""
    request: Workdir = {"workdir": node.workdir}
    fan_out([node] * count, lambda _: Session(c, "idle", request, interpreter).finish())


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def start(
    c: Connection,
    node: Node,
    interpreter: Interpreter,
    spec: Spec,
    secrets: Mapping[str, str],
    token: str = "",
) -> Session:
    """Start guardian, agent and gate on a node; while it waits for GO, the end of the open session cancels.

    By the `token` the agents of one run know each other.
    """
    digest, payload = payload_zip()
    request: StartRequest = {
        "spec": spec,
        "secrets": dict(secrets),
        "token": token,
        "workdir": node.workdir,
        "payload": {"sha256": digest, "size": len(payload)},
    }
    return Session(c, "start", request, interpreter)


def await_event(
    session: Session,
    event_name: EventName,
    limit: float,
    *,
    node: str,
    on_progress: Callable[[str], None] = lambda _: None,
    or_ended: bool = False,
) -> dict[EventName, Untrusted]:
    """Wait for an event of the agent and give all that came, by name; a failure that it reports is raised.

    `on_progress` receives the progress of a setup. With `or_ended` a run that is over already is as good as the event.
    """
    deadline = time.monotonic() + limit
    events: dict[EventName, Untrusted] = {}
    while event_name not in events:
        try:
            header, _ = _receive_answer(session, deadline - time.monotonic())
        except ConnectTimeout as error:
            raise start_timed_out(event_name, limit, node, session.stderr) from error
        event = cast("EventName", header.text("event", 40))
        if "need" in header:
            session.send({"payload": True}, payload_zip()[1])
        elif event == "doing":
            on_progress(header.text("text", 1000))
        elif or_ended and event == "ended":
            return events
        elif event in {*FAILURE_EVENTS, "ended"} - {event_name}:
            raise start_error(header, node)
        elif event and len(events) < MAX_EVENTS:
            events[event] = header
    return events


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def follow(
    c: Connection, node: Node, interpreter: Interpreter, run_id: str, request: FollowChoice
) -> Session:
    """Open the stream of a run's events and logs on a node."""
    full_request: FollowRequest = {"workdir": node.workdir, "run": run_id, "node": node.name, **request}
    return Session(c, *over_login_node(node, "follow", full_request), interpreter)


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def stop(
    c: Connection,
    node: Node,
    interpreter: Interpreter,
    run_id: str,
    options: StopOptions,
    *,
    lived: bool = True,
) -> StopReport:
    """End every process of a run on a node.

    `lived`: it was not known to have ended there; else what its end has cost is not reported again.
    """
    grace = options.grace
    request: StopRequest = {
        "workdir": node.workdir,
        "run": run_id,
        "node": node.name,
        "grace": grace,
        "reason": options.reason,
        "lived": lived,
        "dump": options.dump,
    }
    with Session(
        c, *over_login_node(node, "stop", request), interpreter, limits=SessionLimits(silence=SILENCE_LIMIT)
    ) as session:
        deadline = time.monotonic() + (grace if grace is not None else 3600.0) + ANSWER_LIMIT
        while True:
            header, _ = _receive_answer(session, deadline - time.monotonic())
            if "stopped" in header:
                return _parse_stopped(header.record("stopped"))


def _parse_stopped(raw: Untrusted) -> StopReport:
    from clusterctl.plans.facts.untrusted import render_processes
    from clusterctl.plans.runs.state import parse_state

    return StopReport(
        ended=render_processes(raw, "ended"),
        remaining=render_processes(raw, "left"),
        state=parse_state(raw.record("state")) if raw.record("state") else None,
        other_account=raw.text("elsewhere", 64),
    )


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def ps(
    c: Connection,
    node: Node,
    interpreter: Interpreter,
    run_prefix: str | None,
    limit: int,
    *,
    pulse: bool = False,
) -> RunListing:
    """List the runs that a node remembers, newest first; `pulse`: with signs of life, and how far they are."""
    request: PsRequest = {
        "workdir": node.workdir,
        "node": node.name,
        "run": run_prefix,
        "limit": limit,
        "activity": pulse,
    }
    asked_at = time.time()
    verb: VerbName = "pulse" if node.allocation is None else "slurm_pulse"
    asked = (verb, request) if pulse else over_login_node(node, "ps", request)
    header = query(c, *asked, interpreter)
    midpoint = (asked_at + time.time()) / 2
    runs, dropped = read_listing(node, header, limit)
    return RunListing(runs, (header.moment("time") or midpoint) - midpoint, dropped)


def read_listing(node: Node, header: Untrusted, limit: int) -> tuple[tuple[NodeState, ...], int]:
    """Read the parts of runs that a node lists, and how many entries are none; a login node names their nodes."""
    from clusterctl.plans.runs.state import can_be_on_slurm, parse_state

    over_login = node.allocation is not None
    entries = header.records("runs", limit * MAX_PARTS if over_login else limit)
    states = [parse_state(entry) for entry in entries]
    runs = [state for state in states if state.run_id and (not over_login or can_be_on_slurm(state))]
    return tuple(runs), len(states) - len(runs)


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def execute(
    c: Connection,
    node: Node,
    interpreter: Interpreter,
    argv: Sequence[str],
    max_bytes: int | None,
    on_output: OnOutput,
) -> CommandEnd:
    """Run a command on a node; `on_output` receives what it writes, of each stream at most `max_bytes` bytes."""
    request: ExecRequest = {"argv": list(argv), "keep": max_bytes, "node": node.name}
    with Session(
        c, "exec", request, on_node(node, interpreter), limits=SessionLimits(silence=SILENCE_LIMIT)
    ) as session:
        return receive_output(session, max_bytes, on_output)


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def clean(c: Connection, node: Node, interpreter: Interpreter, unused: float) -> Session:
    """Ask a node what it could remove; nothing is removed before the request names it."""
    request: CleanRequest = {
        "workdir": node.workdir,
        "node": node.name,
        "unused": unused,
        "payload": payload_zip()[0],
    }
    return Session(c, *over_login_node(node, "clean", request), interpreter)


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def diagnose(
    c: Connection,
    node: Node,
    interpreter: Interpreter,
    run_id: str,
    entries: int,
) -> NodeEvidence:
    """Ask a node where its ranks of a run are, with so many entries of each process group; nothing is stopped."""
    from clusterctl.plans.diagnose.evidence import parse_evidence

    answer = _query_ranks(c, node, on_node(node, interpreter), run_id, entries=entries)
    return parse_evidence(answer.record("diagnosis"), node.name)


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def read_kept(c: Connection, node: Node, interpreter: Interpreter, run_id: str) -> KeptEvidence | None:
    """Ask a node for what its agent kept of where the ranks of the last attempt were."""
    from clusterctl.plans.diagnose.kept import parse_kept

    return parse_kept(_query_ranks(c, node, interpreter, run_id, "diagnosis").record("kept"), node.name)


def _query_ranks(
    c: Connection, node: Node, interpreter: Interpreter, run_id: str, kept: str = "", *, entries: int = 0
) -> Untrusted:
    """Ask for what an agent has kept of a run's ranks, or, with nothing kept asked for, where they are now."""
    request: DiagnoseRequest = {
        "workdir": node.workdir,
        "node": node.name,
        "run": run_id,
        "ranks": None,
        "kept": kept,
        "entries": entries,
    }
    return query(c, "diagnose", request, interpreter, DIAGNOSE_LIMIT)


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def top(c: Connection, node: Node, interpreter: Interpreter, interval: float) -> Session:
    """Open the stream of a node's gauges: a sample every `interval` seconds, until it is closed."""
    return Session(c, "top", {"node": node.name, "interval": interval}, on_node(node, interpreter))


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def connect(
    c: Connection, node: Node, interpreter: Interpreter, run_id: str, to: Literal["port", "rank"], number: int
) -> Session:
    """Open the conversation that is a connection to a port of a node, or to a rank when it waits at a breakpoint."""
    request: ConnectRequest = {
        "workdir": node.workdir,
        "node": node.name,
        "run": run_id,
        "to": to,
        "number": number,
    }
    return Session(c, "connect", request, on_node(node, interpreter))


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def prepare_shell(c: Connection, node: Node, interpreter: Interpreter, run_id: str) -> tuple[str, ...]:
    """Request the beginning of the command that starts a program in a run's directory; the payload stays there."""
    digest, payload = payload_zip()
    request: ShellRequest = {
        "workdir": node.workdir,
        "node": node.name,
        "run": run_id,
        "payload": {"sha256": digest, "size": len(payload)},
    }
    with Session(c, "shell", request, on_node(node, interpreter)) as session:
        header, _ = _receive_answer(session, ANSWER_LIMIT)
        if "need" in header:
            session.send({"payload": True}, payload)
            header, _ = _receive_answer(session, ANSWER_LIMIT)
    return header.texts("argv", MAX_WORDS)


def over_login_node(node: Node, verb: VerbName, request: Request) -> tuple[VerbName, Request]:
    """Return the verb that does the same on the login node of a Slurm cluster, where the node is one of its nodes."""
    if node.allocation is None:
        return verb, request
    return "slurm", cast("Request", {**request, "do": verb})


def on_node(node: Node, interpreter: Interpreter) -> Interpreter:
    """Go on to the node itself where only a login node can be reached: by a step of its Slurm job."""
    if node.allocation is None or not node.allocation.job:
        return interpreter
    from clusterctl.plans.ssh import render_step

    return replace(interpreter, step=render_step(node.allocation.job, node.name))


def query(
    c: Connection, verb: VerbName, request: Request, interpreter: Interpreter, limit: float = ANSWER_LIMIT
) -> Untrusted:
    """Ask a node one question; its process then takes the next verb."""
    with Session(c, verb, request, interpreter) as session:
        header, _ = _receive_answer(session, limit)
        session.finish()
    return header


def _receive_answer(session: Session, limit: float) -> Frame:
    if limit <= 0:  # also where a frame is here already: others could follow it for ever
        raise ConnectTimeout("CC-SSH-004", "verb", node=session.node, verb=session.verb)
    if (frame := session.receive(limit)) is not None:
        return frame
    raise NodeError("CC-RUN-032", evidence=session.stderr)


CLOCK_SAMPLES = 3


def measure_clock(session: Session) -> float:
    """Request the time of a node that waits for this; returns its clock minus ours, in seconds.

    Of several answers the quickest counts, which is wrong by no more than half of what it took. Then the node goes on.
    """
    answers: list[tuple[float, float]] = []
    try:
        for _ in range(CLOCK_SAMPLES):
            asked_at, began = time.time(), time.monotonic()
            session.send({"ask": True})
            frame = session.receive(ANSWER_LIMIT)
            took = time.monotonic() - began
            node_time = frame[0].moment("clock") if frame is not None else None
            if node_time is not None:
                answers.append((took, node_time - asked_at - took / 2))
        took, ahead = min(answers, default=(0.0, 0.0))
        session.send({"begin": True, "ahead": ahead - took})
    except ClusterctlError:
        session.close()
        raise
    return ahead


# seconds between TERM and KILL once a part of the run has failed, as on the failed node itself
FAILURE_GRACE = 1.0


def stop_everywhere(run: RunHandle, reason: str) -> Mapping[str, ClusterctlError]:
    """Stop a run on its nodes; returns the errors of those on which it could not be stopped."""

    options = StopOptions(FAILURE_GRACE, reason)
    answers: Answers[StopReport] = run.collect(
        lambda c, node, python: stop(c, node, python, run.run_id, options)
    )
    return answers.errors
