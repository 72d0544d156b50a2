"""Whether an attempt made progress: which files count, and a file system that hangs."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from clusterctl.node.runtime.event_loop import Loop
from clusterctl.node.supervise.ranks import progress


def test_a_file_system_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the way to the output directory is looked at but in a thread: the agent has to beat."""
    hangs = threading.Event()
    monkeypatch.setattr(os.path, "realpath", lambda _: hangs.wait())
    monkeypatch.setattr(progress, "SCAN_LIMIT", 0.1)
    results: list[bool | None] = []

    loop = Loop()
    compared = progress.Progress(loop, str(tmp_path), "**")
    compared.begin()
    compared.finish(lambda found: (results.append(found), loop.stop()))
    loop.run()

    hangs.set()
    assert results == [None]


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("**", "a/b.pt", True),
        ("*.pt", "b.pt", True),
        ("*.pt", "a/b.pt", False),
        ("**/*.pt", "b.pt", True),
        ("**/*.pt", "a/c/b.pt", True),
        ("ckpt/**", "ckpt/a/b", True),
        ("ckpt/**", "ckpt2/a", False),
        ("step-?.[x]", "step-1.[x]", True),
    ],
)
def test_patterns_of_progress(pattern: str, path: str, matches: bool) -> None:
    """One star stays within a name, two do not."""
    assert (progress.glob_to_regex(pattern).fullmatch(path) is not None) is matches
