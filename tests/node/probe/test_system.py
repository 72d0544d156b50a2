"""The probe's answers on a session's share of the machine: control groups, leftovers in /dev/shm, text."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clusterctl.protocol.messages.facts import Cgroup

ROOT = Path(__file__).parents[3]


@pytest.fixture
def room() -> Any:
    """Give the module, as the node's Python imports it."""
    return importlib.import_module("clusterctl.node.probe.system")


def dead_pid() -> int:
    """Give the number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_the_tightest_of_nested_groups_counts(
    room: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice may grant less than the scope in it; `max` is no limit, and a cache that can go is free."""
    scope = tmp_path / "user.slice" / "session-1.scope"
    scope.mkdir(parents=True)
    for folder, files in {
        scope: {"memory.max": "max", "pids.max": "500", "pids.current": "100", "cpu.max": "max 100000"},
        scope.parent: {
            "memory.max": "8000",
            "memory.current": "6000",
            "memory.stat": "anon 2000\ninactive_file 3000\nactive_file 1000",
            "pids.max": "max",
            "cpu.max": "150000 100000",
        },
    }.items():
        for name, text in files.items():
            (folder / name).write_text(text + "\n")
    monkeypatch.setattr(room, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(room, "_own_group", lambda: "/user.slice/session-1.scope")

    assert room.cgroup() == Cgroup(memory=8000, memory_free=5000, cpus=1.5, pids_free=400)


def test_only_what_dead_processes_left_counts(
    room: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the living, of other programs, and NCCL's young ones stay uncounted."""
    monkeypatch.setattr(room, "SHM", str(tmp_path))
    names = (f"torch_{dead_pid()}_a", f"torch_{os.getpid()}_b", "nccl-old", "nccl-young", "sem.other")
    for name in names:
        (tmp_path / name).write_bytes(b"x" * 8192)
    os.utime(tmp_path / "nccl-old", (time.time() - 7200,) * 2)

    left = room.shared_memory()
    assert left.files == 2 and left.bytes >= 16384


def test_the_locale_decides_unless_python_is_set() -> None:
    """As a session's variables would; a locale that is not installed is read as C, which is UTF-8."""
    code = "import sys; sys.path.insert(0, sys.argv[1])\n"
    code += "from clusterctl.node.probe import system as probe_room; print(probe_room.text())"
    printed = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)],
        env={"LANG": "de_DE.ISO-8859-1", "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "encoding='utf-8'" in printed and "LANG=de_DE.ISO-8859-1" in printed
