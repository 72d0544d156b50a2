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


def test_a_space_is_for_latin_words_only() -> None:
    """A translation has one beside each placeholder; it goes where the value is Chinese, and never within a value."""
    assert fill_chinese(
        "{nodes} 上 {ranks} 的 {path}", {"nodes": "节点", "ranks": "3", "path": "a 中 文"}
    ) == ("节点上 3 的 a 中 文")
    assert fill_chinese("在 {one} {two} 上", {"one": "甲", "two": "乙"}) == "在甲乙上"
    assert fill_chinese("在 {one} {two} 上", {"one": "a", "two": "乙"}) == "在 a 乙上"
