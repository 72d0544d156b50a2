"""The catalogue of Chinese messages is that of the code: nothing is missing, and no translation loses a fact."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import messages
import pytest

from clusterctl.translation import fill_chinese

ROOT = Path(__file__).parent.parent
LAYERS = (
    "click",
    "docs",
    *sorted(path.stem for path in (ROOT / "clusterctl").iterdir() if path.name[0] not in "_."),
)


@cache
def problems() -> list[str]:
    """Give those of the catalogue as the code wants it."""
    return [*messages.problems_of(messages.updated())]


def layer_of(place: str) -> str:
    """Name the layer of a place, which begins with a folder."""
    first, second, *_ = place.split("/")
    return first if first == "click" else second.removesuffix(".py")


@pytest.mark.parametrize("layer", LAYERS)
def test_every_message_is_translated(layer: str) -> None:
    """None is missing in the catalogue, all have a translation, with the same placeholders and commands."""
    assert [line for line in problems() if layer_of(line.partition(":")[0]) == layer] == []


def test_a_missing_translation_and_a_lost_fact_are_found() -> None:
    """What the other test relies on."""
    catalogue = messages.updated()
    catalogue.add("new {fact}", "", [("clusterctl/cli/main.py", 1)])
    catalogue.add("{fact} is lost", "丢失", [("clusterctl/cli/main.py", 1)])
    catalogue.add(("{n} one", "{n} many"), ("很多",), [("clusterctl/cli/main.py", 1)])
    catalogue.add("run `ps`", "执行 `ls`", [("clusterctl/codes/usage.py", 1)])
    catalogue.add("run `ps VERB`", "执行 `ps 命令`", [("clusterctl/cli/main.py", 1)])
    found = "\n".join(messages.problems_of(catalogue))
    assert "not translated: 'new {fact}'" in found
    assert "other placeholders: '{fact} is lost'" in found
    assert "other placeholders: '{n} many'" in found
    assert "other commands: 'run `ps`'" in found
    assert "VERB" not in found


def test_another_version_of_click_changes_nothing() -> None:
    """Its messages are those of the version at the last update, and stay when a later one changes their words."""
    catalogue = messages.updated({"click's new words": ["click/core.py"]})
    assert "click's new words" in catalogue
    assert "Show this message and exit." in catalogue
    assert "click's new words" not in messages.updated()


def test_what_click_reports_to_programmers_is_left_out() -> None:
    """A mistake in the declaration of an option is no message of the command line."""
    found = messages.collect_from_click()
    assert "No such option {name!r}." in found
    assert not [text for text in found if "defined twice" in text or "Choice(" in text]


def test_a_space_is_for_latin_words_only() -> None:
    """A translation has one beside each placeholder; it goes where the value is Chinese, and never within a value."""
    assert fill_chinese(
        "{nodes} 上 {ranks} 的 {path}", {"nodes": "节点", "ranks": "3", "path": "a 中 文"}
    ) == ("节点上 3 的 a 中 文")
    assert fill_chinese("在 {one} {two} 上", {"one": "甲", "two": "乙"}) == "在甲乙上"
    assert fill_chinese("在 {one} {two} 上", {"one": "a", "two": "乙"}) == "在 a 乙上"
