"""What each rank wrote last, where several ranks and their launcher share one log."""

from __future__ import annotations

import os
from pathlib import Path

from clusterctl.node.runtime.processes import identify
from clusterctl.node.supervise.evidence import Evidence
from clusterctl.node.supervise.ranks.workers import Worker
from clusterctl.protocol.ranks import Rank

LOG = """\
loading
[rank3]: Traceback (most recent call last):
[rank3]:   File "/run/code/train.py", line 7, in main
[rank3]: ValueError: bad batch
[rank2]: Traceback (most recent call last):
[rank2]: RuntimeError: Connection closed by peer
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def test_each_rank_has_its_own_lines(tmp_path: Path) -> None:
    """By torch's marks; a rank without one has what is not marked, unless a signal ended it."""
    (tmp_path / "stderr.log").write_text(LOG)
    workers = [Worker(identify(os.getpid()), Rank(rank), rank, 6, "") for rank in range(2, 6)]
    for worker, status in zip(workers, (1 << 8, 1 << 8, 15, 1 << 8), strict=True):
        worker.record_exit(status)
    shared = Evidence(str(tmp_path), {}).failures(workers)
    alone = Evidence(str(tmp_path), {}).failures(workers[:1])

    assert [failure["tail"][-1:] for failure in shared] == [
        ["[rank2]: RuntimeError: Connection closed by peer"],
        ["[rank3]: ValueError: bad batch"],
        [],
        ["torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"],
    ]
    assert [len(failure["tracebacks"]) for failure in shared] == [1, 1, 0, 1]
    assert len(alone[0]["tracebacks"]) == 3


def test_what_a_rank_writes_while_it_does_not_exit_is_no_sign_of_life(tmp_path: Path) -> None:
    """JAX aborts such a rank once another one has gone: its exception is still the cause."""
    (tmp_path / "stderr.log").write_text("Traceback (most recent call last):\nValueError: bad batch\n")
    os.utime(tmp_path / "stderr.log", (1000, 1000))
    worker = Worker(identify(os.getpid()), Rank(1), 0, 2, "")
    ended, stuck = Evidence(str(tmp_path), {}), Evidence(str(tmp_path), {})
    stuck.on_worker_stuck(Rank(1))
    for evidence in (ended, stuck):
        evidence.scan([worker])
    with (tmp_path / "stderr.log").open("a") as sink:
        sink.write("F1128 client.h:80] Terminating process because another task died\n")
    worker.record_exit(6)

    assert [evidence.failures([worker])[0]["last_at"] == 1000 for evidence in (ended, stuck)] == [False, True]


def test_a_rank_that_was_ended_because_it_was_stuck_has_written_its_traceback(tmp_path: Path) -> None:
    """mpirun puts the ranks of a node in one log, without marks: of two that a signal ended it is the stuck one's."""
    (tmp_path / "stderr.log").write_text("Traceback (most recent call last):\nValueError: bad batch\n")
    workers = [Worker(identify(os.getpid()), Rank(rank), rank, 2, "") for rank in range(2)]
    for worker in workers:
        worker.record_exit(15)
    evidence = Evidence(str(tmp_path), {})
    evidence.on_worker_stuck(Rank(1))

    assert [len(failure["tracebacks"]) for failure in evidence.failures(workers)] == [0, 1]
