"""The clocks of the nodes, held against the one here and against each other."""

from __future__ import annotations

from collections.abc import Iterator

from clusterctl.plans.checks.check import Hit, Situation, across, check, on
from clusterctl.plans.checks.remedy import as_root

LARGEST_OFFSET = 2.0  # seconds


def _offsets(seen: Situation) -> dict[str, tuple[float, float]]:
    clocks = {node.name: facts.clock for node, facts in seen.known}
    return {
        name: (clock.offset, clock.error or 0.0) for name, clock in clocks.items() if clock.offset is not None
    }


def _shift(seen: Situation) -> float:
    """Give by how much all nodes are off together, in seconds: then the clock here is the wrong one. Else 0."""
    told = sorted(_offsets(seen).values())
    if len(told) < 2:
        return 0.0
    middle, error = told[len(told) // 2]
    agreeing = sum(abs(offset - middle) <= LARGEST_OFFSET for offset, _ in told)
    wrong = abs(middle) - error > LARGEST_OFFSET and agreeing > len(told) / 2
    return middle if wrong else 0.0


def _side(offset: float, others: str) -> str:
    return f"ahead of {others}" if offset > 0 else f"behind {others}"


@check(
    "CC-TIME-001",
    "warning",
    "the clock is wrong",
    why="Logs and errors of different nodes cannot be put in order, and c10d rendezvous fails beyond 15 s.",
    needs=("clock",),
)
def clock_is_wrong(seen: Situation) -> Iterator[Hit]:
    """The node's clock differs from the one here by more than 2 seconds, beyond the error of measuring.

    Where most nodes agree with each other and not with this machine, they are compared with each other.
    """
    shift = _shift(seen)
    offsets = _offsets(seen)
    for node, facts in seen.known:
        offset, error = offsets.get(node.name, (0.0, 0.0))
        off = offset - shift
        if node.name in offsets and abs(off) - error > LARGEST_OFFSET:
            side = _side(off, "the other nodes") if shift else "ahead" if off > 0 else "behind"
            evidence = f"{abs(off):.1f} s {side} (known to {error:.2f} s)"
            yield on(node, evidence, as_root(node, facts, "chronyc makestep"))


@check(
    "CC-TIME-002",
    "warning",
    "the clock of this machine is wrong",
    why="Times that are shown here, such as those of log lines, are off by as much.",
    needs=("clock",),
)
def clock_here_is_wrong(seen: Situation) -> Iterator[Hit]:
    """Most nodes agree with each other within 2 seconds, and differ from the machine where clusterctl runs by more."""
    shift = _shift(seen)
    if shift:
        names = [node.name for node, _ in seen.known]
        yield across(
            names,
            f"this machine is {abs(shift):.1f} s {_side(-shift, 'the nodes')}",
            "sudo chronyc makestep  # here",
        )
