"""What a node answers to `history` about a launch: keys of the job, and on request the files, or its speed."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from recorded import Frames, Recorded
from session import Session

from clusterctl.node.history.ring import RingSet
from clusterctl.node.verbs import history as verb
from clusterctl.plans.runs.history import RecordParser, parse_code
from clusterctl.protocol.untrusted import Untrusted

ROWS = [["train.py", "file", 0o644, "a" * 64, 12], ["data", "link", 0, "/data", 0]]
KEYS: dict[str, Any] = {
    "module": None,
    "python": "/usr/bin/python3",
    "nic": [],
    "address": None,
    "nproc": 2,
    "gpus": [],
    "argv": ["train.py"],
    "env": {"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz"},
    "stall": {"after": 600.0, "then": ""},
    "debug": False,
    "setup": {"content": "c0ffee" * 10},
    "before": {"steps": [{"shown": "make data"}, {"shown": "make cache"}], "time_limit": 60.0},
}


def add_sample(run: Recorded) -> None:
    """Write one sample of a node, as its agent does."""
    samples = RingSet(str(run.path / "samples"), [("node", "", "cpu")], {"cores": 4, "memory": 1, "gpus": []})
    samples.add(1000.0, [0.5])
    samples.close()


def ask(tmp_path: Path, *, code: bool = True, node_rank: int = 0, sent: bytes | None = None) -> Frames:
    """Ask for all that is on record of a run."""
    run = Recorded(tmp_path, node_rank=node_rank, **KEYS)
    packed = zlib.compress(json.dumps(ROWS).encode()) if sent is None else sent
    (run.path / "manifest").write_bytes(packed)
    add_sample(run)
    request = {
        "run": "job-1", "node": "gpu01", "workdir": str(tmp_path), "since": None, "points": 10, "details": True,
        "lines": 5, "code": code, "speed": False,
    }  # fmt: skip
    with Session("history", request) as session:
        return session.frames()


def read(frames: Frames) -> Any:
    """Read the answer as a client does."""
    parser = RecordParser("gpu01", 10)
    for header, body in frames:
        parser.add(Untrusted(header), body)
    return parser.finish(1.0)


def test_the_keys_of_the_job_are_on_record(tmp_path: Path) -> None:
    """Of commands their texts, of an environment its hash, of a secret nothing; what is off is left out."""
    launched = read(ask(tmp_path)).launched
    assert launched.job == {
        "nproc": "2",
        "grace": "1.0",
        "stall": '{"after": 600.0, "then": ""}',
        "setup": "c0ffeec0ffeec0ff",
        "before": "make data; make cache",
    }
    assert launched.env == {"HF_TOKEN": verb.HIDDEN}


def test_the_first_node_names_the_files_that_were_sent(tmp_path: Path) -> None:
    """Once, and only where two runs are compared."""
    code = read(ask(tmp_path / "0")).code
    assert code == {"train.py": f"file 420 {'a' * 64}", "data": "link 0 /data"}
    assert read(ask(tmp_path / "1", node_rank=1)).code is None
    assert read(ask(tmp_path / "2", code=False)).code is None


def test_a_tree_that_is_too_large_is_not_sent(tmp_path: Path) -> None:
    """The hashes of both trees are compared then."""
    assert read(ask(tmp_path, sent=bytes(verb.MAX_CODE + 1))).code is None


@pytest.mark.parametrize("body", [b"", b"no zlib", zlib.compress(b"{}"), zlib.compress(b"[" * 100_000)])
def test_a_tree_that_cannot_be_read_is_unknown(body: bytes) -> None:
    """Whatever a node sends."""
    assert parse_code(body) is None


def test_names_in_a_tree_are_bounded() -> None:
    """What is no row of a manifest is left out."""
    rows = [["x" * 2000, "file", 1, "a"], ["ok", "file", None, 3], [3], []]
    assert parse_code(zlib.compress(json.dumps(rows).encode())) == {"ok": "file None "}


COLLECTIVES = {
    "diagnosis": {
        "ranks": [{"rank": 3, "problem": ""}],
        "time": 5.0,
        "busiest": {"pid": 7, "name": "x", "cores": 2.5},
    }
}


def ask_speed(tmp_path: Path, ranks: dict[str, Any], kept: bytes) -> Frames:
    """Ask how fast a run is, of which the agent has kept collectives."""
    run = Recorded(tmp_path, ranks=ranks, **KEYS)
    add_sample(run)
    (run.path / "attempt-1").mkdir(exist_ok=True)
    (run.path / "attempt-1" / "collectives.json").write_bytes(kept)
    request = {
        "run": "job-1", "node": "gpu01", "workdir": str(tmp_path), "since": None, "points": 10, "details": False,
        "lines": 0, "code": False, "speed": True,
    }  # fmt: skip
    with Session("history", request) as session:
        return session.frames()


def test_the_speed_takes_one_answer(tmp_path: Path) -> None:
    """Samples, what was launched, the collectives that were kept, and numbers; neither journal nor output."""
    frames = ask_speed(tmp_path, {}, json.dumps(COLLECTIVES).encode())
    assert [key for header, _ in frames for key in header][:4] == [
        "history",
        "launched",
        "collectives",
        "scalars",
    ]
    found = read(frames).collectives
    assert [rank.rank for rank in found.ranks] == [3]
    assert (found.busiest.name, found.busiest.cores) == ("x", 2.5)


@pytest.mark.parametrize("kept", [b"", b"[]", b"no JSON", b"{}", b'{"diagnosis": 5}'])
def test_collectives_that_cannot_be_read_are_unknown(tmp_path: Path, kept: bytes) -> None:
    """The rest of the answer is read."""
    found = read(ask_speed(tmp_path, {}, kept))
    assert found.collectives is None and found.launched.nproc == 2
    header = Untrusted({"collectives": 1 << 40})
    parser = RecordParser("gpu01", 10)
    parser.add(header, zlib.compress(bytes(1 << 20)))
    assert parser.finish(1.0).collectives is None


def test_collectives_that_are_too_long_are_not_sent(tmp_path: Path) -> None:
    """A frame has a limit."""
    frames = ask_speed(tmp_path, {}, b"{" + b" " * verb.MAX_COLLECTIVES + b"}")
    assert not any("collectives" in header for header, _ in frames)
