"""The words of generated parts around the texts of the code, in the language of the page (`zh/words.yaml`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ruamel.yaml import YAML

from clusterctl.translation import language

WORDS = Path(__file__).parent / "zh" / "words.yaml"


@cache
def words() -> dict[str, str]:
    """Read the Chinese for every English text."""
    read: dict[str, str] = YAML(typ="safe").load(WORDS.read_text(encoding="utf-8"))
    return read


def around(text: str) -> str:
    """Return a text in the language of the page."""
    return text if language() == "en" else words()[text]
