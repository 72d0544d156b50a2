"""Files on their way to this machine: which to request, and one file written aside and installed.

What is free on the disk here is divided among nodes that all send at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterctl.client.files.node_files import FileEnd, FileRequest, NodeFiles, Piece, protocol_error
from clusterctl.client.files.target_dir import (
    DISK_FULL_ERRNOS,
    PathOccupiedError,
    ReceivedFile,
    TargetDirectory,
    UsersDirectory,
    is_regular,
    prepare_target,
    write_refused,
)
from clusterctl.client.rpc.cluster import Observer
from clusterctl.client.sync.contents import stamp_of
from clusterctl.errors import LocalSystemError, NodeError
from clusterctl.node_texts import describe_system_error
from clusterctl.plans.sync.listed_files import DownloadPlan, ListedEntry, RefusedEntry, Stamp, plan_download
from clusterctl.plans.sync.manifest import render_megabytes
from clusterctl.translation import tr

CHUNK = 1 << 20
CLOSE_LIMIT = 2.0  # seconds in which those who write remember what has arrived
HONOURED = 30.0  # seconds in which what a node has announced is kept free for it, whatever has arrived
HONOURED_RATE = 3600.0  # seconds: after that, only if all would have arrived in this time at its rate
WAIT_TICK = 1.0  # seconds


@dataclass
class DownloadReport:
    """What became of a node's files."""

    files: int = 0
    bytes: int = 0
    unchanged: int = 0
    kept: list[str] = field(default_factory=list)  # changed here, so left alone
    changing: list[str] = field(default_factory=list)  # written to while they were read
    refused: list[RefusedEntry] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Return whether the node had nothing at all."""
        return not (self.files or self.unchanged or self.kept or self.refused)


def choose_requests(
    plan: DownloadPlan, target: TargetDirectory, report: DownloadReport, *, overwrite: bool
) -> Iterator[FileRequest]:
    """Decide for every file whether it must be requested; what is decided here goes to the report."""
    target.judge_names(entry.path for entry in (*plan.folders, *plan.links))
    for entry in plan.files:
        try:
            request = _request_for(entry, target, report, overwrite=overwrite)
        except (PathOccupiedError, OSError) as error:
            report.refused.append(RefusedEntry(entry.path, describe_system_error(error)))
            continue
        if request is not None:
            yield request


def _request_for(
    entry: ListedEntry, target: TargetDirectory, report: DownloadReport, *, overwrite: bool
) -> FileRequest | None:
    file_stat, received = target.find(entry.path), target.files.get(entry.path)
    if file_stat is None:
        return _resume_request(entry, target, None)
    if not is_regular(file_stat):
        raise PathOccupiedError(tr("something else has this name here"))
    local_stamp = stamp_of(file_stat)
    if received is not None and local_stamp == received.local_stamp:
        if received.remote_stamp == entry.stamp and entry.content in ("", received.sha256):
            report.unchanged += 1
            return None
        resumed = _resume_request(entry, target, local_stamp)
        return resumed if resumed.offset else _append_request(entry, local_stamp, received)
    if file_stat.st_size == entry.size:  # not known to be ours: perhaps it is the same all the same
        with target.open_file(entry.path) as descriptor:
            sha256 = hash_descriptor(descriptor).hexdigest()
        return FileRequest(entry, entry.size, sha256, data=overwrite, local_stamp=local_stamp)
    if overwrite:
        return _resume_request(entry, target, local_stamp)
    report.kept.append(entry.path)
    return None


def _resume_request(entry: ListedEntry, target: TargetDirectory, local_stamp: Stamp | None) -> FileRequest:
    """Take up what arrived of this very file before."""
    with suppress(OSError), target.open_received(entry) as descriptor:
        size = os.fstat(descriptor).st_size
        if 0 < size <= entry.size:
            sha256 = hash_descriptor(descriptor).hexdigest()
            return FileRequest(entry, size, sha256, is_partial=True, local_stamp=local_stamp)
    return FileRequest(entry, local_stamp=local_stamp)


def _append_request(entry: ListedEntry, local_stamp: Stamp, received: ReceivedFile) -> FileRequest:
    """Request a file that may only have grown from its old end."""
    size = local_stamp[0]
    if 0 < size <= entry.size and size == received.remote_stamp[0]:
        return FileRequest(entry, size, received.sha256, local_stamp=local_stamp)
    return FileRequest(entry, local_stamp=local_stamp)


def fetch_files(
    files: NodeFiles,
    requests: Sequence[FileRequest],
    target: TargetDirectory,
    report: DownloadReport,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> None:
    """Request files and install them; failures are in the report."""
    receiver: FileReceiver | None = None
    try:
        for arrived in files.fetch(requests):
            receiver = receiver or FileReceiver(arrived.request, target, report, files.node)
            if isinstance(arrived, Piece):
                on_bytes(len(arrived.data))
                receiver.write(arrived)
            else:
                receiver.finish(arrived)
                receiver = None
    finally:
        if receiver is not None:
            receiver.close()


class FileReceiver:
    """One file on its way: written aside, hashed, and installed once it is whole."""

    def __init__(
        self, request: FileRequest, target: TargetDirectory, report: DownloadReport, node: str
    ) -> None:
        self.request = request
        self._target, self._report, self._node = target, report, node
        self._partial = target.partial_name(request.entry)
        self._descriptor = -1
        self._digest: Any = None
        self._error = ""

    def write(self, piece: Piece) -> None:
        """Write a piece behind those before it; after an error here nothing is written."""
        if self._error:
            return
        try:
            if self._descriptor < 0:
                self._open(piece.at)
            _write_all(self._descriptor, piece.data)
        except (OSError, PathOccupiedError) as error:
            self._on_error(error)
            return
        self._digest.update(piece.data)

    def _open(self, offset: int) -> None:
        """Begin at the start, or continue where the local file ends."""
        resumed = offset > 0
        truncate = 0 if resumed and self.request.is_partial else os.O_TRUNC
        self._descriptor = self._target.open_partial(self._partial, os.O_RDWR | os.O_CREAT | truncate)
        if resumed and not self.request.is_partial:
            self._copy_existing()
        self._digest = hash_descriptor(self._descriptor)

    def _copy_existing(self) -> None:
        """Begin with the file that was downloaded before, which is the beginning of the new one."""
        with self._target.open_file(self.request.entry.path) as source:
            remaining = self.request.offset
            while remaining and (data := os.read(source, min(CHUNK, remaining))):
                _write_all(self._descriptor, data)
                remaining -= len(data)

    def finish(self, end: FileEnd) -> None:
        """Install the file if it has the size and hash that the node reports."""
        entry = self.request.entry
        try:
            if end.problem or self._error:
                self._report_refused(end.problem or self._error, by_node=not self._error)
            elif not end.is_whole:
                self._target.remove_partial(self._partial)
                self._report_refused(tr("it became shorter while it was read; pull again"), by_node=True)
            elif entry.content not in ("", end.sha256):  # of files that were hashed for the list
                self._target.remove_partial(self._partial)
                self._report_refused(tr("its content does not have the hash that was listed"), by_node=True)
            else:
                self._verify_and_install(end.sha256)
                if not end.same:
                    self._report.changing.append(entry.path)
        except (OSError, PathOccupiedError) as error:
            self._on_error(error)
            self._report_refused(self._error)
        finally:
            self.close()

    def _verify_and_install(self, sha256: str) -> None:
        entry = self.request.entry
        if self._descriptor < 0 and self.request.offset == entry.size and sha256 == self.request.sha256 != "":
            self._accept_existing(sha256)
            return
        if not self.request.data:
            self._report.kept.append(entry.path)
            return
        if self._descriptor < 0:
            self._open(0)
        if self._digest.hexdigest() != sha256:
            self._target.remove_partial(self._partial)
            raise protocol_error(
                self._node, tr("{path}: the content does not match its hash", path=entry.path)
            )
        if self._install(sha256):
            self._report.bytes += entry.size

    def _accept_existing(self, sha256: str) -> None:
        """Take what is here for what is there: nothing had to be sent."""
        if self.request.is_partial:
            self._install(sha256)
            return
        entry, file_stat = self.request.entry, self._target.find(self.request.entry.path)
        if file_stat is not None and stamp_of(file_stat) == self.request.local_stamp:
            self._target.record(entry, sha256, file_stat)
            self._report.unchanged += 1
        else:
            self._report.kept.append(entry.path)

    def _install(self, sha256: str) -> bool:
        """Rename the file to its name; False if the file of that name was changed here meanwhile."""
        entry, target = self.request.entry, self._target
        file_stat = target.find(entry.path)
        if (file_stat and stamp_of(file_stat)) != self.request.local_stamp:
            self._report.kept.append(entry.path)
            return False
        target.install(self._partial, entry, sha256)
        self._report.files += 1
        return True

    def _on_error(self, error: Exception) -> None:
        if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
            raise write_refused(error, self._target.path) from error
        self._error = describe_system_error(error)

    def _report_refused(self, reason: str, *, by_node: bool = False) -> None:
        self._report.refused.append(RefusedEntry(self.request.entry.path, reason, by_node))

    def close(self) -> None:
        """Close the file; what has arrived of it stays for the next time."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def make_folders_and_links(plan: DownloadPlan, target: TargetDirectory, report: DownloadReport) -> None:
    """Make empty directories, and links last."""
    report.refused += plan.refused
    for entry in (*plan.folders, *plan.links):
        try:
            if entry.kind == "dir":
                target.make_folder(entry.path)
            elif not target.make_link(entry.path, entry.content):
                report.refused.append(RefusedEntry(entry.path, tr("something else has this name here")))
        except (PathOccupiedError, OSError) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
                raise write_refused(error, target.path) from error
            report.refused.append(RefusedEntry(entry.path, describe_system_error(error)))


