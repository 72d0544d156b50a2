"""Verb `sync`: receives the contents that are missing here and lays out the run's own copy of the code.

SyncRequest                                 the messages are defined in protocol/messages
client `manifest`
node   `workdir_id`, if the home is shared: then `check_store` of the client, when this node may look into the store
node   Missing
client `blobs`, or Blob for a piece of a larger file, then `done`; or `source`: another node has it, or is receiving it
       (node/sync/transfer)
node   Missing again for what that node did not give, or what turned out wrong
node   Stored, then TreeSummary

A provider goes on until the client closes the session. In between the node sends Beat every 2 s; steps that stand
still mean a disk that hangs.
"""

from __future__ import annotations

import json
import os
import select
import zlib
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Set, Tuple, cast

from ...protocol.manifest import TreeEntry, tree_hash
from ...protocol.run_paths import RunPaths, WorkdirPaths, part_name
from ...protocol.untrusted import Untrusted
from ..runtime.heartbeat import Heartbeat
from ..runtime.stream import DISK_ERRORS, Stream, VerbError
from ..state.workdir import make_below, make_private, open_workdir, workdir_id, write_atomically
from ..sync.layout import lay_out, parse_rows, read_tree
from ..sync.removal import remove_tree
from ..sync.store import Data, Store
from ..sync.transfer import Provider, content_sizes, providing, receive, unpack_frame

if TYPE_CHECKING:
    from ...protocol.messages.contents import Missing, Source, TreeSummary
    from ...protocol.messages.verbs import PlainClientFrame, SyncRequest

ATTEMPTS = 3
MAX_FRAME = 16 << 20  # bytes of contents in one frame; the client puts 2 MiB into one
MAX_NAMED = 10


def run(request: SyncRequest, stream: Stream) -> None:
    """Serve one sync."""
    try:
        serve(request, stream)
    except BrokenPipeError:
        raise
    except OSError as error:
        path = os.fsdecode(error.filename2 or error.filename or request["workdir"])
        code = "CC-DISK-001" if error.errno in DISK_ERRORS else "CC-DISK-002"
        raise VerbError(code, f"cannot write {path}: {error.strerror}") from None


def serve(request: SyncRequest, stream: Stream) -> None:
    """Fill the store, lay the tree out, and report what is really on the disk."""
    workdir = open_workdir(request["workdir"])
    rundir = run_directory(workdir, request)
    rows, packed = receive_manifest(stream)
    with Heartbeat(stream) as heartbeat, Store(workdir) as store:
        if request.get("shared_home") and not wait_for_turn(workdir, heartbeat):
            return
        with providing(store, rows, request.get("provide")) as provider:
            for _ in range(ATTEMPTS):
                if not fill_store(store, rows, heartbeat, provider):
                    return
                heartbeat.send({"stored": True})
                written = (
                    write_code(store, rows, packed, rundir, heartbeat)
                    if rundir
                    else read_store(store, rows, heartbeat)
                )
                wrong = {row.content for row in set(rows) - set(written) if row.kind == "file"}
                if not {sha for sha in wrong if store.discard_if_wrong(sha)}:
                    break
            heartbeat.send(summarise_tree(rows, written))
            if provider is not None:
                provider.serve_until_hangup(stream)


def wait_for_turn(workdir: str, heartbeat: Heartbeat) -> bool:
    """Return which work directory this is and wait until no other client fills it; False if the client left.

    The contents were not looked for here before: a network file system remembers what it did not find.
    """
    heartbeat.send({"workdir_id": workdir_id(workdir)})
    return heartbeat.stream.receive() is not None


def run_directory(workdir: str, request: SyncRequest) -> Optional[bytes]:
    """Make the run's directory on this node and return it; None if the request is for the store only."""
    if request.get("run") is None:
        return None
    part = part_name(int(request["node_rank"]), request["node"])
    return os.fsencode(make_below(make_private(WorkdirPaths(workdir).runs), str(request["run"]), part))


def receive_manifest(stream: Stream) -> Tuple[List[TreeEntry], bytes]:
    """Receive and check the manifest; gives it as it came, too."""
    frame = stream.receive()
    if frame is None or not Untrusted(frame[0]).flag("manifest"):
        raise VerbError("CC-SYNC-007", "no manifest arrived")
    try:
        return parse_rows(json.loads(zlib.decompress(frame[1]).decode("utf-8"))), frame[1]
    except (ValueError, zlib.error) as error:
        raise VerbError("CC-SYNC-007", f"the manifest cannot be read: {error}") from None


