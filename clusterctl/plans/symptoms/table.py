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
    """Name the symptom that a rank's exception shows, or else its last lines, or else the signal that "
    "ended it."""
    if message:
        return find_in(_IN_WORDS, message)
    found = find_in(_IN_PASSING, "\n".join(tail))
    if found is None and by is not None and by in BY_SIGNAL:
        return Recognised(BY_SIGNAL[by])
    return found


def all_symptoms() -> tuple[Symptom, ...]:
    """Give every symptom by its code."""
    return tuple(
        sorted((*_IN_WORDS, *BY_SIGNAL.values(), STARVED, ENDED_EARLY), key=lambda symptom: symptom.code)
    )
