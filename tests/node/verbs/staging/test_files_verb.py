"""Verb `files` as a source of what other nodes take."""

from __future__ import annotations

from pathlib import Path

from session import Session
from waiting import HANG


def test_a_client_that_leaves_ends_the_hashing(tmp_path: Path) -> None:
    """A terabyte is not read for a client that has left."""
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    request = {
        "workdir": str(tmp_path / "work"),
        "node": "gpu01",
        "run": "",
        "sources": [["path", str(tmp_path / "large")]],
        "most": 10,
        "hashed": True,
        "shared_home_probe": "",
        "mark": "",
    }
    with Session("files", request) as session:
        frame = session.receive()
        assert frame is not None
        assert frame[0]["steps"] > 0
        session.hang_up()
        assert session.process.stdout is not None
        session.process.stdout.close()
        assert session.process.wait(HANG) == 0
