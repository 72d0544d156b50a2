"""All known texts in the order in which they are tried, and the search in what a rank said."""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.plans.symptoms.endings import BY_SIGNAL, ENDED_EARLY, STARVED
from clusterctl.plans.symptoms.gpu import GPU
from clusterctl.plans.symptoms.network import FOLLOWING, NETWORK
from clusterctl.plans.symptoms.node import NODE
from clusterctl.plans.symptoms.program import LOADERS, PROGRAM
from clusterctl.plans.symptoms.symptom import Recognised, Symptom, find_in

_IN_WORDS = (*GPU, *NETWORK, *NODE, *LOADERS, *FOLLOWING, *PROGRAM)
# Other lines of stderr may speak of something that did no harm, such as a cache that could not be read.
_IN_PASSING = (*GPU, *NETWORK, *NODE[:1], *LOADERS, *FOLLOWING, *NODE[1:], *PROGRAM)
WAITED_FOR = Recognised(FOLLOWING[0])


def recognise(message: str, tail: Sequence[str], by: int | None) -> Recognised | None:
    """Name the symptom that a rank's exception shows, or else its last lines, or else the signal that ended it."""
    if message:
        return find_in(_IN_WORDS, message)
    found = find_in(_IN_PASSING, "\n".join(tail))
    if found is None and by is not None and by in BY_SIGNAL:
        return Recognised(BY_SIGNAL[by])
    return found


def restart_texts() -> tuple[tuple[str, str], ...]:
    """Give every text with the reason for which a run may be started again, the first that fits counts.

    `secondary` tells only of somebody else's failure; what is known and never tried again is `code`.
    """
    return tuple((_restart_word(symptom), symptom.pattern) for symptom in _IN_WORDS)


def _restart_word(symptom: Symptom) -> str:
    return "secondary" if symptom.grade in ("waited", "peer") else symptom.restart or "code"


def all_symptoms() -> tuple[Symptom, ...]:
    """Give every symptom by its code."""
    return tuple(
        sorted((*_IN_WORDS, *BY_SIGNAL.values(), STARVED, ENDED_EARLY), key=lambda symptom: symptom.code)
    )
