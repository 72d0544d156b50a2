"""What the ranks of this node wrote last and how they ended: facts for the cause, which `protocol/root_cause` finds.

`protocol/tracebacks` is loaded only once a rank has failed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from ...protocol.messages.gang import BLOCK_LINES, MAX_LINE, TAIL_LINES, TRACEBACKS
from ...protocol.ranks import Rank
from ...protocol.redact import redact_values, secret_values
from ..logs.log_file import open_log
from ..runtime.processes import find_process
from ..state.workdir import release_disk_reserve
from .ranks.workers import Worker

if TYPE_CHECKING:
    from ...protocol.messages.files import FailureRecord

READ_BYTES = 256 << 10  # bytes of a file's end that are looked at
MAX_SIZES = 32
MIN_FREE = 8192  # bytes; a disk with less is full


class Line(NamedTuple):
    """One line of a file, and where it begins there."""

    offset: int
    text: str


class Evidence:
    """Watches how the ranks' stderr grows, and reads the end of it when they have failed."""

    def __init__(self, rundir: str, secrets: Mapping[str, str]) -> None:
        self._rundir = rundir
        self._secrets = secret_values(secrets.values())
        self._sizes: Dict[str, List[Tuple[int, float]]] = {}
        self._ended: Dict[Rank, float] = {}
        self._suspended: Set[Rank] = set()
        self._stuck: Set[Rank] = set()

    def scan(self, workers: Iterable[Worker]) -> None:
        """Remember how long each rank's stderr is now and since when, and whether a signal has stopped it."""
        for worker in workers:
            if not worker.ended:
                self._scan_stderr(worker)
                stat = find_process(worker.identity)
                stopped = stat is not None and stat.state in "Tt"
                (self._suspended.add if stopped else self._suspended.discard)(worker.rank)

    def on_worker_end(self, worker: Worker) -> None:
        """Remember when a rank ended."""
        self._ended.setdefault(worker.rank, time.time())
        if worker.failed and is_full(self._rundir):
            self._write_disk_full(worker)

    def on_worker_stuck(self, rank: Rank) -> None:
        """Remember that an exception has ended a rank's script: what it still writes is no sign that it survived."""
        self._stuck.add(rank)

    def _write_disk_full(self, worker: Worker) -> None:
        """Write to its stderr that the disk is full: its own last lines may not have found room."""
        release_disk_reserve(self._rundir)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with suppress(OSError), open(os.open(self._file(worker, "stderr"), flags, 0o600), "ab") as sink:
            sink.write(f"\nclusterctl: No space left on device: {self._rundir}\n".encode())

    def failures(self, workers: Iterable[Worker]) -> List[FailureRecord]:
        """Return how each rank ended, and what those that failed wrote last."""
        workers = list(workers)
        sharing = Counter(worker.folder for worker in workers)
        return [self._failure(worker, sharing[worker.folder] > 1) for worker in workers if worker.ended]

    def failure_of_torchrun(self, log: str, exit_code: Optional[int], signal: Optional[int]) -> FailureRecord:
        """Return how torchrun itself ended."""
        now = time.time()
        failure: FailureRecord = {"rank": None, "exit": exit_code, "signal": signal, "time": now}
        failure["last_at"], failure["suspended"] = now, False
        self._add_stderr(failure, log, now)
        return failure

    def _failure(self, worker: Worker, shares_log: bool) -> FailureRecord:
        moment = self._ended.get(worker.rank, time.time())
        failure: FailureRecord = {
            "rank": worker.rank,
            "exit": worker.exit,
            "signal": worker.signal,
            "time": moment,
        }
        if not worker.failed:
            return failure
        self._scan_stderr(worker)
        out, err = (self._file(worker, stream) for stream in ("stdout", "stderr"))
        last = max([moment for _, moment in (*file_times(out), *file_times(err))], default=moment)
        if worker.oom_killed:
            failure["oom_killed"] = True
        failure["last_at"], failure["suspended"] = last, worker.rank in self._suspended
        self._add_stderr(failure, err, moment, worker if shares_log else None)
        # in a log that is shared what came later may be of another rank
        if (shares_log or worker.rank in self._stuck) and failure["tracebacks"]:
            failure["last_at"] = failure["tracebacks"][-1]["at"]
        return failure

    def _file(self, worker: Worker, stream: str) -> str:
        return os.path.join(self._rundir, worker.folder or "", f"{stream}.log")

    def _scan_stderr(self, worker: Worker) -> None:
        path = self._file(worker, "stderr")
        sizes = self._sizes.setdefault(path, [])
        for size, moment in file_times(path):
            if not sizes or sizes[-1][0] != size:
                sizes.append((size, moment))
                del sizes[:-MAX_SIZES]

    def _add_stderr(
        self, failure: FailureRecord, path: str, end: float, writer: Optional[Worker] = None
    ) -> None:
        """Add the last tracebacks, shortened, each with the time when it was there; and the last lines.

        Of a log that several ranks share, only what the `writer` wrote.
        """
        from ...protocol.tracebacks import find_tracebacks, shorten_traceback

        lines = read_end(path)
        if writer is not None:
            lines = find_own_lines(lines, writer, is_stuck=writer.rank in self._stuck)
        texts = [line.text for line in lines]
        failure["tracebacks"] = []
        for block in find_tracebacks(texts, TRACEBACKS):
            times = [moment for size, moment in self._sizes.get(path, ()) if size > lines[block.start].offset]
            shortened = shorten_traceback(texts[block.begin : block.end], BLOCK_LINES)
            failure["tracebacks"].append({"at": min([*times, end]), "lines": self._clean(shortened)})
        failure["tail"] = self._clean(texts[-TAIL_LINES:])

    def redact(self, text: str) -> str:
        """Take the values of secrets out of a text."""
        return "\n".join(map(self._redact_line, text.splitlines()))

    def shorten(self, text: str) -> str:
        """Take the values of secrets out of a text, and only then cut its lines."""
        return "\n".join(self._clean(text.splitlines()))

    def _clean(self, lines: List[str]) -> List[str]:
        return [self._redact_line(line)[:MAX_LINE] for line in lines]

    def _redact_line(self, line: str) -> str:
        return redact_values(line, self._secrets)


def find_own_lines(lines: List[Line], writer: Worker, *, is_stuck: bool = False) -> List[Line]:
    """Return the lines of one rank from a log that ranks share with their launcher: by torch's mark if it has any.

    Lines without a mark are of a rank that exited with a code of its own, or was stuck after its traceback; one that
    another signal ended wrote nothing.
    """
    from ...protocol.tracebacks import marked_rank

    own = [line for line in lines if marked_rank(line.text) == writer.rank]
    if own or (writer.signal is not None and not is_stuck):
        return own
    return [line for line in lines if marked_rank(line.text) is None]


def is_full(folder: str) -> bool:
    """Return whether a disk has no room left for an account like ours."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_blocks > 0 and found.f_bavail * found.f_frsize < MIN_FREE


def file_times(path: str) -> List[Tuple[int, float]]:
    """Look how long a file is, and when it was last written to; empty if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [(found.st_size, found.st_mtime)]


def read_end(path: str) -> List[Line]:
    """Return the last lines of a file."""
    try:
        with os.fdopen(open_log(path), "rb") as source:
            size = source.seek(0, os.SEEK_END)
            start = max(0, size - READ_BYTES)
            source.seek(start)
            content = source.read(READ_BYTES)
    except OSError:
        return []
    lines = []
    for raw in content.splitlines(True):
        lines.append(Line(start, raw.decode("utf-8", "replace").rstrip("\r\n")))
        start += len(raw)
    return lines