def hash_descriptor(descriptor: int) -> Any:
    """Hash all of an open file, which then stands at its end."""
    digest = hashlib.sha256()
    os.lseek(descriptor, 0, os.SEEK_SET)
    while data := os.read(descriptor, CHUNK):
        digest.update(data)
    return digest


class Downloads:
    """Files of some nodes on their way to one directory here; each node's are fetched by a thread of its own."""

    def __init__(self, folder: Path, observer: Observer, *, overwrite: bool, hidden: bool = True) -> None:
        """Make the directory; `overwrite`: files that were changed here are replaced too."""
        self.folder, self._observer, self._overwrite = folder, observer, overwrite
        self._ignores_case = prepare_target(folder, hidden=hidden)
        self._budget = DiskBudget(folder)

    @contextmanager
    def opened(
        self, name: str, key: str = "", users: UsersDirectory | None = None
    ) -> Iterator[TargetDirectory]:
        """Open one node's part of the directory, as `TargetDirectory` does."""
        with self._budget.writing(), TargetDirectory(self.folder, name, key, users) as directory:
            yield directory

    def fetch(
        self,
        files: NodeFiles,
        entries: Sequence[ListedEntry],
        directory: TargetDirectory,
        report: DownloadReport,
        max_bytes: int | None = None,
    ) -> None:
        """Fetch what a node has, as far as it is not there; what could not come is in the report.

        Raises LocalSystemError when the disk here is full, NodeError when the node does not send what it announced, or
        nearly stops sending it, or has more than `max_bytes` bytes.
        """
        plan = plan_download(entries, ignores_case=self._ignores_case)
        if max_bytes is not None and plan.size > max_bytes:
            raise NodeError("CC-PULL-001", "total", gib=plan.size >> 30, most=max_bytes >> 30)
        requests = list(choose_requests(plan, directory, report, overwrite=self._overwrite))
        size = sum(request.entry.size - request.offset for request in requests)
        observer, node = self._observer, files.node
        observer.add_expected(size)

        def on_wait() -> None:
            observer.set_step(node, tr("waiting for disk space on this machine"))

        with self._budget.expecting(size, on_wait) as expect:

            def on_bytes(count: int) -> None:
                expect(count)
                observer.add_bytes(node, count)

            observer.set_step(node, tr("sending its files"))
            fetch_files(files, requests, directory, report, on_bytes)
            make_folders_and_links(plan, directory, report)
            directory.remove_partials()

    def close(self, refusal: LocalSystemError | None = None) -> None:
        """Stop all threads; without a refusal, wait until those that write have saved their state."""
        self._budget.close(refusal)


