"""What a node lists of a source that it downloads: only what the source can have is passed on to other nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import pytest

from clusterctl.client.files.downloads import BELOW, SILENT, Download, RemoteSource
from clusterctl.client.files.node_files import NodeListing
from clusterctl.errors import NodeError
from clusterctl.plans.sync.listed_files import parse_listing
from clusterctl.protocol.untrusted import Row, Untrusted

SHA, OTHER = "a" * 64, "b" * 64
REPOSITORY = "models--org--name"
FILE = RemoteSource(
    "url", "https://host/tok.bin?key", to="~/", name="tok.bin", layout="directory", sha256=SHA
)
UNHASHED = RemoteSource("url", "https://host/tok.bin", to="~/", name="tok.bin", layout="directory")
CACHE = RemoteSource("hf", "org/name")
SCOPE = RemoteSource("ms", "datasets/org/name")
PLAIN = RemoteSource("hf", "org/name", to="~/name", layout="directory")

Listed = tuple[str, Literal["file", "link", "dir"], str]


class Listing(Download):
    """A node that lists this."""

    def __init__(self, source: RemoteSource, *listed: Listed) -> None:
        self._source, self._observer, self.node, self._listed = source, SILENT, "gpu02", listed
        resolved: Any = {"resolved": {"revision": "", "root": "/home/ann", "port": 7000, "missing": 0}}
        self._reader: Any = SimpleNamespace(receive=lambda: (Untrusted(resolved), b""))

    def receive_listing(self, *_: Any, **__: Any) -> NodeListing:
        """Return the rows, parsed as those of a node."""
        rows = [Row([0, path, kind, 0, 0, 0, 0, content, 0o644]) for path, kind, content in self._listed]
        return NodeListing(tuple(parse_listing(rows, 0, BELOW)), "", "")


@pytest.mark.parametrize(
    ("source", "listed"),
    [
        (FILE, (".ssh/authorized_keys", "file", SHA)),
        (FILE, ("tok.bin", "file", OTHER)),
        (FILE, ("tok.bin", "link", "elsewhere")),
        (FILE, ("tok.bin/x", "file", SHA)),
        (UNHASHED, ("other.bin", "file", SHA)),
        (CACHE, ("models--org--other/refs/main", "file", SHA)),
        (CACHE, (REPOSITORY, "file", SHA)),
        (CACHE, (f"{REPOSITORY}/snapshots/x", "link", "../../models--org--other")),
        (CACHE, (f"{REPOSITORY}/x", "link", "..")),
        (SCOPE, ("datasets--org--name/x", "file", SHA)),
        (PLAIN, ("x", "link", "y")),
        (PLAIN, ("../x", "file", SHA)),
    ],
)
def test_what_a_source_cannot_have_is_refused(source: RemoteSource, listed: Listed) -> None:
    """With the node and the path; no other node is sent it."""
    with pytest.raises(NodeError, match=r"it lists for .* what that cannot have") as caught:
        Listing(source, listed).start()
    assert (caught.value.code, caught.value.node) == ("CC-STAGE-015", "gpu02")
    assert listed[0] in caught.value.message
    assert "key" not in caught.value.message.replace("authorized_keys", "")


@pytest.mark.parametrize(
    ("source", "listed"),
    [
        (FILE, [("tok.bin", "file", SHA)]),
        (UNHASHED, [("tok.bin", "file", OTHER)]),
        (
            CACHE,
            [
                (f"{REPOSITORY}/blobs/x", "file", SHA),
                (f"{REPOSITORY}/snapshots/{SHA}/sub/x", "link", "../../../blobs/x"),
            ],
        ),
        (SCOPE, [("org--name/snapshots/master/x", "file", SHA)]),
        (PLAIN, [("sub/x", "file", SHA)]),
    ],
)
def test_what_a_source_has_is_taken(source: RemoteSource, listed: list[Listed]) -> None:
    """All of it, with its hashes."""
    download = Listing(source, *listed)
    download.start()
    assert [entry.path for entry in download.manifest.entries] == [path for path, _, _ in listed]
