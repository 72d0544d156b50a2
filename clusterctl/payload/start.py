"""The verb `start`: a run directory, a guardian that outlives us, and the way from client to agent."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from contextlib import suppress
from hashlib import sha256
from typing import Any, Dict, List

from .client import tail_of
from .compiled import with_byte_code
from .launcher import restore_signals
from .state import Record, new_state
from .wire import Stream, VerbError
from .workdir import component, make_below, open_workdir, read_bytes, workdir_id, write_atomically, write_new

Request = Dict[str, Any]
LAST_WORDS = ("going", "listening", "failed", "ended")  # after which an agent may close


def run(request: Request, stream: Stream) -> None:
    """Start a run on this node and relay the dialogue between client and agent."""
    workdir = open_workdir(request["workdir"])
    payload = with_byte_code(ensure_payload(workdir, request["payload"]["sha256"], stream))
    rundir = make_rundir(workdir, request["spec"])
    stream.send({"event": "workdir", "id": workdir_id(workdir)})
    ours, theirs = socket.socketpair()
    start_guardian(payload, rundir, theirs)
    theirs.close()
    agent = Stream(ours.fileno(), ours.fileno())
    agent.send({"secrets": request.get("secrets") or {}, "token": request.get("token")})
    relay(stream, agent, rundir)


def ensure_payload(workdir: str, digest: str, stream: Stream) -> str:
    """Return the path of the payload's zip, asking the client for it if it is absent or damaged."""
    path = os.path.join(make_below(workdir, "bin", digest), "payload.zip")
    if sha256(read_bytes(path) or b"").hexdigest() == digest:
        with suppress(OSError):
            os.utime(path)  # in use: `clean` leaves it alone
        return path
    stream.send({"need": "payload"})
    answer = stream.receive()
    if answer is None:
        raise BrokenPipeError("the client left")
    if sha256(answer[1]).hexdigest() != digest:
        raise VerbError("CC-RUN-012", "the payload did not arrive as it was sent")
    write_atomically(path, answer[1], durable=True)
    return path


def make_rundir(workdir: str, spec: Dict[str, Any]) -> str:
    """Make the run's directory on this node and write the spec, which must not be there yet."""
    name = f"{int(spec.get('seat', spec['node_rank']))}-{component(spec['node'])}"
    rundir = make_below(workdir, "runs", spec["run"], name)
    path = os.path.join(rundir, "spec.json")
    try:
        write_new(path, json.dumps(spec, indent=1).encode("utf-8"))
    except FileExistsError:
        raise VerbError("CC-RUN-013", f"run {spec['run']} was started on {spec['node']} before") from None
    record = Record(rundir, new_state(spec))
    record.set()
    if not record.flush():
        os.unlink(path)
        raise VerbError("CC-DISK-001", f"cannot write {os.path.join(rundir, 'state.json')}")
    return rundir


def start_guardian(payload: str, rundir: str, control: socket.socket) -> None:
    """Fork twice and become the guardian: no terminal, no pipe of ours, nobody's child."""
    argv = [sys.executable, *interpreter_options(), payload, "guardian", rundir, str(control.fileno())]
    env = {key: value for key, value in os.environ.items() if key != "CLUSTERCTL_RUN"}
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    log = os.open(os.path.join(rundir, "agent.log"), flags, 0o600)
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                become_guardian(argv, env, log, control)
        finally:
            os._exit(0)
    os.close(log)
    os.waitpid(pid, 0)


def interpreter_options() -> List[str]:
    """Keep the guardian apart from the account's Python settings, save a home it cannot run without."""
    return ["-S", "-X", "utf8"] if "PYTHONHOME" in os.environ else ["-I", "-S", "-X", "utf8"]


def become_guardian(argv: List[str], env: Dict[str, str], log: int, control: socket.socket) -> None:
    """Take the log as output, hand on the control socket, and exec."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    restore_signals()
    os.set_inheritable(control.fileno(), True)
    os.execve(argv[0], argv, env)


def relay(client: Stream, agent: Stream, rundir: str) -> None:
    """Carry frames both ways until the agent closes; a client that leaves is the agent's to judge."""
    poller = select.poll()
    poller.register(client, select.POLLIN)
    poller.register(agent, select.POLLIN)
    said = pass_on(client, agent)
    while not (client.ended or agent.ended):
        poller.poll()
        pass_on(client, agent)
        said = pass_on(agent, client) or said
    if agent.ended and said not in LAST_WORDS:
        log = tail_of(os.path.join(rundir, "agent.log")).strip()
        raise VerbError("CC-RUN-014", f"the agent ended before its time: {log or 'it was killed'}")


def pass_on(source: Stream, sink: Stream) -> str:
    """Pass on what has arrived, also to one that takes no more; returns the last event."""
    said = ""
    for header, body in source.arrived():
        said = header.get("event", "")
        with suppress(BrokenPipeError):
            sink.send(header, body)
    return said
