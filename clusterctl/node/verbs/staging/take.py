"""Verb `take`: takes files from the client or another node, into any directory of this one.

TakeRequest                                 the messages are defined in protocol/messages
client `manifest`
node   `held_by`, while another process stages to the same place; then as in the verb `sync`: Missing ... Stored
       `copied`
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, List, Tuple

from ....protocol.manifest import TreeEntry, decode_name, encode_name
from ...runtime.heartbeat import Heartbeat
from ...runtime.stream import VerbError
from ...sync.files_by_hash import Destination
from ...sync.paths import resolve_path
from ...sync.staging.folder_lock import hold_staged
from ...sync.staging.remembered_hashes import RememberedHashes
from ...sync.staging.room import make_folder
from ...sync.staging.staged import name_target, write_record
from ...sync.staging.written import add_written, make_way
from ...sync.transfer import providing
from ..sync import fill_store, receive_manifest

if TYPE_CHECKING:
    from ....protocol.messages.verbs import TakeRequest
    from ...runtime.stream import Stream


def run(request: TakeRequest, stream: Stream) -> None:
    """Take files that the client names, from it or from another node."""
    rows, _ = receive_manifest(stream)
    staged, workdir = request["staged"], os.path.realpath(os.path.expanduser(request["workdir"]))
    with Heartbeat(stream) as heartbeat, ExitStack() as opened:
        root, rows = find_root(request, rows)
        path, placed = name_target(root, rows, named=bool(request["name"]))
        destinations: List[Destination] = []

        def is_lacking() -> bool:
            if staged is not None:
                make_way(workdir, path, placed)
            destinations.append(
                Destination(
                    root,
                    rows,
                    heartbeat.step_for_client,
                    RememberedHashes(workdir),
                    overwrite=request["overwrite"] or staged is not None,
                    private=request["private"],
                )
            )
            return destinations[-1].is_lacking

        with hold_staged(request, root, path, heartbeat, is_lacking):
            destination = opened.enter_context(destinations[-1])
            if staged is not None:
                refuse_kept(root, destination)
            provider = opened.enter_context(providing(destination, rows, request["provide"]))
            try:
                if not fill_store(destination, rows, heartbeat, provider):
                    return
                destination.finish(rows)
            finally:
                if staged is not None:
                    marks = name_target(root, destination.marks, named=bool(request["name"]))[1]
                    add_written(workdir, path, marks)
            if staged is not None:
                refuse_kept(root, destination)
                write_record(workdir, path, staged, placed)
        heartbeat.send({"stored": True})
        heartbeat.send({"copied": destination.report})
        destination.remember()  # which waits until a change would be seen
        if provider is not None:
            provider.serve_until_hangup(stream)


def refuse_kept(root: bytes, destination: Destination) -> None:
    """Raise VerbError where a directory has the name of a file or link that is staged."""
    for name in destination.report["kept"]:
        shown = os.path.join(root, encode_name(name)).decode("utf-8", "replace")
        raise VerbError("CC-COPY-003", f"{shown} is a directory")


def find_root(request: TakeRequest, rows: List[TreeEntry]) -> Tuple[bytes, List[TreeEntry]]:
    """Return the directory that files go into, and their names there: a path that does not exist is a new name."""
    text, name = request["path"], request["name"]
    path = resolve_path(request, text)
    if os.path.isdir(path):
        return path, rows
    is_folder = request["folder"] or not name
    if os.path.lexists(path) and (is_folder or [row.path for row in rows] != [name]):
        raise VerbError("CC-COPY-003", f"{text} is not a directory")
    if is_folder:
        make_folder(path)
        return path, rows
    parent, new_name = os.path.split(path)
    if not os.path.isdir(parent):
        raise VerbError("CC-COPY-003", f"{os.fsdecode(parent)} does not exist")
    return parent, [row._replace(path=decode_name(new_name) + row.path[len(name) :]) for row in rows]
