"""The SHA-256 of files, by which contents are known."""

from __future__ import annotations

import hashlib
import os
from typing import Tuple, Union

from .removal import Step, ignore_step

CHUNK = 1 << 20

Sha = str
Path = Union[str, bytes]


def hash_file(path: Path, step: Step = ignore_step) -> Sha:
    """Hash a regular file, counting the pieces; a link in its place is an OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return hash_descriptor(descriptor, step)[0]
    finally:
        os.close(descriptor)


def hash_descriptor(descriptor: int, step: Step) -> Tuple[Sha, int]:
    """Hash a file that is open from where it is to its end; returns how long that was, too."""
    digest, size = hashlib.sha256(), 0
    while True:
        data = os.read(descriptor, CHUNK)
        if not data:
            return digest.hexdigest(), size
        step()
        digest.update(data)
        size += len(data)
