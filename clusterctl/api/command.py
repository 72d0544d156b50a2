"""One clusterctl command in a process of its own: the documents that it writes, and the error that ended it.

It has its own signals, terminal settings and threads, so that the program that uses the API keeps its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from types import TracebackType
from typing import Any, NoReturn, TextIO

from clusterctl.codes.lookup import REPORTED
from clusterctl.errors import ChecksFailed, ClusterctlError, ConnectError, InternalError, UsageError
from clusterctl.protocol.untrusted import MalformedError, Untrusted, parse_object

# Python puts the current directory first, where a file of the user may have the name of a library. What is appended
# is where this package was found, for a program that changed its own search path. SIGINT ends the command, also if the
# program ignores it, as one in the background of a shell does. Its words come by stdin: every account of this machine
# can read a command line, and a setting may hold a token.
_START = (
    "import json, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT}); "
    "sys.path[:] = [*filter(None, sys.path), sys.argv[1]]; sys.argv[1:] = json.load(sys.stdin); "
    "from clusterctl.__main__ import main; main()"
)
MAX_LINE = 1 << 20  # bytes of a line of NDJSON: one of a log has at most 64 KiB, which escapes make longer
MAX_DOCUMENT = 64 << 20  # bytes of one document
MAX_VALUES = 4_000_000  # of one document
CHUNK = 1 << 16
TAIL = 40  # lines of stderr that are kept as evidence
POLL_INTERVAL = 0.02  # seconds
LEAVE_LIMIT = 20.0  # seconds for a command to end after SIGINT; a launch first stops what it has prepared
KINDS: dict[int, type[ClusterctlError]] = {  # by exit code
    2: UsageError,
    3: ChecksFailed,
    4: ConnectError,
    70: InternalError,
}


@dataclass(frozen=True)
class Target:
    """The machines: an inventory file, a running lab or hosts; without any of them as on the command line."""

    inventory: str | None = None
    lab: str | None = None
    hosts: str | None = None

    @classmethod
    def of(
        cls,
        inventory: str | os.PathLike[str] | None = None,
        lab: str | None = None,
        hosts: str | Sequence[str] | None = None,
    ) -> Target:
        """Read what a caller gave; a path stays the same when the program changes its directory."""
        names = hosts if hosts is None or isinstance(hosts, str) else ",".join(hosts)
        return cls(None if inventory is None else str(Path(inventory).absolute()), lab, names)

    @property
    def words(self) -> list[str]:
        """Return the options of the command line."""
        given = {"-i": self.inventory, "--lab": self.lab, "--hosts": self.hosts}
        return [word for name, value in given.items() if value is not None for word in (name, value)]

    def __str__(self) -> str:
        given = {"inventory": self.inventory, "lab": self.lab, "hosts": self.hosts}
        return "".join(f", {name}={value!r}" for name, value in given.items() if value is not None)


class Command:
    """A running command; stderr goes to `output` as it comes, or is kept as evidence. End it by `with`."""

    def __init__(self, target: Target, words: Sequence[str], output: TextIO | None = None) -> None:
        self._output = output
        self._stderr: deque[str] = deque(maxlen=TAIL)
        root = str(Path(__file__).absolute().parents[2])
        quiet = [] if output is not None else ["-q"]
        with tempfile.TemporaryFile("w+", encoding="ascii") as source:  # no one else can open it
            json.dump([*target.words, *quiet, words[0], "--json", *words[1:]], source)
            source.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, root, "clusterctl", words[0]],  # these two are for `ps` alone
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in a terminal reaches the caller alone, who decides
            )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdout_fd, self._stderr_fd = self._process.stdout.fileno(), self._process.stderr.fileno()
        self._rest = {
            self._stdout_fd: bytearray(),
            self._stderr_fd: bytearray(),
        }  # begun lines of open streams

    def __enter__(self) -> Command:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the command if it runs: it detaches from a run, or cancels a launch that has not begun."""
        try:
            if self._process.poll() is None:
                self.interrupt()
                self._process.wait(LEAVE_LIMIT)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdout, self._process.stderr):
                assert stream is not None
                stream.close()

    @property
    def evidence(self) -> str:
        """Return the end of what the command wrote to stderr."""
        return "\n".join(self._stderr)

    def interrupt(self) -> None:
        """Do what Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Wait for the end after the last line; returns the exit code."""
        return self._process.wait(LEAVE_LIMIT)

    def lines(self, timeout: float | None = None) -> Iterator[bytes]:
        """Yield the lines of stdout until it ends.

        TimeoutError after `timeout` seconds, MalformedError if a line is too long.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with DefaultSelector() as selector:
            for descriptor in self._rest:
                selector.register(descriptor, EVENT_READ)
            while self._stdout_fd in self._rest:
                left = None if deadline is None else deadline - time.monotonic()
                ready = selector.select(left) if left is None or left > 0 else []
                if not ready:
                    raise TimeoutError
                for key, _ in ready:
                    lines = self._read(key.fd)
                    if key.fd not in self._rest:
                        selector.unregister(key.fd)
                    if key.fd == self._stdout_fd:
                        yield from lines
                    else:
                        self._show(lines)
        self._drain()

    def _drain(self) -> None:
        """Read what the command still writes to stderr; what it has started may keep that open after its end."""
        if self._stderr_fd not in self._rest:
            return
        os.set_blocking(self._stderr_fd, False)
        ends_at, has_ended = time.monotonic() + LEAVE_LIMIT, False
        while self._stderr_fd in self._rest and not has_ended:
            has_ended = self._process.poll() is not None or time.monotonic() > ends_at
            try:
                self._show(self._read(self._stderr_fd))
            except BlockingIOError:
                time.sleep(0 if has_ended else POLL_INTERVAL)

    def _read(self, descriptor: int) -> list[bytes]:
        """Return the lines that are complete now; a stream that has ended is removed."""
        data, rest = os.read(descriptor, CHUNK), self._rest[descriptor]
        if not data:
            del self._rest[descriptor]
            return [bytes(rest)] if rest else []
        rest += data
        if b"\n" not in data:
            if len(rest) > MAX_LINE:
                raise MalformedError(f"a line of more than {MAX_LINE} bytes")
            return []
        *lines, last = bytes(rest).split(b"\n")
        self._rest[descriptor] = bytearray(last)
        return lines

    def _show(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            text = line.decode("utf-8", "replace")
            self._stderr.append(text)
            if self._output is not None:
                self._output.write(f"{text}\n")
                self._output.flush()


def read_document(target: Target, *words: str) -> Any:
    """Run a verb that writes one document and return it, whatever the exit code; raise the error if there is none."""
    with Command(target, words) as command:
        try:
            document = read_line(_read_all(command), MAX_DOCUMENT, MAX_VALUES)
        except MalformedError as error:
            raise_unread(command, error)
        if "error" in document:
            raise_reported(document, command.wait())
        return document


def _read_all(command: Command) -> bytes:
    text = bytearray()
    for line in command.lines():
        text += line + b"\n"
        if len(text) > MAX_DOCUMENT:
            raise MalformedError(f"a document of more than {MAX_DOCUMENT} bytes")
    return bytes(text)


def read_line(text: bytes, most_bytes: int = MAX_LINE, most_values: int = 200_000) -> dict[str, Any]:
    """Parse a document or a line of NDJSON; MalformedError if it is neither."""
    entry = parse_object(text, most_bytes, most_values)
    if entry.integer("schema") != 1:
        raise MalformedError("not a document of schema 1")
    return entry.as_object()


def raise_unread(command: Command, reason: Exception) -> NoReturn:
    """Raise that a command wrote no document, with the end of what it wrote to stderr."""
    error = ClusterctlError("CC-RUN-060", "unread", evidence=command.evidence, reason=reason)
    raise with_notes(error) from None


def raise_reported(document: Any, exit_code: int) -> NoReturn:
    """Raise the error that a document reports; of a wrong file the other problems are its evidence."""
    answer = Untrusted(document)
    first = answer.record("error")
    others = [f"{more.text('place')}: {more.text('text')}" for more in answer.records("errors", 100)[1:]]
    evidence = "\n".join(filter(None, (first.text("evidence"), *others)))
    kind, message = KINDS.get(exit_code, ClusterctlError), first.text("text")
    place = first.text("place")
    if place and not message.startswith(place):
        message = f"{place}: {message}"
    error = kind(first.text("code", 40), REPORTED, evidence=evidence, message=message)
    error.fix = first.text("fix")
    raise with_notes(error) from None


def with_notes(error: ClusterctlError) -> ClusterctlError:
    """Add evidence and fix to what Python shows below a traceback, from Python 3.11 on."""
    if sys.version_info >= (3, 11):
        for text in filter(None, (error.evidence, error.fix and f"fix: {error.fix}")):
            error.add_note(text)
    return error
