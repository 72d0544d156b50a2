"""Verb `sync`: takes the contents that are missing here and lays out the run's own copy of the code.

request {"workdir", "run": id or null (store only), "node", "node_rank", "turn": bool,
         "give": null or {"address", "ports", "token"}: where to give the contents on to other nodes}; then
client {"manifest": true} + zlib(JSON rows)      node, if "turn", {"place": the work directory's id}
client, when it is this node's turn to look into a store that others may be filling, {"look": true}
node   {"missing": [sha256...]}
client {"blobs": [[sha256, bytes], ...]} + zlib(contents, one after the other), or for a larger file
       {"blob": sha256, "part": i, "last": bool} + zlib(data), ..., {"done": true}; nothing if all is there
       or {"take": {"address", "port", "token"}}: they come from that node; if not, {"missing": [...], "untaken": why}
node   {"stored": true} when all contents are there, with "port" if they can be had here, {"missing": [...]} again
       if one turned out wrong, at last
node   {"tree": hash of what is on the disk, "files": n, "bytes": n, "differs": [paths, at most 10]}.
Who gives goes on until the client hangs up.
In between the node sends {"beat": n, "steps": n} every 2 s; steps that stand still mean a disk that hangs.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Set, Tuple

from ...protocol.untrusted import Untrusted
from ..runtime.heartbeat import Voice
from ..runtime.stream import DISK_ERRORS, Stream, VerbError
from ..state.workdir import make_below, open_workdir, workdir_id, write_atomically
from ..sync.layout import MANIFEST, Layout, Row, parse_rows, read_tree, remove_tree, tree_hash
from ..sync.store import Store

if TYPE_CHECKING:
    from ..sync.transfer import Giver

ATTEMPTS = 3
NAMED = 10
MOST = 16 << 20  # bytes of contents in one frame; those who send put 2 MiB into one


def run(request: Dict[str, Any], stream: Stream) -> None:
    """Serve one sync."""
    try:
        serve(request, stream)
    except BrokenPipeError:
        raise
    except OSError as error:
        place = os.fsdecode(error.filename2 or error.filename or request["workdir"])
        code = "CC-DISK-001" if error.errno in DISK_ERRORS else "CC-DISK-002"
        raise VerbError(code, f"cannot write {place}: {error.strerror}") from None


def serve(request: Dict[str, Any], stream: Stream) -> None:
    """Fill the store, lay the tree out, and report what is really on the disk."""
    workdir = open_workdir(request["workdir"])
    home = run_directory(workdir, request)
    rows, packed = take_manifest(stream)
    with Voice(stream) as voice, Store(workdir) as store:
        if request.get("turn") and not await_turn(workdir, voice):
            return
        giver = None
        for _ in range(ATTEMPTS):
            if not fill(store, rows, voice):
                return
            giver = giver or offer(store, rows, request.get("give"))
            voice.send({"stored": True, "port": giver.port} if giver else {"stored": True})
            found = lay_out(store, rows, packed, home, voice) if home else read_store(store, rows, voice)
            wrong = {row.content for row in set(rows) - set(found) if row.kind == "file"}
            if not {sha for sha in wrong if store.discard_if_wrong(sha)}:
                break
        voice.send(verdict(rows, found))
        if giver is not None:
            stay(giver, stream)


def offer(store: Store, rows: List[Row], wish: Optional[Dict[str, Any]]) -> Optional[Giver]:
    """Begin to give the contents of this tree, if that is wished and can be."""
    if not wish:
        return None
    from ..sync.transfer import Giver

    try:
        return Giver(store, sizes_of(rows), wish)
    except OSError:
        return None  # others have it from elsewhere


def stay(giver: Giver, stream: Stream) -> None:
    """Give until the client hangs up."""
    from ..sync.transfer import GIVE

    try:
        stream.receive(GIVE)
    except TimeoutError:
        pass
    finally:
        giver.close()


def await_turn(workdir: str, voice: Voice) -> bool:
    """Say which work directory this is and wait until nobody else fills it; False if the client left.

    Nobody has looked for the contents here before: a network file system remembers what it did not find.
    """
    voice.send({"place": workdir_id(workdir)})
    return voice.stream.receive() is not None


def run_directory(workdir: str, request: Dict[str, Any]) -> Optional[bytes]:
    """Make the run's directory on this node and return it; None if the request is for the store only."""
    if request.get("run") is None:
        return None
    leaf = "%d-%s" % (int(request["node_rank"]), request["node"])
    return os.fsencode(make_below(workdir, "runs", str(request["run"]), leaf))


def take_manifest(stream: Stream) -> Tuple[List[Row], bytes]:
    """Receive and check the manifest; gives it as it came, too."""
    frame = stream.receive()
    if frame is None or not frame[0].get("manifest"):
        raise VerbError("CC-SYNC-007", "no manifest came")
    try:
        return parse_rows(json.loads(zlib.decompress(frame[1]).decode("utf-8"))), frame[1]
    except (ValueError, zlib.error) as error:
        raise VerbError("CC-SYNC-007", f"the manifest cannot be read: {error}") from None


