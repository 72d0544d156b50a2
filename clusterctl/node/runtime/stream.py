"""A conversation in frames over file descriptors, and what is reported of a verb that failed."""

from __future__ import annotations

import errno
import json
import os
import select
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

from ...protocol.frames import BEAT_INTERVAL, Decoder, encode_frame

if TYPE_CHECKING:
    from ...protocol.messages.verbs import Error, NodeFrame

CHUNK = 1 << 16
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
SCARCITY_ERRORS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)  # processes, memory, descriptors

Header = Dict[str, Any]
Frame = Tuple[Header, bytes]  # as it is received


class VerbError(Exception):
    """A verb could not do its work; carries the code that the user sees."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def describe_failure(error: BaseException) -> Error:
    """Turn an exception into the value of an error frame."""
    if isinstance(error, VerbError):
        return {"code": error.code, "message": str(error), "traceback": ""}
    code, message = _describe_refusal(error) if isinstance(error, OSError) else ("", "")
    if message:
        return {"code": code, "message": message, "traceback": ""}
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return {"code": "", "message": f"{type(error).__name__}: {error}", "traceback": text}


def _describe_refusal(error: OSError) -> Tuple[str, str]:
    """Return code and message of what the system refused; both empty if the error looks like a bug of ours."""
    name = error.filename2 or error.filename
    path = os.fsdecode(name) if isinstance(name, (str, bytes)) else ""
    if error.errno in DISK_ERRORS:
        return "CC-DISK-001", f"cannot write {path or 'the disk'}: {error.strerror}"
    if path:
        return "CC-DISK-002", f"cannot use {path}: {error.strerror}"
    if error.errno in SCARCITY_ERRORS:
        return "", f"the node's system refused: {error.strerror}"
    return "", ""


class Stream:
    """Frames over two file descriptors, which may be one socket; both are made non-blocking."""

    def __init__(self, source: int, sink: int, pending: bytes = b"") -> None:
        self.source = source
        self.sink = sink
        self.ended = False
        self.last_sent = time.monotonic()
        self.send_timeout: Optional[float] = None
        self.deadline: Optional[float] = None  # by the monotonic clock; nothing is sent or received after it
        self._decoder = Decoder(json.loads, pending)
        os.set_blocking(source, False)
        os.set_blocking(sink, False)

    def restrict(self, parse: Callable[[bytes], Header], most_header: int, most_body: int) -> None:
        """Take no larger frames than these, and leave their headers to the caller."""
        self._decoder.parse = parse
        self._decoder.most_header, self._decoder.most_body = most_header, most_body

    def fileno(self) -> int:
        """Return the descriptor to wait on for arrivals; ask `read_available` once first."""
        return self.source

    def answer(self, frame: NodeFrame, body: bytes = b"") -> None:
        """Send a frame of a verb: the type checker knows its keys."""
        self.send(frame, body)
        self.last_sent = time.monotonic()

    def beat(self) -> bool:
        """Send a beat if nothing was sent for a while, and return whether it was."""
        is_due = time.monotonic() - self.last_sent >= BEAT_INTERVAL
        if is_due:
            self.answer({"beat": int(self.last_sent)})
        return is_due

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Write one frame; BrokenPipeError if the other side left or took nothing for `send_timeout` seconds."""
        unsent = memoryview(encode_frame(header, body))
        while unsent:
            if self._remaining(1.0) <= 0:
                raise BrokenPipeError(errno.EPIPE, "the other side reads too slowly")
            try:
                unsent = unsent[os.write(self.sink, unsent) :]
            except BlockingIOError:
                self._wait_ready(self.sink, select.POLLOUT)
            except ConnectionError as error:
                raise BrokenPipeError(errno.EPIPE, "the other side left") from error

    def receive(self, timeout: Optional[float] = None) -> Optional[Frame]:
        """Wait for the next frame; None at the end of the stream, TimeoutError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._remaining(1.0) <= 0:
                raise TimeoutError("the other side is too slow")
            frame = self._decoder.next_frame()
            if frame is not None or self.ended:
                return frame
            wait = None if deadline is None else max(0.0, self._remaining(deadline - time.monotonic()))
            if not _ready(self.source, select.POLLIN, wait):
                raise TimeoutError("no frame in time")
            self.read()

    def read_available(self) -> Iterator[Frame]:
        """Yield the frames that are here, without waiting; sets `ended` at the end of the stream."""
        while True:
            frame = self._decoder.next_frame()
            if frame is not None:
                yield frame
            elif self.ended or not self.read():
                return

    def _remaining(self, seconds: float) -> float:
        """Return so many seconds, or what is left until the deadline."""
        return seconds if self.deadline is None else min(seconds, self.deadline - time.monotonic())

    def _wait_ready(self, descriptor: int, event: int) -> None:
        timeout = None if self.send_timeout is None else max(0.0, self._remaining(self.send_timeout))
        if not _ready(descriptor, event, timeout):
            raise BrokenPipeError(errno.EPIPE, "the other side does not read")

    def read(self) -> bool:
        """Take in what has arrived, without waiting; False if that is nothing."""
        try:
            chunk = os.read(self.source, CHUNK)
        except BlockingIOError:
            return False
        except ConnectionError:
            chunk = b""
        self.ended = not chunk
        self._decoder.feed(chunk)
        return bool(chunk)


def _ready(descriptor: int, event: int, timeout: Optional[float]) -> bool:
    poller = select.poll()
    poller.register(descriptor, event)
    return bool(poller.poll(None if timeout is None else timeout * 1000))
