"""Commands under a Chinese locale, over a real sshd: people read Chinese, programs read what they always read."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import run_command
from servers import ME, Server
from waiting import HANG

CHINESE = re.compile(r"[\u4e00-\u9fff]")
VARYING = re.compile(r"\d+(\.\d+)?")  # times and sizes of one moment


@pytest.fixture
def folder(server: Server, tmp_path: Path) -> Path:
    """Give a job for two nodes: one has a file as its work directory, one has no server."""
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "job.yaml").write_text(
        "name: t\nscript: train.py\nnproc_per_node: 1\nbackend: gloo\nsync: {exclude: [state-*]}\n"
    )
    (tmp_path / "w").touch()
    (tmp_path / "inventory.yaml").write_text(
        f"cluster: t\npython: {sys.executable}\nworkdir: {tmp_path}/w\n"
        f"ssh: {{user: {ME}, port: {server.port}, key: {server.client_key}, known_hosts: {server.known_hosts},"
        " config: none}\nnodes: [{host: 127.0.0.1, name: n1}, {host: 127.0.0.1, name: gone, ssh: {port: 1}}]\n"
    )
    return tmp_path


def run(folder: Path, language: str, args: Sequence[str]) -> CompletedProcess[str]:
    """Run a command in a language, with a state directory of its own."""
    state = folder / f"state-{language}-{len(args)}"
    env = {**os.environ, "CLUSTERCTL_LANG": language, "XDG_STATE_HOME": str(state)}
    return run_command(args, cwd=folder, env=env, timeout=HANG)


@pytest.mark.parametrize(
    ("args", "chinese"),
    [
        (["ps"], "拒绝"),  # an unreachable node
        (["launch", "job.yaml"], "拒绝"),  # a launch that check refuses
        (["sync", "job.yaml"], "w 不是目录"),  # the words of a node
    ],
    ids=["ps", "launch", "sync"],
)
def test_a_screen_is_chinese_and_json_is_not(folder: Path, args: list[str], chinese: str) -> None:
    """What people read is in their language; `--json` writes to the letter what it writes in English."""
    shown, english = run(folder, "zh", args), run(folder, "en", args)
    assert shown.returncode == english.returncode != 0
    assert chinese in shown.stdout + shown.stderr
    assert not CHINESE.search(english.stdout + english.stderr)

    documents = [run(folder, language, [*args, "--json"]) for language in ("zh", "en")]
    outputs = [VARYING.sub("0", done.stdout + done.stderr) for done in documents]
    assert outputs[0] == outputs[1]
    assert documents[0].stdout
    assert not CHINESE.search(outputs[0])
