"""Verb `download`: files of a hub or of a URL come to this node, and other nodes take them while they come.

DownloadRequest                             the messages are defined in protocol/messages
do: inspect Reach
do: list    Resolved, `rows` and Listed as with `get`; hashes that only a download shows are zeros
do: get     `held_by`, while another process stages to the same place; `waiting` and `downloaded`, whenever there is
            something to report; Resolved, and `rows` and Listed as in the verb `files`, once all names, sizes and
            hashes are known: from then on other nodes take the files at the port; `waiting`, `downloaded`; at the end
            `copied`, and then as in the verb `files`, until the client hangs up

Small files without a SHA-256 come first: their hashes are in the list. The list of a commit is remembered in the work
directory, so that one that is here costs a single request, and none if the job names the commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Optional, Tuple, Union

from ....protocol.manifest import TreeEntry, encode_name, tree_hash
from ....protocol.untrusted import Untrusted
from ...runtime.heartbeat import Heartbeat
from ...state.workdir import read_json, write_atomically
from ...sync.paths import resolve_path
from ...sync.remote.downloader import Downloader
from ...sync.remote.http import Http, Refusal, Stopped, find_connect_problem
from ...sync.remote.hubs import MAX_FILES, MAX_SIZE, RemoteFile, Source, open_source
from ...sync.remote.placement import Placement
from ...sync.staging.folder_lock import hold_staged
from ...sync.staging.folders import link_target, open_parent
from ...sync.staging.remembered_hashes import RememberedHashes, make_staged_folder, staged_folder
from ...sync.staging.room import check_room, make_folder
from ...sync.staging.staged import name_target, write_record
from ...sync.staging.written import add_written, make_way, mark_written
from ...sync.transfer import providing
from ..files import ListedFile, send_rows, serve_files

if TYPE_CHECKING:
    from ....protocol.messages.contents import CopyReport, Reach, RememberedList, Resolved
    from ....protocol.messages.stored import StagedSource
    from ....protocol.messages.verbs import DownloadRequest
    from ...runtime.stream import Stream

POLL_INTERVAL = 0.1  # seconds
REPORT_INTERVAL = 5  # polls
MAX_PATH = 4096

Listed = Tuple[str, List[RemoteFile]]  # a commit and its files


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
        root = os.path.join(find_target(request), os.fsencode(placement.root))
        hashes = RememberedHashes("")  # none is needed
        downloader = Downloader(root, source.http, hashes, no_step)
        held = sum(max(downloader.size_here(content), 0) for content in placement.contents)
        whole = source.fixed and held == sum(content.size for content in placement.contents)
    problem = "" if whole else find_connect_problem(source.endpoint, request["variables"])
    return {"whole": whole, "held": held, "problem": problem}


def no_step() -> None:
    """Count nothing: it takes no time."""


class Background:
    """Something that a thread does while the verb reports that it goes on."""

    def __init__(self, action: Callable[[], Listed]) -> None:
        self._action = action
        self.result: Optional[Listed] = None
        self.failure: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Return whether it goes on."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.result = self._action()
        except BaseException as error:  # the verb's thread raises it
            self.failure = error


class Download:
    """One download, and what is given to other nodes meanwhile."""

    def __init__(self, request: DownloadRequest, heartbeat: Heartbeat) -> None:
        self._request, self._heartbeat = request, heartbeat
        self._workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
        self._waiting: List[str] = []
        http = Http(request["variables"], request["token"], self._waiting.append)
        self._http, self.source = http, make_source(request, http)
        self._opened = ExitStack()

    def close(self) -> None:
        """Stop what is under way; what has come stays for the next time."""
        self._http.stopped.set()
        self._opened.close()

    def serve(self) -> None:
        """Download, then send what the client fetches until it hangs up."""
        listing = Background(self._list)
        if not self._wait_for(listing) or listing.result is None:
            return
        commit, files = listing.result
        placement = Placement(self.source, commit, self._request["layout"], files)
        if self._request["do"] == "list":
            self._announce(commit, placement, "", None)
            return
        root = os.path.realpath(os.path.join(find_target(self._request), os.fsencode(placement.root)))
        make_folder(root)
        path, rows = name_target(root, placement.rows(), named=bool(placement.name))
        with hold_staged(self._request, root, path, self._heartbeat, lambda: True):
            hashes = RememberedHashes(self._workdir)
            downloader = Downloader(root, self._http, hashes, self._heartbeat.step)
            with self._recording(downloader, path, rows, named=bool(placement.name)):
                if not self._fetch(downloader, commit, files, placement):
                    return
                self._make_links(root, placement.links, downloader.marks)
            self._record(commit, placement, root)
        self._heartbeat.send({"copied": report(downloader, placement)})
        serve_files(find_files(root, placement.rows()), self._heartbeat.stream, self._heartbeat)

    def _list(self) -> Listed:
        """Return the commit and its files."""
        commit = self.source.resolve()
        remembered, files = read_list(self._request, self.source)
        if not files or remembered != commit or not commit or self.source.moves:
            files = self.source.list_files(commit)
        return commit, files

    def _fetch(
        self, downloader: Downloader, commit: str, files: List[RemoteFile], placement: Placement
    ) -> bool:
        """Download what is missing; False if the client left."""
        contents = placement.contents
        downloader.inspect(contents)
        needed = [row for content in contents if not content.whole for row in placement.rows_of(content)]
        check_room(downloader.top, needed, downloader.missing_bytes(contents), downloader.probe)
        try:
            downloader.start([content for content in contents if not content.sha256])
            if not self._wait_for(downloader):
                return False
            save_list(self._request, self.source, commit, files, placement)
            self._announce(commit, placement, os.fsdecode(downloader.top), downloader)
            downloader.start(contents)
            return self._wait_for(downloader)
        finally:
            downloader.remember()

    def _wait_for(self, work: Union[Background, Downloader]) -> bool:
        """Report how work goes on until it ends; False if the client left."""
        polls = reported = 0
        while work.running:
            try:
                if self._heartbeat.stream.receive(POLL_INTERVAL) is None:
                    self._http.stopped.set()
                    return False
            except TimeoutError:
                pass
            self._heartbeat.step()
            polls += 1
            self._report_waits()
            if polls % REPORT_INTERVAL == 0 and isinstance(work, Downloader) and work.bytes != reported:
                reported = work.bytes
                self._heartbeat.send({"downloaded": reported})
        self._report_waits()
        if work.failure is not None:
            raise work.failure
        if isinstance(work, Downloader):
            self._heartbeat.send({"downloaded": work.bytes})
        return True

    def _report_waits(self) -> None:
        while self._waiting:
            self._heartbeat.send({"waiting": self._waiting.pop(0)})

    def _announce(
        self, commit: str, placement: Placement, root: str, downloader: Optional[Downloader]
    ) -> None:
        """Begin to give what is here and what comes, and send the list."""
        rows, provider = placement.rows(), None
        if downloader is not None:
            provider = self._opened.enter_context(providing(downloader, rows, self._request["provide"]))
        if provider is not None:
            provider.coming = frozenset(content.sha256 for content in placement.contents if not content.whole)
        resolved: Resolved = {
            "revision": commit,
            "root": root,
            "missing": downloader.missing_bytes(placement.contents) if downloader else 0,
            "port": provider.port if provider else None,
        }
        self._heartbeat.send({"resolved": resolved})
        sent, more = send_rows(listed_rows(rows), self._request["most"], self._heartbeat)
        self._heartbeat.send(
            {"listed": len(sent), "more": more, "mark": "", "workdir_id": "", "outside": None}
        )

    @contextmanager
    def _recording(
        self, downloader: Downloader, path: str, rows: List[TreeEntry], *, named: bool
    ) -> Iterator[None]:
        """Record what is written at a path meanwhile, also if it is not all, if it is staged."""
        if self._request["staged"] is None:
            yield
            return
        make_way(self._workdir, path, rows)
        try:
            yield
        finally:
            marks = name_target(downloader.top, downloader.marks, named=named)[1]
            add_written(self._workdir, path, marks)

    def _record(self, commit: str, placement: Placement, root: bytes) -> None:
        """Record what is here now, if it is staged."""
        staged = self._request["staged"]
        if staged is not None:
            rows = placement.rows()
            found: StagedSource = {**staged, "revision": commit, "tree": tree_hash(rows)}
            path, rows = name_target(root, rows, named=bool(placement.name))
            write_record(self._workdir, path, found, rows)

    @staticmethod
    def _make_links(root: bytes, rows: List[TreeEntry], marks: List[TreeEntry]) -> None:
        for row in rows:
            target = encode_name(row.content)
            with open_parent(root, row.path, make=True) as (folder, name):
                if link_target(name, folder) != target:
                    temporary = f".clusterctl-{os.urandom(8).hex()}"
                    os.symlink(target, temporary, dir_fd=folder)
                    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                    marks.append(mark_written(row.path, os.stat(name, dir_fd=folder, follow_symlinks=False)))


def make_source(request: DownloadRequest, http: Http) -> Source:
    """Return where the files come from."""
    single = request["name"], request["sha256"]
    return open_source(
        http, request["kind"], request["path"], request["revision"], request["variables"], single
    )


def find_target(request: DownloadRequest) -> bytes:
    """Return the directory that the files go below."""
    return resolve_path(request, request["to"])


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
    make_staged_folder(request["workdir"])
    write_atomically(list_path(request, source), json.dumps(remembered).encode("ascii"))
