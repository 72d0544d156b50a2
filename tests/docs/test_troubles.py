"""The tables of troubles hold every code, in both languages, and the texts in them are those that are recognised."""

from __future__ import annotations

import re
import signal
import sys

import pytest
from pages import ROOT

from clusterctl.protocol.known_errors import BY_SIGNAL, ENDED_EARLY, STARVED, recognise

sys.path.insert(0, str(ROOT / "docs"))

from troubles import codes, english

TOLD = codes()
SPOKEN = [(code, text) for code, entry in TOLD.items() if "-JOB-" in code for text in entry.get("texts", [])]
ENDINGS = {one.code for one in (*BY_SIGNAL.values(), STARVED, ENDED_EARLY)}


def test_every_code_has_its_words() -> None:
    """A new code wants an entry of docs/codes.yaml: what to do, and both in Chinese; one that is gone leaves it."""
    assert sorted(TOLD) == sorted(english())
    for code, entry in TOLD.items():
        assert re.search(r"[\u4e00-\u9fff]|^lab$", entry["zh"]["see"]), code
        assert entry["zh"]["do"], code
        assert ("do" in entry) != ("-JOB-" in code), f"{code}: what a rank ended with brings its own advice"


def test_what_ranks_say_is_there_word_for_word() -> None:
    """Who searches the page for the text on the screen finds it."""
    assert {code for code in TOLD if "-JOB-" in code} - {code for code, _ in SPOKEN} <= {ENDED_EARLY.code}


@pytest.mark.parametrize(("code", "text"), SPOKEN)
def test_a_text_is_recognised_as_its_code(code: str, text: str) -> None:
    """What the page says of a text is what a failed run says of it."""
    if code in ENDINGS:
        assert text.startswith("killed by SIG")
        assert code == STARVED.code or BY_SIGNAL[signal.Signals[text.removeprefix("killed by ")]].code == code
    else:
        found = recognise(text, (), None)
        assert found is not None and found.symptom.code == code
