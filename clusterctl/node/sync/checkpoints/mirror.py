"""What a node has of the checkpoints of a run: seals, manifests, the files of other nodes, and where its own are.

Where that is on the disk is in `folders`. What is in place belongs to the script and is only read; whether a file is
still as it was sealed shows by its hash, which is remembered by its stamps.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Dict, Iterator, List, Optional, Set, Tuple

from ....protocol.manifest import ManifestError, TreeEntry, encode_name
from ....protocol.messages import record
from ....protocol.messages.checkpoints import MAX_LINE, MAX_SEALS, Held, Part, Seal
from ....protocol.run_paths import RunPaths
from ....protocol.untrusted import MalformedError, parse_json
from ...state.workdir import make_below, make_private, read_bytes, write_atomically
from ..given_files import GivenFiles
from ..hashing import Path, Sha
from ..removal import Step, ignore_step, list_entries, remove_quietly
from ..staging.remembered_hashes import RememberedHashes
from ..store import Store
from .folders import FOLDER, MIRRORS, SEALS
from .manifests import unpack_part

SAFE = "-safe"  # seals/<number>-safe, empty: that generation has its copies
MAX_OTHERS = 2  # generations that are kept although they are not safe: one is taken, one may become it


def make_mirror_folder(rundir: str) -> str:
    """Make the directory where a node keeps checkpoints of the run, and return it."""
    paths = RunPaths(rundir)
    return make_below(paths.workdir, MIRRORS, paths.run_id, os.path.basename(rundir))


class Given(GivenFiles):
    """What other nodes get: a mirrored content, or the file in place that has it."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def path(self, sha: Sha) -> str:
        """Return where a content lies; the receiver finds out if it has changed."""
        mirrored = self._store.path(sha)
        return mirrored if os.path.lexists(mirrored) else super().path(sha) or mirrored

    def set_file(self, sha: Sha, path: bytes) -> None:
        """Remember where a content is, the newest place."""
        self._paths[sha] = path

    def forget(self, sha: Sha) -> None:
        """Stop giving a file in place."""
        self._paths.pop(sha, None)


