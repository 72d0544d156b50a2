"""A node that takes a small model, as the verb `take` is spoken to."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from session import BOOT, Session

SOURCE = {"source": "hf://org/model@main", "revision": "9e165c3", "tree": "f" * 64, "by": "ann@laptop"}
CONTENTS = {"blobs/one": b"one", "blobs/two": b"second"}
# also root has only the rights of an owner then
AS_USER = (shutil.which("setpriv") or "setpriv", "--bounding-set=-all", "--inh-caps=-all")


def sha_of(data: bytes) -> str:
    """Return the name of a content."""
    return hashlib.sha256(data).hexdigest()


def rows_of(contents: Mapping[str, bytes]) -> list[list[Any]]:
    """Return a manifest of files."""
    return [[name, "file", 0o644, sha_of(data), len(data)] for name, data in contents.items()]


def model_rows(top: str = "model") -> list[list[Any]]:
    """Return the manifest of a small model as a cache holds it."""
    rows = rows_of({f"{top}/{name}": data for name, data in CONTENTS.items()})
    return [*rows, [f"{top}/snapshots/1/weights", "link", 0, "../../blobs/two", 0]]


def open_take(
    home: Path, target: Path, rows: list[list[Any]], *, as_user: bool = False, **how: Any
) -> Session:
    """Begin to stage files."""
    request = {
        "workdir": str(home / "work"),
        "node": "gpu01",
        "run": "",
        "path": str(target),
        "name": "model",
    }
    how = {"folder": True, "overwrite": False, "private": False, "provide": None, "staged": SOURCE, **how}
    command = (*AS_USER, sys.executable, "-c", BOOT) if as_user else ()
    session = Session("take", {**request, **how}, command=command)
    session.send({"manifest": True}, zlib.compress(json.dumps(rows).encode()))
    return session


def next_answer(session: Session, key: str) -> Any:
    """Wait for a frame with a key; beats are passed over."""
    while (frame := session.receive()) is not None:
        if key in frame[0] or "error" in frame[0]:
            return frame[0]
    return {}


def send_blob(session: Session, data: bytes, at: int = 0, end: int | None = None) -> None:
    """Send a content, or a piece of it."""
    end = len(data) if end is None else end
    header = {"blob": sha_of(data), "at": at, "last": end == len(data)}
    session.send(header, zlib.compress(data[at:end]))


def take(home: Path, target: Path, rows: list[list[Any]] | None = None, **how: Any) -> dict[str, Any]:
    """Stage files from here; returns the last frame before the end."""
    with open_take(home, target, rows or model_rows(), **how) as session:
        answer = next_answer(session, "missing")
        for data in CONTENTS.values():
            if sha_of(data) in answer.get("missing", ()):
                send_blob(session, data)
        if answer.get("missing"):
            session.send({"done": True})
        return answer if "error" in answer else dict(session.frames()[-2][0])


def staged(home: Path, **how: Any) -> Any:
    """Ask what was staged, or have it removed."""
    request = {
        "workdir": str(home / "work"),
        "node": "gpu01",
        "do": "list",
        "paths": [],
        "sources": [],
        "verify": False,
    }
    with Session("staged", {**request, **how}) as session:
        frame = session.frames()[-2][0]
        return frame.get("staged", frame.get("removed"))
