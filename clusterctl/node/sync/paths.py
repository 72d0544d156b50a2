"""Where a path that a user wrote leads on this node: relative ones begin in the home directory or in a run's code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Union

from ...protocol.manifest import encode_name
from ...protocol.run_paths import RunPaths, WorkdirPaths
from ..state.run_files import find_run, read_spec

if TYPE_CHECKING:
    from ...protocol.messages.verbs import DownloadRequest, ListRequest, TakeRequest

OUTPUT_DIR, STAGE_DIR = "${output_dir}", "${stage_dir}"


def resolve_path(request: Union[ListRequest, TakeRequest, DownloadRequest], text: str) -> bytes:
    """Return where a path leads."""
    base = os.path.expanduser("~")
    if text.startswith(STAGE_DIR):
        workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
        text = WorkdirPaths(workdir).stage + text[len(STAGE_DIR) :]
    if request["run"]:
        rundir = find_run(request["workdir"], request["run"], request["node"])
        base = RunPaths(rundir).code
        spec = read_spec(rundir)
        if text.startswith(OUTPUT_DIR) and spec is not None:
            text = spec["output_dir"] + text[len(OUTPUT_DIR) :]
    return os.path.join(os.fsencode(base), os.path.expanduser(encode_name(text)))
