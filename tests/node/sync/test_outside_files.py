"""What a run leaves in its copy of the code: reported from what was sent, and never walked without end."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from noderun import NodeRun
from programs import go, program

from clusterctl.node.sync import outside_files


class Rundir:
    """The directory of a run, whose code was sent with two files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        rows = []
        for name, text in (("train.py", "import torch"), ("pkg/model.py", "x = 1")):
            self.write(name, text)
            rows.append([name, "file", 0o644, hashlib.sha256(text.encode()).hexdigest(), len(text)])
        (path / "manifest").write_bytes(zlib.compress(json.dumps(rows).encode()))

    def write(self, name: str, text: str = "x") -> Path:
        """Write a file below the code."""
        file = self.path / "code" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def later(self, name: str, text: str) -> None:
        """Write a file after the manifest, whatever the resolution of the file system's clock."""
        sent = (self.path / "manifest").stat().st_mtime_ns
        os.utime(self.write(name, text), ns=(sent, sent + 1))

    def summary(self) -> Any:
        """Look at it."""
        return outside_files.summarise(str(self.path))


@pytest.fixture
def rundir(tmp_path: Path) -> Rundir:
    """Give a run's directory."""
    return Rundir(tmp_path)


def test_nothing_is_reported_of_what_was_sent(rundir: Rundir) -> None:
    """Nor of what interpreters and tools leave, nor of a file that was only touched."""
    for name in (
        "__pycache__/train.cpython-311.pyc",
        "pkg/old.pyc",
        ".ipynb_checkpoints/a.py",
        ".nfs000000ab12",
    ):
        rundir.write(name)
    rundir.later("train.py", "import torch")
    assert rundir.summary() == {"files": 0, "bytes": 0, "names": [], "more": False}


def test_new_and_changed_files_are_counted_those_at_the_top_named(rundir: Rundir) -> None:
    """A change is seen by size, and where that is the same by content; a link is no file and is not followed."""
    rundir.write("0.ckpt", "0" * 500)
    rundir.write("runs/a/events", "e" * 20)
    rundir.later("train.py", "import numpy")
    rundir.write("pkg/model.py", "x = 1000000")
    (rundir.path / "code/out").symlink_to("/usr")
    assert rundir.summary() == {
        "files": 4,
        "bytes": 500 + 20 + 12 + 11,
        "names": ["0.ckpt", "train.py", "pkg/model.py", "runs/a/events"],
        "more": False,
    }


def test_the_walk_has_an_end(rundir: Rundir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many files a part is counted, and that it is a part."""
    monkeypatch.setattr(outside_files, "MAX_NEW", 10)
    for number in range(40):
        rundir.write(f"cache/{number}")
    found = rundir.summary()
    assert found["more"] is True
    assert found["files"] < 20
    assert len(found["names"]) == outside_files.MAX_NAMED


def test_without_a_record_nothing_is_known(rundir: Rundir) -> None:
    """A run of an older version, or a record that was damaged."""
    (rundir.path / "manifest").write_bytes(b"not zlib")
    assert rundir.summary() is None
    (rundir.path / "manifest").unlink()
    assert rundir.summary() is None


def test_the_agent_records_it_after_the_last_command_of_after(node: Callable[..., NodeRun]) -> None:
    """What `after` has moved to safety is not reported."""
    script = "open('kept.ckpt', 'w').write('k'); open('moved.ckpt', 'w').write('m')"
    after = {
        "steps": [{"programs": ["sh"], "arguments": ["-c", "rm moved.ckpt"], "shown": "rm"}],
        "time_limit": 60.0,
    }
    run = program(node, [sys.executable, "train.py"], script, after=after)
    sent = (run.code / "train.py").read_bytes()
    rows = [["train.py", "file", 0o644, hashlib.sha256(sent).hexdigest(), len(sent)]]
    (run.rundir / "manifest").write_bytes(zlib.compress(json.dumps(rows).encode()))
    state = go(run).ended()
    assert state["state"] == "SUCCEEDED"
    assert state["outside"] == {"files": 1, "bytes": 1, "names": ["kept.ckpt"], "more": False}
