"""List and fetch a node's outputs.

Under which name the outputs of a work directory are kept here, when several nodes share it.

That nodes share one is accepted only if one of them has found the other's file there: each gets a mark that no
other node knows, and the first to come leaves its own for the others to find. So a node can say that it shares its
directory with another one only where that is so.
"""

from __future__ import annotations

import json
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from clusterctl.client.local.private_files import read_own, write_atomically
from clusterctl.client.results.file_receiver import (
    FileReceiver,
    FileRequest,
    ListingProgress,
    Pace,
    PullReport,
    decompress,
    hash_descriptor,
    protocol_error,
)
from clusterctl.client.results.target_dir import (
    DISK_FULL_ERRNOS,
    PathOccupiedError,
    PulledFile,
    TargetDirectory,
    is_regular,
    write_refused,
)
from clusterctl.client.rpc.session import ANSWER_SILENCE_LIMIT, FIRST_ANSWER_LIMIT, ReplyReader, ReplyStream
from clusterctl.client.sync.contents import stamp_of
from clusterctl.errors import ConnectionLost, NodeError
from clusterctl.node_texts import describe_system_error
from clusterctl.plans.sync.outside_files import OutsideFiles, parse_outside
from clusterctl.plans.sync.received_names import (
    MAX_NAMES,
    META_FOLDER,
    DownloadPlan,
    OutputEntry,
    RefusedEntry,
    Stamp,
    parse_output_rows,
)
from clusterctl.protocol.untrusted import Untrusted, parse_rows
from clusterctl.translation import tr

LARGEST_BATCH = 4 << 20  # bytes of a batch of rows, unpacked; a node sends 1 MiB and a row
MOST_ROWS = 1000  # in a batch
ROW_VALUES = 10
LONGEST_MARK = 64
FILES_PER_REQUEST = 200  # files that are requested together


@dataclass(frozen=True)
class NodeListing:
    """What a node has, as it reports.

    `mark` is that of the first node that came to its work directory, by which nodes that share it are known;
    `workdir_id` is the directory's lasting id. `outside` is what the run has left outside the output directory,
    whether it is among the entries or not.
    """

    entries: tuple[OutputEntry, ...]
    mark: str
    workdir_id: str
    outside: OutsideFiles | None = None


def list_results(
    session: ReplyStream,
    max_files: int,
    run_id: str | None,
    node: str,
    *,
    max_name_bytes: int | None = MAX_NAMES,
) -> NodeListing:
    """Return what a node has; NodeError for malformed data, too many files or too many bytes of names."""
    entries: list[OutputEntry] = []
    header, name_bytes = Untrusted({}), 0
    listener, progress = _reply_reader(session, node, FIRST_ANSWER_LIMIT), ListingProgress(node)
    while "listed" not in header:
        header, body = listener.receive()
        if "rows" in header:
            try:
                text = decompress(body, LARGEST_BATCH)
                rows = parse_rows(text, LARGEST_BATCH, MOST_ROWS * ROW_VALUES)
                batch = list(parse_output_rows(rows, len(entries), run_id))
            except (ValueError, zlib.error) as error:
                raise protocol_error(node, str(error)) from error
            progress.on_batch(len(batch), len(text))
            entries += batch
            name_bytes += sum(4 * (len(entry.path) + len(entry.target)) for entry in batch)
        elif "listed" not in header:
            raise protocol_error(node, tr("an answer that was not requested"))
        too_long = max_name_bytes is not None and name_bytes > max_name_bytes
        if len(entries) > max_files or too_long or header.flag("more"):
            excess = (
                tr("too many bytes of file names")
                if too_long
                else tr("more than {limit} files", limit=max_files)
            )
            raise NodeError("CC-PULL-001", node=node, excess=excess)
    outside = parse_outside(header.record("outside"))
    workdir_id = header.text("workdir_id", LONGEST_MARK)
    return NodeListing(tuple(entries), header.text("mark", LONGEST_MARK), workdir_id, outside)


