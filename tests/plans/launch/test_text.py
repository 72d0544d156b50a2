"""Texts with holes: what is known is filled, what is not stays visible and quoted."""

from __future__ import annotations

import shlex

import pytest

from clusterctl.plans.launch.template import (
    Fill,
    Unknown,
    fill_argument,
    fill_template,
    quote,
    render,
    text,
    to_json,
    unknowns,
)


def test_known_values_are_filled_and_literals_kept() -> None:
    """`${...}` is replaced, `$${...}` and plain `$HOME` are not, `${local_rank}` is torchrun's."""
    filled = fill_template("a${node_rank}b $${node_rank} $HOME ${local_rank}", {"node_rank": "7"})

    assert filled == ("a7b ${node_rank} $HOME ${local_rank}",)


def test_arguments_survive_torchruns_own_substitution() -> None:
    """torchrun reads arguments as templates; after it, each one is what the user wrote."""
    from string import Template

    for written in ("$$", "$HOME", "$local_rank", "a$$b$", "$$$$", "${local_rank}"):
        (argument,) = fill_argument(written, {})
        assert isinstance(argument, str)
        expected = "7" if written == "${local_rank}" else written
        assert Template(argument).safe_substitute(local_rank="7") == expected


def test_the_empty_text_stays_one_word() -> None:
    """An empty argument must not vanish."""
    assert text("", "") == ("",)
    assert to_json(text("")) == ""
    assert quote(text("")) == "''"


def test_holes_travel_as_segments() -> None:
    """The agent receives what it must fill in as data, so that no user text can pose as a hole."""
    value = fill_template(
        "tcp://${master_addr}:${master_port}", {"master_addr": "10.0.0.1", "master_port": Fill("master_port")}
    )

    assert to_json(value) == ["tcp://10.0.0.1:", {"fill": "master_port"}]
    assert render(value) == "tcp://10.0.0.1:<port@node0>"


def test_what_was_not_measured_is_named_and_cannot_start() -> None:
    """A plan with an unknown can be shown, and refuses to become a spec."""
    value = text("--n=", Unknown("gpus@gpu02"))

    assert unknowns([value, text("x")]) == ("gpus@gpu02",)
    assert render(value) == "--n=<gpus@gpu02>"
    with pytest.raises(ValueError, match="gpus@gpu02"):
        to_json(value)


@pytest.mark.parametrize("word", ["", "a b", "it's", "$(id)", "a\nb", "名前", '"', "`id`", "\\", "-x"])
def test_quoting_gives_back_the_same_word(word: str) -> None:
    """What `--dry-run` prints can be pasted: a shell reads exactly the argument."""
    assert shlex.split(quote(text(word))) == [word]
