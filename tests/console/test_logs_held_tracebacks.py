"""Of many tracebacks a terminal shows that of the rank that failed first; none is lost, none is held for long."""

from __future__ import annotations

from clusterctl.client.watch.follower import LogLines
from clusterctl.console.run.logs import HOLD_LIMIT, MOST_HELD, HeldTracebacks
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.run_paths import ATTEMPT

TRACEBACK = ("Traceback (most recent call last):", '  File "train.py", line 3', "ValueError: bad batch")


class Screen:
    """Keeps what is shown."""

    hidden = 7  # lines of torchrun itself

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show(self, entry: LogLines) -> None:
        """Keep the lines with their rank."""
        self.lines += [f"r{entry.rank} {line}" for line in entry.lines]


class Clock:
    """A clock that is set."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time that was set."""
        return self.now


def written(
    rank: int, *lines: str, stream: str = "stderr", node: str = "gpu01", attempt: int = 1
) -> LogLines:
    """Lines that a rank has written."""
    sizes = tuple(len(line) + 1 for line in lines)
    file = f"{ATTEMPT}{attempt}/{stream}-{rank}"
    return LogLines(node, Rank(rank), stream, file, 0, None, lines, sizes)  # type: ignore[arg-type]  # one of the two


def held() -> tuple[HeldTracebacks, Screen, Clock]:
    """A display in front of a screen."""
    screen, clock = Screen(), Clock()
    return HeldTracebacks(screen, clock), screen, clock


def test_only_the_culprits_traceback_is_shown() -> None:
    """What stands before a traceback and on stdout is shown at once; lines of the others are counted."""
    logs, screen, _ = held()
    for rank in (0, 1, 2):
        logs.show(written(rank, "a warning", *TRACEBACK))
    logs.show(written(0, "epoch 1", stream="stdout"))
    logs.show(written(1, "[W] after it"))
    assert screen.lines == ["r0 a warning", "r1 a warning", "r2 a warning", "r0 epoch 1"]

    logs.finish({("gpu01", Rank(1))})
    assert screen.lines[4:] == [*(f"r1 {line}" for line in TRACEBACK), "r1 [W] after it"]
    assert logs.hidden == 7 + 6


def test_without_a_culprit_all_is_shown() -> None:
    """Also after Ctrl-C."""
    logs, screen, _ = held()
    logs.show(written(0, *TRACEBACK))
    logs.show(written(1, *TRACEBACK))
    logs.finish(())

    assert len(screen.lines) == 6
    assert logs.hidden == 7


def test_a_script_that_goes_on_has_its_traceback_shown() -> None:
    """After a few seconds, unless the run is being ended; what follows is shown at once."""
    logs, screen, clock = held()
    logs.show(written(0, *TRACEBACK))
    clock.now = HOLD_LIMIT + 1
    logs.tick(stopping=True)
    assert screen.lines == []

    logs.tick(stopping=False)
    logs.show(written(0, "goes on"))
    assert screen.lines[-2:] == ["r0 ValueError: bad batch", "r0 goes on"]


def test_the_next_attempt_is_shown_after_the_tracebacks_of_the_one_before() -> None:
    """Whichever node of the next one writes first; its own tracebacks wait for its own end."""
    logs, screen, _ = held()
    logs.show(written(0, *TRACEBACK))
    logs.show(written(1, *TRACEBACK, node="gpu02"))
    logs.show(written(1, "epoch 2", stream="stdout", node="gpu02", attempt=2))
    assert screen.lines == [*(f"r{rank} {line}" for rank in (0, 1) for line in TRACEBACK), "r1 epoch 2"]

    logs.show(written(0, *TRACEBACK, attempt=2))
    assert screen.lines[-1] == "r1 epoch 2"
    logs.finish({("gpu01", Rank(0))})
    assert screen.lines[-3:] == [f"r0 {line}" for line in TRACEBACK]
    assert logs.hidden == 7


def test_not_more_than_a_bound_is_held() -> None:
    """A rank that writes without end after its exception is shown."""
    logs, screen, _ = held()
    logs.show(written(0, *TRACEBACK))
    for _ in range(MOST_HELD):
        logs.show(written(0, "x"))

    assert len(screen.lines) >= MOST_HELD
