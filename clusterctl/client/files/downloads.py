"""Files of a hub or of a URL that one node downloads and gives to others: who does it, and the conversation with it.

found = {node: inspect_source(...)}; node = choose_downloader(source, found)
with open_download(c, node, python, source, offer) as download:      # all names, sizes and hashes are known
    ... nodes take `download.tree` from `download.port`, as from a node that has it ...
    download.follow(on_bytes, on_text)                                # meanwhile, by a thread of its own
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clusterctl.client.files.node_files import NodeFiles, RelayedContents, protocol_error
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.rpc.tasks import query
from clusterctl.client.sync.contents import NOTHING_HELD, HeldPart, Shipment
from clusterctl.client.sync.scan import ScanResult
from clusterctl.errors import ClusterctlError, NodeError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.sync.listed_files import MAX_NAMES, FileSource, RelayPlan, plan_relay, stays_inside
from clusterctl.plans.sync.manifest import MAX_NAMED_FILES, Manifest
from clusterctl.protocol.manifest import TreeEntry
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.contents import Offer
    from clusterctl.protocol.messages.stored import StagedSource
    from clusterctl.protocol.messages.verbs import DownloadRequest

INSPECT_LIMIT = 30.0  # seconds
POLL_INTERVAL = 0.2  # seconds
REPORT_LIMIT = 2.0  # seconds in which a node that disconnects its receivers reports why
MAX_REVISION = 200  # characters
MAX_PATH = 4096
MAX_REASON = 300
BELOW = (FileSource("inside", "", "", modes=True),)  # the rows have the names that the files get


@dataclass(frozen=True)
class RemoteSource:
    """A source that a node downloads: kind, path and revision as in the key `stage`, and where it goes.

    `to` is the directory that it goes below; of layout `cache` that of the hub's library, empty for the usual one. A
    single file gets `name`. Of the `variables` of the job those count that `pick_variables` keeps.
    """

    kind: Literal["hf", "ms", "url"]
    path: str
    revision: str = ""
    to: str = ""
    name: str = ""
    layout: Literal["cache", "directory"] = "cache"
    sha256: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    token: str = field(default="", repr=False)
    staged: StagedSource | None = None  # what is recorded; the node adds revision and hash

    @property
    def text(self) -> str:
        """Return the source as users write it, without what may be secret in a URL."""
        if self.kind == "url":
            return self.path.partition("?")[0]
        return f"{self.kind}://{self.path}" + (f"@{self.revision}" if self.revision else "")

    @property
    def cache_name(self) -> str:
        """Return the directory that a repository has in the cache of its library (node/sync/remote/placement.py)."""
        repo_type, _, rest = self.path.partition("/")
        has_type = repo_type in ("datasets", "spaces") and rest
        parts = [repo_type, *rest.split("/")] if has_type else ["models", *self.path.split("/")]
        return "--".join(parts if self.kind == "hf" else parts[1:])

    def can_have(self, entry: TreeEntry) -> bool:
        """Return whether a node may list this: else one node could place any file on all others."""
        if self.kind == "url":
            is_right = self.sha256 in ("", entry.content)
            return entry.kind == "file" and entry.path == self.name and is_right
        if self.layout == "directory":
            return entry.kind == "file"
        top, _, rest = entry.path.partition("/")
        inside = entry.kind == "file" or (entry.kind == "link" and stays_inside(rest, entry.content))
        return top == self.cache_name and bool(rest) and inside

    def request(
        self, node: Node, do: Literal["inspect", "list", "get"], offer: Offer | None
    ) -> DownloadRequest:
        """Return what a node is asked."""
        return {
            "workdir": node.workdir,
            "node": node.name,
            "run": "",
            "do": do,
            "kind": self.kind,
            "path": self.path,
            "revision": self.revision,
            "to": self.to or default_cache(self.kind, self.variables),
            "name": self.name,
            "layout": self.layout,
            "sha256": self.sha256,
            "variables": pick_variables(self.variables),
            "token": "" if do == "inspect" else self.token,
            "most": MAX_NAMED_FILES,
            "provide": offer,
            "staged": self.staged,
        }


HUB_ADDRESSES = ("HF_ENDPOINT", "MODELSCOPE_ENDPOINT", "MODELSCOPE_DOMAIN")
CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
TOKEN_VARIABLES = {"hf": "HF_TOKEN", "ms": "MODELSCOPE_API_TOKEN"}  # of each kind of source


def pick_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a download obeys."""
    return {
        name: variables[name]
        for name in (*HUB_ADDRESSES, *CERTIFICATES, *PROXY_VARIABLES)
        if variables.get(name)
    }


def default_cache(kind: str, variables: Mapping[str, str]) -> str:
    """Return the cache of a hub's library on a node."""
    if kind == "ms":
        return variables.get("MODELSCOPE_CACHE") or "~/.cache/modelscope"
    return variables.get("HF_HOME") or "~/.cache/huggingface"


@dataclass(frozen=True)
class Found:
    """What a node has of a source, in bytes, whether that is all of it, and why it does not reach the server."""

    whole: bool
    held: int
    problem: str


def inspect_source(c: Any, node: Node, interpreter: Interpreter, source: RemoteSource) -> Found:
    """Ask a node what it has of a source, and whether it can download it."""
    answer = query(c, "download", source.request(node, "inspect", None), interpreter, INSPECT_LIMIT).record(
        "reach"
    )
    return Found(answer.flag("whole"), answer.count("held"), answer.text("problem", MAX_REASON))


