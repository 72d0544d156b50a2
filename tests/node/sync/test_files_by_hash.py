"""Files that are taken into a directory where another account writes, and files that shrink while they are given."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from pathlib import Path

import pytest
from waiting import HANG

from clusterctl.node.runtime.stream import VerbError
from clusterctl.node.sync.files_by_hash import Destination
from clusterctl.node.sync.given_files import GivenFiles
from clusterctl.node.sync.outgoing import Outgoing
from clusterctl.node.sync.peers import MAX_LINE, PeerStream
from clusterctl.node.sync.staging.remembered_hashes import RememberedHashes
from clusterctl.protocol.manifest import TreeEntry


def taking(there: Path, rows: list[TreeEntry]) -> Destination:
    """Take files into a directory."""
    hashes = RememberedHashes(str(there / "work"))
    return Destination(os.fsencode(there), rows, lambda: None, hashes, overwrite=False, private=False)


def test_no_mode_is_set_through_a_link(tmp_path: Path) -> None:
    """Who puts a link in the place of what arrives does not open a file of this account to all."""
    victim, there = tmp_path / "key", tmp_path / "there"
    victim.touch(0o600)
    there.mkdir()
    sha = hashlib.sha256(b"whole").hexdigest()
    rows = [TreeEntry("x", "file", 0o644, sha, 5)]
    with taking(there, rows) as destination:
        destination.add(sha, b"who", 5, last=False)
        (arriving,) = there.iterdir()
        arriving.unlink()
        arriving.symlink_to(victim)
        with pytest.raises(OSError, match="symbolic link"):
            destination.add(sha, b"le", 5)
    assert victim.stat().st_mode & 0o777 == 0o600
    assert list(there.iterdir()) == []


def test_a_file_that_shrinks_while_it_is_given(tmp_path: Path) -> None:
    """As a log that is rotated: that is reported, not a bug."""
    log, given = tmp_path / "log", GivenFiles()
    log.write_bytes(bytes(3 << 20))
    given.add_file("a" * 64, os.fsencode(log))
    own, other = socket.socketpair()
    with own, other:
        sender = Outgoing(given, {"a" * 64: 3 << 20}, PeerStream(other, MAX_LINE), {})
        seen: list[VerbError] = []

        def give() -> None:
            try:
                sender.send(["a" * 64], frozenset())
            except VerbError as error:
                seen.append(error)
                other.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=give)
        thread.start()
        stream = PeerStream(own, MAX_LINE)
        assert stream.receive_frame(HANG) is not None
        os.truncate(log, 1 << 20)
        while stream.receive_frame(HANG) is not None:
            pass
        thread.join()
    (error,) = seen
    assert (error.code, str(error)) == ("CC-SYNC-009", "a file became shorter")
