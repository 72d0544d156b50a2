"""An unexpected exception as an error that a user can report: its traceback goes into a file."""

from __future__ import annotations

import os
import traceback

from clusterctl.cli.context.load import crash_dir
from clusterctl.client.local.private_files import append_own, keep_newest
from clusterctl.errors import ClusterctlError, InternalError
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.facts.untrusted import clean_lines, clean_text
from clusterctl.translation import tr

MAX_FILES = 20  # files that are kept
MAX_FILE_SIZE = 1 << 20  # bytes after which nothing is added to a file
MAX_TRACEBACK = 64 << 10  # characters of one traceback


def as_bug(error: BaseException) -> InternalError:
    """Turn an unexpected exception into an error that a user can report."""
    return _bug(f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)), node="")


def write_bug_report(error: ClusterctlError) -> ClusterctlError:
    """Move the traceback of a bug out of the error's text; other errors stay as they are."""
    if not isinstance(error, InternalError) or not error.evidence:
        return error
    return _bug(error.message, error.evidence, node=error.node)


def _bug(message: str, trace: str, *, node: str) -> InternalError:
    return InternalError("CC-BUG-001", node=node, message=clean_text(message), file=_write(trace))


def _write(trace: str) -> str:
    try:
        folder = crash_dir()
        path = folder / f"crash-{os.getpid()}.txt"
        append_own(path, f"{clean_lines(trace, MAX_TRACEBACK)}\n", MAX_FILE_SIZE)
        keep_newest(folder, MAX_FILES)
    except OSError as refusal:
        return tr("(not written: {reason})", reason=translate_node_text(str(refusal)))
    return str(path)