def choose_downloader(source: RemoteSource, found: Mapping[str, Found]) -> str:
    """Return the node that downloads: one that has all, else of those that reach the server the one that has most."""
    able = [name for name, has in found.items() if has.whole or not has.problem]
    if not able:
        problem = translate_node_text(next((has.problem for has in found.values()), ""))
        raise NodeError("CC-STAGE-010", source.kind, source=source.text, path=source.path, problem=problem)
    return max(able, key=lambda name: (found[name].whole, found[name].held))


@dataclass(frozen=True)
class DownloadObserver:
    """Receives how a download goes on: bytes that have come, why none come, and who stages to the same place."""

    on_bytes: Callable[[int], None] = lambda _: None
    on_text: Callable[[str], None] = lambda _: None
    on_held: Callable[[str], None] = lambda _: None


SILENT = DownloadObserver()


class Download(NodeFiles):
    """A node that downloads a source: what it is, and how it goes on."""

    def __init__(self, session: Session, node: str, source: RemoteSource, observer: DownloadObserver) -> None:
        super().__init__(session, node)
        self._source, self._observer = source, observer
        self._ended = threading.Event()
        self.failure: ClusterctlError | None = None
        self.report = Untrusted({})  # what was written, in the end
        self.downloaded = 0  # bytes that have come from the server
        self.revision, self.root = "", ""
        self.missing = 0
        self.port: int | None = None

    def start(self) -> None:
        """Receive progress until all is known, and the list."""
        while True:
            header, _ = self._reader.receive()
            if header.has_record("resolved"):
                break
            self._on_progress(header)
        resolved = header.record("resolved")
        self.revision = resolved.text("revision", MAX_REVISION)
        self.root = resolved.text("root", MAX_PATH)
        self.missing = resolved.count("missing")
        self.port = resolved.integer("port", 1, 65535)
        listing = self.receive_listing(BELOW, MAX_NAMED_FILES, MAX_NAMES)
        try:
            self._plan = plan_relay(listing.entries)
        except ValueError as error:
            raise protocol_error(self.node, str(error)) from error
        foreign = [entry.path for entry in self.manifest.entries if not self._source.can_have(entry)]
        if refused := [*self._plan.left_out, *foreign]:
            facts = {"node": self.node, "source": self._source.text, "problem": refused[0]}
            raise NodeError("CC-STAGE-015", "node", **facts)

    @property
    def manifest(self) -> Manifest:
        """Return all names, sizes and hashes."""
        return self._plan.manifest

    @property
    def into(self) -> tuple[str, str, bool]:
        """Return what other nodes take it into: a directory, and the name that all of it has there, if it has one."""
        cache = {"hf": "hub", "ms": "datasets" if self._source.path.startswith("datasets/") else "models"}
        to = self._source.to or default_cache(self._source.kind, self._source.variables)
        if self._source.kind == "url":
            return to, self._source.name, True
        if self._source.layout == "cache":
            return f"{to.rstrip('/')}/{cache[self._source.kind]}", self._source.cache_name, True
        return to, "", True

    @property
    def tree(self) -> ScanResult:
        """Return the files for other nodes; what must pass this machine waits until the node has all."""
        contents = DownloadedContents(self, self._plan)
        return ScanResult(self.manifest, (), Path(), contents, self._plan.private)

    def follow(self) -> None:
        """Receive progress until the node has all, or `failure` is set."""
        try:
            while True:
                header, _ = self._reader.receive()
                if header.has_record("copied"):
                    self.report = header.record("copied")
                    return
                self._on_progress(header)
        except ClusterctlError as error:
            error.node = error.node or self.node  # receivers raise it too
            self.failure = error
        finally:
            self._ended.set()

    def has_failed(self) -> bool:
        """Return whether the download has failed: its receivers see that a moment before it is reported here."""
        return self._ended.wait(REPORT_LIMIT) and self.failure is not None

    def wait(self) -> None:
        """Wait until the node has all, as the thread that follows it sees; raise what went wrong there."""
        while not self._ended.wait(POLL_INTERVAL):
            INTERRUPTS.check()
        if self.failure is not None:
            raise self.failure

    def _on_progress(self, header: Untrusted) -> None:
        observer = self._observer
        if "waiting" in header:
            observer.on_text(translate_node_text(header.text("waiting", MAX_REASON)))
        elif "held_by" in header:
            observer.on_held(header.text("held_by", MAX_REASON))
        elif "downloaded" in header:
            total = header.count("downloaded")
            observer.on_bytes(max(0, total - self.downloaded))
            self.downloaded = max(self.downloaded, total)
        else:
            raise protocol_error(self.node, tr("an answer that was not requested"))


class DownloadedContents(RelayedContents):
    """Contents that a node downloads, for those that cannot take them from it: once it has all."""

    def __init__(self, download: Download, plan: RelayPlan) -> None:
        super().__init__(download, plan.sources, plan.manifest)
        self._download = download

    def shipments(
        self, missing: Collection[str], held: Mapping[str, HeldPart] = NOTHING_HELD
    ) -> Iterator[Shipment]:
        """Yield what a node lacks."""
        self._download.wait()
        return super().shipments(missing, held)


def open_download(
    c: Any,
    node: Node,
    interpreter: Interpreter,
    source: RemoteSource,
    offer: Offer | None,
    observer: DownloadObserver = SILENT,
    *,
    only_list: bool = False,
) -> Download:
    """Have a node begin; returns when all names, sizes and hashes are known: large files are still to come then.

    With `only_list` nothing is downloaded, and hashes that only that would show are missing.
    """
    request = source.request(node, "list" if only_list else "get", offer)
    download = Download(Session(c, "download", request, interpreter), node.name, source, observer)
    try:
        download.start()
    except BaseException:
        download.close()
        raise
    return download
