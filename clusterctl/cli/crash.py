"""Where the traceback of a bug goes: into a file, never onto the screen."""

from __future__ import annotations

import os
import traceback

from clusterctl.cli.places import state_dir
from clusterctl.errors import ClusterctlError, InternalError
from clusterctl.runs.aside import keep_newest, make_private

MOST = 20  # files that are kept
FROM_NODE = "CC-RUN-002"  # an exception that nobody expected, in our part on a node


def as_bug(error: BaseException) -> InternalError:
    """Turn an exception that nobody expected into an error that a user can report."""
    return _bug(f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)), node="")


def note_bug(error: ClusterctlError) -> ClusterctlError:
    """Move the traceback of a bug out of the error's text; other errors stay as they are."""
    ours = isinstance(error, InternalError) or error.code == FROM_NODE
    if not ours or "Traceback" not in error.evidence:
        return error
    return _bug(error.message, error.evidence, node=error.node)


def _bug(message: str, trace: str, *, node: str) -> InternalError:
    return InternalError(
        f"a bug in clusterctl: {message}",
        code="CC-BUG-001",
        node=node,
        fix=f"please report it with the file {_write(trace)}",
    )


def _write(trace: str) -> str:
    folder = state_dir() / "crashes"
    path = folder / f"crash-{os.getpid()}.txt"
    try:
        make_private(folder)
        with path.open("a", encoding="utf-8") as file:
            file.write(trace + "\n")
        keep_newest(folder, MOST)
    except OSError as refusal:
        return f"(not written: {refusal})"
    return str(path)
