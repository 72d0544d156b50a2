"""What a task makes of the result of the check."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from clusterctl.node.slurm import check
from clusterctl.node.slurm.board import Board, Task
from clusterctl.node.slurm.job_files import Exchange, JobFiles
from clusterctl.node.slurm.spec import Member, SlurmError


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ('{"findings": [], "blocks": true}', "the checks failed"),
        ("[" * 1000, "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_nothing_starts_where_the_result_forbids_it_or_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: str, message: str
) -> None:
    """A file system that fails, or a result of many thousand nodes, is no leave to start."""
    files = JobFiles(str(tmp_path))
    board = Board(Exchange(files, "4711.0"), Task(slot=1, total=2, node="gpu02", job="4711", key="4711.0"))
    Path(board.exchange.folder, check.CHECKED).write_text(result)
    monkeypatch.setattr(check, "report_facts", lambda *_: None)
    monkeypatch.setattr(check.time, "sleep", lambda _: None)
    members = [Member(slot, f"gpu0{slot + 1}", "10.0.0.1", ("eth0",), 1) for slot in range(2)]
    template: Any = {"check": {"only": False}}

    with pytest.raises(SlurmError, match=message):
        check.check_nodes(board, cast("Any", template), members, files)
