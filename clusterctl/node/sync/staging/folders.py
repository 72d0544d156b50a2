"""Directories below a root, opened one after the other, none of them a link: another account may write there."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import Iterator, Tuple

from ....protocol.manifest import encode_name
from ...runtime.stream import VerbError

OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
OPEN_FOLDER = OPEN_FILE | os.O_DIRECTORY


def link_target(name: bytes, folder: int) -> bytes:
    """Return where a link leads; empty if it is none."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return b""


@contextmanager
def open_parent(root: bytes, path: str, *, make: bool) -> Iterator[Tuple[int, bytes]]:
    """Open the directory that holds a path, one step after the other, none of them a link."""
    *folders, name = encode_name(path).split(b"/")
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        above = root
        for folder in folders:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=descriptor)
            above = os.path.join(above, folder)
            inner = open_folder(folder, descriptor, above)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, name
    finally:
        os.close(descriptor)


def open_folder(name: bytes, parent: int, path: bytes) -> int:
    """Open a directory by its name; VerbError, which names its `path`, for a link or a file."""
    try:
        return os.open(name, OPEN_FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            shown = path.decode("utf-8", "replace")
            if link_target(name, parent):
                raise VerbError("CC-COPY-003", f"{shown} is a link") from None
            raise VerbError("CC-COPY-003", f"{shown} is not a directory") from None
        raise
