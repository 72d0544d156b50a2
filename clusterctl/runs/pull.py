"""Bringing results home from one node: only what is not here, verified by hash, taken up where it stopped."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from clusterctl.errors import ConnectionLost, NodeError
from clusterctl.plans.outside import Outside, parse_outside
from clusterctl.plans.results import MAX_NAMES, Entry, Judged, Refused, Stamp, read_rows
from clusterctl.protocol.untrusted import Untrusted, parse_rows
from clusterctl.runs.arrival import Account, Arrival, Want, hash_of, nonsense, reason_of, unpack
from clusterctl.runs.conversation import SILENCE, START, Listener, Talk
from clusterctl.runs.landing import FULL, InTheWayError, Known, Landing, is_regular, refusal
from clusterctl.runs.statcache import stamp_of

LARGEST_BATCH = 4 << 20  # bytes of a batch of rows, unpacked; a node sends 1 MiB and a row
MOST_ROWS = 1000  # in a batch
ROW_VALUES = 9
LONGEST_MARK = 64
AT_ONCE = 200  # files that are asked for together


@dataclass(frozen=True)
class Listed:
    """What a node has, as it says.

    `mark` is that of the first node that came to its work directory, by which nodes that share it are known; `place`
    is the directory's lasting id. `outside` is what the run has left outside the output directory, whether it is among
    the entries or not.
    """

    entries: tuple[Entry, ...]
    mark: str
    place: str
    outside: Outside | None = None


def list_results(
    session: Talk, most: int, run: str | None, node: str, *, most_named: int | None = MAX_NAMES
) -> Listed:
    """Hear what a node has; NodeError if that is more than `most` files or `most_named` bytes of names, or nonsense."""
    entries: list[Entry] = []
    header, named = Untrusted({}), 0
    listener = _listen(session, node, START)
    while "listed" not in header:
        header, body = listener.answer()
        if "rows" in header:
            try:
                rows = parse_rows(unpack(body, LARGEST_BATCH), LARGEST_BATCH, MOST_ROWS * ROW_VALUES)
                read = list(read_rows(rows, len(entries), run))
            except (ValueError, zlib.error) as error:
                raise nonsense(node, str(error)) from error
            entries += read
            named += sum(4 * (len(entry.path) + len(entry.target)) for entry in read)
        elif "listed" not in header:
            raise nonsense(node, "an answer that was not asked for")
        too_long = most_named is not None and named > most_named
        if len(entries) > most or too_long or header.flag("more"):
            what = "longer names than this machine takes in" if too_long else f"more than {most} files"
            raise NodeError(
                f"there are {what} to bring",
                code="CC-PULL-001",
                node=node,
                fix="--no-limit brings them all the same",
            )
    outside = parse_outside(header.record("outside"))
    place = header.text("place", LONGEST_MARK)
    return Listed(tuple(entries), header.text("mark", LONGEST_MARK), place, outside)


def _listen(session: Talk, node: str, first: float) -> Listener:
    return Listener(
        session,
        hung_up=lambda: ConnectionLost("the node hung up", code="CC-PULL-003", node=node),
        stalled=lambda what: NodeError(
            what,
            code="CC-PULL-006",
            node=node,
            fix="the file system of its work directory hangs; look at it there",
        ),
        first=first,
    )


def choose_wants(judged: Judged, landing: Landing, account: Account, *, overwrite: bool) -> Iterator[Want]:
    """Decide for every file whether it must be asked for; what is decided here goes to the account."""
    for entry in judged.files:
        try:
            want = _want(entry, landing, account, overwrite=overwrite)
        except (InTheWayError, OSError) as error:
            account.refused.append(Refused(entry.path, reason_of(error)))
            continue
        if want is not None:
            yield want


def _want(entry: Entry, landing: Landing, account: Account, *, overwrite: bool) -> Want | None:
    found, known = landing.find(entry.path), landing.known.get(entry.path)
    if found is None:
        return _resumed(entry, landing, None)
    if not is_regular(found):
        raise InTheWayError("something else has its name here")
    before = stamp_of(found)
    if known is not None and before == known.here:
        if known.there == entry.stamp:
            account.unchanged += 1
            return None
        resumed = _resumed(entry, landing, before)
        return resumed if resumed.offset else _grown(entry, before, known)
    if found.st_size == entry.size:  # not known to be ours: perhaps it is the same all the same
        with landing.read(entry.path) as descriptor:
            known_as = hash_of(descriptor).hexdigest()
        return Want(entry, entry.size, known_as, data=overwrite, before=before)
    if overwrite:
        return _resumed(entry, landing, before)
    account.kept.append(entry.path)
    return None


def _resumed(entry: Entry, landing: Landing, before: Stamp | None) -> Want:
    """Take up what arrived of this very file before."""
    part = landing.part_of(entry)
    with suppress(OSError):
        size = part.stat().st_size
        if 0 < size <= entry.size:
            with part.open("rb") as file:
                arrived = hash_of(file.fileno()).hexdigest()
                return Want(entry, size, arrived, arrived=True, before=before)
    return Want(entry, before=before)


def _grown(entry: Entry, before: Stamp, known: Known) -> Want:
    """A file that may only have grown is asked for from its old end."""
    size = before[0]
    if 0 < size <= entry.size and size == known.there[0]:
        return Want(entry, size, known.sha256, before=before)
    return Want(entry, before=before)


def bring(
    session: Talk,
    wants: Sequence[Want],
    landing: Landing,
    account: Account,
    *,
    node: str,
    moved: Callable[[int], None] = lambda _: None,
) -> None:
    """Ask for files and put them in their places; what cannot be is in the account.

    Raises SystemRefusal when the disk here is full, NodeError when the node does not send what it announced.
    """
    listener, rest = _listen(session, node, SILENCE), iter(wants)
    while batch := list(islice(rest, AT_ONCE)):
        session.send({"bring": [[want.entry.index, want.offset, want.sha256, want.data] for want in batch]})
        arrivals = deque(Arrival(want, landing, account, node, moved) for want in batch)
        try:
            _take_batch(listener, arrivals, node)
        except BaseException:
            if arrivals:
                arrivals[0].leave()
            raise


def _take_batch(listener: Listener, arrivals: deque[Arrival], node: str) -> None:
    while True:
        header, body = listener.answer()
        if header.flag("brought") and not arrivals:
            return
        index = arrivals[0].want.entry.index if arrivals else None
        if index is None or index not in [header.integer(word) for word in ("file", "whole", "failed")]:
            raise nonsense(node, "an answer that was not asked for")
        if "file" in header:
            arrivals[0].take(header, body)
        else:
            arrivals.popleft().end(header)


def make_rest(judged: Judged, landing: Landing, account: Account) -> None:
    """Make empty directories, and links last."""
    account.refused += judged.refused
    for entry in (*judged.folders, *judged.links):
        try:
            if entry.kind == "dir":
                landing.make_folder(entry.path)
            elif not landing.make_link(entry.path, entry.target):
                account.refused.append(Refused(entry.path, "something else has its name here"))
        except (InTheWayError, OSError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise refusal(error, landing.place) from error
            account.refused.append(Refused(entry.path, reason_of(error)))
