"""Write the run directory, start the guardian, itself or through the node's warm server, relay."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from ...protocol.run_paths import RunPaths, WorkdirPaths, part_name
from ...protocol.untrusted import Untrusted
from ..fork.inherited import read_inherited
from ..fork.warm_client import pack_variables, query
from ..logs.log_file import read_tail
from ..runtime.children import open_output, start_child
from ..runtime.processes import interpreter_options
from ..runtime.stream import Stream, VerbError
from ..state.payload import ensure_payload, with_byte_code
from ..state.run_record import Record, new_state
from ..state.workdir import (
    component,
    make_below,
    make_private,
    open_workdir,
    workdir_id,
    write_new,
)

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec
    from ...protocol.messages.verbs import EventName, Secrets, StartRequest


CLOSING_EVENTS: Tuple[EventName, ...] = (
    "go_received",
    "listening",
    "failed",
    "ended",
)  # after which an agent may close


def run(request: StartRequest, stream: Stream) -> None:
    """Start a run on this node and relay the dialogue between client and agent."""
    workdir = open_workdir(request["workdir"])
    payload = with_byte_code(ensure_payload(workdir, request["payload"]["sha256"], stream))
    rundir = make_rundir(workdir, request["spec"])
    stream.answer({"event": "workdir", "id": workdir_id(workdir)})
    own_end, agent_end = socket.socketpair()
    cold = start_guardian(workdir, payload, rundir, request["spec"], agent_end)
    agent_end.close()
    agent = Stream(own_end.fileno(), own_end.fileno())
    secrets: Secrets = {"secrets": request.get("secrets") or {}, "token": request.get("token"), "cold": cold}
    agent.send(secrets)
    relay(stream, agent, rundir)


def make_rundir(workdir: str, spec: Spec) -> str:
    """Make the run's directory on this node and write the spec, which must not be there yet."""
    part = part_name(int(spec.get("slot", spec["node_rank"])), component(spec["node"]))
    rundir = make_below(make_private(WorkdirPaths(workdir).runs), spec["run"], part)
    path = RunPaths(rundir).spec
    try:
        write_new(path, json.dumps(spec, indent=1).encode("utf-8"))
    except FileExistsError:
        raise VerbError("CC-RUN-013", f"run {spec['run']} was already started on {spec['node']}") from None
    record = Record(rundir, new_state(spec))
    record.set({})
    if not record.flush():
        os.unlink(path)
        raise VerbError("CC-DISK-001", f"cannot write {record.paths.state}")
    return rundir


def start_guardian(workdir: str, payload: str, rundir: str, spec: Spec, control: socket.socket) -> str:
    """Start the guardian, through the node's warm server if there is one; returns why not through that."""
    argv = [sys.executable, *interpreter_options(), payload]
    env = {key: value for key, value in os.environ.items() if key != "CLUSTERCTL_RUN"}
    log = open_output(RunPaths(rundir).agent_log)
    answer = None
    if "start" in spec:
        answer = start_from_server(workdir, spec["node"], rundir, argv, env, (control.fileno(), log))
    if answer != "":
        between = os.fork()  # so that the guardian has no parent that waits for it
        if between == 0:
            try:
                fork_guardian([*argv, "guardian", rundir], env, log, control)
            finally:
                os._exit(0)
        os.waitpid(between, 0)
    os.close(log)
    return answer or ""


def fork_guardian(argv: List[str], env: Mapping[str, str], log: int, control: socket.socket) -> int:
    """Start the guardian, which inherits the control socket, as a child; returns its pid."""
    descriptor = control.fileno()
    return start_child([*argv, str(descriptor)], env, (log, log), kept=[descriptor])


def relay(client: Stream, agent: Stream, rundir: str) -> None:
    """Carry frames both ways until the agent closes; a client that leaves is the agent's to judge."""
    poller = select.poll()
    poller.register(client, select.POLLIN)
    poller.register(agent, select.POLLIN)
    last_event = forward(client, agent)
    while not (client.ended or agent.ended):
        poller.poll()
        forward(client, agent)
        last_event = forward(agent, client) or last_event
    if agent.ended and last_event not in CLOSING_EVENTS:
        log = read_tail(RunPaths(rundir).agent_log).strip()
        raise VerbError("CC-RUN-014", f"the agent exited early: {log or 'it was killed'}")


def forward(source: Stream, sink: Stream) -> str:
    """Pass on what has arrived, also to one that takes no more; returns the last event."""
    last_event = ""
    for header, body in source.read_available():
        last_event = Untrusted(header).text("event")
        with suppress(BrokenPipeError):
            sink.send(header, body)
    return last_event


def start_from_server(
    workdir: str, node: str, rundir: str, argv: List[str], env: Dict[str, str], descriptors: Tuple[int, int]
) -> Optional[str]:
    """Have them started; returns why they were not, None without a server."""
    answer = query(
        workdir,
        node,
        {
            "do": "start",
            "argv": argv,
            "rundir": rundir,
            "env": pack_variables(env),
            "cwd": os.getcwd(),
            "inherited": read_inherited(),
        },
        descriptors,
    )
    return None if answer is None else answer.text("refused", 300)
