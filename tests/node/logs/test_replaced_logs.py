"""What a rank can put in place of its own log: every reader ends, names it, and reads the other logs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded import Recorded, text_of

from clusterctl.node.logs.log_file import open_log
from clusterctl.node.logs.reader import Grep, tail_position
from clusterctl.node.runtime.stream import VerbError
from clusterctl.node.supervise.evidence import read_end
from clusterctl.node.verbs.history import find_replaced, read_output

SPARSE = 8 << 40  # bytes


def make_pipe(path: Path) -> None:
    """Block whoever opens it."""
    os.mkfifo(path)


def make_directory(path: Path) -> None:
    """Fail whoever reads it."""
    path.mkdir()


def make_link(path: Path) -> None:
    """Lead to bytes without end."""
    path.symlink_to("/dev/zero")


def make_dangling_link(path: Path) -> None:
    """Lead nowhere."""
    path.symlink_to("nowhere")


def make_socket(path: Path) -> None:
    """Be what cannot be opened."""
    folder = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


KINDS: dict[Callable[[Path], None], str] = {
    make_pipe: "pipe",
    make_directory: "directory",
    make_link: "link",
    make_dangling_link: "link",
    make_socket: "socket",
}
REQUESTS: dict[str, dict[str, Any]] = {
    "all": {},
    "tail": {"tail": 5},
    "grep": {"grep": "line", "tail": 5},
    "by time": {"times": True, "ordered": True, "moment": 1.0},
}


def recorded(tmp_path: Path) -> tuple[Recorded, Path]:
    """Record a run of two ranks, and give the log of the second."""
    run = Recorded(tmp_path).log(0, stdout=b"a line\n").log(1, stdout=b"another line\n")
    return run, run.path / run.state["ranks"]["1"]["stdout"]


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_follow_names_what_has_replaced_a_log(
    tmp_path: Path, make: Callable[[Path], None], request_name: str
) -> None:
    """Once; the lines of the other rank are there."""
    run, log = recorded(tmp_path)
    log.unlink()
    make(log)
    frames = run.follow(REQUESTS[request_name])
    replaced = [header for header, _ in frames if "replaced_by" in header]
    assert [(header["rank"], header["replaced_by"]) for header in replaced] == [(1, KINDS[make])]
    assert text_of(frames) == b"a line\n"


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_history_and_the_agent_read_past_it(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """The report names it and has the other rank's lines; the agent's own reader finds nothing."""
    run, log = recorded(tmp_path)
    log.unlink()
    make(log)
    state: Any = run.state
    assert [row["replaced_by"] for row in find_replaced(str(run.path), state)] == [KINDS[make]]
    output = read_output(str(run.path), state, 5)
    assert [output[rank]["stdout"] for rank in ("0", "1")] == [["a line"], []]
    assert read_end(str(log)) == []
    with pytest.raises(OSError, match="not a regular file"):
        open_log(str(log))


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("at_end", [True, False], ids=["end", "no end"])
def test_a_sparse_log_of_terabytes_ends(tmp_path: Path, request_name: str, at_end: bool) -> None:
    """What is around the hole is read, and the hole is passed over; no file system here makes one of data."""
    run, log = recorded(tmp_path)
    with log.open("ab") as file:
        file.truncate(SPARSE)
    with log.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast line\n" if at_end else b"")
    frames = run.follow(REQUESTS[request_name])
    text = text_of(frames, rank=1).replace(b"\0", b"")
    assert (b"last line\n" in text) == at_end
    assert request_name == "tail" or b"another line\n" in text
    assert len(text_of(frames, rank=1)) < 1 << 21


def test_the_end_of_a_log_is_found_behind_and_before_a_hole(tmp_path: Path) -> None:
    """Lines are counted backward over a hole as over anything else."""
    log = tmp_path / "log"
    log.write_bytes(b"1\n2\n")
    with log.open("r+b") as file:
        file.seek(SPARSE)
        file.write(b"\n3\n4\n")
    assert tail_position(str(log), 1, None, True) == SPARSE + 3
    assert tail_position(str(log), 2, None, True) == SPARSE + 1
    assert tail_position(str(log), 3, Grep("[0-9]"), True) == 2
    assert tail_position(str(log), 9, None, True) == 0


def test_a_pattern_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node says so; a client that waits would take it for dead."""
    monkeypatch.setattr("clusterctl.node.logs.reader.GREP_LIMIT", 0.05)
    with pytest.raises(VerbError) as caught:
        Grep("(a|aa)+$").find_hits(b"a" * 64 + b"b\n")
    assert caught.value.code == "CC-USE-026"
