"""One verb on one node: frames, beats, silence.

One conversation with one node: a verb of the payload over one raw channel.

A session has one reader. `receive` waits for the next frame; to follow many nodes from one thread, put the
sessions into a selector and take what is there with `pump`. Sending is safe from any thread.
"""

from __future__ import annotations

import json
import secrets
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from clusterctl.client.openssh import OpensshConnection
from clusterctl.client.rpc import bundle, errors
from clusterctl.client.rpc.channels import WINDOW_TICK, Channel, ParamikoChannel
from clusterctl.client.rpc.frames import Frame, FrameError, FrameLimits, FrameReader, encode_frame, limits_of
from clusterctl.client.ssh.timeouts import WATCHDOG, Timeouts
from clusterctl.errors import ClusterctlError
from clusterctl.plans.ssh import DECOYS, render_bootstrap
from clusterctl.protocol.untrusted import Untrusted

STDERR_KEPT = 64 << 10
CHUNK = (32 << 10) - 64  # what fills one packet
AHEAD = 16  # frames that are taken in before they are asked for; what more there is, the node must keep
ALL = 1 << 30
MOST_HELD = 64 << 20  # bytes beyond two headers that are taken in before they are asked for
Due = tuple[float, Callable[[], ClusterctlError]]


class Session:
    """A verb running on a node, and the frames to and from it."""

    def __init__(
        self,
        connection: Any,
        verb: str,
        request: Mapping[str, Any],
        *,
        python: str,
        activate: str | None = None,
        timeouts: Timeouts | None = None,
        silence_limit: float | None = None,
        limits: FrameLimits | None = None,
    ) -> None:
        limits = limits or limits_of(verb)
        self.verb = verb
        self.python = python
        self.activate = activate
        self.timeouts = timeouts or Timeouts()
        self.silence_limit = silence_limit
        self.ended = False
        self._arrived: deque[Frame] = deque()
        self._failure: ClusterctlError | None = None
        self._stderr = bytearray()
        self._reading, self._sending = threading.RLock(), threading.Lock()
        self._beats = self._held = 0
        sentinel = secrets.token_hex(16)
        self._reader = FrameReader(sentinel, limits)
        self._most_held = MOST_HELD + 2 * limits.header
        self._channel = _open_channel(connection, verb, self.timeouts.channel)
        self._began = self._heard = time.monotonic()
        try:
            bootstrap = _bootstrap(verb, request, sentinel, python=python, activate=activate)
            self._push(bootstrap, self.timeouts.send)
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

    def send(self, header: Mapping[str, Any], body: bytes = b"", timeout: float | None = None) -> None:
        """Send a frame; ConnectTimeout if the node does not take it in time, ConnectionLost if it is gone."""
        self._push(encode_frame(header, body), self.timeouts.send if timeout is None else timeout)

    def beat(self) -> None:
        """Tell the node that somebody is still here."""
        self._beats += 1
        self.send({"beat": self._beats})

    def receive(self, timeout: float | None = None) -> Frame | None:
        """Return the next frame, None after the last; ConnectTimeout after `timeout` seconds without one.

        What the node reports as an error, a lost connection, and silence beyond `silence_limit` are raised.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if not self._arrived:
                self._take_in()  # before judging the time: the caller may have been away
            if self._arrived:
                return self._pop()
            self._raise_failure()
            if self.ended:
                return None
            _poll(self.fileno(), self._longest_wait(deadline, timeout))

    def pump(self) -> Iterator[Frame]:
        """Yield the frames that are here, without waiting; the last one's header is {"end": true}.

        What the node reports as an error and a lost connection are raised after the frames before them.
        """
        ended = self.ended
        self._take_in()
        while self._arrived:
            yield self._pop()
        self._raise_failure()
        if self.ended and not ended:
            yield Untrusted({"end": True}), b""

    def check_silence(self, limit: float) -> None:
        """Raise ConnectionLost if nothing was heard for `limit` seconds; a verb may take longer to begin."""
        if time.monotonic() - self._heard <= limit or self.ended or self._failure is not None:
            return
        self._take_in()
        self._check_due(self._due(limit))

    def _take_in(self, most: int = AHEAD) -> None:
        """Take in what has arrived, without waiting, until `most` frames are there that nobody has asked for."""
        with self._reading:
            # Looked at before draining: what arrives between the two is then not taken for the end.
            closing = self._channel.over
            with suppress(OSError):
                self._take_stderr()
                while (
                    len(self._arrived) < most
                    and self._held < self._most_held
                    and (piece := self._channel.take())
                ):
                    self._held += len(piece)
                    self._hear(piece, self._take_frames)
            drained = len(self._arrived) < most and self._held < self._most_held
            if closing and drained and not self.ended and self._failure is None:
                self._fail(self._explain_end())

    def _pop(self) -> Frame:
        frame = self._arrived.popleft()
        if not self._arrived:
            self._held = 0
        return frame

    def _take_stderr(self) -> None:
        while piece := self._channel.take_stderr():
            self._hear(piece, self._keep_stderr)

    def close(self) -> None:
        """End the conversation; the verb on the node sees the end of its stdin."""
        self._channel.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _push(self, data: bytes, limit: float) -> None:
        deadline = time.monotonic() + limit
        with self._sending, WATCHDOG.limit(limit + WINDOW_TICK, self._channel.hang_up):
            for place in range(0, len(data), CHUNK):
                self._push_chunk(data[place : place + CHUNK], deadline, limit)

    def _push_chunk(self, chunk: bytes, deadline: float, limit: float) -> None:
        while chunk:
            try:
                sent = self._channel.send(chunk)
            except TimeoutError:
                self._take_in(ALL)  # the node may be waiting for us to read before it reads
                if self._held >= self._most_held:
                    raise errors.unasked(self.node, self.verb, self._held) from None
                if time.monotonic() >= deadline:
                    raise errors.overdue(self.node, f"room for what we send to {self.verb}", limit) from None
                continue
            if not sent:
                self._raise_unsent()
                return
            chunk = chunk[sent:]

    def _raise_unsent(self) -> None:
        """Raise what went wrong when the node stopped listening; one that ended in order has said why in its frames."""
        self._take_in(ALL)
        self._raise_failure()
        if not self.ended:
            raise self._explain_end()

    def _longest_wait(self, deadline: float | None, timeout: float | None) -> float | None:
        """Return how long to wait for something to arrive; raise what is due."""
        limits = self._due(self.silence_limit)
        if deadline is not None and timeout is not None:
            limits.append((deadline, lambda: self._explain_no_answer(timeout)))
        self._check_due(limits)
        return min(due for due, _ in limits) - time.monotonic() if limits else None

    def _due(self, silence: float | None) -> list[Due]:
        if not self._reader.begun:
            return [(self._began + self.timeouts.start, lambda: self._explain_no_start(self.timeouts.start))]
        if silence is None:
            return []
        return [(self._heard + silence, lambda: errors.silent(self.node, silence))]

    def _check_due(self, limits: list[Due]) -> None:
        now = time.monotonic()
        for due, explain in sorted(limits, key=lambda limit: limit[0]):
            if due <= now:
                raise explain()

    def _hear(self, piece: bytes, take: Callable[[bytes], None]) -> None:
        self._heard = time.monotonic()
        take(piece)

    def _keep_stderr(self, piece: bytes) -> None:
        self._stderr += piece
        del self._stderr[:-STDERR_KEPT]

    def _take_frames(self, piece: bytes) -> None:
        if self.ended or self._failure is not None:
            return
        try:
            for header, body in self._reader.feed(piece):
                self._take_frame(header, body)
        except FrameError as error:
            self._fail(errors.garbled(self.node, self._reader, error))

    def _take_frame(self, header: Untrusted, body: bytes) -> None:
        if header.flag("end"):
            self.ended = True
        elif header.has_record("error"):
            self._fail(errors.reported(self.node, header.record("error")))
        elif not self.ended and self._failure is None:
            self._arrived.append((header, body))

    def _fail(self, failure: ClusterctlError) -> None:
        self._failure = failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _explain_end(self) -> ClusterctlError:
        cut = self._channel.find_failure()
        self._take_stderr()
        self._reader.finish()
        if cut is not None:
            return cut
        status = self._channel.status
        if not self._reader.begun:
            noise, said = self._reader.noise, self.stderr
            return errors.not_started(
                self.node, self.python, status, noise, said, activate=self.activate is not None
            )
        return errors.verb_died(self.node, self.verb, status, self.stderr)

    def _explain_no_answer(self, limit: float) -> ClusterctlError:
        if self._reader.begun:
            return errors.overdue(self.node, f"answer from {self.verb}", limit)
        return self._explain_no_start(limit)

    def _explain_no_start(self, limit: float) -> ClusterctlError:
        self._reader.finish()
        noise, said = self._reader.noise, self.stderr
        return errors.start_overdue(self.node, self.python, limit, noise, said, activate=self.activate)


def _open_channel(connection: Any, verb: str, limit: float) -> Channel:
    """Run the constant command on a node, over whichever kind of connection this is."""
    if isinstance(connection, OpensshConnection):
        return connection.open_channel()
    return ParamikoChannel(connection.transport, verb, limit)


def _poll(descriptor: int, timeout: float | None) -> None:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    poller.poll(None if timeout is None else max(0.0, timeout) * 1000)


def _bootstrap(
    verb: str, request: Mapping[str, Any], sentinel: str, *, python: str, activate: str | None
) -> bytes:
    header = json.dumps({"sentinel": sentinel, "verb": verb, "request": dict(request)}).encode("utf-8")
    parts = (bundle.boot(), header, bundle.bundle(verb))
    first = f"{DECOYS}{render_bootstrap(python, activate)}\n".encode("ascii")
    return first + b"".join(b"%d\n" % len(part) + part for part in parts)


START = 90.0  # seconds until the first word; the interpreter may come from a cold network home
SILENCE = 20.0  # seconds; after that the node says something every 2 s
STALL = 300.0  # seconds without a step of work on the node, which may copy a large file to a slow disk
LONGEST = 4 * 3600.0  # seconds for one answer, whatever work is told of: a terabyte is hashed in less


class Talk(Protocol):
    """What is needed of a session: frames both ways; what the node reports as wrong is raised by either."""

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a frame."""

    def receive(self, timeout: float) -> Frame | None:
        """Wait for a frame; None at the end of the conversation."""


class Listener:
    """Hears the answers of one node; what it raises when there are no more is the verb's own error."""

    def __init__(
        self,
        talk: Talk,
        *,
        hung_up: Callable[[], ClusterctlError],
        stalled: Callable[[str], ClusterctlError],
        first: float = START,
    ) -> None:
        self._talk = talk
        self._hung_up = hung_up
        self._stalled = stalled
        self._limit = first

    def answer(self) -> Frame:
        """Wait for an answer; the node's beats are heard, and must tell of progress."""
        steps: int | None = None
        began = since = time.monotonic()
        while True:
            frame = self._talk.receive(self._limit)
            self._limit = SILENCE
            if frame is None:
                raise self._hung_up()
            header = frame[0]
            if "beat" not in header:
                return frame
            now = time.monotonic()
            if header.integer("steps") != steps:
                steps, since = header.integer("steps"), now
            elif now - since > STALL:
                raise self._stalled(f"nothing moved on the node for {STALL:.0f} s")
            if now - began > LONGEST:
                raise self._stalled(f"no answer came for {LONGEST / 3600:.0f} h")
