"""Write the run directory, start the guardian, itself or through the node's warm server, relay."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Dict, List, Literal, Optional, Tuple

from ...protocol.run_paths import PAYLOAD, RunPaths, WorkdirPaths, part_name
from ...protocol.untrusted import Untrusted
from ..fork.inherited import read_inherited
from ..fork.warm_client import pack_variables, query, socket_folder
from ..logs.log_file import read_tail
from ..runtime.processes import interpreter_options, restore_signals
from ..runtime.stream import Stream, VerbError
from ..state.run_record import Record, new_state
from ..state.workdir import (
    component,
    make_below,
    make_private,
    open_workdir,
    read_bytes,
    workdir_id,
    write_atomically,
    write_new,
)

if TYPE_CHECKING:
    from ...protocol.messages.agent import EventName, Secrets
    from ...protocol.messages.files import Spec
    from ...protocol.messages.verbs import StartRequest


UNCHECKED = b"\1\0\0\0" + b"\0" * 8  # byte code that is valid whatever the source's time is (PEP 552)


def with_byte_code(path: str) -> str:
    """Return the zip to run: one beside `path` that holds its byte code too, or `path` where that cannot be made.

    Its name holds its hash, by which a damaged one is known.
    """
    folder, prefix = os.path.dirname(path), f"payload-{sys.implementation.cache_tag}-"
    with suppress(OSError):
        for name in os.listdir(folder):
            existing = os.path.join(folder, name)
            if not (name.startswith(prefix) and name.endswith(".zip")):
                continue  # also one that another start is writing aside, and is about to rename
            if name == f"{prefix}{sha256(read_bytes(existing) or b'').hexdigest()}.zip":
                os.utime(existing)  # in use: `clean` leaves it alone
                return existing
        content = build(read_bytes(path) or b"")
        if content is not None:
            compiled_path = os.path.join(folder, f"{prefix}{sha256(content).hexdigest()}.zip")
            write_atomically(compiled_path, content)
            return compiled_path
    return path


def build(source: bytes) -> Optional[bytes]:
    """Compile every module of a zip; None if this interpreter cannot."""
    import importlib.util
    import io
    import marshal
    import zipfile

    packed = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(source)) as plain, zipfile.ZipFile(packed, "w") as target:
            for name in plain.namelist():
                text = plain.read(name)
                code = compile(text, name, "exec", dont_inherit=True)
                # for a job whose Python is another one
                target.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
                data = importlib.util.MAGIC_NUMBER + UNCHECKED + marshal.dumps(code)
                target.writestr(zipfile.ZipInfo(name + "c"), data)
    except (zipfile.BadZipFile, SyntaxError, ValueError):
        return None
    return packed.getvalue()


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


def ensure_payload(
    workdir: str, digest: str, stream: Stream, need: Literal["payload", "judge"] = "payload"
) -> str:
    """Return the path of the payload's zip, asking the client for it if it is absent or damaged."""
    folder = make_below(make_private(WorkdirPaths(workdir).payloads), digest)
    path = os.path.join(folder, PAYLOAD)
    if sha256(read_bytes(path) or b"").hexdigest() == digest:
        with suppress(OSError):
            os.utime(path)  # in use: `clean` leaves it alone
        return path
    stream.answer({"need": need})
    answer = stream.receive()
    if answer is None:
        raise BrokenPipeError("the client left")
    if sha256(answer[1]).hexdigest() != digest:
        raise VerbError("CC-RUN-012", "the payload was damaged in transfer")
    write_atomically(path, answer[1], durable=True)
    return path


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
    log = open_log(rundir)
    answer = None
    if "start" in spec and has_server(workdir):
        answer = start_from_server(workdir, spec["node"], rundir, argv, env, (control.fileno(), log))
    if answer != "":
        fork_guardian([*argv, "guardian", rundir, str(control.fileno())], env, log, control)
    os.close(log)
    return answer or ""


def open_log(rundir: str) -> int:
    """Open the file that guardian and agent print to."""
    return os.open(RunPaths(rundir).agent_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)


def fork_guardian(
    argv: List[str], env: Dict[str, str], log: int, control: socket.socket, *, is_child: bool = False
) -> int:
    """Fork twice and become the guardian: no terminal, no pipe of ours, and unless `is_child` no parent of ours."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            if is_child or os.fork() == 0:
                exec_guardian(argv, env, log, control)
        finally:
            os._exit(127 if is_child else 0)
    if not is_child:
        os.waitpid(pid, 0)
    return pid


def exec_guardian(argv: List[str], env: Dict[str, str], log: int, control: socket.socket) -> None:
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


def has_server(workdir: str) -> bool:
    """Whether this work directory has had warm servers."""
    return os.path.isdir(socket_folder(workdir))
