"""What `check` shows, and its JSON."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from clusterctl.console.findings import check_to_json, render_activated, render_check, render_findings
from clusterctl.plans.checks.framework import Finding
from clusterctl.plans.facts.facts import parse_facts
from clusterctl.protocol.messages.facts import ActivateResult, Facts
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import use_language


def make_nodes(count: int) -> tuple[Node, ...]:
    """Give nodes gpu01, gpu02 and so on."""
    return tuple(Node(name=f"gpu{n:02}", index=n - 1, host=f"10.0.0.{n}") for n in range(1, count + 1))


def make_facts(node: Node, **changes: Any) -> Facts:
    """Give what a GPU node shows."""
    eth0 = {
        "name": "eth0",
        "up": True,
        "running": True,
        "addresses": [{"ip": node.host, "prefix": 24, "family": 4}],
    }
    gpu = {"name": "NVIDIA H100 80GB HBM3"}
    document = {
        "interpreter": {"version": "3.11.9"},
        "torch": {"version": "2.7.1+cu126", "cuda": "12.6"},
        "nccl": {"version": "2.26.2"},
        "gpus": {"count": 8, "devices": [gpu] * 8},
        "nics": [eth0],
    }
    return parse_facts({**document, **changes})


def finding(code: str = "CC-NET-001", severity: Any = "error", **values: Any) -> Finding:
    """Give a finding about gpu02."""
    standard = {
        "nodes": ("gpu02",),
        "evidence": "gpu02: no eth9",
        "why": "Because.",
        "fix": "",
        "title": "a NIC",
    }
    return Finding(code=code, severity=severity, **{**standard, **values})


def shown(
    nodes: tuple[Node, ...],
    facts: dict[str, Facts],
    findings: list[Finding],
    width: int = 100,
    *,
    verbose: bool = False,
) -> str:
    """Render everything as plain text."""
    console = Console(file=io.StringIO(), width=width, highlight=False, no_color=True)
    render_check(console, nodes, facts, findings, verbose=verbose)
    return console.file.getvalue()  # type: ignore[attr-defined]  # the file is the StringIO above


def all_facts(nodes: tuple[Node, ...]) -> dict[str, Facts]:
    """Give healthy facts for all nodes."""
    return {node.name: make_facts(node) for node in nodes}


def test_one_is_not_many() -> None:
    """The answer and the results count with the right noun."""
    nodes = make_nodes(1)
    alone = {"nodes": ("gpu01",)}
    one = shown(nodes, all_facts(nodes), [finding(**alone), finding("CC-NET-010", "info", **alone)])
    assert one.startswith("✗ 1 of 1 node cannot take part (1 error, 1 note)\n")
    two = shown(nodes, all_facts(nodes), [finding("CC-NET-010", "info", **alone)] * 2)
    assert two.startswith("✓ 1 node is ready (2 notes)\n")


def test_the_answer_comes_first_then_equal_nodes_in_one_line() -> None:
    """A line names the nodes, the code that stops them, and what they have."""
    nodes = make_nodes(3)
    lines = shown(nodes, all_facts(nodes), [finding()]).splitlines()
    assert lines[0] == "✗ 1 of 3 nodes cannot take part (1 error)"
    has = "8 x H100 80GB HBM3, torch 2.7.1+cu126, NCCL 2.26.2, Python 3.11.9, eth0"
    assert lines[1:3] == [f"  ✓ gpu[01,03]  {has}", "  ✗ gpu02       a NIC CC-NET-001"]


def test_what_follows_from_a_cause_is_one_line() -> None:
    """A NIC that is down has no route either; of another node, or worse than its cause, it stands by itself."""
    nodes = make_nodes(3)
    down, route = finding("CC-NET-002"), finding("CC-NET-006", title="no route")
    text = shown(nodes, all_facts(nodes), [down, route])
    assert "also: same cause: no route CC-NET-006" in text
    assert "error CC-NET-006" not in text and "✗ gpu02       a NIC CC-NET-002\n" in text
    for other in (finding("CC-NET-006", nodes=("gpu03",)), finding("CC-PY-012", title="no route")):
        assert f"error {other.code}" in shown(nodes, all_facts(nodes), [down, other])
    assert "error CC-NET-006" in shown(nodes, all_facts(nodes), [finding("CC-NET-002", "warning"), route])


def test_each_node_has_a_row_with_v() -> None:
    """A row shows address, NIC, versions, GPUs and the result."""
    nodes = make_nodes(2)
    text = shown(nodes, all_facts(nodes), [finding()], verbose=True)
    rows = [" ".join(line.split()) for line in text.splitlines() if line.strip().startswith("gpu0")]
    assert rows[0] == "gpu01 10.0.0.1 eth0 3.11.9 2.7.1+cu126 12.6 / 2.26.2 8 x H100 80GB HBM3 ok"
    assert rows[1].endswith("1 error")


def test_columns_that_say_nothing_are_left_out() -> None:
    """A cluster without GPUs has no columns for them."""
    nodes = make_nodes(2)
    bare = {
        node.name: make_facts(node, gpus=None, nccl=None, torch={"version": "2.7.1+cpu"}) for node in nodes
    }
    text = shown(nodes, bare, [], verbose=True)
    assert "GPUs" not in text and "NCCL" not in text
    assert text.startswith("✓ all 2 nodes are ready\n")


def test_node_without_answer_has_a_row_too() -> None:
    """A node that gave no answer is not missing."""
    nodes = make_nodes(2)
    unreachable = finding("CC-SSH-003", evidence="gpu02: no way there")
    facts = {"gpu01": make_facts(nodes[0])}
    text = shown(nodes, facts, [unreachable], verbose=True)
    assert "gpu02   10.0.0.2" in text and "no answer" in text
    assert "✗ gpu02  a NIC CC-SSH-003\n" in shown(nodes, facts, [unreachable])


def test_a_node_without_python_did_answer() -> None:
    """It was reached over SSH: the table counts its error, as the JSON does."""
    nodes = make_nodes(2)
    missing = finding("CC-PY-001", evidence="gpu02: /usr/bin/nopython was not found")
    text = shown(nodes, {"gpu01": make_facts(nodes[0])}, [missing], verbose=True)
    (row,) = [line for line in text.splitlines() if "10.0.0.2" in line]
    assert row.rstrip().endswith("1 error")
    document = check_to_json(nodes, {"gpu01": make_facts(nodes[0])}, [missing])
    assert document["nodes"][1]["verdict"] == "1 error"


def test_many_equal_nodes_share_a_row() -> None:
    """Above 16 nodes equal ones are folded; the odd one keeps a row of its own."""
    nodes = make_nodes(20)
    facts = all_facts(nodes)
    facts["gpu07"] = make_facts(nodes[6], torch={"version": "2.6.0"})
    text = shown(nodes, facts, [], 140, verbose=True)
    rows = [line.split() for line in text.splitlines() if line.strip().startswith("gpu")]
    assert [row[0] for row in rows] == ["gpu[01-06,08-20]", "gpu07"]
    assert "10.0.0.1 +18" in text
    lines = shown(nodes, facts, [], 140).splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["gpu[01-06,08-20]", "gpu07"]


def test_findings_are_worst_first_with_folded_nodes() -> None:
    """The head of a finding names severity, code, title and nodes."""
    console = Console(file=io.StringIO(), width=80, no_color=True, highlight=False)
    names = tuple(f"gpu{n:02}" for n in range(1, 9))
    render_findings(console, [finding("CC-B-2", "info"), finding("CC-A-1", "error", nodes=names)])
    heads = [line for line in console.file.getvalue().splitlines() if "CC-" in line]  # type: ignore[attr-defined]  # as above
    assert heads == ["error CC-A-1: a NIC (gpu[01-08])", "note CC-B-2: a NIC (gpu02)"]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_nothing_is_wider_than_the_screen(width: int) -> None:
    """Tables and texts keep to the width, wide characters counted as two; only commands may be longer."""
    nodes = make_nodes(3)
    wide = finding(evidence="gpu02: " + "网卡没有地址 " * 30, why="因为" * 60, fix="")
    facts = {**all_facts(nodes), "gpu03": make_facts(nodes[2], torch={"version": "版本" * 30})}
    for verbose in (False, True):
        for line in shown(nodes, facts, [wide], width, verbose=verbose).splitlines():
            assert cell_len(line) <= width, line


def test_command_stays_one_line() -> None:
    """What is there to be pasted is not broken by us."""
    command = "ssh alice@10.0.0.2 '" + "x" * 200 + "'"
    text = shown(make_nodes(2), {}, [finding(fix=f"{command}\nsecond")], 80)
    assert f"  fix:  {command}\n        second\n" in text
    prose = "look at `" + "y " * 30 + "y` and at " + "so many other words " * 5
    lines = shown(make_nodes(2), {}, [finding(fix=prose)], 80).splitlines()
    assert sum("`" + "y " * 30 + "y`" in line for line in lines) == 1


def test_escape_sequences_and_markup_are_harmless() -> None:
    """Neither a terminal sequence nor square brackets in a node's words do anything."""
    nodes = make_nodes(1)
    text = shown(
        nodes, all_facts(nodes), [finding(evidence="\x1b]52;c;x\x07[red]eth0[/red]", nodes=("gpu01",))]
    )
    assert "\x1b" not in text and "[red]eth0[/red]" in text