class Mirror:
    """The generations that one node has; `folder` is that of the pattern. One thread changes it."""

    def __init__(self, root: str, folder: bytes, hashes: RememberedHashes) -> None:
        self.root, self._folder, self.hashes = root, folder, hashes
        self.step: Step = ignore_step  # called while a file is read
        self.store = Store(root)
        for entry in list_entries(self.store.incoming_folder):  # of a keeper that was killed
            remove_quietly(entry.path)
        self.given = Given(self.store)
        self.sizes: Dict[Sha, int] = {}  # of all that is given
        self.seals: Dict[int, Seal] = {seal.number: seal for seal in read_seals(root)}
        self.safe: Set[int] = {number for number in self.seals if os.path.exists(self._safe_path(number))}
        self.restored = -1  # the seal that this attempt goes on from: others may not know that it is safe
        self._rows: Dict[Sha, List[TreeEntry]] = {}  # of manifests that are here
        self._unsealed = ""  # the manifest of what the hub has collected last, one after the other
        make_private(os.path.join(root, SEALS))
        write_atomically(os.path.join(root, FOLDER), folder)

    def add_seal(self, seal: Seal) -> None:
        """Write a seal down; another one of its number, of a hub that is lost, is no longer safe."""
        if self.seals.get(seal.number, seal) != seal:
            remove_quietly(self._safe_path(seal.number))
            self.safe.discard(seal.number)
        content = json.dumps(record.to_json(seal)).encode("ascii")
        write_atomically(os.path.join(self.root, SEALS, str(seal.number)), content)
        self.seals[seal.number] = seal
        if self._unsealed in [part.manifest for part in seal.parts]:
            self._unsealed = ""

    def remove_seal(self, seal: Seal) -> None:
        """Forget a seal, not yet what it names."""
        if self.seals.get(seal.number) == seal:
            remove_quietly(self._safe_path(seal.number))
            remove_quietly(os.path.join(self.root, SEALS, str(seal.number)))
            del self.seals[seal.number]
            self.safe.discard(seal.number)

    def add_safe(self, number: int) -> None:
        """Write down that a generation has its copies, for the next keeper here as well."""
        write_atomically(self._safe_path(number), b"")
        self.safe.add(number)

    def _safe_path(self, number: int) -> str:
        return os.path.join(self.root, SEALS, f"{number}{SAFE}")

    def find_seal(self, name: str, attempt: int) -> Optional[Seal]:
        """Return the newest seal of a generation."""
        found = [seal for seal in self.seals.values() if (seal.name, seal.attempt) == (name, attempt)]
        return max(found, key=lambda seal: seal.number, default=None)

    def add_own(self, name: str, part: Part, manifest: bytes) -> None:
        """Keep the manifest of files that are in place here, and give them."""
        self.store.add(part.manifest, manifest, part.size)
        skipped, self._unsealed = self._unsealed, part.manifest
        self.offer(self.rows(name, part) or [])
        if skipped:
            self._remove_unneeded(self._needed())

    def offer(self, rows: List[TreeEntry]) -> None:
        """Offer files that are here, mirrored or in place."""
        for row in rows:
            if row.kind == "file":
                self.given.set_file(row.content, self.path_of(row))
                self.sizes[row.content] = row.size

    def rows(self, name: str, part: Part) -> Optional[List[TreeEntry]]:
        """Return the files of a part; None if its manifest is not here, or is damaged."""
        if part.manifest not in self._rows and part.files:
            with suppress(OSError, ManifestError):
                content = read_bytes(self.store.path(part.manifest)) or b""
                self._rows[part.manifest] = unpack_part(name, part, content)
                self.sizes[part.manifest] = part.size
        return self._rows.get(part.manifest) if part.files else []

    def path_of(self, row: TreeEntry) -> bytes:
        """Return where a file belongs."""
        return os.path.join(self._folder, encode_name(row.path))

    def has_mirrored(self, sha: Sha, size: int) -> bool:
        """Return whether a mirrored content is here and right; one that is not is removed."""
        path = os.fsencode(self.store.path(sha))
        if self._is_right(path, sha, size):
            return True
        with suppress(OSError):
            os.unlink(path)
        return False

    def is_unchanged(self, row: TreeEntry) -> bool:
        """Return whether a file in place is as it was sealed."""
        return self._is_right(self.path_of(row), row.content, row.size)

    def _is_right(self, path: bytes, sha: Sha, size: int) -> bool:
        try:
            return os.lstat(path).st_size == size and self.hashes.hash(path, self.step)[0] == sha
        except OSError:
            return False

    def has_part(self, name: str, part: Part) -> bool:
        """Return whether all of a part is here, checked now."""
        rows = self.rows(name, part)
        files = [row for row in rows or () if row.kind == "file"]
        is_here = all(self.is_unchanged(row) or self.has_mirrored(row.content, row.size) for row in files)
        if is_here:
            self.offer(files)
        return rows is not None and is_here

    def held(self, keep: int) -> Iterator[Held]:
        """Yield the generations that are kept with what is here of them; of shared ones the keeper finds out."""
        for number in sorted(self._kept(keep), reverse=True)[:MAX_SEALS]:
            seal = self.seals[number]
            parts = [] if seal.shared else [part for part in seal.parts if self.has_part(seal.name, part)]
            yield Held(seal=seal, parts=tuple(part.node_rank for part in parts))
        self.hashes.save()

    def _kept(self, keep: int) -> Set[int]:
        """Return the newest safe ones, and the newest others that are not older than all of them.

        Of one that was written again only the newest safe seal counts.
        """
        newest = {
            (self.seals[number].name, self.seals[number].attempt): number for number in sorted(self.safe)
        }
        safe = sorted(newest.values())[-keep:]
        oldest = safe[0] if len(safe) == keep else -1
        others = [number for number in sorted(self.seals.keys() - self.safe) if number > oldest]
        return {*safe, *others[-MAX_OTHERS:], *({self.restored} & set(others))}

    def remember_mirrored(self, rows: List[TreeEntry]) -> None:
        """Offer contents that were mirrored just now, and remember that they are right."""
        contents = {row.content: row.size for row in rows if row.kind == "file"}
        paths = [(self.store.path(sha), sha) for sha in contents]
        written: List[Tuple[Path, os.stat_result, Sha]] = [(path, os.lstat(path), sha) for path, sha in paths]
        self.hashes.remember_written(written)
        self.offer(rows)

    def prune(self, keep: int) -> None:
        """Remove the generations that are not kept any more."""
        kept = self._kept(keep)
        old = [seal for number, seal in self.seals.items() if number not in kept]
        for seal in old:
            self.remove_seal(seal)
        if old:
            self._remove_unneeded(self._needed())

    def _needed(self) -> Set[Sha]:
        needed = {self._unsealed, *(row.content for row in self._rows.get(self._unsealed, ()))}
        for seal in self.seals.values():
            for part in seal.parts:
                needed.add(part.manifest)
                needed.update(row.content for row in self.rows(seal.name, part) or [])
        return needed

    def _remove_unneeded(self, needed: Set[Sha]) -> None:
        for sha in [sha for sha in self.sizes if sha not in needed]:
            del self.sizes[sha]
            self.given.forget(sha)
        for sha in [sha for sha in self._rows if sha not in needed]:
            del self._rows[sha]
        for folder in list_entries(self.store.root):
            if len(folder.name) == 2:
                for entry in list_entries(folder.path):
                    if entry.name not in needed:
                        remove_quietly(entry.path)


def read_seals(root: str) -> Iterator[Seal]:
    """Yield the seals that were written down."""
    for entry in list_entries(os.path.join(root, SEALS)):
        with suppress(OSError, MalformedError):
            seal = record.read(Seal, parse_json(read_bytes(entry.path) or b"", MAX_LINE))
            if seal is not None and str(seal.number) == entry.name:
                yield seal
