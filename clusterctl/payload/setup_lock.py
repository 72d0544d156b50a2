"""Who makes an environment, where several could: runs that start at once, and nodes that share a home.

It only saves work: two who make the same both make it in directories of their own, and the mark of the first counts.
A lock whose holder says nothing for long is taken from him, whatever machine he is on; clocks are not compared.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Optional, Tuple

from .processes import alive, boot_id, identify, identity_of
from .workdir import aside_of, read_bytes, write_new

BEAT = 2.0
SILENT = 30.0  # seconds without a beat after which a holder is gone
LOOK = 0.2


class SetupLock:
    """A file that names its holder and changes with each beat."""

    def __init__(self, path: str, who: str) -> None:
        self._path = path
        self._token = os.urandom(8).hex()
        me = identify(os.getpid()).as_dict()
        self._words = {"token": self._token, "who": who, "boot_id": boot_id(), **me}
        self._over = threading.Event()
        self._beats = 0
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def take(self, made: Callable[[], bool], waits: Callable[[str], None]) -> bool:
        """Wait until it is ours; False as soon as somebody has made what it is about. `waits` hears for whom."""
        seen: Tuple[Optional[bytes], float] = (None, 0.0)
        while not self._try():
            if made():
                return False
            content = read_bytes(self._path)
            if content is not None and content != seen[0]:
                waits(str(_read(content).get("who") or "another run"))
                seen = (content, time.monotonic())
            if content is not None and (_has_died(_read(content)) or time.monotonic() - seen[1] > SILENT):
                self._remove(content)
            else:
                time.sleep(LOOK)
        self._thread.start()
        return not made()

    def drop(self) -> None:
        """Let others have it."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        content = read_bytes(self._path)
        if content is not None and _read(content).get("token") == self._token:
            self._remove(content)

    def _try(self) -> bool:
        aside = aside_of(self._path)
        write_new(aside, self._content())
        try:
            os.link(aside, self._path)
        except FileExistsError:
            return False
        finally:
            os.unlink(aside)
        return True

    def _content(self) -> bytes:
        return json.dumps({**self._words, "beats": self._beats}).encode("utf-8")

    def _beat(self) -> None:
        """Change the file now and then, for as long as it is ours; a full disk must not make us seem dead for long."""
        while not self._over.wait(BEAT):
            self._beats += 1
            with suppress(OSError):
                if _read(read_bytes(self._path) or b"").get("token") != self._token:
                    return
                aside = aside_of(self._path)
                write_new(aside, self._content())
                os.replace(aside, self._path)

    def _remove(self, content: bytes) -> None:
        """Remove the lock if it is still the one that was looked at."""
        with suppress(FileNotFoundError):
            if read_bytes(self._path) == content:
                os.unlink(self._path)


def _read(content: bytes) -> Dict[str, Any]:
    try:
        found = json.loads(content.decode("utf-8"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _has_died(words: Dict[str, Any]) -> bool:
    """Whether the holder was a process of this machine that is gone."""
    return words.get("boot_id") == boot_id() and not alive(identity_of(words if words.get("pid") else None))
