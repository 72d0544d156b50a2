"""When the ranks of a node count as ones that ran alone: only if that is certain of every process."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_effects import call, make_run

from clusterctl.node.lifecycle.ending import hand_over, on_all_ended
from clusterctl.node.lifecycle.run import RunState, new_attempt
from clusterctl.node.runtime.processes import Identity
from clusterctl.node.supervise.ranks import groups
from clusterctl.node.supervise.ranks.groups import find_alone
from clusterctl.protocol.exit_status import SUSPECTED

pytestmark = pytest.mark.unit

TORCHRUN: Any = {"world_size": 4, "nnodes": 2, "module": "torch.distributed.run", "ends_with": "all"}
COMMAND: Any = {**TORCHRUN, "module": None}
ALONE = {"ranks": 2, "largest": 1, "planned": 4}


def report(folder: Path, *sizes: int | None) -> list[Any]:
    """Write what processes of these sizes report, the ranks of each size counted; gives the first two as ranks."""
    for pid, size in enumerate(sizes, start=7):
        rank = sizes[: pid - 7].count(size)
        content = {"pid": pid, "starttime": 100 + pid, "size": size, "rank": rank, "ended": 999}
        (folder / f"{pid}.group").write_text(json.dumps(content))
    return [SimpleNamespace(identity=Identity(pid, 100 + pid)) for pid in (7, 8)]


@pytest.mark.parametrize(
    ("sizes", "alone"),
    [
        ((1, 1), ALONE),
        ((1, 1, 1), ALONE),
        ((2, 2), {**ALONE, "largest": 2}),
        ((1, 2), {**ALONE, "largest": 2}),
        ((4, 4), None),
        ((4, 1), None),  # a group of four has all ranks, whatever this one reports
        ((1, 1, 8), None),  # below a rank
        ((0, 1), None),
        ((None, 1), None),
        ((1, 1, None), None),
        ((1,), None),
        ((), None),
    ],
)
def test_ranks_of_torchrun(tmp_path: Path, sizes: tuple[int | None, ...], alone: object) -> None:
    """Each rank must have reported, and no process of the node a larger group or nothing."""
    ranks = report(tmp_path, *sizes)
    assert find_alone(str(tmp_path), TORCHRUN, ranks, started=True) == alone


def test_a_rank_is_known_by_its_start(tmp_path: Path) -> None:
    """The file of an earlier process of its number is no report of it."""
    ranks = report(tmp_path, 1, 1)
    ranks[0].identity = Identity(7, 999)
    assert find_alone(str(tmp_path), TORCHRUN, ranks, started=True) is None


def test_programs_that_start_their_ranks_themselves(tmp_path: Path) -> None:
    """A shell reports nothing; how many ranks a node has is theirs, so that only the nodes are planned."""
    report(tmp_path, 1)
    shell: Any = [SimpleNamespace(identity=Identity(70, 1))]
    assert find_alone(str(tmp_path), COMMAND, shell, started=False) == {
        "ranks": 1,
        "largest": 1,
        "planned": 2,
    }
    assert find_alone(str(tmp_path), COMMAND, shell, started=True) is None
    report(tmp_path, 2)
    assert find_alone(str(tmp_path), COMMAND, shell, started=False) is None


@pytest.mark.parametrize(
    ("sizes", "alone"),
    [
        ((1, 2, 2), {"ranks": 2, "largest": 2, "planned": 4}),
        ((1, 4, 4, 4, 4), {"ranks": 4, "largest": 4, "planned": 8}),
        ((1, 4, 4), None),  # the other two are on the other node
        ((1, 4, 4, 4, 0), None),
        ((8, 8, 4, 4, 4, 4), None),
    ],
)
def test_a_group_with_all_its_members_here_has_none_elsewhere(
    tmp_path: Path, sizes: tuple[int, ...], alone: object
) -> None:
    """Workers that a program starts on each node for itself, however many; planned were those of all nodes."""
    spawner = report(tmp_path, *sizes)[:1]
    assert find_alone(str(tmp_path), COMMAND, spawner, started=False) == alone


@pytest.mark.parametrize(
    ("change", "is_local"),
    [
        ({}, True),
        ({"rank": 0}, False),  # the same program again, of which the other rank is on the other node
        ({"rank": None}, False),
        ({"starttime": 1000, "ended": 2000}, False),  # after the first had ended
        ({"ended": None}, False),
    ],
)
def test_members_are_known_by_rank_and_time(tmp_path: Path, change: dict[str, Any], is_local: bool) -> None:
    """Two processes with a group of two are one group only as rank 0 and 1, at the same time."""
    spawner = report(tmp_path, 2, 2)[:1]
    file = tmp_path / "8.group"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    alone = find_alone(str(tmp_path), COMMAND, spawner, started=False)
    assert alone == ({"ranks": 2, "largest": 2, "planned": 4} if is_local else None)


def test_a_group_of_a_run_of_one_node_is_that_of_the_run(tmp_path: Path) -> None:
    """All its members are on this node, as planned."""
    ranks = report(tmp_path, 4, 4, 4, 4)
    assert find_alone(str(tmp_path), {**TORCHRUN, "nnodes": 1}, ranks, started=True) is None


@pytest.mark.parametrize(
    ("sizes", "alone"),
    [
        ((0, 0), {"ranks": 1, "largest": 0, "planned": 2}),
        ((1, None), {"ranks": 1, "largest": 0, "planned": 2}),
        ((1, 2, 2), {"ranks": 2, "largest": 2, "planned": 4}),
        ((1, 8), None),
        ((), None),
    ],
)
def test_what_is_not_certain_is_suspected_where_nothing_distinguishes_the_nodes(
    tmp_path: Path, sizes: tuple[int | None, ...], alone: object
) -> None:
    """A group that was destroyed, a process that was killed; not one that was in a group of other nodes too."""
    spawner = report(tmp_path, *sizes)[:1]
    spec: Any = {**COMMAND, "alone": SUSPECTED}
    assert find_alone(str(tmp_path), spec, spawner, started=False) == alone


@pytest.mark.parametrize(
    "change",
    [
        {"alone": "ok"},
        {"diagnose": False},
        {"ray": {}},
        {"mpi": {}},
        {"ends_with": "node 0"},
        {"world_size": 1},
        {"world_size": None},
    ],
)
def test_jobs_that_are_not_judged(tmp_path: Path, change: dict[str, Any]) -> None:
    """By their launcher or their words; and a single rank is always alone."""
    ranks = report(tmp_path, 1, 1)
    assert find_alone(str(tmp_path), {**TORCHRUN, **change}, ranks, started=True) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"pid": 9, "size": 1}',
        '{"pid": 8, "starttime": 1, "size": 1}',
        '{"pid": -1, "starttime": 1}',
    ],
)
def test_a_report_that_cannot_be_read_makes_nothing_certain(tmp_path: Path, content: str) -> None:
    """The job could have written it."""
    ranks = report(tmp_path, 1, 1)
    (tmp_path / "9.group").write_text(content)
    assert find_alone(str(tmp_path), TORCHRUN, ranks, started=True) is None


def test_too_many_processes_make_nothing_certain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not read may be a group."""
    ranks = report(tmp_path, 1, 1, 1)
    monkeypatch.setattr(groups, "MAX_PROCESSES", 2)
    assert find_alone(str(tmp_path), TORCHRUN, ranks, started=True) is None


def test_only_a_part_that_succeeded_is_one_that_ran_alone() -> None:
    """Else its failure is what counts; the record and the state file hold it."""
    spec: Any = {**TORCHRUN, "attempt": 1, "node_rank": 0, "master_addr": "", "processes": 0}
    state = RunState(new_attempt(spec, idle=False), False)
    for exit_code, reason in (
        (0, "ran alone: no process group of 4 was formed"),
        (3, "torchrun exited with 3"),
    ):
        run, calls = make_run(state.change(started=True, exit=exit_code))
        on_all_ended(run, [], [], {}, ALONE)  # type: ignore[arg-type]  # of literal numbers
        name, alone = ("FAILED", None) if exit_code else ("SUCCEEDED", ALONE)
        assert calls == [call.build_part(name, reason, alone=alone)]
    part: Any = {"state": "SUCCEEDED", "reason": "", "alone": ALONE}
    run, calls = make_run(state)
    hand_over(run, part)
    assert [one.arguments["values"].get("alone") for one in calls if one.name == "set_state"] == [ALONE]
