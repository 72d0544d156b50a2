"""One conversation with one node: a verb of the payload over one raw channel; frames, beats, silence.

A session has one reader. `receive` waits for the next frame; to follow many nodes from one thread, put the
sessions into a selector and take what is there with `pump`. Sending is safe from any thread.

A process whose verb has ended in order takes the next verb that is started with the same Python: that saves opening a
channel, starting a command, and the start of Python with what verbs share. It ends with its connection at the latest.
"""

from __future__ import annotations

import json
import secrets
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from posixpath import dirname
from typing import TYPE_CHECKING, Any

from clusterctl.client.openssh import OpensshConnection
from clusterctl.client.rpc import bundle, errors
from clusterctl.client.rpc.channels import WINDOW_TICK, Channel, ParamikoChannel
from clusterctl.client.rpc.frames import Frame, FrameLimits, FrameReader, limits_for
from clusterctl.client.ssh.timeouts import WATCHDOG, Timeouts
from clusterctl.errors import ClusterctlError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.plans.ssh import DECOYS, render_bootstrap
from clusterctl.protocol.frames import SILENCE_LIMIT, FrameError, encode_frame
from clusterctl.protocol.run_paths import WorkdirPaths
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.verbs import (
        ClientFrame,
        Request,
        VerbHeader,
        VerbName,
    )


STDERR_KEPT = 64 << 10
FIRST_ANSWER_LIMIT = 90.0  # seconds until the first answer; the interpreter may come from a cold network home
STALL = 300.0  # seconds without a step of work on the node, which may copy a large file to a slow disk
MAX_ANSWER_TIME = 4 * 3600.0  # seconds for one answer, with progress or not: a terabyte is hashed in less
END_LIMIT = 2.0  # seconds from the last answer of a verb to its end
CHUNK = (32 << 10) - 64  # what fills one packet
# frames that are buffered before they are requested; the node must keep more than these
MAX_QUEUED_FRAMES = 16
UNLIMITED = 1 << 30
MAX_HELD = 64 << 20  # bytes beyond two headers that are buffered before they are requested
Deadline = tuple[float, Callable[[], ClusterctlError]]


@dataclass(frozen=True)
class SessionLimits:
    """How long a node may be silent once it has started, in seconds, and how large its frames may be."""

    silence: float | None = None
    frames: FrameLimits | None = None


NO_LIMITS = SessionLimits()


@dataclass(frozen=True)
class Interpreter:
    """The Python to use on a node, and what to run before it."""

    python: str
    activate: str | None = None
    source: str = "the inventory"  # the file where `python` is set or would be
    step: str = ""  # a line of sh that goes on to another machine, where the rest is read


