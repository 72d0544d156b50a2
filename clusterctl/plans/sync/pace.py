"""Which connection of a chain of nodes is slow, from what the receivers report while they receive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WINDOW = 10.0  # seconds that count
MIN_BUSY = 5.0  # seconds in which a receiver's provider had something to send, before the receiver is judged
MIN_SEEN = 4.0  # seconds, before its rate counts among those of the others
MIN_RECEIVERS = 3
MIN_DIVISOR = 0.5  # seconds: a provider that mostly waits itself sends its few bytes in almost no time
SLOW = 0.4  # of the median rate


@dataclass(frozen=True)
class Sample:
    """What a receiver had by a time (seconds): bytes from other nodes, and seconds in which those had none to send."""

    time: float
    taken: int
    waited: float


@dataclass(frozen=True)
class Rates:
    """A receiver's rate and the median of all, in bytes a second."""

    own: float
    median: float


def add_sample(samples: Sequence[Sample], new: Sample) -> tuple[Sample, ...]:
    """Append a sample, and drop those that are too old."""
    return (*(sample for sample in samples if new.time - sample.time <= WINDOW), new)


def find_slow(samples: Mapping[str, Sequence[Sample]], receiver: str) -> Rates | None:
    """Return the rates where a receiver is much slower than most, by its own connection; None otherwise.

    What counts is how fast bytes come while the provider has some: behind a slow connection all nodes get little.
    """
    rates = {name: _rate(own) for name, own in samples.items() if len(own) > 1 and _seconds(own) >= MIN_SEEN}
    if len(rates) < MIN_RECEIVERS or receiver not in rates or _busy(samples[receiver]) < MIN_BUSY:
        return None
    usual = sorted(rates.values())[(len(rates) - 1) // 2]  # `statistics` is slow to import
    found = Rates(rates[receiver], usual)
    return found if found.own < SLOW * found.median else None


def _seconds(samples: Sequence[Sample]) -> float:
    return samples[-1].time - samples[0].time


def _busy(samples: Sequence[Sample]) -> float:
    return _seconds(samples) - max(0.0, samples[-1].waited - samples[0].waited)


def _rate(samples: Sequence[Sample]) -> float:
    return (samples[-1].taken - samples[0].taken) / max(MIN_DIVISOR, _busy(samples))