def test_what_is_waived_is_shown_and_does_not_count() -> None:
    """It stands last with its reason, its node is ready, and the first line counts it apart."""
    nodes = make_nodes(2)
    waived = finding(nodes=("gpu01",), waived="old switch (lab.yaml)")
    text = shown(
        nodes, all_facts(nodes), [waived, finding(nodes=("gpu02",), severity="warning")], verbose=True
    )
    assert text.index("warning CC-NET-001") < text.index("waived CC-NET-001")
    assert "waived: old switch (lab.yaml)" in text
    assert text.startswith("✓ all 2 nodes are ready (1 warning, 1 waived)\n")
    assert next(line for line in text.splitlines() if "gpu01" in line).rstrip().endswith("ok")


def test_the_screen_is_in_the_users_language() -> None:
    """All but codes, names and what was reported."""
    nodes = make_nodes(2)
    use_language("zh")
    try:
        text = shown(nodes, all_facts(nodes), [finding(fix="clusterctl exec --nodes gpu02 -- true")])
    finally:
        use_language("en")
    assert text.startswith("✗ 2 个节点中有 1 个不能参与训练")
    assert re.search(r"  修复\Wclusterctl exec --nodes gpu02 -- true\n", text)


def test_json_is_json() -> None:
    """Nodes with their facts, findings with all their fields, and a version."""
    nodes = make_nodes(2)
    document = json.loads(json.dumps(check_to_json(nodes, {"gpu01": make_facts(nodes[0])}, [finding()])))
    assert document["schema"] == 1
    assert document["nodes"][0]["ip"] == "10.0.0.1" and document["nodes"][0]["nics"] == ["eth0"]
    assert document["nodes"][0]["facts"]["torch"]["version"] == "2.7.1+cu126"
    assert document["nodes"][0]["verdict"] == "fit"
    assert (document["nodes"][1]["answered"], document["nodes"][1]["verdict"]) == (False, "no answer")
    assert sorted(document["findings"][0]) == sorted(
        ["code", "severity", "nodes", "evidence", "why", "fix", "title", "waived"]
    )


