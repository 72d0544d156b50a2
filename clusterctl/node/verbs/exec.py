"""The verb `exec`: one command, what it writes, and how it ended; it lives no longer than the client stays.

request {"argv": [program, arguments...], "keep": bytes of each stream that are sent, or null for all}
node    {"stream": "stdout" | "stderr"} + bytes, as they come; {"beat": n} where there is nothing for 2 s; at last
        {"ended": {"exit": code or null, "signal": number or null, "cut": [streams that were longer],
        "left": [names of processes that it has left in the background]}}
What the command leaves behind by ending stays, as with ssh: it may have been started for that. It is reported.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from ...protocol.frames import BEAT_INTERVAL
from ..runtime.processes import (
    KILL_INTERVAL,
    PRIVATE_ENV,
    ProcessTree,
    reap,
    running_descendants,
    send_signal,
    set_parent_death_signal,
    set_subreaper,
)
from ..runtime.stream import Stream

if TYPE_CHECKING:
    from ...protocol.messages.verbs import CommandEnd, ExecRequest, StreamName

POLL_INTERVAL = 0.05  # seconds between looks at a command that has closed its output and goes on
GRACE = 2.0  # seconds between TERM and KILL when the client leaves
SETTLE_TIME = 0.2  # seconds for what is just ending after the command
MAX_LEFT = 20
CHUNK = 1 << 16
NOT_FOUND, CANNOT_RUN = 127, 126


def run(request: ExecRequest, stream: Stream) -> None:
    """Run the command to its end, or end it when the client leaves."""
    set_subreaper()
    try:
        process = start([os.fsencode(word) for word in request["argv"]])
    except (OSError, ValueError) as error:
        send_start_failure(stream, request["argv"][0], error)
        return
    relay = Relay(stream, process, request.get("keep"))
    try:
        relay.forward()
    except BrokenPipeError:
        stop_command()
        raise
    if stream.ended:
        stop_command()
    else:
        stream.answer({"ended": relay.result()})


def start(argv: List[bytes]) -> subprocess.Popen[bytes]:
    """Start the command at home, in a session of its own, with nothing to read."""
    home = os.path.expanduser("~")
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=home if os.path.isdir(home) else "/",
        env={key: value for key, value in os.environ.items() if key not in PRIVATE_ENV},
        start_new_session=True,
        preexec_fn=lambda: set_parent_death_signal(signal.SIGKILL),  # noqa: PLW1509 - there is one thread
    )


def send_start_failure(stream: Stream, program: str, error: Exception) -> None:
    """Report as a shell would that there is no such program, or that it cannot be run."""
    reason = getattr(error, "strerror", None) or str(error)
    code = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
    if code == NOT_FOUND and "/" not in program:
        reason = "command not found"
    stream.answer({"stream": "stderr"}, f"{program}: {reason}\n".encode("utf-8", "replace"))
    stream.answer({"ended": {"exit": code, "signal": None, "cut": [], "left": []}})


class Relay:
    """Carries what a command writes to the client, up to `keep` bytes of each stream."""

    def __init__(self, stream: Stream, process: subprocess.Popen[bytes], keep: Optional[int]) -> None:
        self._stream = stream
        self._process = process
        pipes: Dict[StreamName, Any] = {"stdout": process.stdout, "stderr": process.stderr}
        self._open: Dict[int, StreamName] = {
            pipe.fileno(): name for name, pipe in pipes.items() if pipe is not None
        }
        self._bytes_left = {"stdout": keep, "stderr": keep}
        self._cut: List[str] = []

    def forward(self) -> None:
        """Carry until the command has ended and closed its output, or the client has left."""
        for _ in self._stream.read_available():
            pass
        while not self._stream.ended and (self._open or self._process.poll() is None):
            limit = BEAT_INTERVAL if self._open else POLL_INTERVAL
            for descriptor in select.select([self._stream.fileno(), *self._open], [], [], limit)[0]:
                if descriptor in self._open:
                    self._forward_chunk(descriptor)
                else:
                    for _ in self._stream.read_available():
                        pass
            self._stream.beat()

    def result(self) -> CommandEnd:
        """Return how the command ended, and what goes on without it."""
        status = self._process.wait()
        exit_code, signal_number = (status, None) if status >= 0 else (None, -status)
        return {"exit": exit_code, "signal": signal_number, "cut": self._cut, "left": list_leftovers()}

    def _forward_chunk(self, descriptor: int) -> None:
        name = self._open[descriptor]
        data = os.read(descriptor, CHUNK)
        if not data:
            del self._open[descriptor]
        bytes_left = self._bytes_left[name]
        if bytes_left is not None:
            self._bytes_left[name] = max(0, bytes_left - len(data))
            if len(data) > bytes_left and name not in self._cut:
                self._cut.append(name)
            data = data[:bytes_left]
        if data:
            self._stream.answer({"stream": name}, data)


def list_leftovers() -> List[str]:
    """Name the processes that go on without the command."""
    deadline = time.monotonic() + SETTLE_TIME
    while running_descendants() and time.monotonic() < deadline:
        time.sleep(KILL_INTERVAL)
        for _ in reap():
            pass
    return sorted(stat.name for stat in running_descendants())[:MAX_LEFT]


def stop_command() -> None:
    """End the command and all below it: TERM, and KILL for what is still there a moment later."""
    deadline = time.monotonic() + GRACE
    for stat in running_descendants():
        send_signal(stat.identity, signal.SIGTERM)
    while running_descendants() and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL)
        for _ in reap():
            pass
    ProcessTree("exec").kill_all()