class Session:
    """A verb running on a node, and the frames to and from it."""

    def __init__(
        self,
        connection: Any,
        verb: VerbName,
        request: Request,
        interpreter: Interpreter,
        *,
        timeouts: Timeouts | None = None,
        limits: SessionLimits = NO_LIMITS,
    ) -> None:
        frame_limits = limits.frames or limits_for(verb)
        self.verb = verb
        self.interpreter = interpreter
        self.timeouts = timeouts or Timeouts()
        self.silence_limit = limits.silence
        self.ended = False
        self._frames: deque[Frame] = deque()
        self._failure: ClusterctlError | None = None
        self._stderr = bytearray()
        self._read_lock, self._send_lock = threading.RLock(), threading.Lock()
        self._beats = self._held_bytes = 0
        sentinel = secrets.token_hex(16)
        self._reader = FrameReader(sentinel, frame_limits)
        self._max_held = MAX_HELD + 2 * frame_limits.header
        self._idle = _idle_processes(connection)
        # What ends a run needs no process from before, which may have been killed with the run.
        earlier = None if verb == "stop" else _pop_idle(self._idle, interpreter)
        sent = earlier.modules if earlier else frozenset[str]()
        modules, packed = bundle.pack(verb, sent)
        self._modules = modules | sent
        self._is_new, self._released = earlier is None, False
        self._channel = earlier.channel if earlier else _open_channel(connection, verb, self.timeouts.channel)
        self._started = self._last_received = time.monotonic()
        header: VerbHeader = {"sentinel": sentinel, "verb": verb, "request": request}
        if (module := bundle.verb_module(verb)) != verb:
            header["module"] = module
        if "workdir" in request:
            header["payload"] = dirname(WorkdirPaths("").payload(bundle.payload_zip()[0]))
        try:
            first = encode_frame(header, packed) if earlier else _bootstrap(header, packed, interpreter)
            self._send_all(first, self.timeouts.send)
        except BaseException:
            self.close()
            raise

    @property
    def node(self) -> str:
        """Return the name of the node."""
        return self._channel.node

    @property
    def stderr(self) -> str:
        """Return the end of what the node wrote to stderr."""
        return bytes(self._stderr).decode("utf-8", "replace")

    @property
    def noise(self) -> bytes:
        """Return the end of what the node wrote to stdout before Python answered."""
        return self._reader.noise

    def fileno(self) -> int:
        """Return a descriptor that is readable when something arrived or the session ended."""
        return self._channel.fileno()

    def send(self, header: ClientFrame, body: bytes = b"", timeout: float | None = None) -> None:
        """Send a frame; ConnectTimeout if the node does not take it in time, ConnectionLost if it is gone."""
        self._send_all(encode_frame(header, body), self.timeouts.send if timeout is None else timeout)

    def send_heartbeat(self) -> None:
        """Send the node a sign of life."""
        self._beats += 1
        self.send({"beat": self._beats})

    def receive(self, timeout: float | None = None) -> Frame | None:
        """Return the next frame, None after the last; ConnectTimeout after `timeout` seconds without one.

        What the node reports as an error, a lost connection, and silence beyond `silence_limit` are raised.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if not self._frames:
                self._receive_available()  # before judging the time: the caller may have been away
            if self._frames:
                return self._pop()
            self._raise_failure()
            if self.ended:
                return None
            _poll(self.fileno(), self._poll_timeout(deadline, timeout))

    def pump(self) -> Iterator[Frame]:
        """Yield the frames that are here, without waiting; `ended` is set after the last.

        What the node reports as an error and a lost connection are raised after the frames before them.
        """
        self._receive_available()
        while self._frames:
            yield self._pop()
        self._raise_failure()

    def check_silence(self, limit: float) -> None:
        """Raise ConnectionLost if nothing was received for `limit` seconds; a verb may take longer to begin."""
        if time.monotonic() - self._last_received <= limit or self.ended or self._failure is not None:
            return
        self._receive_available()
        self._check_deadlines(self._deadlines(limit))

    def _receive_available(self, max_frames: int = MAX_QUEUED_FRAMES) -> None:
        """Take in what has arrived, without waiting, until `max_frames` frames are buffered."""
        with self._read_lock:
            # Looked at before draining: what arrives between the two is then not taken for the end.
            closing = self._channel.at_eof
            with suppress(OSError):
                self._read_stderr()
                while (
                    len(self._frames) < max_frames
                    and self._held_bytes < self._max_held
                    and (chunk := self._channel.read_stdout())
                ):
                    self._held_bytes += len(chunk)
                    self._on_data(chunk, self._on_stdout)
            drained = len(self._frames) < max_frames and self._held_bytes < self._max_held
            if closing and drained and not self.ended and self._failure is None:
                self._set_failure(self._explain_end())

    def _pop(self) -> Frame:
        frame = self._frames.popleft()
        if not self._frames:
            self._held_bytes = 0
        return frame

    def _read_stderr(self) -> None:
        while chunk := self._channel.read_stderr():
            self._on_data(chunk, self._on_stderr)

    def close(self) -> None:
        """End the conversation; the verb on the node sees the end of its stdin."""
        if not self._released:
            self._channel.close()

    def finish(self) -> None:
        """Wait for the end of a verb that has nothing more to send, and leave its process to the next verb."""
        with suppress(ClusterctlError):
            while self.receive(END_LIMIT) is not None:
                pass
            self._released = True
            self._idle.append(IdleProcess(self._channel, self.interpreter, self._modules))
        self.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send_all(self, data: bytes, limit: float) -> None:
        deadline = time.monotonic() + limit
        with self._send_lock, WATCHDOG.limit(limit + WINDOW_TICK, self._channel.abort):
            for offset in range(0, len(data), CHUNK):
                self._send_chunk(data[offset : offset + CHUNK], deadline, limit)

    def _send_chunk(self, chunk: bytes, deadline: float, limit: float) -> None:
        while chunk:
            try:
                sent = self._channel.send(chunk)
            except TimeoutError:
                INTERRUPTS.check()
                self._receive_available(UNLIMITED)  # the node may be waiting for us to read before it reads
                if self._held_bytes >= self._max_held:
                    raise errors.unsolicited_data(self.node, self.verb, self._held_bytes) from None
                if time.monotonic() >= deadline:
                    raise errors.step_timed_out(
                        self.node, tr("progress in sending to {verb}", verb=self.verb), limit
                    ) from None
                continue
            if not sent:
                self._raise_unsent()
                return
            chunk = chunk[sent:]

    def _raise_unsent(self) -> None:
        """Raise what went wrong when the node stopped listening; one that ended in order has sent the reason."""
        self._receive_available(UNLIMITED)
        self._raise_failure()
        if not self.ended:
            raise self._explain_end()

    def _poll_timeout(self, deadline: float | None, timeout: float | None) -> float | None:
        """Return how long to wait for something to arrive; raise what is due."""
        limits = self._deadlines(self.silence_limit)
        if deadline is not None and timeout is not None:
            limits.append((deadline, lambda: self._explain_no_answer(timeout)))
        self._check_deadlines(limits)
        return min(due for due, _ in limits) - time.monotonic() if limits else None

    def _deadlines(self, silence: float | None) -> list[Deadline]:
        if not self._reader.started:
            limit = self.timeouts.start
            return [(self._started + limit, lambda: self._explain_no_answer(limit))]
        if silence is None:
            return []
        return [(self._last_received + silence, lambda: errors.connection_silent(self.node, silence))]

    def _check_deadlines(self, limits: list[Deadline]) -> None:
        now = time.monotonic()
        for due, explain in sorted(limits, key=lambda limit: limit[0]):
            if due <= now:
                raise explain()

    def _on_data(self, chunk: bytes, handle: Callable[[bytes], None]) -> None:
        self._last_received = time.monotonic()
        handle(chunk)

    def _on_stderr(self, chunk: bytes) -> None:
        self._stderr += chunk
        del self._stderr[:-STDERR_KEPT]

    def _on_stdout(self, chunk: bytes) -> None:
        if self.ended or self._failure is not None:
            return
        try:
            for header, body in self._reader.feed(chunk):
                self._on_frame(header, body)
        except FrameError as error:
            self._set_failure(errors.malformed_answer(self.node, self._reader, error))

    def _on_frame(self, header: Untrusted, body: bytes) -> None:
        if header.flag("end"):
            self.ended = True
        elif header.has_record("error"):
            self._set_failure(errors.node_error(self.node, header.record("error")))
        elif not self.ended and self._failure is None:
            self._frames.append((header, body))

    def _set_failure(self, failure: ClusterctlError) -> None:
        self._failure = failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _explain_end(self) -> ClusterctlError:
        failure = self._channel.find_failure()
        self._read_stderr()
        self._reader.finish()
        if failure is not None:
            return failure
        status = self._channel.status
        if not self._reader.started and self._is_new:
            noise, stderr = self._reader.noise, self.stderr
            return errors.interpreter_not_started(
                self.node,
                self.interpreter.python,
                status,
                noise,
                stderr,
                activate=self.interpreter.activate is not None,
                python_source=self.interpreter.source,
            )
        return errors.verb_died(self.node, self.verb, status, self.stderr)

    def _explain_no_answer(self, limit: float) -> ClusterctlError:
        if self._reader.started or not self._is_new:
            return errors.step_timed_out(self.node, tr("answer from {verb}", verb=self.verb), limit)
        return self._explain_no_start(limit)

    def _explain_no_start(self, limit: float) -> ClusterctlError:
        self._reader.finish()
        noise, stderr = self._reader.noise, self.stderr
        return errors.interpreter_timed_out(
            self.node, self.interpreter.python, limit, noise, stderr, activate=self.interpreter.activate
        )


@dataclass(frozen=True)
class IdleProcess:
    """A process on a node that waits for its next verb, how it was started, and the modules that were sent to it."""

    channel: Channel
    interpreter: Interpreter
    modules: frozenset[str]


def _idle_processes(connection: Any) -> deque[IdleProcess]:
    """Return those of a connection, kept by what lives as long as it does: Fabric's own may connect again."""
    owner: Any = connection if isinstance(connection, OpensshConnection) else connection.transport
    idle: deque[IdleProcess] = vars(owner).setdefault("_idle_processes", deque())
    return idle