def fill_store(
    store: Store, rows: List[TreeEntry], heartbeat: Heartbeat, provider: Optional[Provider]
) -> bool:
    """Ask for what is missing and store it, while the provider sends it on; False if the client left."""
    sizes = content_sizes(rows)
    missing = find_missing(store, sizes, heartbeat)
    store.received.forget(missing)
    store.prepare(missing, sizes, heartbeat.step)
    answer: Missing = {"missing": sorted(missing)}
    parts = store.describe_parts()
    if parts:
        answer["held"] = parts
    if provider is not None and all(sha in missing or store.path(sha) for sha in sizes):
        provider.coming, answer["port"] = frozenset(missing), provider.port
    heartbeat.send(answer)
    done = not missing
    while not done:
        frame = heartbeat.stream.receive()
        if frame is None:
            return False  # the next attempt need not send again what is stored
        if "source" in frame[0]:
            source = cast("PlainClientFrame", frame[0])["source"]
            receive_from_provider(source, store, sizes, missing, heartbeat)
            done = not missing
            continue
        done = Untrusted(frame[0]).flag("done")
        for sha, data, last in unpack_client_frame(*frame):
            if sha not in missing:
                raise VerbError("CC-SYNC-007", f"content {sha} was not requested")
            if not Untrusted(frame[0]).integer("at"):
                store.drop(sha)  # what another node has sent of it
            heartbeat.step()
            if store.add(sha, data, sizes[sha], last=last):
                missing.discard(sha)
        if done and store.wrong_parts:
            store.wrong_parts.clear()
            done = False
            heartbeat.send({"missing": sorted(missing)})
    if missing:
        raise VerbError("CC-SYNC-008", f"{len(missing)} files did not arrive")
    return True


def receive_from_provider(
    source: Source, store: Store, sizes: Dict[str, int], missing: Set[str], heartbeat: Heartbeat
) -> None:
    """Take what is missing from another node until the client names one more; report what did not come, and why."""

    def observe(size: int, waited: float) -> bool:
        heartbeat.step()
        heartbeat.taken += size
        heartbeat.waited += waited
        return bool(select.select([heartbeat.stream], [], [], 0)[0])

    problem = receive(store, sizes, missing, source, observe)
    if problem and store.wrong_parts:  # which is not the provider's fault
        store.wrong_parts.clear()
        problem = receive(store, sizes, missing, source, observe)
    if problem:
        heartbeat.send({"missing": sorted(missing), "source_problem": str(problem), "turn": source["turn"]})


def find_missing(store: Store, sizes: Dict[str, int], heartbeat: Heartbeat) -> Set[str]:
    """Look which contents are not in the store."""
    missing = set()
    for sha, size in sizes.items():
        heartbeat.step()
        if not store.has(sha, size):
            missing.add(sha)
    return missing


def unpack_client_frame(header: Dict[str, Any], body: bytes) -> List[Tuple[str, Data, bool]]:
    """Unpack one frame of the client; VerbError if it is none."""
    try:
        return list(unpack_frame(header, memoryview(decompress(body) if body else b"")))
    except (ValueError, zlib.error) as error:
        raise VerbError("CC-SYNC-009", f"a file changed in transfer: {error}") from None


def decompress(body: bytes) -> bytes:
    """Decompress one frame's contents; zlib.error beyond MAX_FRAME, which no client comes near."""
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(body, MAX_FRAME)
    if decompressor.unconsumed_tail or not decompressor.eof:
        raise zlib.error("more data than one frame may hold")
    return data


def write_code(
    store: Store, rows: List[TreeEntry], packed: bytes, rundir: bytes, heartbeat: Heartbeat
) -> List[TreeEntry]:
    """Make `code` aside and read it back; it gets its name if it is right, and is removed if it is not.

    What was sent stays on record beside it, younger than all of it: see outside_files.py.
    """
    paths = RunPaths(os.fsdecode(rundir))
    code = os.fsencode(paths.code)
    if os.path.lexists(code):
        written = [] if os.path.islink(code) else read_tree(code, heartbeat.step)
        if tree_hash(written) == tree_hash(rows):
            return written
        raise VerbError("CC-SYNC-011", f"{os.fsdecode(code)} exists already with other contents")
    temporary = code + b"." + os.urandom(8).hex().encode()
    try:
        lay_out(store, temporary, rows, heartbeat.step)
        written = read_tree(temporary, heartbeat.step)
        if tree_hash(written) == tree_hash(rows):
            write_atomically(paths.manifest, packed)
            os.rename(temporary, code)
    except FileNotFoundError:
        written = []  # a stored content vanished meanwhile: look again what is missing
    finally:
        remove_tree(os.fsdecode(temporary), heartbeat.step)
    return written


def read_store(store: Store, rows: List[TreeEntry], heartbeat: Heartbeat) -> List[TreeEntry]:
    """Check the stored contents when there is no tree to read."""
    intact = []
    for row in rows:
        heartbeat.step()
        if row.kind != "file" or not store.discard_if_wrong(row.content):
            intact.append(row)
    return intact


def summarise_tree(rows: List[TreeEntry], written: List[TreeEntry]) -> TreeSummary:
    """Summarise what is on the disk, and where it is not what was sent."""
    planned, actual = set(rows), set(written)
    differing = sorted({row.path for row in planned ^ actual})  # type: List[str]
    files = [row for row in written if row.kind == "file"]
    return {
        "tree": tree_hash(written),
        "files": len(files),
        "bytes": sum(row.size for row in files),
        "differs": differing[:MAX_NAMED],
    }
