"""Verb `take`: takes files from the client or another node, into any directory of this one.

TakeRequest                                 the messages are defined in protocol/messages
client `manifest`, and then as in the verb `sync`: Missing ... Stored; at the end `copied`
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, List, Tuple

from ....protocol.manifest import TreeEntry, decode_name
from ...runtime.heartbeat import Heartbeat
from ...runtime.stream import VerbError
from ...state.workdir import open_workdir
from ...sync.files_by_hash import Destination
from ...sync.paths import resolve_path
from ...sync.staged import write_record
from ...sync.transfer import providing
from ..sync import fill_store, receive_manifest

if TYPE_CHECKING:
    from ....protocol.messages.verbs import TakeRequest
    from ...runtime.stream import Stream


def run(request: TakeRequest, stream: Stream) -> None:
    """Take files that the client names, from it or from another node."""
    rows, _ = receive_manifest(stream)
    staged, private = request["staged"], request["private"]
    overwrite = request["overwrite"] or staged is not None
    with ExitStack() as opened:
        heartbeat = opened.enter_context(Heartbeat(stream))
        root, rows = find_root(request, rows)
        destination = Destination(root, rows, heartbeat.step, overwrite=overwrite, private=private)
        opened.enter_context(destination)
        provider = opened.enter_context(providing(destination, rows, request["provide"]))
        if not fill_store(destination, rows, heartbeat, provider):
            return
        destination.finish(rows)
        if staged is not None:
            path, rows = name_target(root, rows, named=bool(request["name"]))
            write_record(open_workdir(request["workdir"]), path, staged, rows)
        heartbeat.send({"stored": True})
        heartbeat.send({"copied": destination.report})
        if provider is not None:
            provider.serve_until_hangup(stream)


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
        os.makedirs(path, exist_ok=True)
        return path, rows
    parent, new_name = os.path.split(path)
    if not os.path.isdir(parent):
        raise VerbError("CC-COPY-003", f"{os.fsdecode(parent)} does not exist")
    return parent, [row._replace(path=decode_name(new_name) + row.path[len(name) :]) for row in rows]


def name_target(root: bytes, rows: List[TreeEntry], *, named: bool) -> Tuple[str, List[TreeEntry]]:
    """Return the absolute path of what is taken, and the names of all files from the directory that it is in.

    With `named` all have the same first name, else they are what is in the directory `root`.
    """
    root = os.path.realpath(root)
    if named and rows:
        return os.fsdecode(os.path.join(root, os.fsencode(rows[0].path.split("/")[0]))), rows
    base = decode_name(os.path.basename(root))
    return os.fsdecode(root), [row._replace(path=f"{base}/{row.path}") for row in rows]
