"""No line of what is read is wider than a terminal of 80 columns, in either language; what is pasted stays whole."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from clusterctl.codes.lookup import entries
from clusterctl.console.explanation import render_explanation
from clusterctl.console.inventory import print_inventory
from clusterctl.console.run import hang
from clusterctl.console.run.hang import show_diagnosis, show_gpus
from clusterctl.console.terminal import make_table
from clusterctl.console.text import ItemsCell
from clusterctl.plans.diagnose.evidence import Entry, Frame, GroupRecord, NodeEvidence, RankEvidence
from clusterctl.plans.diagnose.hang import judge
from clusterctl.plans.explain import explain
from clusterctl.protocol.messages.facts import GpuUsage
from clusterctl.specs.inventory.model import Inventory, Node, Ssh
from clusterctl.translation import Language, use_language

COLUMNS = 80


@pytest.fixture(params=["en", "zh"])
def language(request: pytest.FixtureRequest) -> Iterator[Language]:
    """Use both languages."""
    use_language(request.param)
    yield request.param
    use_language("en")


def screen() -> Console:
    """Make a terminal of 80 columns."""
    return Console(file=io.StringIO(), width=COLUMNS, force_terminal=True, color_system=None, highlight=False)


def lines_of(console: Console) -> list[str]:
    """Return the lines that a console has printed."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.usefixtures("language")
def test_prose_that_begins_with_the_name_of_a_program_is_wrapped() -> None:
    """`pip shows one version ...` is no command; those of a fix stay on one line."""
    wide = []
    for code in entries():
        console = screen()
        explanation = explain(code, {"examples": {}, "happens": {}})
        render_explanation(console, explanation)
        lines = lines_of(console)[1:]  # below the title, which is to be copied
        pasted = {explanation.command or "clusterctl explain"}
        wide += [line for line in lines if cell_len(line) > COLUMNS and not any(map(line.count, pasted))]
    assert wide == []


@pytest.fixture
def waiting() -> list[RankEvidence]:
    """Three ranks that wait for another one: a table of 101 columns."""
    entry = Entry(4, None, "all_reduce", "[[1]]", "Float", done=False, age=95.0)
    group = GroupRecord("0", "default_pg", (), (entry,))
    waits, loads = Frame("train.py", 25, "train_step"), Frame("train.py", 8, "load_next_batch")
    ranks = [
        RankEvidence(n, f"gpu0{n + 1}", process="S", stack="s", frames=(waits,), groups=(group,))
        for n in range(3)
    ]
    return [
        *ranks,
        RankEvidence(
            3, "gpu04", process="S", stack="s", frames=(loads,), groups=(replace(group, entries=()),)
        ),
    ]


@pytest.mark.usefixtures("language")
def test_a_diagnosis_fits(waiting: list[RankEvidence], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sentence, the table of ranks and the GPUs; no row is padded beyond the screen."""
    console = screen()
    monkeypatch.setattr(hang, "stdout", lambda: console)
    nodes = [NodeEvidence(rank.node, (rank,), 0.1) for rank in waiting]

    show_diagnosis(judge(waiting, (), 4), waiting, nodes, "clusterctl --lab practice", with_stacks=False)
    show_gpus({"gpu01": [GpuUsage(index=n, busy=100, memory_used=81000, memory=81559) for n in range(8)]})

    lines = lines_of(console)
    assert [line for line in lines if cell_len(line) > COLUMNS] == []
    assert any("load_next_batch()" in line for line in lines)


@pytest.mark.usefixtures("language")
def test_the_inventory_fits_with_what_all_nodes_share_above_it() -> None:
    """No heading and no name is broken."""
    ssh = Ssh(user="root", proxy_command="nc %h %p")
    nodes = tuple(
        Node(
            name=f"gpu{n:02}",
            index=n,
            host=f"10.77.0.{n}",
            ip=f"10.77.0.{n}",
            ssh=ssh,
            nic=(f"enp{n}s0f0",),
            python="/home/me/projects/training/.venv/bin/python",
        )
        for n in range(2)
    )
    console = screen()
    print_inventory(console, Inventory(cluster="lab-a", file="f", nodes=nodes))

    lines = lines_of(console)
    assert [line for line in lines if cell_len(line) > COLUMNS] == []
    assert any("node_rank" in line for line in lines)
    assert sum("/home/me/projects/training/.venv/bin/python" in line for line in lines) == 1


@pytest.mark.parametrize("width", [24, 40, 80])
def test_the_state_of_a_rank_is_not_broken(width: int) -> None:
    """`r3 退出码 1` stays in one line of its cell."""
    items = [f"r{n} 退出码 1" for n in range(4)]
    console = Console(file=io.StringIO(), width=width, color_system=None)
    table = make_table("RANK")
    table.add_row(ItemsCell(items))
    console.print(table)

    assert sum(line.count(item) for line in lines_of(console) for item in items) == len(items)
    assert all(cell_len(line) <= width for line in lines_of(console))


@pytest.mark.usefixtures("language")
def test_an_inventory_that_does_not_fit_as_a_table_becomes_records() -> None:
    """Values stay whole, so that they can be copied: no name is broken in the middle of a word."""
    nodes = tuple(
        Node(
            name=f"gpu-rack-{index}",
            index=index,
            host=f"node{index}.cluster.example.org",
            nic=(f"enp{index}s0f0", f"enp{index}s0f1"),
            python=f"/data/home{index}/alice/miniconda3/envs/train/bin/python",
            ssh=Ssh(user="alice", port=2200 + index, jump="login.example.org"),
        )
        for index in range(2)
    )
    console = screen()

    print_inventory(console, Inventory(cluster="lab-a", file="f", nodes=nodes))

    lines = lines_of(console)
    assert "0  gpu-rack-0" in lines and "1  gpu-rack-1" in lines
    assert any(line.endswith("/data/home1/alice/miniconda3/envs/train/bin/python") for line in lines)
    assert any("alice@node1.cluster.example.org:2201" in line for line in lines)
