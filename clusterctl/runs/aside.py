"""Files of ours that are replaced at once: whoever reads sees the old text or the new, never half of it."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_aside(file: Path, content: str | bytes) -> None:
    """Write a text or bytes beside the file and rename it, mode 0600; a directory that is missing is made private."""
    make_private(file.parent)
    descriptor, aside = tempfile.mkstemp(dir=file.parent, prefix=".writing-")
    try:
        with os.fdopen(descriptor, "wb") as sink:
            sink.write(content.encode("utf-8") if isinstance(content, str) else content)
        Path(aside).replace(file)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def make_private(folder: Path) -> None:
    """Make a directory and those above it that are missing, all for us alone."""
    with suppress(FileExistsError):
        if not folder.parent.is_dir():
            make_private(folder.parent)
        folder.mkdir(mode=0o700)


def read_own(file: Path) -> bytes:
    """Read a file of ours; PermissionError if somebody else has put it there."""
    with file.open("rb") as source:
        if os.fstat(source.fileno()).st_uid != os.geteuid():
            raise PermissionError(f"{file} is not ours")
        return source.read()


def keep_newest(folder: Path, most: int) -> None:
    """Remove the oldest files of a folder of ours; what cannot go stays."""
    with suppress(OSError):
        files = sorted(folder.iterdir(), key=lambda file: -file.lstat().st_mtime_ns)
        for file in files[most:]:
            with suppress(OSError):
                file.unlink()
