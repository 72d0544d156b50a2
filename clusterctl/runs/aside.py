"""Files of ours that are replaced at once: whoever reads sees the old text or the new, never half of it."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_aside(file: Path, content: str | bytes) -> None:
    """Write a text or bytes beside the file and rename it, mode 0600; a directory that is missing is made private."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, aside = tempfile.mkstemp(dir=file.parent, prefix=".writing-")
    try:
        with os.fdopen(descriptor, "wb") as sink:
            sink.write(content.encode("utf-8") if isinstance(content, str) else content)
        Path(aside).replace(file)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def keep_newest(folder: Path, most: int) -> None:
    """Remove the oldest files of a folder of ours; what cannot go stays."""
    with suppress(OSError):
        files = sorted(folder.iterdir(), key=lambda file: -file.lstat().st_mtime_ns)
        for file in files[most:]:
            with suppress(OSError):
                file.unlink()
