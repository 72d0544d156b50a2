"""List and fetch a node's outputs.

Under which name the outputs of a work directory are kept here, when several nodes share it.

That nodes share one is believed only if one of them has seen what the other has put there: each is given a mark that no
other node is told, and the first to come leaves its own for the others to find. So a node can say that it shares its
directory with another one only where that is so.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from clusterctl.client.local.private_files import read_own, write_aside
from clusterctl.client.results.receive import Account, Arrival, Want, hash_of, nonsense, reason_of, unpack
from clusterctl.client.results.target_dir import (
    FULL,
    OURS,
    InTheWayError,
    Known,
    Landing,
    is_regular,
    refusal,
)
from clusterctl.client.rpc.session import SILENCE, START, Listener, Talk
from clusterctl.client.sync.contents import stamp_of
from clusterctl.errors import ConnectionLost, NodeError
from clusterctl.plans.sync.results import (
    MAX_NAMES,
    Entry,
    Judged,
    Outside,
    Refused,
    Stamp,
    parse_outside,
    read_rows,
)
from clusterctl.protocol.untrusted import Untrusted, parse_rows

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


@dataclass(frozen=True)
class Home:
    """The name under which a work directory's outputs are kept, and the nodes that shared it."""

    name: str
    nodes: frozenset[str]


def group_homes(listed: Mapping[str, Listed], marks: Mapping[str, str]) -> list[list[str]]:
    """Put nodes together that share a work directory: they found the same mark, as did the node that was given it."""
    given = {mark: name for name, mark in marks.items()}
    groups: dict[str, list[str]] = {}
    for name, one in listed.items():
        first = given.get(one.mark)
        agreed = first is not None and first in listed and listed[first].mark == one.mark
        groups.setdefault(first if first is not None and agreed else f"{name}/", []).append(name)
    return list(groups.values())


def name_homes(groups: Sequence[Sequence[str]], listed: Mapping[str, Listed], target: Path) -> dict[str, str]:
    """Name each group by its first node, or as it was named before, also by one that does not answer now.

    Gives the names by each group's first node. A name of before counts for those alone who shared the directory then:
    by its id, which a node may lie about, nobody comes by the name of another.
    """
    file = target / OURS / "homes.json"
    known = _load(file)
    names: dict[str, str] = {}
    for group in groups:
        place = listed[group[0]].place
        home = known.get(place) if place else None
        before = home.name if home and home.nodes & set(group) else ""
        mine = before in group or (before and before not in listed and before not in names.values())
        names[group[0]] = before if mine else group[0]
        if place and len(group) > 1:
            shared = {*group, *(home.nodes if home and before else ())}
            known[place] = Home(names[group[0]], frozenset(shared))
    if known:
        with suppress(OSError):
            write_aside(
                file, json.dumps({place: [one.name, sorted(one.nodes)] for place, one in known.items()})
            )
    return names


def choose_bringer(group: Sequence[str], home: str) -> str:
    """Choose who brings a group's outputs: whose name they bear, for he alone writes below it anyway."""
    return home if home in group else group[0]


def _load(file: Path) -> dict[str, Home]:
    """Read who shared which work directory; an older version wrote the name alone."""
    try:
        raw = json.loads(read_own(file))
        pairs = ((str(place), (one, [one]) if isinstance(one, str) else one) for place, one in raw.items())
        homes = {place: Home(str(name), frozenset(map(str, nodes))) for place, (name, nodes) in pairs}
        return {place: home for place, home in homes.items() if _is_name(home.name)}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name