def fill(store: Store, rows: List[Row], voice: Voice) -> bool:
    """Ask for what is missing and store it; False if the client left."""
    sizes = sizes_of(rows)
    missing = find_missing(store, sizes, voice)
    voice.send({"missing": sorted(missing)})
    done = not missing
    while not done:
        frame = voice.stream.receive()
        if frame is None:
            return False  # the next attempt need not send again what is stored
        done = bool(frame[0].get("done"))
        if "take" in frame[0]:
            done = take_from(frame[0]["take"], store, sizes, missing, voice)
        for sha, data, last in unpacked(*frame):
            if sha not in missing:
                raise VerbError("CC-SYNC-007", f"content {sha} was not asked for")
            store.add(sha, data, sizes[sha], last=last)
            voice.step()
            if last:
                missing.discard(sha)
    if missing:
        raise VerbError("CC-SYNC-008", f"{len(missing)} files did not arrive")
    return True


def take_from(
    where: Dict[str, Any], store: Store, sizes: Dict[str, int], missing: Set[str], voice: Voice
) -> bool:
    """Take what is missing from another node; tell what did not come, and why."""
    from ..sync.transfer import take

    problem = take(store, sizes, missing, where, contents, voice.step)
    if problem:
        voice.send({"missing": sorted(missing), "untaken": problem})
    return not problem


def sizes_of(rows: List[Row]) -> Dict[str, int]:
    """Give the size of every content of a tree."""
    return {row.content: row.size for row in rows if row.kind == "file"}


def find_missing(store: Store, sizes: Dict[str, int], voice: Voice) -> Set[str]:
    """Look which contents are not in the store."""
    missing = set()
    for sha, size in sizes.items():
        voice.step()
        if not store.has(sha, size):
            missing.add(sha)
    return missing


def unpacked(header: Dict[str, Any], body: bytes) -> List[Tuple[str, bytes, bool]]:
    """Unpack one frame of the client; VerbError if it is none."""
    try:
        return list(contents(header, body))
    except (ValueError, zlib.error) as error:
        raise VerbError("CC-SYNC-009", f"a file changed on its way: {error}") from None


def contents(header: Dict[str, Any], body: bytes) -> Iterator[Tuple[str, bytes, bool]]:
    """Unpack one frame into (sha256, data, whether the content is complete with it); ValueError if it is none."""
    told = Untrusted(header)
    if "blobs" in told:
        data, at = memoryview(expand(body)), 0
        for row in told.rows("blobs", told.length("blobs")):
            size = row.integer(1, 0, len(data) - at)
            if size is None:
                raise ValueError("a content of no size that fits")
            yield row.text(0), bytes(data[at : at + size]), True
            at += size
    elif "blob" in told:
        yield told.text("blob"), expand(body), told.choice("last") is not False


def expand(body: bytes) -> bytes:
    """Decompress one frame's contents; zlib.error beyond MOST, which no sender of ours comes near."""
    packed = zlib.decompressobj()
    data = packed.decompress(body, MOST)
    if packed.unconsumed_tail or not packed.eof:
        raise zlib.error("more data than one frame may hold")
    return data


def lay_out(store: Store, rows: List[Row], packed: bytes, home: bytes, voice: Voice) -> List[Row]:
    """Make `code` aside and read it back; it gets its name if it is right, and is removed if it is not.

    What was sent stays on record beside it, younger than all of it: see outside_files.py.
    """
    code = os.path.join(home, b"code")
    if os.path.lexists(code):
        found = [] if os.path.islink(code) else read_tree(code, voice.step)
        if tree_hash(found) == tree_hash(rows):
            return found
        raise VerbError("CC-SYNC-011", f"{os.fsdecode(code)} exists already and holds something else")
    aside = os.path.join(home, b"code." + os.urandom(8).hex().encode())
    try:
        Layout(store, aside, voice.step).make(rows)
        found = read_tree(aside, voice.step)
        if tree_hash(found) == tree_hash(rows):
            write_atomically(os.path.join(os.fsdecode(home), MANIFEST), packed)
            os.rename(aside, code)
    except FileNotFoundError:
        found = []  # a stored content vanished meanwhile: look again what is missing
    finally:
        remove_tree(aside)
    return found


def read_store(store: Store, rows: List[Row], voice: Voice) -> List[Row]:
    """Check the stored contents when there is no tree to read."""
    found = []
    for row in rows:
        voice.step()
        if row.kind != "file" or not store.discard_if_wrong(row.content):
            found.append(row)
    return found


def verdict(rows: List[Row], found: List[Row]) -> Dict[str, Any]:
    """Summarise what is on the disk, and where it is not what was sent."""
    planned, real = set(rows), set(found)
    odd = sorted({row.path for row in planned ^ real})  # type: List[str]
    files = [row for row in found if row.kind == "file"]
    return {
        "tree": tree_hash(found),
        "files": len(files),
        "bytes": sum(row.size for row in files),
        "differs": odd[:NAMED],
    }
