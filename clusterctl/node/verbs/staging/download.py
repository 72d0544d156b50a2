"""Verb `download`: files of a hub or of a URL come to this node, and other nodes take them while they come.

DownloadRequest                             the messages are defined in protocol/messages
do: inspect Reach
do: get     `waiting` and `downloaded` as often as there is something to report; Resolved, `rows` and Listed as in the
            verb `files`, once all names, sizes and hashes are known: from then on the files are given at the port;
            `waiting`, `downloaded`; at the end `copied`, and then as in the verb `files`, until the client hangs up

Small files without a SHA-256 come first: their hashes are in the list. The list of a commit is remembered in the work
directory, so that one that is here costs a single request, and none if the job names the commit.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Tuple

from ....protocol.manifest import TreeEntry, encode_name, tree_hash
from ....protocol.untrusted import Untrusted
from ...runtime.heartbeat import Heartbeat
from ...runtime.stream import VerbError
from ...state.workdir import make_private, open_workdir, read_json, write_atomically
from ...sync.paths import resolve_path
from ...sync.remote.downloader import Downloader
from ...sync.remote.http import Http, Refusal, Stopped, find_connect_problem
from ...sync.remote.hubs import MAX_FILES, MAX_SIZE, RemoteFile, Source, open_source
from ...sync.remote.placement import Content, Placement
from ...sync.staging.folders import open_parent
from ...sync.staging.remembered_hashes import staged_folder
from ...sync.staging.staged import name_target, write_record
from ...sync.transfer import Provider, providing
from ..files import ListedFile, send_rows, serve_files

if TYPE_CHECKING:
    from ....protocol.messages.contents import CopyReport, Reach, RememberedList, Resolved
    from ....protocol.messages.stored import StagedSource
    from ....protocol.messages.verbs import DownloadRequest
    from ...runtime.stream import Stream

POLL_INTERVAL = 0.1  # seconds
REPORT_INTERVAL = 5  # polls
MAX_PATH = 4096


def run(request: DownloadRequest, stream: Stream) -> None:
    """Serve one client until it hangs up."""
    if request["do"] == "inspect":
        stream.answer({"reach": inspect(request)})
        return
    with Heartbeat(stream) as heartbeat:
        download = Download(request, heartbeat)
        try:
            download.serve()
        except Refusal as refusal:
            raise download.source.explain(refusal) from None
        except Stopped:
            pass  # the client has left
        finally:
            download.close()


def inspect(request: DownloadRequest) -> Reach:
    """Report whether all is here, how much of it, and whether the server can be connected to."""
    source = make_source(request, Http(request["variables"]))
    commit, files = read_list(request, source)
    if not files:
        held, whole = 0, False
    else:
        placement = Placement(source, commit, request["layout"], files)
        downloader = Downloader(
            os.path.join(find_target(request), os.fsencode(placement.root)), source.http, no_step
        )
        held = sum(max(downloader.size_here(content), 0) for content in placement.contents)
        whole = source.fixed and held == sum(content.size for content in placement.contents)
    problem = "" if whole else find_connect_problem(source.endpoint, request["variables"])
    return {"whole": whole, "held": held, "problem": problem}


def no_step() -> None:
    """Count nothing: it takes no time."""


class Download:
    """One download, and what is given to other nodes meanwhile."""

    def __init__(self, request: DownloadRequest, heartbeat: Heartbeat) -> None:
        self._request, self._heartbeat = request, heartbeat
        self._waiting: List[str] = []
        http = Http(request["variables"], request["token"], self._waiting.append)
        self._http, self.source = http, make_source(request, http)
        self._provider: Optional[Provider] = None
        self._opened = ExitStack()

    def close(self) -> None:
        """Stop what is under way; what has come stays for the next time."""
        self._http.stopped.set()
        self._opened.close()

    def serve(self) -> None:
        """Download, then send what the client fetches until it hangs up."""
        request, heartbeat = self._request, self._heartbeat
        commit = self.source.resolve()
        remembered, files = read_list(request, self.source)
        if not files or remembered != commit or not commit:
            files = self.source.list_files(commit)
        placement = Placement(self.source, commit, request["layout"], files)
        root = self._make_root(placement)
        downloader = Downloader(root, self._http, heartbeat.step)
        downloader.inspect(placement.contents)
        check_space(root, downloader.missing_bytes(placement.contents))
        first = [content for content in placement.contents if not content.sha256]
        if not self._wait_for(downloader, first):
            return
        save_list(request, self.source, commit, files, placement)
        self._announce(commit, placement, downloader, root)
        missing = [content for content in placement.contents if not content.whole]
        if not self._wait_for(downloader, missing):
            return
        self._make_links(root, placement.links)
        self._record(commit, placement, root)
        heartbeat.send({"copied": report(downloader, placement)})
        serve_files(find_files(root, placement.rows()), heartbeat.stream, heartbeat)

    def _make_root(self, placement: Placement) -> bytes:
        root = os.path.realpath(os.path.join(find_target(self._request), os.fsencode(placement.root)))
        os.makedirs(root, exist_ok=True)
        return root

    def _wait_for(self, downloader: Downloader, contents: List[Content]) -> bool:
        """Download contents and report how much has come; False if the client left."""
        downloader.start(contents)
        polls, reported = 0, downloader.bytes
        while downloader.running:
            try:
                if self._heartbeat.stream.receive(POLL_INTERVAL) is None:
                    downloader.stop()
                    return False
            except TimeoutError:
                pass
            self._heartbeat.step()
            polls += 1
            while self._waiting:
                self._heartbeat.send({"waiting": self._waiting.pop(0)})
            if polls % REPORT_INTERVAL == 0 and downloader.bytes != reported:
                reported = downloader.bytes
                self._heartbeat.send({"downloaded": reported})
        if downloader.failure is not None:
            raise downloader.failure
        self._heartbeat.send({"downloaded": downloader.bytes})
        return True

    def _announce(self, commit: str, placement: Placement, downloader: Downloader, root: bytes) -> None:
        """Begin to give what is here and what comes, and send the list."""
        rows = placement.rows()
        provider = self._opened.enter_context(providing(downloader, rows, self._request["provide"]))
        if provider is not None:
            provider.coming = frozenset(content.sha256 for content in placement.contents if not content.whole)
        resolved: Resolved = {
            "revision": commit,
            "root": os.fsdecode(root),
            "missing": downloader.missing_bytes(placement.contents),
            "port": provider.port if provider else None,
        }
        self._heartbeat.send({"resolved": resolved})
        sent, more = send_rows(listed_rows(rows), self._request["most"], self._heartbeat)
        self._heartbeat.send(
            {"listed": len(sent), "more": more, "mark": "", "workdir_id": "", "outside": None}
        )

    def _record(self, commit: str, placement: Placement, root: bytes) -> None:
        """Record what is here now, if it is staged."""
        staged = self._request["staged"]
        if staged is not None:
            rows = placement.rows()
            found: StagedSource = {**staged, "revision": commit, "tree": tree_hash(rows)}
            path, rows = name_target(root, rows, named=bool(placement.name))
            write_record(open_workdir(self._request["workdir"]), path, found, rows)

    @staticmethod
    def _make_links(root: bytes, rows: List[TreeEntry]) -> None:
        for row in rows:
            with open_parent(root, row.path, make=True) as (folder, name):
                temporary = f".clusterctl-{os.urandom(8).hex()}"
                os.symlink(encode_name(row.content), temporary, dir_fd=folder)
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def make_source(request: DownloadRequest, http: Http) -> Source:
    """Return where the files come from."""
    single = request["name"], request["sha256"]
    return open_source(
        http, request["kind"], request["path"], request["revision"], request["variables"], single
    )


def find_target(request: DownloadRequest) -> bytes:
    """Return the directory that the files go below."""
    return resolve_path(request, request["to"])


def check_space(root: bytes, size: int) -> None:
    """Raise VerbError if a download does not have room; a file system may not report how much it has."""
    status = os.statvfs(root)
    free = status.f_bavail * status.f_frsize
    if status.f_blocks and size > free:
        where = os.fsdecode(root)
        raise VerbError("CC-DISK-001", f"{where} has {free} bytes free, and {size} are to come")


def listed_rows(rows: List[TreeEntry]) -> Iterator[Any]:
    """Yield rows as the verb `files` lists them."""
    for row in rows:
        values = [0, row.path, row.kind, row.size, 0, 0, 0, row.content, row.mode]
        yield values, ListedFile(b"", None, None, row.content if row.kind == "file" else "")


def find_files(root: bytes, rows: List[TreeEntry]) -> List[ListedFile]:
    """Return what lies behind the rows that were sent, now that all is here."""
    files = []
    for row in rows:
        path = os.path.join(root, encode_name(row.path))
        status = os.lstat(path) if row.kind == "file" else None
        files.append(ListedFile(path, status, None, row.content if row.kind == "file" else ""))
    return files


def report(downloader: Downloader, placement: Placement) -> CopyReport:
    """Return what was written."""
    unchanged = sum(row.kind == "file" for row in placement.rows()) - downloader.files
    return {
        "files": downloader.files,
        "bytes": downloader.bytes,
        "unchanged": unchanged,
        "replaced": downloader.replaced,
        "kept": [],
        "kept_count": 0,
    }


def list_path(request: DownloadRequest, source: Source) -> str:
    """Return where the list of a source is remembered."""
    name = hashlib.sha256("\n".join((source.kind, source.endpoint, source.path)).encode()).hexdigest()
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    return os.path.join(staged_folder(workdir), f"{name[:32]}.list")


def read_list(request: DownloadRequest, source: Source) -> Tuple[str, List[RemoteFile]]:
    """Return the commit whose list was remembered last, and its files; empty if there is none, or it is of no use."""
    raw = Untrusted(read_json(list_path(request, source)))
    commit = raw.text("commit")
    files = []
    for row in raw.rows("files", MAX_FILES):
        path, size = row.name(0, MAX_PATH), row.integer(1, 0, MAX_SIZE)
        if path is None or size is None:
            return "", []
        files.append(RemoteFile(path, size, row.text(2, 64), row.text(3, 40)))
    other = source.fixed and commit != source.resolve()  # without a request
    return ("", []) if other else (commit, files)


def save_list(
    request: DownloadRequest, source: Source, commit: str, files: List[RemoteFile], placement: Placement
) -> None:
    """Remember the list of a commit, with all hashes."""
    rows: List[List[Any]] = []
    for file in files:
        content = placement.content_of(file)
        rows.append([file.path, content.size, content.sha256, file.git])
    remembered: RememberedList = {"commit": commit, "files": rows}
    open_workdir(request["workdir"])
    make_private(os.path.dirname(list_path(request, source)))
    write_atomically(list_path(request, source), json.dumps(remembered).encode("ascii"))
