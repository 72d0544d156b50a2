"""Verb `copy`: any files of this node, listed, sent, given to other nodes, or taken (`clusterctl cp`).

CopyRequest                                 the messages are defined in protocol/messages/verbs.py
do: send    as in the verb `pull`: RowsFrame, repeated, and Listed; FetchFiles of the client, as often as it wants;
            a row of a file ends with its mode
do: give    RowsFrame, repeated, and Listed; a row is [path, kind, mode, sha256 or target, size]
            client Provide: Provided, other nodes fetch at that port (node/sync/transfer)
            client HashesFrame: Blobs or ContentPart, repeated, and Done
do: take    client ManifestFrame, and then as in the verb `sync`: Missing ... Stored; at the end Copied

A path is relative to the home directory, or to the working directory of a run, and may begin with `${output_dir}` then.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Tuple, cast

from ....protocol.manifest import TreeEntry, encode_name
from ....protocol.run_paths import RunPaths
from ...runtime.heartbeat import Heartbeat
from ...runtime.stream import Stream, VerbError
from ...state.run_record import find_run, read_spec
from ...sync.files_by_hash import Destination, GivenFiles, hash_with_steps
from ..sync import fill_store, receive_manifest, serve_until_hangup, start_provider
from .pull import ListedFile, Row, decode_name, render_row, send_batches, send_requested, walk

if TYPE_CHECKING:
    from ....protocol.messages.copying import CopyRequest, Provide
    from ....protocol.messages.network import HashesFrame

OUTPUT_DIR = "${output_dir}"
PART = "outputs"  # as the verb `pull` names it


def run(request: CopyRequest, stream: Stream) -> None:
    """Serve one client until it hangs up."""
    if request["do"] == "take":
        receive_files(request, stream)
        return
    with Heartbeat(stream) as heartbeat:
        if request["do"] == "send":
            files = send_listing(list_sources(request), request, heartbeat)
            send_requested(stream, heartbeat, files)
        else:
            serve_contents(request, stream, heartbeat)


def resolve_path(request: CopyRequest, text: str) -> bytes:
    """Return where a path leads."""
    base = os.path.expanduser("~")
    if request["run"]:
        rundir = find_run(request["workdir"], request["run"], request["node"])
        base = RunPaths(rundir).code
        spec = read_spec(rundir)
        if text.startswith(OUTPUT_DIR) and spec is not None:
            text = spec["output_dir"] + text[len(OUTPUT_DIR) :]
    return os.path.join(os.fsencode(base), os.path.expanduser(encode_name(text)))


def send_listing(
    rows: Iterator[Tuple[Row, ListedFile]], request: CopyRequest, heartbeat: Heartbeat
) -> List[ListedFile]:
    """Send all rows; gives where their files lie."""
    files, more = send_batches(rows, request["most"], heartbeat)
    heartbeat.send({"listed": len(files), "more": more, "mark": "", "workdir_id": "", "outside": None})
    return files


def list_sources(request: CopyRequest) -> Iterator[Tuple[Row, ListedFile]]:
    """Walk what is asked for; a path that is itself a link is followed, others are not."""
    for text, name in request["sources"]:
        top = os.path.realpath(resolve_path(request, text))
        try:
            status = os.stat(top)
        except (FileNotFoundError, NotADirectoryError):
            raise VerbError("CC-COPY-002", f"{text} does not exist") from None
        if stat.S_ISDIR(status.st_mode):
            yield from list_folder(top, name)
        elif not name:
            # what is in it was asked for: others would make a directory of a file
            raise VerbError("CC-COPY-003", f"{text} is not a directory")
        elif stat.S_ISREG(status.st_mode):
            file = ListedFile(top, status)
            yield [*render_row(PART, encode_name(name), "file", file, b""), file_mode(status)], file
        else:
            raise VerbError("CC-COPY-002", f"{text} is neither a file nor a directory")


def list_folder(top: bytes, name: str) -> Iterator[Tuple[Row, ListedFile]]:
    """Walk a directory; its paths begin with the name."""
    if not os.listdir(top) and name:
        yield [PART, name, "dir", 0, 0, 0, 0, ""], ListedFile(b"", None)
    for row, file in walk(PART, top, None):
        if row[2] == "dir":
            os.listdir(os.path.join(top, encode_name(row[1])))  # an error if it only seems to be empty
        row[1] = f"{name}/{row[1]}" if name else row[1]
        yield ([*row, file_mode(file.status)] if row[2] == "file" else row), file


def file_mode(status: os.stat_result) -> int:
    """Return who may read, write and execute a file."""
    return stat.S_IMODE(status.st_mode) & 0o777


def serve_contents(request: CopyRequest, stream: Stream, heartbeat: Heartbeat) -> None:
    """List files with their hashes, and give them to other nodes or to the client."""
    given, sizes = GivenFiles(), {}  # type: GivenFiles, Dict[str, int]
    send_listing(describe_contents(request, heartbeat, given, sizes), request, heartbeat)
    provider = None
    try:
        while True:
            frame = stream.receive()
            if frame is None:
                return
            if "provide" in frame[0]:
                if provider is not None:
                    provider.close()
                rows = [TreeEntry("", "file", 0, sha, size) for sha, size in sizes.items()]
                provider = start_provider(given, rows, cast("Provide", frame[0])["provide"])
                heartbeat.send({"provided": provider.port if provider else None})
            else:
                send_to_client(cast("HashesFrame", frame[0])["hashes"], given, sizes, heartbeat)
    finally:
        if provider is not None:
            provider.close()


def send_to_client(hashes: List[str], given: GivenFiles, sizes: Dict[str, int], heartbeat: Heartbeat) -> None:
    """Send contents to the client, which passes them on."""
    from ...sync.transfer import send_contents

    def send(header: Any, body: bytes) -> None:
        heartbeat.step()
        heartbeat.send(header, body)

    send_contents(send, given, [sha for sha in hashes if sha in sizes])


def describe_contents(
    request: CopyRequest, heartbeat: Heartbeat, given: GivenFiles, sizes: Dict[str, int]
) -> Iterator[Tuple[Row, ListedFile]]:
    """Turn rows of a listing into those of a manifest: every file is hashed."""
    for row, file in list_sources(request):
        path, kind, target = row[1], row[2], row[7]
        mode, size = 0, 0
        if kind == "file":
            target, size = hash_with_steps(file.path, heartbeat.step)
            mode = file_mode(file.status)
            given.add_file(target, file.path)
            sizes[target] = size
        yield [path, kind, mode, target, size], file


def receive_files(request: CopyRequest, stream: Stream) -> None:
    """Take files that the client names, from it or from another node."""
    rows, _ = receive_manifest(stream)
    with Heartbeat(stream) as heartbeat:
        root, rows = find_root(request, rows)
        with Destination(
            root, rows, heartbeat.step, overwrite=request["overwrite"], private=request["private"]
        ) as destination:
            if not fill_store(destination, rows, heartbeat):
                return
            destination.finish(rows)
            provider = start_provider(destination, rows, request["provide"])
            heartbeat.send({"stored": True, "port": provider.port} if provider else {"stored": True})
            heartbeat.send({"copied": destination.report})
            if provider is not None:
                serve_until_hangup(provider, stream)


def find_root(request: CopyRequest, rows: List[TreeEntry]) -> Tuple[bytes, List[TreeEntry]]:
    """Return the directory that files go into, and their names there: a path that does not exist is a new name."""
    text, name = request["sources"][0]
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
