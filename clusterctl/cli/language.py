"""The language of a command: chosen once, for our texts and for click's."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from clusterctl.errors import UsageError
from clusterctl.translation import VARIABLE, language_of, ngettext, parse_language, tr, use_language


def choose_language(environment: Mapping[str, str], streams: Iterable[TextIO]) -> None:
    """Use the language that the environment asks for, if all streams can show it."""
    chosen = language_of(environment)
    use_language(chosen if all(map(_can_show_chinese, streams)) else "en")
    if chosen == "zh":
        _translate_click()


def refuse_unknown_language(environment: Mapping[str, str]) -> None:
    """Raise UsageError if our own variable names a language that we do not have."""
    asked = environment.get(VARIABLE, "")
    if asked and parse_language(asked) is None:
        raise UsageError("CC-USE-093", value=asked)


def _can_show_chinese(stream: TextIO) -> bool:
    try:
        "中文".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _translate_click() -> None:
    """Give click's modules our functions in place of gettext's, which look at LANG only and not in our catalogue.

    The alternative, LANGUAGE in our own environment and a text domain, would reach every program that we start.
    The texts of `click.decorators` are kept by commands, which outlive a change of language: see `TranslatedHelp`.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("click.") and name != "click.decorators":
            for attribute, function in (("_", tr), ("ngettext", ngettext)):
                if hasattr(module, attribute):
                    setattr(module, attribute, function)
