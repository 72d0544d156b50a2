"""Texts with holes: what is known is filled, what is not stays visible and quoted."""

from __future__ import annotations

import shlex

import pytest

from clusterctl.plans.launch.template import (
    AgentValue,
    Unmeasured,
    escape_dollars,
    fill_placeholders,
    list_unmeasured,
    make_template,
    quote_template,
    render_template,
    template_to_json,
)


def test_known_values_are_filled_and_literals_kept() -> None:
    """`${...}` is replaced, `$${...}` and plain `$HOME` are not, `${local_rank}` is torchrun's."""
    filled = fill_placeholders("a${node_rank}b $${node_rank} $HOME ${local_rank}", {"node_rank": "7"})

    assert filled == ("a7b ${node_rank} $HOME ${local_rank}",)


def test_arguments_survive_torchruns_own_substitution() -> None:
    """torchrun reads arguments as templates; after it, each one is what the user wrote."""
    from string import Template

    for written in ("$$", "$HOME", "$local_rank", "a$$b$", "$$$$", "${local_rank}"):
        (argument,) = fill_placeholders(written, {}, escape_dollars)
        assert isinstance(argument, str)
        expected = "7" if written == "${local_rank}" else written
        assert Template(argument).safe_substitute(local_rank="7") == expected


def test_the_empty_text_stays_one_word() -> None:
    """An empty argument must not vanish."""
    assert make_template("", "") == ("",)
    assert template_to_json(make_template("")) == ""
    assert quote_template(make_template("")) == "''"


def test_holes_travel_as_segments() -> None:
    """The agent receives what it must fill in as data, so that no user text can pose as a hole."""
    value = fill_placeholders(
        "tcp://${master_addr}:${master_port}",
        {"master_addr": "10.0.0.1", "master_port": AgentValue("master_port")},
    )

    assert template_to_json(value) == ["tcp://10.0.0.1:", {"fill": "master_port"}]
    assert render_template(value) == "tcp://10.0.0.1:<port@node0>"


def test_what_was_not_measured_is_named_and_cannot_start() -> None:
    """A plan with an unknown can be shown, and refuses to become a spec."""
    value = make_template("--n=", Unmeasured("gpus@gpu02"))

    assert list_unmeasured([value, make_template("x")]) == ("gpus@gpu02",)
    assert render_template(value) == "--n=<gpus@gpu02>"
    with pytest.raises(ValueError, match="gpus@gpu02"):
        template_to_json(value)


@pytest.mark.parametrize("word", ["", "a b", "it's", "$(id)", "a\nb", "名前", '"', "`id`", "\\", "-x"])
def test_quoting_gives_back_the_same_word(word: str) -> None:
    """What `--dry-run` prints can be pasted: a shell reads exactly the argument."""
    assert shlex.split(quote_template(make_template(word))) == [word]
