"""The payload, a zip with the code of agents, on this node: asked for once, and kept with its byte code."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from hashlib import sha256
from typing import Literal, Optional

from ...protocol.run_paths import PAYLOAD, WorkdirPaths
from ..runtime.stream import Stream, VerbError
from .workdir import make_below, make_private, read_bytes, write_atomically

UNCHECKED = b"\1\0\0\0" + b"\0" * 8  # byte code that is valid whatever the source's time is (PEP 552)


def with_byte_code(path: str) -> str:
    """Return the zip to run: one beside `path` that holds its byte code too, or `path` where that cannot be made.

    Its name holds its hash, by which a damaged one is known.
    """
    folder, prefix = os.path.dirname(path), f"payload-{sys.implementation.cache_tag}-"
    with suppress(OSError):
        for name in os.listdir(folder):
            existing = os.path.join(folder, name)
            if not (name.startswith(prefix) and name.endswith(".zip")):
                continue  # also one that another start is writing aside, and is about to rename
            if name == f"{prefix}{sha256(read_bytes(existing) or b'').hexdigest()}.zip":
                os.utime(existing)  # in use: `clean` leaves it alone
                return existing
        content = build(read_bytes(path) or b"")
        if content is not None:
            compiled_path = os.path.join(folder, f"{prefix}{sha256(content).hexdigest()}.zip")
            write_atomically(compiled_path, content)
            return compiled_path
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
                # for a job whose Python is another one
                target.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
                data = importlib.util.MAGIC_NUMBER + UNCHECKED + marshal.dumps(code)
                target.writestr(zipfile.ZipInfo(name + "c"), data)
    except (zipfile.BadZipFile, SyntaxError, ValueError):
        return None
    return packed.getvalue()


def ensure_payload(
    workdir: str, digest: str, stream: Stream, need: Literal["payload", "judge"] = "payload"
) -> str:
    """Return the path of the payload's zip, asking the client for it if it is absent or damaged."""
    folder = make_below(make_private(WorkdirPaths(workdir).payloads), digest)
    path = os.path.join(folder, PAYLOAD)
    if sha256(read_bytes(path) or b"").hexdigest() == digest:
        with suppress(OSError):
            os.utime(path)  # in use: `clean` leaves it alone
        return path
    stream.answer({"need": need})
    answer = stream.receive()
    if answer is None:
        raise BrokenPipeError("the client left")
    if sha256(answer[1]).hexdigest() != digest:
        raise VerbError("CC-RUN-012", "the payload was damaged in transfer")
    write_atomically(path, answer[1], durable=True)
    return path
