"""Verb `staged`: what was staged on this node, how it is now, and its removal.

StagedRequest with do: list     `staged`: a StagedContent for each path; with `verify` every file is hashed
              with do: remove   `removed`: a CleanReport
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, List, NoReturn

from ...runtime.heartbeat import Heartbeat
from ...runtime.stream import VerbError
from ...sync.staging.content import compare_with_disk, remove_contents
from ...sync.staging.remembered_hashes import RememberedHashes
from ...sync.staging.staged import read_records
from ...sync.staging.target_lock import hold_target

if TYPE_CHECKING:
    from ....protocol.messages.stored import CleanReport, StagedRecord
    from ....protocol.messages.verbs import StagedRequest
    from ...runtime.stream import Stream


CLEAN = "clusterctl clean"  # by whom a path is held meanwhile


def refuse_holder(holder: str) -> NoReturn:
    """Raise VerbError where content is staged to a path that is to be removed."""
    raise VerbError("CC-CLEAN-002", f"{holder} is staging to it")


def run(request: StagedRequest, stream: Stream) -> None:
    """Serve one client."""
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    paths, sources = set(request["paths"]), set(request["sources"])
    with Heartbeat(stream) as heartbeat:
        records: List[StagedRecord] = []
        others: List[StagedRecord] = []
        for record in read_records(workdir):
            chosen = record["path"] in paths or record["source"] in sources or not paths | sources
            (records if chosen else others).append(record)
        if request["do"] == "list":
            hashes = RememberedHashes(workdir) if request["verify"] else None
            heartbeat.send(
                {"staged": [compare_with_disk(workdir, record, heartbeat.step, hashes) for record in records]}
            )
            if hashes is not None:
                hashes.save()
            return
        report: CleanReport = {"runs": 0, "bytes": 0, "contents": 0, "failed": []}
        for path in sorted({record["path"] for record in records}):
            try:
                with hold_target(workdir, path, CLEAN, refuse_holder):
                    here = [record for record in records if record["path"] == path]
                    files, size = remove_contents(workdir, here, others, heartbeat.step)
            except (OSError, VerbError) as error:
                report["failed"].append([path, str(getattr(error, "strerror", None) or error)])
                continue
            report["contents"] += files
            report["bytes"] += size
        heartbeat.send({"removed": report})
