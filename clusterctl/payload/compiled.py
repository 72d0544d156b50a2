"""The payload with its byte code: built once for each version and interpreter, so that no start compiles it again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from hashlib import sha256
from typing import Optional

from .workdir import read_bytes, write_atomically

UNCHECKED = b"\1\0\0\0" + b"\0" * 8  # byte code that is valid whatever the source's time is (PEP 552)


def with_byte_code(path: str) -> str:
    """Return the zip to run: one beside `path` that holds its byte code too, or `path` where that cannot be made.

    Its name holds its hash, by which a damaged one is known.
    """
    folder, prefix = os.path.dirname(path), f"payload-{sys.implementation.cache_tag}-"
    with suppress(OSError):
        for name in os.listdir(folder):
            known = os.path.join(folder, name)
            if not (name.startswith(prefix) and name.endswith(".zip")):
                continue  # also one that another start is writing aside, and is about to rename
            if name == f"{prefix}{sha256(read_bytes(known) or b'').hexdigest()}.zip":
                os.utime(known)  # in use: `clean` leaves it alone
                return known
        content = build(read_bytes(path) or b"")
        if content is not None:
            made = os.path.join(folder, f"{prefix}{sha256(content).hexdigest()}.zip")
            write_atomically(made, content)
            return made
    return path


def build(source: bytes) -> Optional[bytes]:
    """Compile every module of a zip; None if this interpreter cannot."""
    import importlib.util
    import io
    import marshal
    import zipfile

    packed = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(source)) as plain, zipfile.ZipFile(packed, "w") as target:
            for name in plain.namelist():
                text = plain.read(name)
                code = compile(text, name, "exec", dont_inherit=True)
                target.writestr(zipfile.ZipInfo(name), text)  # for a job whose Python is another one
                data = importlib.util.MAGIC_NUMBER + UNCHECKED + marshal.dumps(code)
                target.writestr(zipfile.ZipInfo(name + "c"), data)
    except (zipfile.BadZipFile, SyntaxError, ValueError):
        return None
    return packed.getvalue()