def describe(*given: ActivateResult) -> str:
    """Print nodes gpu01, gpu02, ..."""
    console = Console(file=io.StringIO(), width=60)
    render_activated(console, {f"gpu{n:02}": Facts(activate=one) for n, one in enumerate(given, 1)})
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_equal_nodes_are_one_and_long_paths_are_cut() -> None:
    """Three entries of a path are enough to see whose it is."""
    one = ActivateResult(
        status=0,
        path=("/opt/conda/envs/t/bin", "/opt/conda/condabin", "/usr/local/bin", "/usr/bin", "/bin"),
        libraries=("/usr/local/cuda/lib64",),
        conda="/opt/conda/envs/t",
        nvcc="/usr/local/cuda/bin/nvcc",
        cuda="12.6",
        compiler="/usr/bin/cc",
        compiler_version="13.2.0",
    )

    assert describe(one, one, ActivateResult(status=1, path=("/bin",)), ActivateResult()).splitlines() == [
        "environment of `activate` on gpu[01-02]:",
        "  conda environment /opt/conda/envs/t",
        "  CUDA toolkit 12.6 at /usr/local/cuda/bin/nvcc",
        "  compiler 13.2.0 at /usr/bin/cc",
        "  PATH /opt/conda/envs/t/bin:/opt/conda/condabin:/usr/local/bin and 2 more",
        "  LD_LIBRARY_PATH /usr/local/cuda/lib64",
        "environment of `activate` on gpu03:",
        "  CUDA toolkit none",
        "  compiler none",
        "  PATH /bin",
    ]


def test_without_activate_nothing_is_shown() -> None:
    """And what a node reports cannot act on the terminal."""
    assert describe(ActivateResult()) == ""
    assert "\x1b" not in describe(ActivateResult(status=0, venv="/a\x1b[2Jb"))
