"""What the ranks of this node have said and how they ended: facts for the cause, which somebody else decides.

`protocol/tracebacks` is loaded only once a rank has failed.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Set, Tuple

from ...protocol.ranks import Rank
from ...protocol.redact import redact_values, secret_values
from ..runtime.processes import find_process
from ..state.workdir import release_disk_reserve
from .torchrun import Worker

READ_BYTES = 256 << 10  # bytes of a file's end that are looked at
TAIL_LINES = 20
TRACEBACKS = 4  # the last ones, as a chain may hold several
LINES_BEFORE = 3  # lines before a traceback that may tell what it belongs to
LINES_AFTER = 3  # lines after one that is not indented which may belong to its message
BLOCK_LINES = 16  # of a traceback
LONGEST_LINE = 400  # characters
MOST_SIZES = 32
SMALLEST_FREE = 8192  # bytes; a disk with less is full

Failure = Dict[str, Any]


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
        self._frozen: Set[Rank] = set()

    def scan(self, workers: Iterable[Worker]) -> None:
        """Remember how long each rank's stderr is now and since when, and whether a signal has stopped it."""
        for worker in workers:
            if not worker.ended:
                self._scan_stderr(worker)
                stat = find_process(worker.identity)
                stopped = stat is not None and stat.state in "Tt"
                (self._frozen.add if stopped else self._frozen.discard)(worker.rank)

    def on_worker_end(self, worker: Worker) -> None:
        """Remember when a rank ended."""
        self._ended.setdefault(worker.rank, time.time())
        if worker.failed and is_full(self._rundir):
            self._write_disk_full(worker)

    def _write_disk_full(self, worker: Worker) -> None:
        """Say on its stderr that the disk is full: its own last words may not have found room."""
        release_disk_reserve(self._rundir)
        with suppress(OSError), open(self._file(worker, "stderr"), "ab") as sink:
            sink.write(f"\nclusterctl: No space left on device: {self._rundir}\n".encode())

    def failures(self, workers: Iterable[Worker]) -> List[Failure]:
        """Tell how each rank ended, and what those that failed said last."""
        return [self._failure(worker) for worker in workers if worker.ended]

    def failure_of_torchrun(self, log: str, exit_code: Any, signal: Any) -> Failure:
        """Tell how torchrun itself ended."""
        now = time.time()
        end = {
            "rank": None,
            "exit": exit_code,
            "signal": signal,
            "time": now,
            "last_at": now,
            "frozen": False,
        }
        return {**end, **self._read_stderr(log, now)}

    def _failure(self, worker: Worker) -> Failure:
        moment = self._ended.get(worker.rank, time.time())
        end = {"rank": worker.rank, "exit": worker.exit, "signal": worker.signal, "time": moment}
        if not worker.failed:
            return end
        self._scan_stderr(worker)
        out, err = (self._file(worker, stream) for stream in ("stdout", "stderr"))
        last = max([moment for _, moment in (*file_times(out), *file_times(err))], default=moment)
        frozen = worker.rank in self._frozen
        if worker.starved:
            end["starved"] = True
        return {**end, "last_at": last, "frozen": frozen, **self._read_stderr(err, moment)}

    def _file(self, worker: Worker, stream: str) -> str:
        return os.path.join(self._rundir, worker.folder or "", f"{stream}.log")

    def _scan_stderr(self, worker: Worker) -> None:
        path = self._file(worker, "stderr")
        sizes = self._sizes.setdefault(path, [])
        for size, moment in file_times(path):
            if not sizes or sizes[-1][0] != size:
                sizes.append((size, moment))
                del sizes[:-MOST_SIZES]

    def _read_stderr(self, path: str, end: float) -> Dict[str, Any]:
        """Return the last tracebacks, boiled down, each with the time when it was there; and the last lines."""
        from ...protocol.tracebacks import starts_traceback

        lines = read_end(path)
        blocks = []
        for block in tracebacks(lines):
            offset = next(line.offset for line in block if starts_traceback(line.text))
            times = [moment for size, moment in self._sizes.get(path, ()) if size > offset]
            blocks.append({"at": min([*times, end]), "lines": self._clean(shorten_traceback(block))})
        return {"said": blocks, "tail": self._clean([line.text for line in lines[-TAIL_LINES:]])}

    def redact(self, text: str) -> str:
        """Take the values of secrets out of a text."""
        return "\n".join(map(self._redact_line, text.splitlines()))

    def shorten(self, text: str) -> str:
        """Take the values of secrets out of a text, and only then cut its lines."""
        return "\n".join(self._clean(text.splitlines()))

    def _clean(self, lines: List[str]) -> List[str]:
        return [self._redact_line(line)[:LONGEST_LINE] for line in lines]

    def _redact_line(self, line: str) -> str:
        return redact_values(line, self._secrets)


def is_full(folder: str) -> bool:
    """Tell whether a disk has no room left for an account like ours."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_blocks > 0 and found.f_bavail * found.f_frsize < SMALLEST_FREE


def tracebacks(lines: List[Line]) -> List[List[Line]]:
    """Cut out the last tracebacks, each with the lines before it and all that follows it."""
    from ...protocol.tracebacks import starts_traceback

    starts = [number for number, line in enumerate(lines) if starts_traceback(line.text)][-TRACEBACKS:]
    cuts = [max(start - LINES_BEFORE, before + 1) for before, start in zip([-1, *starts], starts)]
    ends = [*cuts[1:], len(lines)]
    return [lines[cut : ends[number]] for number, cut in enumerate(cuts)]


def shorten_traceback(block: List[Line]) -> List[str]:
    """Leave out the stack but for its innermost frame; keep what is not indented, and the lines after it."""
    from ...protocol.tracebacks import starts_traceback, strip_rank

    kept: List[str] = []
    frame = ""
    following = 0
    for line in (line.text for line in block):
        bare = strip_rank(line)
        if bare[:1].strip():
            kept += [frame] if frame else []
            frame, following = "", 0 if starts_traceback(bare) else LINES_AFTER
            kept.append(line)
        elif bare.startswith('  File "'):
            frame, following = line, 0
        elif following:
            following -= 1
            kept.append(line)
    return kept[:BLOCK_LINES]


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
        with open(path, "rb") as source:
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
