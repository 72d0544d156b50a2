"""Where a keeper keeps what it has, on the disk of its node.

mirror/<run>/<slot>-<node>/
  folder                the directory that the job's pattern is in
  seals/<number>        Seal, as JSON
  store/<aa>/<sha256>   manifests, and contents of files of other nodes
"""

from __future__ import annotations

import os

from ....protocol.run_paths import WorkdirPaths

MIRRORS, FOLDER, SEALS, STORE = "mirror", "folder", "seals", "store"


def mirror_folder(workdir: str, folder: str) -> str:
    """Return where checkpoints are kept of a run, or of one node's part of it; `folder` is where its records are."""
    run = os.path.relpath(folder, WorkdirPaths(workdir).runs)
    return os.path.join(workdir, MIRRORS, run)
