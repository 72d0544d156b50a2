"""Questions asked side by side, each with a time limit; files read without raising."""

from __future__ import annotations

import os
import re
import threading
import time
from fnmatch import filter as matching
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ...protocol.messages.network import Problem


def answer_all(
    questions: dict[str, Callable[[], Any]], limits: dict[str, float], limit: float
) -> dict[str, Any]:
    """Answer every question within its limit in seconds; what fails or hangs becomes `{"problem": text}`."""
    started = time.monotonic()
    answers: dict[str, Any] = {}

    def answer(name: str) -> None:
        try:
            answers[name] = questions[name]()
        except Exception as error:  # whatever went wrong is the answer to this question, and to no other
            answers[name] = problem_of(error)

    threads = {name: threading.Thread(target=answer, args=(name,), daemon=True) for name in questions}
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        seconds = limits.get(name, limit)
        thread.join(max(0.0, started + seconds - time.monotonic()))
        if thread.is_alive():
            answers[name] = {"problem": "no answer within %g s" % seconds}
    return {name: answers[name] for name in questions}


def problem_of(error: BaseException) -> Problem:
    """Return what went wrong, in one line."""
    text = " ".join(str(error).split())
    return {"problem": ("%s: %s" % (type(error).__name__, text))[:500]}


def read_text(path: str, limit: int = 65536) -> str | None:
    """Read the start of a text file, stripped; `None` if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace").strip()
    except OSError:
        return None


def find_assigned(name: str, text: str) -> str | None:
    """Find the text that a module assigns to a name at its top, such as `__version__`."""
    match = re.search(r"^%s\s*(?::[^=\n]*)?=\s*['\"]([^'\"]*)['\"]" % name, text, re.M)
    return match.group(1) if match else None


def list_folder(path: str, pattern: str = "*") -> list[str]:
    """Return the full paths of a directory's entries, sorted; none if it cannot be read."""
    try:
        return [os.path.join(path, name) for name in sorted(matching(os.listdir(path), pattern))]
    except OSError:
        return []


def read_int(path: str) -> int | None:
    """Read a number from a file; `None` if there is none."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def read_memory(text: str | None = None) -> dict[str, int]:
    """Read /proc/meminfo: its lines, in bytes."""
    matches = re.findall(r"^(\w+):\s+(\d+) kB", text or read_text("/proc/meminfo") or "", re.M)
    return {key: int(value) * 1024 for key, value in matches}
