"""The texts of programs on the page of codes are those that are recognised."""

from __future__ import annotations

import signal

from clusterctl.codes.lookup import entries, family_of
from clusterctl.protocol.known_errors import BY_SIGNAL, ENDED_EARLY, OOM_KILLED, recognise

SPOKEN = [
    (code, text) for code, entry in entries().items() if family_of(code) == "JOB" for text in entry.texts
]
SOURCES = {  # the script's line, for texts that other errors share
    "CC-JOB-073": "local_rank = int(args.local_rank)",
    "CC-JOB-074": "local_rank = rank % torch.cuda.device_count()",
}
ENDINGS = {one.code for one in (*BY_SIGNAL.values(), OOM_KILLED, ENDED_EARLY)}


def test_what_ranks_say_is_there_word_for_word() -> None:
    """Each end of a rank has its text word for word, so that a search of the page finds it."""
    ranks = {code for code in entries() if family_of(code) == "JOB"}
    assert ranks - {code for code, _ in SPOKEN} <= {ENDED_EARLY.code}


def test_a_text_is_recognised_as_its_code() -> None:
    """A text on the page leads to the code that a failed run shows for it."""
    assert len(SPOKEN) > 50
    assert [(code, text) for code, text in SPOKEN if not is_recognised(code, text)] == []


def is_recognised(code: str, text: str) -> bool:
    """Return whether a text or a signal leads to its code."""
    if code in ENDINGS:
        name = text.removeprefix("killed by ")
        return name.startswith("SIG") and code in (OOM_KILLED.code, BY_SIGNAL[signal.Signals[name]].code)
    found = recognise(text, (), None, SOURCES.get(code, ""))
    return found is not None and found.symptom.code == code