def _reply_reader(session: ReplyStream, node: str, first_limit: float) -> ReplyReader:
    return ReplyReader(
        session,
        on_closed=lambda: ConnectionLost("CC-PULL-003", "closed", node=node),
        on_stalled=lambda case, limit: NodeError("CC-PULL-006", case, node=node, limit=limit),
        first_limit=first_limit,
    )


def choose_requests(
    judged: DownloadPlan, target: TargetDirectory, report: PullReport, *, overwrite: bool
) -> Iterator[FileRequest]:
    """Decide for every file whether it must be requested; what is decided here goes to the report."""
    target.judge_names(entry.path for entry in (*judged.folders, *judged.links))
    for entry in judged.files:
        try:
            request = _request_for(entry, target, report, overwrite=overwrite)
        except (PathOccupiedError, OSError) as error:
            report.refused.append(RefusedEntry(entry.path, describe_system_error(error)))
            continue
        if request is not None:
            yield request


def _request_for(
    entry: OutputEntry, target: TargetDirectory, report: PullReport, *, overwrite: bool
) -> FileRequest | None:
    file_stat, pulled = target.find(entry.path), target.files.get(entry.path)
    if file_stat is None:
        return _resume_request(entry, target, None)
    if not is_regular(file_stat):
        raise PathOccupiedError(tr("something else has this name here"))
    local_stamp = stamp_of(file_stat)
    if pulled is not None and local_stamp == pulled.local_stamp:
        if pulled.remote_stamp == entry.stamp:
            report.unchanged += 1
            return None
        resumed = _resume_request(entry, target, local_stamp)
        return resumed if resumed.offset else _append_request(entry, local_stamp, pulled)
    if file_stat.st_size == entry.size:  # not known to be ours: perhaps it is the same all the same
        with target.open_file(entry.path) as descriptor:
            sha256 = hash_descriptor(descriptor).hexdigest()
        return FileRequest(entry, entry.size, sha256, data=overwrite, local_stamp=local_stamp)
    if overwrite:
        return _resume_request(entry, target, local_stamp)
    report.kept.append(entry.path)
    return None


def _resume_request(entry: OutputEntry, target: TargetDirectory, local_stamp: Stamp | None) -> FileRequest:
    """Take up what arrived of this very file before."""
    with suppress(OSError), target.open_received(entry) as descriptor:
        size = os.fstat(descriptor).st_size
        if 0 < size <= entry.size:
            sha256 = hash_descriptor(descriptor).hexdigest()
            return FileRequest(entry, size, sha256, is_partial=True, local_stamp=local_stamp)
    return FileRequest(entry, local_stamp=local_stamp)


def _append_request(entry: OutputEntry, local_stamp: Stamp, pulled: PulledFile) -> FileRequest:
    """Request a file that may only have grown from its old end."""
    size = local_stamp[0]
    if 0 < size <= entry.size and size == pulled.remote_stamp[0]:
        return FileRequest(entry, size, pulled.sha256, local_stamp=local_stamp)
    return FileRequest(entry, local_stamp=local_stamp)


