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
    return hash_and_measure(path, step)[0]


def hash_and_measure(path: Path, step: Step) -> Tuple[Sha, int]:
    """Hash a regular file, counting the pieces; returns how long it was, too."""
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            data = os.read(descriptor, CHUNK)
            if not data:
                return digest.hexdigest(), size
            step()
            digest.update(data)
            size += len(data)
    finally:
        os.close(descriptor)
