"""Ranks that a program of the job has started itself: which process is one, and where its logs are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterctl.node.logs.reader import Grep, filter_lines
from clusterctl.node.runtime.event_loop import Loop
from clusterctl.node.runtime.processes import Identity, identify
from clusterctl.node.supervise.ranks.nested import NestedRanks, find_folder, is_rank, read_marker
from clusterctl.node.supervise.ranks.workers import Worker
from clusterctl.protocol.ranks import Rank

PROGRAM = {"CLUSTERCTL_RUN": "r-1/gpu01/1", "WORLD_SIZE": "4", "NODE_RANK": "0"}
RANK = {**PROGRAM, "RANK": "3", "LOCAL_RANK": "1"}
MARKER = (
    '{"rank": 3, "pid": 7, "starttime": 9, "local_rank": 1, "world_size": 4, "error_file": "/a/error.json"}'
)


@pytest.mark.parametrize(
    ("env", "found"),
    [
        (RANK, True),
        (PROGRAM, False),
        ({**RANK, "RANK": "-1"}, False),
        ({**RANK, "RANK": "\u0663"}, False),
        ({**RANK, "WORLD_SIZE": "9" * 30}, False),
        ({**RANK, "CLUSTERCTL_RUN": "r-2/gpu01/1"}, False),
    ],
)
def test_a_rank_has_a_position_that_the_program_has_not(env: dict[str, str], found: bool) -> None:
    """All other processes below the program have its own variables."""
    assert is_rank(env, PROGRAM) is found


@pytest.mark.parametrize(
    "text", ["", "[]", MARKER.replace("7", '"7"'), MARKER.replace("4", "0"), MARKER[:-1]]
)
def test_a_marker_that_says_no_position_is_no_rank(tmp_path: Path, text: str) -> None:
    """A rank of an older clusterctl, or a file of another program."""
    (tmp_path / "7.json").write_text(text)
    assert read_marker(str(tmp_path / "7.json")) is None
    (tmp_path / "7.json").write_text(MARKER)
    assert read_marker(str(tmp_path / "7.json")) == (Identity(7, 9), 3, 1, 4, "/a/error.json")


def test_logs_are_those_in_the_runs_directory(tmp_path: Path) -> None:
    """Others are not cut, downloaded or removed with the run."""
    inside, outside = tmp_path / "run/attempt-1/nested/a/attempt_0/1", tmp_path / "mine/1"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        assert find_folder(str(tmp_path / "run"), str(folder / "error.json")) == ""
        for name in ("stdout.log", "stderr.log"):
            (folder / name).touch()
    (tmp_path / "run/link").symlink_to(outside)
    found = [find_folder(str(tmp_path / "run"), f"{where}/error.json") for where in (inside, outside)]
    assert found == ["attempt-1/nested/a/attempt_0/1", ""]
    assert find_folder(str(tmp_path / "run"), f"{tmp_path}/run/link/error.json") == ""
    assert find_folder(str(tmp_path / "run"), "") == ""


def test_what_torchrun_copies_of_its_ranks_is_shown_once() -> None:
    """The lines of the program itself remain."""
    content, header = b"begin\n[default0]:step 1\n[default11]:step 1\n[0] mine\nstep of mine\n", {}
    assert filter_lines(header, 100, content, None, True) == b"begin\n[0] mine\nstep of mine\n"  # type: ignore[arg-type]  # filled
    assert header == {"places": [100, 143, 152], "next": 165}
    assert filter_lines({}, 0, content, Grep("step"), True) == b"step of mine\n"  # type: ignore[typeddict-item]  # filled
    assert filter_lines({}, 0, content, Grep("default0"), False) == b"[default0]:step 1\n"  # type: ignore[typeddict-item]  # filled


@pytest.fixture
def sleepers() -> Iterator[list[Identity]]:
    """Processes that stay."""
    started = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    yield [identify(process.pid) for process in started]
    for process in started:
        process.kill()
        process.wait()


def test_two_live_processes_of_one_rank_cannot_be_told_apart(
    tmp_path: Path, sleepers: list[Identity]
) -> None:
    """Two launchers at once on a node: the program counts alone. One after the other: the last one's count."""
    found: list[str] = []
    program = Worker(identify(os.getpid()), Rank(0), 0, None, "attempt-1/0")

    def write(identity: Identity, rank: int) -> None:
        text = '{"rank": %d, "pid": %d, "starttime": %d, "local_rank": 0, "world_size": 2}'
        (tmp_path / f"{identity.pid}.json").write_text(text % (rank, *identity))

    ranks = NestedRanks(
        Loop(),
        str(tmp_path),
        str(tmp_path),
        on_size=lambda size: found.append(f"size {size}"),
        on_found=lambda: found.append("found"),
        on_end=print,
    )
    ranks.start(program)
    write(Identity(5_000_000, 1), 1)  # of an earlier launcher, and gone
    write(sleepers[0], 1)
    ranks.fill_unseen_ends(program, "")
    assert ranks.workers is not None
    assert [worker.identity for worker in ranks.workers] == [sleepers[0]]
    assert found == ["size 2", "found"]
    write(sleepers[1], 1)
    ranks.fill_unseen_ends(program, "")
    assert ranks.workers is None
    ranks.stop()
