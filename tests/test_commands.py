"""Commands forked from one process end as those of an interpreter of their own, and nothing hides that they did not."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import commands
import pytest
from commands import run_command
from waiting import HANG

WRONG = "cluster: c\nnodes: [{host: a, prot: 1}]\n"


@pytest.mark.parametrize(
    "args",
    [
        ("--version",),
        ("explain", "CC-NET-001"),
        ("lunch",),
        ("-i", "wrong.yaml", "check"),
        ("-i", "none.yaml", "inventory", "show"),
        ("exec", "--", "true"),
    ],
    ids=" ".join,
)
def test_a_forked_command_ends_as_one_of_its_own_interpreter(tmp_path: Path, args: tuple[str, ...]) -> None:
    """The same exit code, and the same text on both streams."""
    (tmp_path / "wrong.yaml").write_text(WRONG)
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "clusterctl", *args]
    alone = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    forked = run_command(args, cwd=tmp_path, env=env, timeout=HANG)

    assert (forked.returncode, forked.stdout, forked.stderr) == (
        alone.returncode,
        alone.stdout,
        alone.stderr,
    )


def test_a_command_that_does_not_end_is_ended(tmp_path: Path) -> None:
    """The limit is for the whole command, whatever it prints meanwhile; it does not live on behind the test."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(HANG)
        inventory = tmp_path / "inventory.yaml"
        port = silent.getsockname()[1]
        inventory.write_text(
            f"cluster: c\nnodes: [{{host: 127.0.0.1}}]\nssh: {{port: {port}, config: none}}\n"
        )
        env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
        for limit in (2, 6, 15):  # more for a slow machine, until it is killed in the middle of its login
            with pytest.raises(AssertionError, match="not ended in time"):
                run_command(["-i", str(inventory), "check"], cwd=tmp_path, env=env, timeout=limit)
            if select.select([silent], [], [], 0)[0]:
                break
        visitor, _ = silent.accept()
        with visitor:
            visitor.settimeout(HANG)
            while visitor.recv(4096):  # what SSH greets with, then its end
                pass


def test_a_process_that_cannot_import_is_no_command_that_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no exit code; its traceback is shown."""
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name\n")
    monkeypatch.setattr(commands, "__file__", str(broken))
    monkeypatch.setattr(commands, "_server", cache(commands._server.__wrapped__))
    for _ in range(2):
        with pytest.raises(AssertionError, match=r"(?s)forked from has ended"):
            run_command(["--version"], cwd=tmp_path, env=os.environ, timeout=HANG)
