"""What a node answers to `history` about a launch: keys of the job, and on request which files were sent."""

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


def ask(tmp_path: Path, *, code: bool = True, node_rank: int = 0, sent: bytes | None = None) -> Frames:
    """Ask for all that is on record of a run."""
    run = Recorded(tmp_path, node_rank=node_rank, **KEYS)
    packed = zlib.compress(json.dumps(ROWS).encode()) if sent is None else sent
    (run.path / "manifest").write_bytes(packed)
    samples = RingSet(str(run.path / "samples"), [("node", "", "cpu")], {"cores": 4, "memory": 1, "gpus": []})
    samples.add(1000.0, [0.5])
    samples.close()
    request = {
        "run": "job-1", "node": "gpu01", "workdir": str(tmp_path), "since": None, "points": 10, "details": True,
        "lines": 5, "code": code,
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