def fetch_files(
    session: ReplyStream,
    requests: Sequence[FileRequest],
    target: TargetDirectory,
    report: PullReport,
    *,
    node: str,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> None:
    """Request files and install them; failures are in the report.

    Raises LocalSystemError when the disk here is full, NodeError when the node does not send what it announced, or
    nearly stops sending it.
    """
    pace = Pace(node, _reply_reader(session, node, ANSWER_SILENCE_LIMIT))
    remaining = iter(requests)

    def on_data(count: int) -> None:
        pace.on_received(count)
        on_bytes(count)

    while batch := list(islice(remaining, FILES_PER_REQUEST)):
        session.send(
            {
                "fetch": [
                    [request.entry.index, request.offset, request.sha256, request.data] for request in batch
                ]
            }
        )
        receivers = deque(FileReceiver(request, target, report, node, on_data) for request in batch)
        try:
            _receive_batch(pace, receivers, node)
        except BaseException:
            if receivers:
                receivers[0].close()
            raise


def _receive_batch(pace: Pace, receivers: deque[FileReceiver], node: str) -> None:
    begun: FileReceiver | None = None
    while True:
        first = receivers[0] if receivers else None
        header, body = pace.receive(first.request.offset if first is not None and first is not begun else 0)
        begun = first
        if header.flag("fetched") and not receivers:
            return
        index = receivers[0].request.entry.index if receivers else None
        if index is None or index not in [header.integer(key) for key in ("file", "whole", "failed")]:
            raise protocol_error(node, tr("an answer that was not requested"))
        if "file" in header:
            receivers[0].on_data(header, body)
        else:
            receivers.popleft().finish(header)
            pace.on_received(0, files=1)


def make_folders_and_links(judged: DownloadPlan, target: TargetDirectory, report: PullReport) -> None:
    """Make empty directories, and links last."""
    report.refused += judged.refused
    for entry in (*judged.folders, *judged.links):
        try:
            if entry.kind == "dir":
                target.make_folder(entry.path)
            elif not target.make_link(entry.path, entry.target):
                report.refused.append(RefusedEntry(entry.path, tr("something else has this name here")))
        except (PathOccupiedError, OSError) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
                raise write_refused(error, target.path) from error
            report.refused.append(RefusedEntry(entry.path, describe_system_error(error)))


@dataclass(frozen=True)
class SharedHome:
    """The name under which a work directory's outputs are kept, and the nodes that shared it."""

    name: str
    nodes: frozenset[str]


def group_by_workdir(listed: Mapping[str, NodeListing], marks: Mapping[str, str]) -> list[list[str]]:
    """Put nodes together that share a work directory: they found the same mark, as did the node that was given it."""
    owners = {mark: name for name, mark in marks.items()}
    groups: dict[str, list[str]] = {}
    for name, listing in listed.items():
        first = owners.get(listing.mark)
        confirmed = first is not None and first in listed and listed[first].mark == listing.mark
        groups.setdefault(first if first is not None and confirmed else f"{name}/", []).append(name)
    return list(groups.values())


def name_shared_homes(
    groups: Sequence[Sequence[str]], listed: Mapping[str, NodeListing], target: Path
) -> dict[str, str]:
    """Name each group by its first node, or as it was named before, also by one that does not answer now.

    Gives the names by each group's first node. A name of before counts for those alone who shared the directory then:
    by its id, which a node may forge, none gets the name of another.
    """
    file = target / META_FOLDER / "homes.json"
    homes = _load(file)
    names: dict[str, str] = {}
    for group in groups:
        workdir_id = listed[group[0]].workdir_id
        home = homes.get(workdir_id) if workdir_id else None
        previous = home.name if home and home.nodes & set(group) else ""
        keeps_name = previous in group or (
            previous and previous not in listed and previous not in names.values()
        )
        names[group[0]] = previous if keeps_name else group[0]
        if workdir_id and len(group) > 1:
            sharing = {*group, *(home.nodes if home and previous else ())}
            homes[workdir_id] = SharedHome(names[group[0]], frozenset(sharing))
    if homes:
        with suppress(OSError):
            write_atomically(
                file,
                json.dumps(
                    {
                        workdir_id: [shared_home.name, sorted(shared_home.nodes)]
                        for workdir_id, shared_home in homes.items()
                    }
                ),
            )
    return names


def choose_fetching_node(group: Sequence[str], home: str) -> str:
    """Choose the node that sends a group's outputs: the one whose name they have, the only one that writes there."""
    return home if home in group else group[0]


def _load(file: Path) -> dict[str, SharedHome]:
    """Read who shared which work directory; an older version wrote the name alone."""
    try:
        raw = json.loads(read_own(file))
        pairs = (
            (str(workdir_id), (entry, [entry]) if isinstance(entry, str) else entry)
            for workdir_id, entry in raw.items()
        )
        homes = {
            workdir_id: SharedHome(str(name), frozenset(map(str, nodes)))
            for workdir_id, (name, nodes) in pairs
        }
        return {workdir_id: home for workdir_id, home in homes.items() if _is_name(home.name)}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name
