#!/usr/bin/env python3
"""A node in hostile hands: runs the real payload, and changes what it sends.

It stands in the place of the inventory's `python`. The name by which it is called reports how it lies:

    python: ~/lies/ps.run-up          in the payload's verb `ps` it lies as the case `run-up`, in all others not at all

A case takes each frame that the honest payload sends, and gives the bytes that leave in its place. Standard library
only, and one file: it is copied into the home of a node.
"""

from __future__ import annotations

import copy
import getpass
import hashlib
import json
import os
import select
import socket
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import count, cycle, repeat
from pathlib import Path
from typing import Any

Header = dict[str, Any]
MIB = 1 << 20
MAX_PART = 64 * MIB  # bytes of a header, and of a body, that the protocol has room for
EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b]0;evil\x07\x1b[2J\x9b31m\x9d0;evil\x9c\u202eevil\u2066\u200f\x00\x7f\r"
DEEP = 100_000  # brackets
KEPT = (
    "run",
    "job",
    "node",
    "state",
    "launched_id",
    "launched_by",
    "sha256",
    "kind",
    "stream",
    "file",
    "log",
)
FUTURE = 3600.0  # seconds by which an invented run is newer
SHELL = "x; touch PASTED #"
WRONG = (-1, [7], 1.5, "7", {"x": 7}, 2**63, True, None, "", 7, [[]], 2**53 + 0.5)


# Content that a job has staged. Test nodes have none.
STAGED: Header = {
    "source": "hf://org/model@main",
    "revision": "9e165c3",
    "tree": "f" * 64,
    "by": "ann@laptop",
    "path": "/data/model",
    "files": 2,
    "bytes": 9,
    "time": 1795347477.0,
    "state": "whole",
    "differing": 1,
    "problems": [{"path": "model/weights", "state": "changed"}],
}
# A process that a crashed run left. Test nodes have none, and about an empty list there is nothing to lie.
ORPHAN: Header = {
    "run": "left-20261122T111104-a1b2",
    "pid": 1 << 22,
    "starttime": 123456,
    "age": 61.5,
    "command": "/usr/bin/python3 train.py",
    "known": True,
    "job": "left",
    "state": "UNKNOWN",
    "launched_by": f"{getpass.getuser()}@{socket.gethostname()}",  # the user's own: `clean` asks to end it
    "launched_id": None,
}


class Talk:
    """One conversation: the verb, what the client asked, and what was sent so far."""

    def __init__(self, verb: str, request: Header) -> None:
        self.verb = verb
        self.request = request
        self.sent = 0


Case = Callable[[Header, bytes, Talk], Iterable[bytes]]


def frame(header: Any, body: bytes = b"") -> bytes:
    """Render a frame; nothing is too large."""
    return raw(json.dumps(header).encode(), body)


def raw(text: bytes, body: bytes = b"") -> bytes:
    """Render a frame of a header that need not be JSON."""
    return b"%d %d\n" % (len(text), len(body)) + text + body


# what is changed everywhere: each leaf of a frame, and of what its body holds


def each_leaf(change: Callable[[Any], Any]) -> Case:
    """Change every text, number, truth and null of a frame."""

    def lie(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
        yield frame(_walk(header, change), _walk_body(header, body, lambda value: _walk(value, change)))

    return lie


def each_list(change: Callable[[list[Any]], Any]) -> Case:
    """Change every list of a frame."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: walk(one) for key, one in value.items()}
        return change([walk(one) for one in value]) if isinstance(value, list) else value

    def lie(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
        yield frame(walk(header), _walk_body(header, body, walk))

    return lie


def _walk(value: Any, change: Callable[[Any], Any], kept: tuple[str, ...] = KEPT) -> Any:
    if isinstance(value, dict):
        fixed = {key for key, one in value.items() if key in kept and not isinstance(one, (dict, list))}
        return {key: one if key in fixed else _walk(one, change, kept) for key, one in value.items()}
    return [_walk(one, change, kept) for one in value] if isinstance(value, list) else change(value)


def _walk_body(header: Header, body: bytes, walk: Callable[[Any], Any]) -> bytes:
    """Change what a body holds, where it holds JSON."""
    if "events" in header:
        return b"".join(json.dumps(walk(json.loads(line))).encode() + b"\n" for line in body.splitlines())
    if "rows" in header:
        return zlib.compress(json.dumps(walk(json.loads(zlib.decompress(body)))).encode("ascii"))
    return body


def wrong(kept: tuple[str, ...]) -> Case:
    """Give every field but those that are kept a value of a wrong type or size, each another one."""

    def lie(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
        values = cycle(WRONG)

        def walk(value: Any) -> Any:
            return _walk(value, lambda _: next(values), kept)

        yield frame(walk(header), _walk_body(header, body, walk))

    return lie


def numbers(*wanted: float) -> Case:
    """Put numbers that no clock and no memory holds in the place of all numbers."""
    values = cycle(wanted)
    return each_leaf(
        lambda one: next(values) if isinstance(one, (int, float)) and not isinstance(one, bool) else one
    )


def texts(change: Callable[[str], Any]) -> Case:
    """Change all texts."""
    return each_leaf(lambda one: change(one) if isinstance(one, str) else one)


# frames that are too large, too deep, too many, or none


def deep(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
    """Nest lists in every value."""
    nest = b"[" * DEEP + b"]" * DEEP
    yield raw(
        b"{" + b",".join(b"%s:%s" % (json.dumps(key).encode(), nest) for key in header) + b"}",
        nest if "events" in header else zlib.compress(nest) if "rows" in header else body,
    )


def crowded(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
    """Fill the header with as many empty objects as it has room for."""
    key = json.dumps(next((key for key, value in header.items() if isinstance(value, list)), "runs")).encode()
    rest = json.dumps({one: value for one, value in header.items() if not isinstance(value, list)}).encode()
    yield raw(
        rest[:-1] + b"," * (len(rest) > 2) + key + b":[" + b"{}," * (MAX_PART // 3 - 4096) + b"{}]}", body
    )


def giant(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
    """Send the largest body for each frame, whatever it is."""
    yield frame(header, body + bytes(MAX_PART - len(body)))


def endless(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
    """Send the first frame again and again."""
    yield from repeat(frame(header, body))


def endless_unknown(_header: Header, _body: bytes, _: Talk) -> Iterator[bytes]:
    """Send words that no one knows, for ever, and nothing else."""
    yield from (frame({f"word{number}": number}) for number in count())


def garbage(_header: Header, _body: bytes, _: Talk) -> Iterator[bytes]:
    """Send what is no frame."""
    yield b"{}[]" * 1024


def oversize(_header: Header, _body: bytes, _: Talk) -> Iterator[bytes]:
    """Announce more than there may be."""
    yield b"99999999999999999 0\n"


def no_object(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
    """Send a header that is a list."""
    yield frame([header], body)


def error(**fields: Any) -> Case:
    """Report an error."""

    def lie(_header: Header, _body: bytes, _: Talk) -> Iterator[bytes]:
        yield frame({"error": {"code": "CC-RUN-002", "message": "m", "traceback": "", **fields}})

    return lie


# what a node shows of runs


def each_state(change: Callable[[Header, Talk], None]) -> Case:
    """Change every state of a run, whichever frame holds it."""

    def lie(header: Header, body: bytes, talk: Talk) -> Iterator[bytes]:
        header = copy.deepcopy(header)  # the verb itself works on with the truth
        stopped = header.get("stopped") if isinstance(header.get("stopped"), dict) else {}
        found = header.get("found") if isinstance(header.get("found"), dict) else {}
        parts = [*(header.get("runs") or ()), *(found.get("runs") or ())]
        for one in (header.get("state"), stopped.get("state"), *parts):
            state = one.get("state") if isinstance(one, dict) and isinstance(one.get("state"), dict) else one
            if isinstance(state, dict):
                change(state, talk)
                one["run"] = state["run"]
        yield frame(header, body)

    return lie


def named(**values: Any) -> Case:
    """Report something else in some fields of every state."""
    return each_state(lambda state, _: state.update(values))


def _put_run(name: Callable[[Header, Talk], str]) -> Case:
    def change(state: Header, talk: Talk) -> None:
        state["run"] = name(state, talk)

    return each_state(change)


def steal(path: Callable[[Header, Talk], str]) -> Case:
    """Invent a live run of the user's own that is newer than all others, and whose name is a path."""

    def change(state: Header, talk: Talk) -> None:
        state.update(run=path(state, talk), state="RUNNING", submitted=state["submitted"] + FUTURE)

    return each_state(change)


def roster(state: Header, talk: Talk) -> None:
    """Claim a later attempt in which no one but this node takes part."""
    names = [f"gpu{number:02}" for number in range(1, 4)]
    mine = talk.request["node"]
    state["attempt"] = 10**6
    state["slots"] = 3
    state["roster"] = [
        {"slot": seat, "node": name, "node_rank": 0 if name == mine else None}
        for seat, name in enumerate(names)
    ]


def crowd(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
    """Invent newer runs of a job that ran elsewhere, so that the real one seems to be one too many."""
    found = header.get("found")
    if isinstance(found, dict) and found.get("runs"):
        model = next(one for one in found["runs"] if one.get("state"))
        for number in range(20):
            run = f"solo-20991231T2359{number:02}-abcd"
            state = {
                **model["state"],
                "run": run,
                "job": "solo",
                "nnodes": 1,
                "node_rank": 0,
                "submitted": 4e9,
            }
            found["runs"].append({**model, "run": run, "state": state})
    yield frame(header, body)


# files and sync


def claim(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
    """List files of 90 GiB together."""
    rows = json.loads(zlib.decompress(body)) if "rows" in header else []
    for row in rows:
        row[3] = (90 << 30) // len(rows)
    yield frame(header, zlib.compress(json.dumps(rows).encode("ascii")) if rows else body)


def rows_of(path: Callable[[int], str], batches: int) -> Case:
    """List files that are not there, a thousand a batch."""

    def lie(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
        for batch in range(batches if "rows" in header else 0):
            rows = [[0, path(batch * 1000 + one), "file", 1, 1, 1, 1, "", 0] for one in range(1000)]
            yield frame({"rows": 1000}, zlib.compress(json.dumps(rows).encode("ascii"), 1))
        if "rows" not in header:
            yield frame(header, body)

    return lie


def each_row(change: Callable[[list[Any]], None]) -> Case:
    """Change every file that is listed."""

    def lie(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
        rows = json.loads(zlib.decompress(body)) if "rows" in header else []
        for row in rows:
            change(row)
        yield frame(header, zlib.compress(json.dumps(rows).encode("ascii")) if rows else body)

    return lie


def change_row(**values: Any) -> Case:
    """Report something else in some columns of every file that is listed."""
    columns = ("source", "path", "kind", "size", "mtime_ns", "ctime_ns", "inode", "content", "mode")

    def change(row: list[Any]) -> None:
        for name, value in values.items():
            row[columns.index(name)] = value

    return each_row(change)


def other_content(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
    """Send something else of the same size in the place of each file."""
    if "file" in header and body:
        packed = header.get("packed")
        data = bytes(len(zlib.decompress(body) if packed else body))
        body = zlib.compress(data) if packed else data
    yield frame(header, body)


def other_file(header: Header, body: bytes, talk: Talk) -> Iterator[bytes]:
    """Send something else of the same size in the place of each file, with the hash of that."""
    if "whole" in header:
        header = {**header, "sha256": hashlib.sha256(bytes(header["size"])).hexdigest()}
    yield from other_content(header, body, talk)


def first(name: str) -> Case:
    """Claim to share the work directory of another node, which was there first."""

    def lie(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
        yield frame({**header, "mark": name} if "listed" in header else header, body)

    return lie


def empty_pieces(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
    """Send nothing of a file, for ever."""
    yield from repeat(frame({**header, "packed": False})) if "file" in header else [frame(header, body)]


def empty_rows(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
    """List nothing, for ever."""
    nothing = frame({"rows": 0}, zlib.compress(b"[]"))
    yield from repeat(nothing) if "rows" in header or "listed" in header else [frame(header, body)]


def missing_again(header: Header, body: bytes, talk: Talk) -> Iterator[bytes]:
    """Say that all contents are missing whenever they should be there."""
    if "stored" not in header and "tree" not in header and "missing" not in header:
        yield frame(header, body)
        return
    if header.get("missing"):
        talk.request["wanted"] = header["missing"]
    while True:
        yield frame({"missing": talk.request.get("wanted") or ["0" * 64]})


def beats(_header: Header, _body: bytes, _: Talk) -> Iterator[bytes]:
    """Be alive, and get nowhere."""
    yield from (frame({"beat": number, "steps": number}) for number in count())


def events(*lines: bytes) -> Case:
    """Send other lines as events."""

    def lie(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
        yield frame(header, b"\n".join(lines) + b"\n" if "events" in header else body)

    return lie


def header_of(key: str, **values: Any) -> Case:
    """Tell something else in the frames that have a key; values are put as they are."""

    def lie(header: Header, body: bytes, _: Talk) -> Iterator[bytes]:
        yield frame({**header, **values} if key in header else header, body)

    return lie


def _below_cwd(state: Header, talk: Talk) -> str:
    """Name a file that the default `pull` has downloaded from here."""
    return f"/proc/self/cwd/outputs/{state['job']}/{talk.request['node']}/hook"


def record(header: Header, body: bytes, talk: Talk) -> Iterator[bytes]:
    """Do not lie, and write down what is sent."""
    with Path("~/recorded.jsonl").expanduser().open("a", encoding="ascii") as file:
        file.write(json.dumps([talk.verb, os.getpid(), header, body.decode("latin-1")]) + "\n")
    yield frame(header, body)


CASES: dict[str, Case] = {
    "record": record,
    # what any field of any verb may hold
    "wrong-types": wrong(KEPT),
    "wrong-all": wrong(()),
    "lists-tables": each_list(lambda one: {str(place): value for place, value in enumerate(one)}),
    "lists-mixed": each_list(lambda one: [None, 7, "x", [], {}, *one]),
    "lists-more": each_list(lambda one: (one * (20_000 // len(one))) if one else one),
    "numbers-huge": numbers(10**400),
    "numbers-inf": numbers(float("inf"), float("nan"), float("-inf")),
    "texts-astral": texts(lambda _: "\ud800" + "\U0001f4a3" * 100_000),
    "texts-escapes": texts(lambda one: EVIL + one + EVIL),
    "crowded": crowded,
    "endless": endless,
    # what any frame may be
    "deep": deep,
    "giant": giant,
    "endless-unknown": endless_unknown,
    "garbage": garbage,
    "oversize": oversize,
    "no-object": no_object,
    "beats": beats,
    "error-flood": error(message=EVIL + "x" * (MAX_PART - MIB)),
    "error-trace": error(traceback="Traceback" + "x" * (MAX_PART - MIB)),
    "error-escapes": error(message=EVIL + "one\ntwo", code=EVIL),
    "error-types": error(code=[], message={}, traceback=7),
    # states of runs
    "run-up": _put_run(lambda *_: "../../planted"),
    "run-absolute": _put_run(lambda *_: "/proc/self/cwd/../planted-20261122T071140-03b1"),
    "run-cwd": _put_run(_below_cwd),
    "run-line": _put_run(lambda state, _: state["run"] + "\nx"),
    "run-escapes": _put_run(lambda state, _: EVIL + state["run"]),
    "run-shell": _put_run(lambda state, _: f"x;touch PASTED-{state['run']}"),
    "run-long": _put_run(lambda state, _: "x" * 100_000 + state["run"]),
    "run-word": _put_run(lambda *_: "latest"),
    "job-up": named(job="../../planted"),
    "node-other": named(node="gpu01", node_rank=0),
    "node-shell": named(node=SHELL),
    "state-other": named(state="GREAT", launched_by=7, nnodes=10**6, world_size=10**9),
    "roster": each_state(roster),
    "stolen-run": steal(_below_cwd),
    "stolen-file": steal(lambda *_: "/proc/self/cwd/../home/.docker/config"),
    "stolen-well-formed": steal(lambda *_: "/proc/self/cwd/../home/planted-20991122T071140-03b1"),
    # clean
    "crowd": crowd,
    # orphans
    "no-processes": header_of(
        "orphans",
        orphans=[7, *({**ORPHAN, **lie} for lie in ({"pid": -1}, {"pid": 1 << 40}, {"starttime": None}))],
    ),
    # files
    "claim": claim,
    "rows-long": rows_of(lambda number: f"{number}" + "\U0001f4a3" * 4000, 200),
    "rows-up": rows_of(lambda number: f"../{number}", 1),
    "first-gpu02": first("gpu02"),
    # files: parts of a checkpoint
    "parts-up": rows_of(lambda number: f"1/step-1/../../{number}", 1),
    "parts-absolute": rows_of(lambda number: f"1//tmp/{number}", 1),
    "parts-link": change_row(kind="link", content="../../../../home/.ssh/authorized_keys", size=0),
    "parts-claim": change_row(size=90 << 30),
    "parts-hash": change_row(content="0" * 64),
    "parts-content": other_content,
    "parts-other": other_file,
    "empty-pieces": empty_pieces,
    "empty-rows": empty_rows,
    "rows-git": rows_of(lambda number: f".git/hooks/{number}", 1),
    "rows-meta": rows_of(lambda number: f".clusterctl/homes{number}.json", 1),
    # sync
    "missing-again": missing_again,
    # follow
    "events-no-tables": events(b"7", b"[]", b'"x"', b"null", b'{"event": []}', b'{"event": {}, "reason": 7}'),
    "events-deep": events(b"[" * DEEP, b'{"event":' * DEEP),
    "events-wrong": events(
        b'{"event": "rank_exited", "rank": 1, "exit": null, "time": 5.0, "signal": [9]}',
        b'{"event": "rank_exited", "rank": 1e999, "time": 1e999, "signal": 9}',
        b'{"event": "ended", "state": ["FAILED"], "time": -1e400, "reason": {}}',
        b'{"event": "stopping", "reason": ["gpu01: x"], "time": "soon"}',
    ),
    "positions-wrong": header_of("positions", positions=7),
    "positions-huge": header_of("positions", positions={"x": 10**400}),
    "log-wrong": header_of("log", offset="0", next=[], rank=True, gone=[1], places=["x"], time_marks=[[1]]),
    "log-escapes": header_of("log", log=EVIL, stream=EVIL, rank=EVIL),
}


def main() -> None:
    """Take the bootstrap from stdin as the real boot does, and run the verb with a stream that lies."""
    if "clusterctl-boot" not in sys.argv[-1]:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # a job's interpreter does not lie
    verb, _, case = Path(sys.argv[0]).name.partition(".")
    source = sys.stdin.buffer
    boot: dict[str, Any] = {"__name__": "boot"}
    exec(compile(source.read(int(source.readline())), "clusterctl-boot", "exec"), boot)
    header = json.loads(boot["read_part"](source))
    sources = {}
    sources.update(json.loads(zlib.decompress(boot["read_part"](source))))
    sys.stdout.buffer.write(b"\n%s\n" % header["sentinel"].encode())
    sys.stdout.flush()
    sys.meta_path.insert(0, boot["BundleImporter"](sources))
    private = os.dup(1)
    os.dup2(2, 1)
    run_verb, wire = boot["run_verb"], import_module("clusterctl.node.runtime.stream")
    honest = wire.Stream.send

    def run(header: Header, stream: Any) -> bool:
        wire.Stream.send = honest
        if verb in (header["verb"], "any"):
            _begin_to_lie(CASES[case], Talk(header["verb"], header["request"]), private)
        return bool(run_verb(header, stream))

    boot["run_verb"] = run  # one process may serve several verbs
    boot["run_verbs"](header, sources, boot["read_buffered"](source), private)
    boot["exit_now"]()


def _begin_to_lie(case: Case, talk: Talk, sink: int) -> None:
    """Let the payload's own stream to the client send what the case gives."""
    wire = import_module("clusterctl.node.runtime.stream")
    honest = wire.Stream.send

    def send(self: Any, header: Header, body: bytes = b"") -> None:
        if self.sink != sink or "beat" in header or header.get("end"):
            honest(self, header, body)
            return
        if header.get("orphans") == []:
            header = {**header, "orphans": [ORPHAN]}
        if header.get("staged") == []:
            header = {**header, "staged": [STAGED]}
        for data in case(header, body, talk):
            _write(sink, data)
            talk.sent += 1

    wire.Stream.send = send


def _write(sink: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(sink, rest) :]
        except BlockingIOError:
            select.select([], [sink], [])
        except ConnectionError:
            os._exit(0)  # the client has had enough


if __name__ == "__main__":
    main()
