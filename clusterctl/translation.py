"""The language of what people read: English as it stands in the code, or Chinese from `clusterctl/locale`.

Logs, JSON, records of runs, codes and names of states are English in every language. `tools/messages.py` keeps
the catalogue.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from gettext import NullTranslations

Language = Literal["en", "zh"]
LANGUAGES: tuple[str, ...] = get_args(Language)
VARIABLE = "CLUSTERCTL_LANG"
CATALOGUES = Path(__file__).parent / "locale"
_EDGE = "\x1f"  # marks where a value begins or ends; no text that is shown contains it
_HAN = "[\u4e00-\u9fff\u3001\u3002\uff08\uff09\uff0c\uff1a\uff1b]"  # with full-width punctuation
# by `re.sub`, which compiles it for the first Chinese text: 3 ms, of which English needs none
_SPACE_AT_EDGE = f"(?<={_HAN}{_EDGE}) (?={_HAN}|{_EDGE}{_HAN})|(?<={_HAN}) (?={_EDGE}{_HAN})"
PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+)(!r)?(?::([^{}\s]+))?\}")

_chosen: list[Language] = []  # empty until the first text is translated or the language is set


def parse_language(value: str) -> Language | None:
    """Parse a name as in locales: `zh`, `zh-CN`, `zh_CN.UTF-8`, `en`, `C`; None for a language that we do not have."""
    found = re.fullmatch(r"(zh|en|c|posix)([_.@-].*)?", value, re.IGNORECASE)
    if found is None:
        return None
    return "zh" if found[1].lower() == "zh" else "en"


def language_of(environment: Mapping[str, str]) -> Language:
    """Choose the language as POSIX does for messages, with our own variable before the others; English if in doubt."""
    if chosen := parse_language(environment.get(VARIABLE, "")):
        return chosen
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := environment.get(name, ""):
            return parse_language(value) or "en"
    return "en"


def language() -> Language:
    """Return the language in use, by default that of the environment."""
    if not _chosen:
        _chosen.append(language_of(os.environ))
    return _chosen[0]


def use_language(chosen: Language) -> None:
    """Use a language from here on, whatever the environment is."""
    _chosen[:] = [chosen]


class Translated(str):
    """A text in the user's language, with its English: for what is written down, sent, or shown to programs."""

    __slots__ = ("english",)
    english: str

    def __new__(cls, text: str, english: str) -> Translated:
        """Keep both."""
        translated = super().__new__(cls, text)
        translated.english = english
        return translated


def english_of(text: str) -> str:
    """Return the English of a text, which is the text itself where it was never translated."""
    return text.english if isinstance(text, Translated) else text


def _in_english(facts: Mapping[str, object]) -> dict[str, object]:
    return {name: english_of(fact) if isinstance(fact, str) else fact for name, fact in facts.items()}


def translate(message: str, facts: Mapping[str, object]) -> str:
    """Return a message in the language in use, with its placeholders filled."""
    if language() == "en":
        return fill(message, facts)
    return Translated(fill_chinese(to_chinese(message), facts), fill_english(message, facts))


def tr(message: str, /, **facts: object) -> str:
    """Translate a message and fill its placeholders: `tr("connecting to {node}", node=name)`."""
    if facts:
        return translate(message, facts)
    return message if language() == "en" else Translated(to_chinese(message), message)


def to_chinese(message: str) -> str:
    """Return the Chinese of a message, its placeholders unfilled; the message itself where it has none."""
    return _catalogue().gettext(message) if message else ""  # of the empty message gettext returns its header


def trn(one: str, many: str, number: int, /, **facts: object) -> str:
    """Translate a message that counts; `{n}` is the number: `trn("{n} node", "{n} nodes", len(nodes))`."""
    values = {"n": number, **facts}
    text, english = ngettext(one, many, number), one if number == 1 else many
    if language() == "en":
        return fill(text, values)
    return Translated(fill_chinese(text, values), fill_english(english, values))


def ngettext(one: str, many: str, number: int) -> str:
    """Translate a message that counts and leave its placeholders, as `gettext.ngettext` does."""
    english = one if number == 1 else many
    return english if language() == "en" else _catalogue().ngettext(one, many, number)


def to_translate(message: str) -> str:
    """Mark a message of a table for the catalogue; it is translated by `tr` where it is shown."""
    return message


def fill(template: str, facts: Mapping[str, object]) -> str:
    """Put values into the placeholders of a text: `{host}`, `{name!r}` or `{limit:g}`.

    Braces around anything else, as in `{port: N}` or `${node_rank}`, stand for themselves; values are not read again.
    """

    def value(found: re.Match[str]) -> str:
        name, quoted, form = found.groups()
        return format(repr(facts[name]) if quoted else facts[name], form or "")

    return PLACEHOLDER.sub(value, template)


def fill_chinese(template: str, facts: Mapping[str, object]) -> str:
    """Fill a Chinese text; the space beside a placeholder is for Latin words, and goes where the value is Chinese."""
    marked = PLACEHOLDER.sub(f"{_EDGE}\\g<0>{_EDGE}", template)
    return re.sub(_SPACE_AT_EDGE, "", fill(marked, facts)).replace(_EDGE, "")


def fill_english(template: str, facts: Mapping[str, object]) -> str:
    """Put the English of values into an English text."""
    return fill(template, _in_english(facts))


def placeholders(template: str) -> frozenset[str]:
    """Name the placeholders of a text, with their formats."""
    return frozenset(found.group() for found in PLACEHOLDER.finditer(template))


@cache
def _catalogue() -> NullTranslations:
    from gettext import translation  # noqa: PLC0415  English needs none of it

    # without a compiled catalogue, as in a checkout that nothing has set up, everything is English
    return translation("clusterctl", CATALOGUES, languages=["zh_CN"], fallback=True)