@dataclass
class Claim:
    """What a node has announced and not sent yet."""

    remaining: int
    began: float
    received: int = 0
    firm: bool = True

    def is_honoured(self, now: float) -> bool:
        """Return whether it counts against others: an announcement alone keeps none of them out for good."""
        elapsed = now - self.began
        on_time = self.remaining * elapsed <= HONOURED_RATE * self.received
        return self.firm and (elapsed <= HONOURED or on_time)


class DiskBudget:
    """What is free below a directory, less what is expected; used by many threads."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._claims: list[Claim] = []
        self._writers = 0
        self._changed = threading.Condition()
        self._closed = False
        self._refusal: LocalSystemError | None = None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count as one who writes."""
        with self._changed:
            self._writers += 1
        try:
            yield
        finally:
            with self._changed:
                self._writers -= 1
                self._changed.notify_all()

    @contextmanager
    def expecting(
        self, size: int, on_wait: Callable[[], object] = lambda: None
    ) -> Iterator[Callable[[int], None]]:
        """Keep so many bytes free; gives what is to be called with each number of bytes before they are written.

        Waits for others that are getting on. NodeError if there is no room, or if another has got what was not sent
        in time; LocalSystemError once the budget is closed.
        """
        with self._changed:
            while not self._fits(size):
                on_wait()
                self._changed.wait(WAIT_TICK)
            claim = Claim(size, self._clock())
            self._claims.append(claim)
        try:
            yield lambda count: self._on_bytes(claim, count)
        finally:
            with self._changed:
                self._claims.remove(claim)
                self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        """Return whether a node can begin now; those who announced much and sent little then take what is left."""
        self.check_open()
        free, now = self._measure(), self._clock()
        if size > free:
            raise self._no_room(size, free)
        honoured = [claim for claim in self._claims if claim.is_honoured(now)]
        if size > free - sum(claim.remaining for claim in honoured):
            return False
        if size > free - sum(claim.remaining for claim in self._claims):
            for claim in self._claims:
                claim.firm = any(claim is other for other in honoured)
        return True

    def _on_bytes(self, claim: Claim, count: int) -> None:
        with self._changed:
            self.check_open()
            if not claim.firm:
                free = self._measure() - sum(other.remaining for other in self._claims if other.firm)
                if count > free:
                    raise self._no_room(claim.remaining, free)
            claim.remaining -= count
            claim.received += count

    def _measure(self) -> int:
        return shutil.disk_usage(self._folder).free

    def _no_room(self, size: int, free: int) -> NodeError:
        missing = render_megabytes(size - max(0, free))
        return NodeError(
            "CC-PULL-002", "room", size=render_megabytes(size), missing=missing, folder=self._folder
        )

    def check_open(self) -> None:
        """Raise LocalSystemError once the budget is closed."""
        if self._closed:
            raise self._refusal or LocalSystemError("CC-PULL-002", "interrupted")

    def close(self, refusal: LocalSystemError | None = None) -> None:
        """Stop all threads; without a refusal, wait until those that write have saved their state."""
        with self._changed:
            self._closed, self._refusal = True, self._refusal or refusal
            self._changed.notify_all()
            if refusal is None:
                self._changed.wait_for(lambda: self._writers == 0, CLOSE_LIMIT)
