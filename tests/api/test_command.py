"""The process of one command: how it ends, and what its exceptions show and survive."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

import clusterctl
from clusterctl.api import command as commands
from clusterctl.api.command import Command, Target
from clusterctl.api.run import Cause, Detached, Run, RunFailed, failure_of

WAITS = "print('ready', flush=True); import time; time.sleep(3600)"
LEAVES = (
    "import subprocess, sys; subprocess.Popen(['sleep', '3600'], stdout=sys.stderr); "
    "print('{}', flush=True); print('last words', file=sys.stderr)"
)


def test_a_program_that_ignores_sigint_can_end_its_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one in the background of a shell does, whose children inherit that."""
    monkeypatch.setattr(commands, "_START", commands._START.partition("from clusterctl")[0] + WAITS)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Command(Target(), ["ps"]) as command:
            assert next(command.lines()) == b"ready"
            command.interrupt()
            assert command.wait() != 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_token_is_not_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each account of this machine can read that; the command has its words all the same."""
    prints = "print(json.dumps(sys.argv)); print(open('/proc/self/cmdline').read())"
    monkeypatch.setattr(commands, "_START", commands._START.partition("from clusterctl")[0] + prints)
    words = ["launch", "--set", 'env.TOKEN="geheim ä"', "a\udcffb"]
    with Command(Target(lab="two"), words) as command:
        argv, visible = command.lines()

    assert json.loads(argv)[1:] == ["--lab", "two", "-q", "launch", "--json", *words[1:]]
    assert visible.decode().split("\0")[-3:] == ["clusterctl", "launch", ""]
    assert b"TOKEN" not in visible


def test_what_a_command_leaves_running_holds_no_one_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as `on_end`, which has its stderr: the end of the command is the end of its lines."""
    monkeypatch.setattr(commands, "_START", LEAVES)
    with Command(Target(), ["ps"]) as command:
        assert list(command.lines()) == [b"{}"]
        assert (command.wait(), command.evidence) == (0, "last words")
    subprocess.run(["pkill", "-KILL", "-s", str(command._process.pid)], check=False)


def test_a_node_writes_nothing_to_the_terminal_by_an_exception() -> None:
    """Message and notes of a failed run are texts of ranks."""
    cause = Cause("gpu01", 0, "ValueError: \x1b[31mred", "t.py", 7, stderr=("\x1b]0;title\x07tail",))
    error = failure_of(Run("run-1"), cast("Any", {"state": "FAILED", "reasons": {}}), cause)
    shown = [str(error), error.evidence, *getattr(error, "__notes__", ())]
    assert not any("\x1b" in text or "\x07" in text for text in shown)
    assert "ValueError: red" in error.message


def test_exceptions_cross_processes() -> None:
    """A pool of processes sends them back by pickle."""
    verdict = cast("Any", {"state": "FAILED", "reasons": {}})
    failed = pickle.loads(pickle.dumps(RunFailed(Run("run-1"), verdict, Cause("gpu01", 3, "killed"))))
    assert (failed.run.id, failed.cause.rank) == ("run-1", 3)
    assert pickle.loads(pickle.dumps(Detached(Run("run-1")))).run.id == "run-1"


@pytest.mark.parametrize("text", ["", "--warm", " x"])
def test_an_id_is_no_option_and_not_empty(text: str) -> None:
    """An empty one would be the prefix of any run."""
    with pytest.raises(ValueError, match="not the id of a run"):
        clusterctl.attach(text)


def test_the_package_is_found_by_a_program_in_a_folder_with_its_names(tmp_path: Path) -> None:
    """A file `click.py` of the user is not imported by the command."""
    (tmp_path / "click.py").write_text("raise SystemExit('the wrong click')")
    program = (
        "import clusterctl\n"
        "try: clusterctl.attach('x', hosts=['h']).status()\n"
        "except clusterctl.ClusterctlError as error: print(error.code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "the wrong click" not in done.stderr + done.stdout
    assert done.stdout.startswith("CC-")
