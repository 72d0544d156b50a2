"""What the failed processes of this node have said: facts for the cause, which somebody else decides."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Iterable, List, Mapping, Tuple

from .workers import Worker

READ = 256 << 10  # bytes of a file's end that are looked at
TAIL_LINES = 20
HEAD_LINES = 40  # of a traceback: its beginning, and what is not indented
LONGEST_LINE = 400  # characters
AFTER = 3  # lines after one that is not indented which may belong to its message
LOOKS = 16
SHORTEST_SECRET = 4  # characters; see plans/redact.py
HIDDEN = "[secret]"
TRACEBACK = "Traceback (most recent call last)"

Failure = Dict[str, Any]


class Evidence:
    """Watches how the ranks' stderr grows, and reads the end of it when they have failed."""

    def __init__(self, rundir: str, secrets: Mapping[str, str]) -> None:
        self._rundir = rundir
        lines = (part for value in secrets.values() for part in (value, *value.splitlines()))
        self._secrets = sorted(
            {part for part in lines if len(part) >= SHORTEST_SECRET}, key=len, reverse=True
        )
        self._sizes: Dict[int, List[Tuple[int, float]]] = {}
        self._ended: Dict[int, float] = {}

    def look(self, workers: Iterable[Worker]) -> None:
        """Remember how long each rank's stderr is now, and since when."""
        for worker in workers:
            try:
                found = os.stat(self._stderr(worker))
            except OSError:
                continue
            seen = self._sizes.setdefault(worker.rank, [])
            if not seen or seen[-1][0] != found.st_size:
                seen.append((found.st_size, found.st_mtime))
                del seen[:-LOOKS]

    def note_end(self, worker: Worker) -> None:
        """Remember when a rank ended."""
        self._ended.setdefault(worker.rank, time.time())

    def failures(self, workers: Iterable[Worker]) -> List[Failure]:
        """Tell how each failed rank ended and what it said last."""
        failed = [worker for worker in workers if worker.failed]
        self.look(failed)
        return [self._failure(worker) for worker in failed]

    def failure_of_torchrun(self, log: str, exit_code: Any, signal: Any) -> Failure:
        """Tell how torchrun itself ended."""
        end = {"rank": None, "exit": exit_code, "signal": signal, "time": time.time(), "raised_at": None}
        return {**end, **self._words(log)[0]}

    def _failure(self, worker: Worker) -> Failure:
        words, place = self._words(self._stderr(worker))
        times = [moment for size, moment in self._sizes.get(worker.rank, ()) if size > place]
        end = {"rank": worker.rank, "exit": worker.exit, "signal": worker.signal}
        moment = self._ended.get(worker.rank, time.time())
        return {**end, "time": moment, "raised_at": min([*times, moment]) if words["head"] else None, **words}

    def _stderr(self, worker: Worker) -> str:
        return os.path.join(self._rundir, worker.folder or "", "stderr.log")

    def _words(self, path: str) -> Tuple[Dict[str, List[str]], int]:
        """Return the last traceback, boiled down, and the last lines; and where the traceback begins in the file."""
        start, content = read_end(path)
        lines = [line.decode("utf-8", "replace").rstrip("\r\n") for line in content.splitlines(True)]
        first = max((number for number, line in enumerate(lines) if TRACEBACK in line), default=None)
        place = start
        if first is not None:
            place += sum(map(len, content.splitlines(True)[:first]))
        head = boil_down(lines[first:]) if first is not None else []
        return {"head": self._clean(head), "tail": self._clean(lines[-TAIL_LINES:])}, place

    def _clean(self, lines: List[str]) -> List[str]:
        return [self._hide(line)[:LONGEST_LINE] for line in lines]

    def _hide(self, line: str) -> str:
        for value in self._secrets:
            line = line.replace(value, HIDDEN)
        return line


def boil_down(lines: List[str]) -> List[str]:
    """Leave out of a traceback and what follows it the stack: indented lines, save those after one that is not."""
    kept: List[str] = []
    following = 0
    for number, line in enumerate(lines):
        bare = line.partition("]: ")[2] if line.startswith("[rank") else line
        following = AFTER if number and bare[:1].strip() else following - 1
        if not number or following >= 0:
            kept.append(line)
    return kept[:HEAD_LINES]


def read_end(path: str) -> Tuple[int, bytes]:
    """Return the end of a file, whole lines of it, and where it begins."""
    try:
        with open(path, "rb") as source:
            size = source.seek(0, os.SEEK_END)
            start = max(0, size - READ)
            source.seek(start)
            content = source.read(READ)
    except OSError:
        return 0, b""
    if start:
        skipped = content.find(b"\n") + 1
        start, content = start + skipped, content[skipped:]
    return start, content
