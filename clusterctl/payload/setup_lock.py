"""Who makes an environment, where several could: runs that start at once, and nodes that share a home.

The lock only saves work. Two who make the same have a directory each, which its claim protects from the other, and the
mark of the first counts. A lock whose holder says nothing for long is taken from him, whatever machine he is on; no
clocks of two machines are compared.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from contextlib import suppress
from typing import Callable, Iterator, Optional

from ..protocol.untrusted import MalformedError, Untrusted, parse_object
from .processes import alive, boot_id, identify, identity_of
from .workdir import aside_of, read_bytes, write_new

BEAT = 2.0
SILENT = 30.0  # seconds of looks without a beat after which a holder is gone
LOOK = 0.2  # seconds, soon ten times as many: a thousand nodes may share a home
LONGEST_LOOK = 3.0  # seconds that one look counts: a file system that hung has not shown anybody silent
FORGOTTEN = 3600.0  # seconds without a beat after which a directory is nobody's
CLAIM = ".by"
LONGEST_WHO = 200  # characters


class SetupLock:
    """A file that names its holder and changes with each beat."""

    def __init__(self, path: str, who: str) -> None:
        self._path = path
        self._token = os.urandom(8).hex()
        me = identify(os.getpid()).as_dict()
        self._words = {"token": self._token, "who": who, "boot_id": boot_id(), **me}
        self._over = threading.Event()
        self._beats = 0
        self._claimed = ""
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def take(self, made: Callable[[], bool], waits: Callable[[str], None]) -> bool:
        """Wait until it is ours; False as soon as somebody has made what it is about. `waits` hears for whom."""
        seen: Optional[bytes] = None
        silent, looked, looks = 0.0, time.monotonic(), 0
        while os.path.lexists(self._path) or not self._try():
            if made():
                return False
            looks += 1
            content, now = read_bytes(self._path), time.monotonic()
            silent += min(
                now - looked, LONGEST_LOOK
            )  # what a look may take beyond that is not the holder's fault
            looked = now
            if content is not None and content != seen:
                waits(_read(content).text("who", LONGEST_WHO) or "another run")
                seen, silent = content, 0.0
            if content is not None and (_has_died(_read(content)) or silent > SILENT):
                self._take_away(content)
            else:
                time.sleep(LOOK * min(looks, 10) * random.uniform(0.8, 1.2))
        self._thread.start()
        return not made()

    def claim(self, folder: str) -> None:
        """Say of a directory that we are at work there, for as long as we hold the lock or have lost it."""
        write_new(folder + CLAIM, self._content())
        self._claimed = folder + CLAIM

    def drop(self) -> None:
        """Let others have it."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._claimed:
            with suppress(OSError):
                os.unlink(self._claimed)
        content = read_bytes(self._path)
        if content is not None and _read(content).text("token") == self._token:
            self._take_away(content)

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
        """Change the lock now and then, as long as it is ours, and the claim in any case."""
        while not self._over.wait(BEAT):
            self._beats += 1
            with suppress(OSError):
                if self._claimed:
                    os.utime(self._claimed)
                if _read(read_bytes(self._path) or b"").text("token") == self._token:
                    aside = aside_of(self._path)
                    write_new(aside, self._content())
                    os.replace(aside, self._path)

    def _take_away(self, content: bytes) -> None:
        """Remove the lock if it is still the one that was looked at; of several who try, one has it in his hand."""
        aside = aside_of(self._path)
        with suppress(FileNotFoundError):
            os.rename(self._path, aside)
            if read_bytes(aside) != content:
                with suppress(FileExistsError):
                    os.link(aside, self._path)
            os.unlink(aside)


def unclaimed(folder: str) -> Iterator[str]:
    """Give the directories that nobody is at work in, by the clock of the file system alone."""
    probe = os.path.join(folder, os.urandom(8).hex() + ".new")
    write_new(probe, b"")
    now = os.stat(probe).st_mtime
    os.unlink(probe)
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            claim = entry.path + CLAIM
            words = _read(read_bytes(claim) or b"")
            if not words or _has_died(words) or now - _time_of(claim) > FORGOTTEN:
                yield entry.path


def _time_of(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _read(content: bytes) -> Untrusted:
    try:
        return parse_object(content)
    except MalformedError:
        return Untrusted({})


def _has_died(words: Untrusted) -> bool:
    """Whether the holder was a process of this machine that is gone."""
    who = {"pid": words.integer("pid"), "starttime": words.integer("starttime")}
    return words.text("boot_id") == boot_id() and not alive(identity_of(who))
