"""Texts with holes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterctl.errors import UsageError
from clusterctl.specs.placeholders import MEANINGS, Placeholder, find_problems, parse_template


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", ()),
        ("plain", ("plain",)),
        ("${node_rank}", (Placeholder("node_rank"),)),
        (
            "tcp://${master_addr}:${master_port}",
            ("tcp://", Placeholder("master_addr"), ":", Placeholder("master_port")),
        ),
        ("${nnodes}${world_size}", (Placeholder("nnodes"), Placeholder("world_size"))),
        ("$${x}", ("${x}",)),
        ("a$${node_rank}b", ("a${node_rank}b",)),
        ("$$${x}", ("$${x}",)),
        ("$$$${x}", ("$$${x}",)),
        ("${local_rank}", (Placeholder("local_rank"),)),
        ("-${local_rank}-${run_id}", ("-", Placeholder("local_rank"), "-", Placeholder("run_id"))),
        ("$HOME $$ $", ("$HOME $$ $",)),
        ("$(id) {x} }", ("$(id) {x} }",)),
    ],
)
def test_pieces(text: str, pieces: tuple[str | Placeholder, ...]) -> None:
    """Literal texts are joined, holes stand alone."""
    assert parse_template(text) == pieces


@pytest.mark.parametrize("name", MEANINGS)
def test_every_name_makes_a_hole(name: str) -> None:
    """Each of the documented names is known."""
    assert parse_template(f"${{{name}}}") == (Placeholder(name),)


@pytest.mark.parametrize(
    ("text", "openings"),
    [
        ("${", [0]),
        ("${}", [0]),
        ("${ run_id }", [0]),
        ("${run_id} ${runid} $${runid} ${nope}", [1, 3]),
        ("${a${b}", [0]),
        ("${RANK}", [0]),
    ],
)
def test_problems(text: str, openings: list[int]) -> None:
    """Each wrong one is counted by its opening."""
    assert [problem.opening_index for problem in find_problems(text)] == openings


def test_a_wrong_name_is_refused_with_the_nearest_one() -> None:
    """As for text that stands in no file."""
    with pytest.raises(UsageError) as caught:
        parse_template("--rank ${noderank}")

    assert caught.value.code == "CC-SPEC-033"
    assert "did you mean 'node_rank'?" in caught.value.message


@given(st.text(alphabet="${}ab_run_id", max_size=40))
def test_no_text_is_too_odd(text: str) -> None:
    """A text has problems, or it has pieces that hold all of its letters."""
    if find_problems(text):
        with pytest.raises(UsageError):
            parse_template(text)
    else:
        written = "".join(p if isinstance(p, str) else f"${{{p.name}}}" for p in parse_template(text))
        assert written == text.replace("$${", "${")
