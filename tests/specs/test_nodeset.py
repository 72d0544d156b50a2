"""Which nodes a pattern means, and how names are folded."""

from __future__ import annotations

import subprocess
import sys

import pytest
from counting import count_calls
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.errors import UsageError
from clusterctl.specs.nodeset import fold_names, select_nodes

NAMES = ("gpu01", "gpu02", "gpu03", "gpu10", "head", "rack1-n1", "rack1-n2", "rack2-n1", "10.0.0.9")


@pytest.mark.parametrize(
    ("pattern", "indices"),
    [
        ("0", (0,)),
        ("1", (1,)),
        ("0-3", (0, 1, 2, 3)),
        ("2-2", (2,)),
        ("3,1,1", (1, 3)),
        ("head", (4,)),
        ("head,gpu01", (0, 4)),
        (" head , 0 ,", (0, 4)),
        ("gpu[01-03]", (0, 1, 2)),
        ("gpu[01-02,10]", (0, 1, 3)),
        ("gpu[10,01]", (0, 3)),
        ("rack[1-2]-n1", (5, 7)),
        ("rack1-n[1-2]", (5, 6)),
        ("rack[1]-n[1,2],0", (0, 5, 6)),
        ("10.0.0.[9]", (8,)),
        ("gpu*", (0, 1, 2, 3)),
        ("*", tuple(range(9))),
        ("all", tuple(range(9))),
        ("?ead", (4,)),
        ("rack[1-2]-*", (5, 6, 7)),
        ("[0-1]", (0, 1)),
    ],
)
def test_patterns(pattern: str, indices: tuple[int, ...]) -> None:
    """The result is in the inventory's order, each node once."""
    assert select_nodes(pattern, NAMES) == indices


@pytest.mark.parametrize(
    ("pattern", "code", "words"),
    [
        ("", "CC-USE-010", "the selection of nodes is empty"),
        (" , ", "CC-USE-010", "the selection of nodes is empty"),
        ("gpu1", "CC-USE-012", "no node with the name 'gpu1', did you mean 'gpu01'?"),
        ("gup01", "CC-USE-012", "did you mean 'gpu01'?"),
        ("GPU01", "CC-USE-012", "did you mean 'gpu01'?"),
        ("gpu[01-04]", "CC-USE-012", "no node with the name 'gpu04' (from 'gpu[01-04]')"),
        ("gpu99", "CC-USE-012", "no node with the name 'gpu99'"),
        ("gpu[1-3]", "CC-USE-012", "no node with the name 'gpu1'"),
        ("cpu*", "CC-USE-012", "no node matches 'cpu*'"),
        ("gpu[01-02]*,x", "CC-USE-012", "no node with the name 'x'"),
        ("9", "CC-USE-012", "no node with rank 9: the last one is 8"),
        ("7-12", "CC-USE-012", "no node with rank 9"),
        ("3-1", "CC-USE-011", "runs backwards"),
        ("gpu[03-01]", "CC-USE-011", "the range '03-01' runs backwards"),
        ("gpu[01", "CC-USE-011", "invalid selection of nodes 'gpu[01': '[' is not closed"),
        ("gpu]01[", "CC-USE-011", "invalid selection"),
        ("gpu[]", "CC-USE-011", "'' is not a number"),
        ("gpu[a-b]", "CC-USE-011", "'a-b' is not a number"),
        ("gpu[[1]]", "CC-USE-011", "invalid selection"),
        ("a;b", "CC-USE-011", "a character that node names cannot have"),
        ("$(id)", "CC-USE-011", "a character that node names cannot have"),
    ],
)
def test_wrong_patterns(pattern: str, code: str, words: str) -> None:
    """What cannot be read or found is reported, with the nearest name."""
    with pytest.raises(UsageError) as caught:
        select_nodes(pattern, NAMES)

    assert caught.value.code == code
    assert words in caught.value.message


@pytest.mark.parametrize("pattern", ["gpu99", "rack3-n7", "12"])
def test_another_number_is_not_guessed(pattern: str) -> None:
    """Any node would be as near as any other: all of them are listed."""
    with pytest.raises(UsageError) as caught:
        select_nodes(pattern, NAMES)

    assert "did you mean" not in caught.value.message
    assert caught.value.fix.startswith("the nodes are gpu[01-03,10],head,")


def test_no_nodes_at_all() -> None:
    """Even a glob selects none of none."""
    with pytest.raises(UsageError) as caught:
        select_nodes("all", ())

    assert caught.value.code == "CC-USE-010"


@pytest.mark.parametrize(
    "pattern",
    [
        "gpu[1-999999999]",
        "0-999999999",
        "[0-999999999]",
        "*[1-999999999]*",
        "n[1,11,111,1-9][1,11,111,1-9][1,11,111,1-9][1,11,111,1-9][1,11,111,1-9][1,11,111,1-9]",
        "n" + "*1" * 200 + "x",
        "[" * 100000,
        "[]" * 100000,
        "1" * 10000,
        "," * 100000,
    ],
)
def test_no_pattern_is_much_work(pattern: str) -> None:
    """Huge ranges end at the first name that is not there."""
    names = ["gpu1", *(f"n{i}" for i in range(500)), *("n" + "1" * n for n in range(4, 30))]

    def select() -> None:
        with pytest.raises(UsageError):
            select_nodes(pattern, names)

    count_calls(select, 1000 * (len(pattern) + len(names)))


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["gpu01", "gpu02", "gpu03", "gpu07", "x"], "gpu[01-03,07],x"),
        ([], ""),
        (["a"], "a"),
        (["b", "a"], "b,a"),
        (["gpu7"], "gpu7"),
        (["gpu2", "gpu1"], "gpu[1-2]"),
        (["n8", "n9", "n10", "n11"], "n[8-11]"),
        (["n08", "n09", "n10", "n100"], "n[08-10],n100"),
        (["n1", "n01", "n001"], "n1,n01,n001"),
        (["n0", "n1", "n2"], "n[0-2]"),
        (["a1", "x", "a2"], "a[1-2],x"),
        (["a1.example.org", "a2.example.org"], "a[1-2].example.org"),
        (["r1-n1", "r1-n2", "r2-n1"], "r1-n[1-2],r2-n1"),
        (["10.0.0.9", "10.0.0.10"], "10.0.0.[9-10]"),
        (["a", "a", "a1", "a1"], "a,a1"),
    ],
)
def test_folding(names: list[str], folded: str) -> None:
    """Names of one kind become a range; the kinds stand in order of appearance."""
    assert fold_names(names) == folded


node_names = st.from_regex(r"(gpu|n-|a\.b|x1-)[0-9]{0,11}(\.org)?", fullmatch=True)


@given(st.lists(node_names, unique=True, min_size=1, max_size=12))
def test_what_was_folded_selects_the_same_nodes(names: list[str]) -> None:
    """Folding loses and adds nothing."""
    chosen = sorted(names)[: 1 + len(names) // 2]

    assert {names[index] for index in select_nodes(fold_names(chosen), names)} == set(chosen)


@pytest.mark.process
def test_it_is_light() -> None:
    """Choosing nodes needs neither pydantic nor ruamel.yaml."""
    heavy = "[name for name in sys.modules if name.startswith(('pydantic', 'ruamel'))]"
    code = f"import sys, clusterctl.specs.nodeset; print({heavy})"

    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )
