"""The worker server: a process with torch imported and a single thread, forked from the gate before torchrun's import.

```
gate, later torchrun                       server
  request: command, stdout, stderr, line ----> fork: a process in between, which forks the worker and ends;
                                               so the worker becomes a child of torchrun, as an exec'ed one
  <---------------------------- line: pid      worker: its own session, ready to run
  <------------------- control: one byte       server: the process in between is reaped
  line: one byte -------------------------->   worker: runs the script
```

Why a thread: what torchrun's `Popen` starts must have no frame of ours below its own. The gate forks the server from a
thread whose first function is one of C; in the child that thread is the main thread. It takes the steps of a generator:
while a step runs the generator is suspended and appears in no stack.
"""

from __future__ import annotations

import _thread
import array
import functools
import gc
import json
import os
import resource
import socket
import struct
import warnings
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import interface
from .worker import Command, apply_command, run_worker

if TYPE_CHECKING:
    from ...protocol.messages.children import ForkReport


LENGTH = struct.Struct("!Q")
MOST_DESCRIPTORS = 3
UNLIMITED_STACK = 64 << 20  # bytes; an ordinary limit is 8 MiB


class Request(NamedTuple):
    """One worker to start; `line` is a socket to the gate."""

    command: Command
    stdout: int
    stderr: int
    line: int


def fork_server(private: Sequence[int]) -> Tuple[socket.socket, int]:
    """Fork the server, which does not keep the `private` descriptors; returns its socket and pid.

    OSError with the reason where it cannot serve.
    """
    gate_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    steps = serve(gate_end, server_end, private)
    _thread.stack_size(stack_size())
    try:
        call_in_thread(steps)
    finally:
        _thread.stack_size(0)
    greeting = receive(gate_end)
    pid, obstacle = greeting.get("pid"), greeting.get("obstacle")
    if pid and not obstacle:
        return gate_end, pid
    gate_end.close()
    if pid:
        os.waitpid(pid, 0)
    raise OSError(obstacle or "the worker server could not be forked")


def call_in_thread(steps: Iterator[functools.partial[Any]]) -> None:
    """Let a thread call the steps one after the other, with no Python function below them."""
    _thread.start_new_thread(deque, (map(functools.partial.__call__, steps), 0))


def stack_size() -> int:
    """Give a thread the stack that the limit gives to a process."""
    soft = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return UNLIMITED_STACK if soft == resource.RLIM_INFINITY else max(soft // 4096 * 4096, 1 << 16)


def serve(
    gate_end: socket.socket, server_end: socket.socket, private: Sequence[int]
) -> Iterator[functools.partial[Any]]:
    """Fork the server; in it, take requests; in each worker, yield the steps to its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads: ours only waits
        try:
            pid = os.fork()
        except OSError as error:
            send(server_end, {"pid": 0, "obstacle": str(error)})
            pid = -1
    if pid:
        server_end.close()
        return
    _thread.stack_size(0)
    gate_end.close()
    for descriptor in private:
        os.close(descriptor)
    obstacle = try_to_show_command()
    send(server_end, {"pid": os.getpid(), "obstacle": obstacle})
    if obstacle:
        os._exit(0)
    gc.enable()
    gc.collect()  # what the import made is old from now on: else each worker would begin with looking through all of it
    request = wait_for_request(server_end)
    server_end.close()
    line = socket.socket(fileno=request.line)
    prepare_worker(request, line)
    yield from run_worker(request.command)


def try_to_show_command() -> str:
    """Find out whether this kernel lets a process change its own command line; returns why not."""
    try:
        with open("/proc/self/cmdline", "rb") as source:
            words = source.read().split(b"\0")[:-1]
        interface.show_command(words, interface.render_variables(os.environ))
    except (OSError, ValueError, AttributeError) as error:
        return "the kernel does not let a process change its command line: %s" % error
    return ""


def wait_for_request(control: socket.socket) -> Request:
    """Fork a worker for each request; returns in the worker. The end of the gate ends the server."""
    while True:
        request = receive_request(control)
        if request is None:
            os._exit(0)
        between = os.fork()
        if between == 0:
            try:
                is_worker = os.fork() == 0
            except OSError:
                is_worker = False  # the gate reads the end of the pipe once no process holds it open
            if is_worker:
                return request
            os._exit(0)
        for descriptor in request[1:]:
            os.close(descriptor)
        os.waitpid(between, 0)
        control.sendall(b"\n")


def prepare_worker(request: Request, line: socket.socket) -> None:
    """Become the worker, report the pid, and wait until the gate is ready for it to run."""
    try:
        os.setsid()
        apply_command(request.command, request.stdout, request.stderr)
        send(line, {"pid": os.getpid()})
    except BaseException as error:  # noqa: BLE001, RUF100 - this is a forked child: nothing may return from here
        with suppress(OSError):
            send(line, {"obstacle": "%s: %s" % (type(error).__name__, error)})
        os._exit(1)
    if not line.recv(1):
        os._exit(1)
    line.close()


def send(sink: socket.socket, report: ForkReport) -> None:
    """Send one line of JSON."""
    sink.sendall(json.dumps(report).encode("ascii") + b"\n")


def receive(source: socket.socket) -> ForkReport:
    """Receive one line of JSON; an empty table if the other end was closed."""
    content = b""
    while not content.endswith(b"\n"):
        chunk = source.recv(1)
        if not chunk:
            return {}
        content += chunk
    report: ForkReport = json.loads(content.decode("ascii"))
    return report


def send_request(control: socket.socket, command: Command, descriptors: List[int]) -> None:
    """Send a request; `descriptors` are stdout, stderr and the line."""
    content = json.dumps(command).encode("ascii")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    control.sendmsg([LENGTH.pack(len(content))], rights)
    control.sendall(content)


def receive_request(control: socket.socket) -> Optional[Request]:
    """Receive a request; None at the end."""
    numbers = array.array("i")
    head, ancillary, _, _ = control.recvmsg(
        LENGTH.size, socket.CMSG_SPACE(MOST_DESCRIPTORS * numbers.itemsize), socket.MSG_WAITALL
    )
    if len(head) < LENGTH.size:
        return None
    for _, _, data in ancillary:
        numbers.frombytes(data)
    (size,) = LENGTH.unpack(head)
    content = b""
    while len(content) < size:
        chunk = control.recv(size - len(content))
        if not chunk:
            return None
        content += chunk
    return Request(Command(*json.loads(content.decode("ascii"))), *numbers)
