"""How far a run is, by what its ranks have printed: read with distrust, and put into words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clusterctl.protocol.untrusted import MAX_INTEGER, Untrusted
from clusterctl.translation import tr

MAX_LOSSES = 30
MAX_LOSS = 1e30


@dataclass(frozen=True)
class Progress:
    """The newest step, of how many, and losses at even distances of the log; None is one that is not finite."""

    step: int | None
    total: int | None
    losses: tuple[float | None, ...] = ()

    @property
    def step_text(self) -> str:
        """Return the step in words; empty if none is known."""
        if self.step is None:
            return ""
        if self.total is None:
            return str(self.step)
        return tr("{step} of {total}", step=self.step, total=self.total)

    @property
    def loss_text(self) -> str:
        """Return the newest loss; empty if none is known."""
        if not self.losses:
            return ""
        return "nan" if self.losses[-1] is None else f"{self.losses[-1]:.4g}"


def parse_progress(raw: Untrusted) -> Progress | None:
    """Read what a node reports; None if it is nothing."""
    step, total = raw.integer("step", 0, MAX_INTEGER), raw.integer("total", 1, MAX_INTEGER)
    losses = tuple(row.number(0, -MAX_LOSS, MAX_LOSS) for row in raw.rows("losses", MAX_LOSSES))
    if step is None and not losses:
        return None
    return Progress(step, total if step is not None and total is not None and total >= step else None, losses)


def choose_progress(found: Iterable[tuple[int, Progress]]) -> Progress | None:
    """Choose among those of the nodes, which come with their lowest rank: the first with losses, else with a step."""
    ordered = [progress for _, progress in sorted(found, key=lambda pair: pair[0])]
    return next((one for one in ordered if one.losses), ordered[0] if ordered else None)
