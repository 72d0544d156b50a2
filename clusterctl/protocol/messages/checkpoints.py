"""Checkpoints that the nodes of a run keep for each other: what hub, agents and their keepers send about them.

A *generation* is what one checkpoint of the job's pattern is on all nodes: its name (`step-300`) and the attempt that
wrote it. A *part* is what one node rank has of it: a manifest, whose SHA-256 names it, and the files that it lists. A
*seal* names the parts of a generation of which every node has reported its part: only what is sealed is ever restored.
The *keeper* is the process beside an agent that finds, hashes, gives, takes and restores files (node/sync/checkpoints).

    node that sees the file `complete`, or a match that has settled   -> hub: marked
    hub: collect       -> every node: hashes its part once it has settled     -> hub: part
    hub: seal          -> every node writes it down; the next nodes of the ring `take` the part -> hub: held
    hub: safe          -> every node: older generations beyond `keep` go
    an attempt ends    -> agent: pause; once nothing of it runs anywhere hub: conclude   -> every node, spares too: kept
    next attempt       -> agent: restore  -> keeper: restored; then `begin`
    the ranks of a node succeed -> agent: finish -> keeper: finished, once what they wrote last is sealed

Orders of the hub and reports to it are the same objects that agent and keeper send each other, a line of JSON each.
The keeper is `python payload.zip keeper RUNDIR DESCRIPTOR`, its end of a socket pair; the first line to it is
KeeperSettings. It ends when the pair is closed.

Where nodes see the same files, a node whose match has the `identity` of `collect` answers at once with that and without
a part; only the node `node_rank` of `collect`, which saw the checkpoint first, hashes it and reports its part. If there
are others and all have answered so, the hub seals with `shared` at once; if only some have, these have an empty part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .record import Record, flag, integer, many, number, optional, record, string, word

if TYPE_CHECKING:
    from ..ranks import NodeRank

MAX_NAME = 200  # bytes of a generation's name, one component of a path
MAX_PARTS = 1024  # node ranks
MAX_SEALS = 16  # that a node reports
MAX_SOURCES = 8  # nodes that are named for one part
MAX_MANIFEST = 16 << 20  # bytes of a part's manifest
MAX_FILE_BYTES = 1 << 60
MAX_WHY = 300  # characters
NOT_RESTORED = (
    "CC-CKPT-013"  # no node gives the files: the generation is at fault, not the node that reports it
)
MAX_LINE = 4 << 20  # bytes of JSON between an agent and its keeper


class Part(Record):
    """What one node rank has of a generation; no files: its node has none of it."""

    node_rank: NodeRank = integer(0, MAX_PARTS, 0)
    manifest: str = string(64, "")  # SHA-256 of the manifest, zlib(JSON rows) as in protocol/manifest.py
    size: int = integer(0, MAX_MANIFEST, 0)  # bytes of the manifest as it is sent
    files: int = integer(0, missing=0)
    bytes: int = integer(0, MAX_FILE_BYTES, 0)


class Seal(Record):
    """A generation whose parts are all known; `number` counts the seals of a run, a later one is newer."""

    name: str = string(MAX_NAME, "")
    attempt: int = integer(1, missing=1)
    number: int = integer(0, missing=0)
    nodes: int = integer(1, MAX_PARTS, 1)  # how many took part in the attempt
    parts: tuple[Part, ...] = many(record(Part), MAX_PARTS)
    shared: bool = flag(False)  # all nodes see the same files: nothing is mirrored and nothing restored


class Address(Record):
    """Where a keeper gives parts."""

    address: str = string(64, "")
    port: int = integer(1, 65535, 1)


class Held(Record):
    """A sealed generation on one node: the node ranks whose parts it has whole, in place or as a mirror."""

    seal: Seal = record(Seal)
    parts: tuple[NodeRank, ...] = many(integer(0, MAX_PARTS), MAX_PARTS)


class PartSources(Record):
    """Which nodes have a part, the best first."""

    node_rank: NodeRank = integer(0, MAX_PARTS, 0)
    sources: tuple[Address, ...] = many(record(Address), MAX_SOURCES)


class Restore(Record):
    """What the nodes of an attempt go on from."""

    seal: Seal = record(Seal)
    parts: tuple[PartSources, ...] = many(record(PartSources), MAX_PARTS)


ORDERS = (
    "begin",
    "collect",
    "take",
    "seal",
    "skip",
    "safe",
    "void",
    "pause",
    "conclude",
    "restore",
    "finish",
)
REPORTS = (
    "listening",
    "begun",
    "marked",
    "part",
    "late",
    "held",
    "kept",
    "restoring",
    "restored",
    "finished",
    "note",
)


class KeeperSettings(Record):
    """What a keeper has to know; the rest follows from the directory of the run."""

    path: str = string(4096, "")  # the pattern, absolute
    complete: str = string(MAX_NAME, "")
    keep: int = integer(1, missing=2)
    rate: float | None = number(1.0)  # bytes a second
    needs: str = word(("all", "own"), "all")
    address: str = string(64, "")  # where it gives parts
    ports: tuple[int, ...] = many(integer(1, 65535), 2)  # first and last, or none
    token: str = string(64, "")  # HMAC-SHA256 of "checkpoints" by the token of the run, in hex
    look: float = number(0.01, 60.0, 2.0)  # seconds between two looks; set by tests


class KeeperOrder(Record):
    """From the hub to a node, or from an agent to its keeper.

    begin     attempt, node_rank (-1: a spare): what is there now is no checkpoint of this attempt; watch from now on;
              with `serial` ranks run already: what is there now may be half of one, and does not become one
    collect   attempt, name, identity, node_rank: report the part once it has settled; both are those of the node that
              saw it first
    take      attempt, name, part, sources: take a part of a generation, whose seal comes before it; `serial`: how often
              no node could take it, the more often the later
    seal      seal
    skip      name, attempt: it will not be sealed, or is so already
    safe      name, attempt: it has as many copies as the job wants; `lost`: it can not be restored any more
    void      name, attempt, seal: it was made without the files of a node that wrote later
    pause     the attempt begins to end: what is seen from now on has not settled, ranks may have died in the middle;
              a restore that goes on is given up
    conclude  nothing of the attempt runs: finish hashing what had settled, then report `kept`, with the same `serial`;
              it may come again for the same attempt, after a seal or from the next hub
    restore   restore, node_rank, serial: put the generation in its place
    finish    attempt: no rank of this node runs, and none has failed: look at once what they wrote last
    """

    do: str = word(ORDERS, "")
    attempt: int = integer(1, missing=1)
    name: str = string(MAX_NAME, "")
    node_rank: int = integer(-1, MAX_PARTS, -1)
    identity: str = string(100, "")
    lost: bool = flag(False)
    part: Part | None = optional(Part)
    sources: tuple[Address, ...] = many(record(Address), MAX_SOURCES)
    seal: Seal | None = optional(Seal)
    restore: Restore | None = optional(Restore)
    serial: int = integer(0, missing=0)


class KeeperReport(Record):
    """From a keeper to its agent, and from there to the hub where it concerns the others; `why`: it has failed.

    The agent puts the port of its keeper into what it sends to the hub.

    listening  port: parts are given there (agent only)
    begun      attempt: what is written from now on counts (agent only)
    marked     attempt, name, identity: a generation seems whole here
    part       attempt, name, identity, part; without a part: it sees the files of the node that saw them first
    late       attempt, name: files have come after it reported a part without any
    held       attempt, name, node_rank: that part is here, or why not
    kept       held, port, serial: what is here of sealed generations, checked now
    restoring  a restore goes on (agent only)
    restored   name, path, files, bytes, seconds, serial: that of its `restore`; to the hub only if it has failed
    finished   attempt: all that was seen here is sealed, or will not be (agent only)
    note       name, code, why: for the journal and the report; a checkpoint was skipped, a disk is full (agent only)
    """

    event: str = word(REPORTS, "")
    attempt: int = integer(1, missing=1)
    name: str = string(MAX_NAME, "")
    node_rank: int = integer(-1, MAX_PARTS, -1)
    identity: str = string(100, "")
    part: Part | None = optional(Part)
    port: int = integer(0, 65535, 0)
    held: tuple[Held, ...] = many(record(Held), MAX_SEALS)
    path: str = string(4096, "")
    files: int = integer(0, missing=0)
    bytes: int = integer(0, MAX_FILE_BYTES, 0)
    seconds: float = number(0.0, 1e9, 0.0)
    code: str = string(20, "")
    why: str = string(MAX_WHY, "")
    serial: int = integer(0, missing=0)