def _pop_idle(idle: deque[IdleProcess], interpreter: Interpreter) -> IdleProcess | None:
    """Remove and return one that was started like this and still listens."""
    for process in [process for process in idle if process.interpreter == interpreter]:
        with suppress(ValueError):  # another thread has taken it
            idle.remove(process)
            if not process.channel.at_eof:
                return process
            process.channel.close()
    return None


def _open_channel(connection: Any, verb: str, limit: float) -> Channel:
    """Run the constant command on a node, over whichever kind of connection this is."""
    if isinstance(connection, OpensshConnection):
        return connection.open_channel()
    return INTERRUPTS.call(lambda: ParamikoChannel(connection.transport, verb, limit))


def _poll(descriptor: int, timeout: float | None) -> None:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    INTERRUPTS.poll(poller, timeout)


def _bootstrap(header: VerbHeader, modules: bytes, interpreter: Interpreter) -> bytes:
    parts = (bundle.boot_program(), json.dumps(header).encode("utf-8"), modules)
    decoys = DECOYS + interpreter.step + DECOYS if interpreter.step else DECOYS
    shell_line = f"{decoys}{render_bootstrap(interpreter.python, interpreter.activate)}\n".encode("ascii")
    return shell_line + b"".join(b"%d\n" % len(part) + part for part in parts)


class ReplyReader:
    """Reads the answers of one node; what it raises when there are no more is the verb's own error."""

    def __init__(
        self,
        session: Session,
        *,
        on_closed: Callable[[], ClusterctlError],
        on_stalled: Callable[[str, float], ClusterctlError],
        first_limit: float = FIRST_ANSWER_LIMIT,
    ) -> None:
        self._session = session
        self._on_closed = on_closed
        self._on_stalled = on_stalled
        self._limit = first_limit

    def receive(self, on_beat: Callable[[Untrusted], object] = lambda _: None) -> Frame:
        """Wait for an answer; the node's beats are read, and must report progress; `on_beat` may raise."""
        steps: int | None = None
        began = since = time.monotonic()
        while True:
            frame = self._session.receive(self._limit)
            self._limit = SILENCE_LIMIT
            if frame is None:
                raise self._on_closed()
            header = frame[0]
            if "beat" not in header:
                return frame
            on_beat(header)
            now = time.monotonic()
            if header.integer("steps") != steps:
                steps, since = header.integer("steps"), now
            elif now - since > STALL:
                raise self._on_stalled("", STALL)
            if now - began > MAX_ANSWER_TIME:
                raise self._on_stalled("unanswered", MAX_ANSWER_TIME / 3600)
