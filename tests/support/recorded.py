"""A run's directory as a dead run left it, and what is sent of its logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from session import Session

Frames = list[tuple[dict[str, Any], bytes]]

FIRST = b'{"time": 1.0, "event": "preparing"}\n'
EVENTS = FIRST + b'{"time": 2.0, "event": "ended"}\n'


def follow_request(workdir: Path, logs: dict[str, Any] | None, **changes: Any) -> dict[str, Any]:
    """A request for everything, changed where a test says so."""
    choice: dict[str, Any] = {
        "ranks": None,
        "streams": ["stdout", "stderr"],
        "offsets": {},
        "tail": None,
        "grep": None,
    }
    request = {"run": "job-1", "node": "gpu01", "workdir": str(workdir), "events": None, "follow": False}
    return {**request, "logs": None if logs is None else {**choice, **logs}, **changes}


class Recorded:
    """A run's directory as a dead run left it."""

    def __init__(self, workdir: Path, run: str = "job-1", state: str = "SUCCEEDED", **changes: Any) -> None:
        self.workdir = workdir
        self.path = workdir / "runs" / run / "0-gpu01"
        self.path.mkdir(parents=True)
        boot = (
            Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            + f" {Path('/proc/self/ns/pid').readlink()}"
        )
        self.state: dict[str, Any] = {
            "protocol": 1, "run": run, "job": "job", "node": "gpu01", "node_rank": 0, "attempt": 1, "nnodes": 1,
            "submitted": 1.0, "state": state, "since": 2.0, "boot_id": boot, "reason": "", "left": [], "ranks": {},
            "guardian": None, "agent": {"pid": 999999, "starttime": 1}, "torchrun": None, **changes,
        }  # fmt: skip
        (self.path / "spec.json").write_text(json.dumps({**self.state, "grace": 1.0}))
        (self.path / "state.json").write_text(json.dumps(self.state))
        (self.path / "events.jsonl").write_bytes(EVENTS)

    def log(self, rank: int, stdout: bytes = b"", stderr: bytes = b"") -> Recorded:
        """Add a rank with its files."""
        folder = self.path / "attempt-1" / "job_x" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        entry: dict[str, Any] = {
            "local_rank": rank,
            "pid": None,
            "starttime": None,
            "exit": 0,
            "signal": None,
        }
        for stream, content in (("stdout", stdout), ("stderr", stderr)):
            (folder / f"{stream}.log").write_bytes(content)
            entry[stream] = str((folder / f"{stream}.log").relative_to(self.path))
        self.state["ranks"][str(rank)] = entry
        (self.path / "state.json").write_text(json.dumps(self.state))
        return self

    def follow(self, logs: dict[str, Any] | None = None, **changes: Any) -> Frames:
        """Read it as a client does that does not wait."""
        with Session("follow", follow_request(self.workdir, logs, **changes)) as session:
            return session.frames()


def text_of(frames: Frames, rank: int | None = 0, stream: str = "stdout") -> bytes:
    """Join what was sent of one file."""
    return b"".join(
        body
        for header, body in frames
        if "log" in header and (header["rank"], header["stream"]) == (rank, stream)
    )
