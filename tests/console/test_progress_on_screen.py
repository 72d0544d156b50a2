"""How far the nodes are: as a value, as lines, as a sentence, and where nothing may move."""

from __future__ import annotations

import io
import itertools
import re
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from waiting import HANG, wait_until

from clusterctl.client.rpc.cluster import Steps
from clusterctl.console import progress as display
from clusterctl.console import terminal
from clusterctl.console.progress import (
    PendingNode,
    PhaseProgress,
    Phases,
    ProgressDisplay,
    render_lines,
    render_plain,
)

SLOW = (
    PendingNode("gpu07", "waiting for its sshd", 12.04),
    PendingNode("gpu112", "taking the code", 3.1, 2_100_000),
    PendingNode("gpu3", "logging in", 2.0),
    PendingNode("gpu4", "logging in", 1.0),
)


def test_lines_show_all_phases_the_bytes_and_the_slowest_three() -> None:
    """One line for all, one for each of three nodes, one for how many there are besides."""
    through = [("start", 64), ("code", 40), ("ready", 12)]
    progress = PhaseProgress(
        through, 64, 12.34, SLOW, queued=5, failed=1, transferred=12_400_000, rate=4_000_000.0
    )
    assert render_lines(progress) == [
        "start 64/64  code 40/64  ready 12/64 nodes, 1 failed  12.3 s  12.4 MB sent, 4.0 MB/s",
        "  gpu07    12.0 s  waiting for its sshd",
        "  gpu112    3.1 s  taking the code, 2.1 MB sent",
        "  gpu3      2.0 s  logging in",
        "  1 more, 5 not started",
    ]


def test_a_sentence_is_the_same_without_a_terminal() -> None:
    """Names, what they are at, and for how long; no more than three."""
    progress = PhaseProgress([("check", 1)], 5, 20.2, SLOW)
    assert render_plain(progress) == (
        "check 1/5 nodes after 20 s; waiting for gpu07 (waiting for its sshd, 12 s), "
        "gpu112 (taking the code, 2.1 MB sent, 3 s), gpu3 (logging in, 2 s), 1 more"
    )


def test_when_all_are_through_it_shows_what_they_do_together() -> None:
    """The proof on the wire has no node of its own."""
    progress = PhaseProgress([("check", 1)], 1, 3.0, activity="the nodes call each other")
    assert render_lines(progress) == ["check 1/1 node  3.0 s", "  the nodes call each other"]
    assert render_plain(progress) == "check 1/1 node after 3 s; the nodes call each other"


def test_what_comes_is_shown_beside_what_is_to_come() -> None:
    """The bytes of all nodes and of each, within 80 columns."""
    progress = PhaseProgress(
        [("pull", 14)],
        16,
        1234.5,
        [PendingNode("gpu07", "sending its files", 0.5, 8_200_000)],
        transferred=812_400_000,
        expected=900_000_000,
        rate=40_000_000.0,
        direction="received",
    )
    lines = render_lines(progress)
    assert lines == [
        "pull 14/16 nodes  20m34s  90 % of 900.0 MB, 40.0 MB/s, 2 s left",
        "  gpu07    0.5 s  sending its files, 8.2 MB received",
    ]
    assert max(map(len, lines)) < 80
    assert render_plain(progress) == (
        "pull 14/16 nodes after 20m34s  90 % of 900.0 MB, 40.0 MB/s, 2 s left; "
        "waiting for gpu07 (sending its files, 8.2 MB received, 0 s)"
    )


@pytest.mark.usefixtures("quiet")
def test_a_pull_counts_what_comes() -> None:
    """From each node until it is through, and of all that is expected."""
    phases = Phases(["a", "b"])
    phases.start("pull")
    phases.add_expected(500)
    phases.add_bytes("a", 300)
    seen = phases.snapshot()
    assert (seen.transferred, seen.expected, seen.direction) == (300, 500, "received")
    assert sorted((node.name, node.transferred) for node in seen.pending) == [("a", 300), ("b", 0)]


def test_nothing_sent_nothing_awaited() -> None:
    """The end of a phase has nothing to add, nor what the nodes do when all has arrived."""
    assert render_lines(PhaseProgress([("exec", 2)], 2, 0.5)) == ["exec 2/2 nodes  0.5 s"]
    arrived = PhaseProgress([("setup", 0)], 2, 60.0, transferred=6600, expected=6600, rate=30.0)
    assert render_lines(arrived) == ["setup 0/2 nodes  1m"]


@pytest.fixture
def quiet() -> Iterator[None]:
    """Nothing is to be printed."""
    terminal.set_verbosity(quiet=True, verbose=False)
    yield
    terminal.set_verbosity(quiet=False, verbose=False)


@pytest.mark.usefixtures("quiet")
def test_the_slowest_is_who_took_no_step_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that leave are a step; who has failed or arrived is waited for no more, who has not begun only counted."""
    monkeypatch.setattr(display, "STEADY", 0.0001)
    steps, phases = Steps(), Phases(["a", "b", "c", "d", "e"])
    phases.set_steps(steps)
    phases.start("code")
    for name in "abcd":
        steps.set(name, "taking the code")
        time.sleep(0.002)
    phases.add_bytes("a", 500)
    phases.mark_done("code", "b")
    phases.mark_failed("c")
    seen = phases.snapshot()
    assert [(one.name, one.activity, one.transferred) for one in seen.pending] == [
        ("d", "taking the code", 0),
        ("a", "taking the code", 500),
    ]
    assert (seen.completed, seen.total, seen.failed, seen.queued, seen.transferred) == (
        [("code", 1)],
        5,
        1,
        1,
        500,
    )


def set_clock(monkeypatch: pytest.MonkeyPatch, times: Iterator[float]) -> None:
    """Give these times in place of the machine's, which may stand still between two lines of a test."""
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: next(times)))


@pytest.mark.usefixtures("quiet")
def test_lines_of_nodes_that_get_on_do_not_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a second nodes stand in the order of the inventory, whichever node's bytes came last."""
    set_clock(monkeypatch, itertools.count(100.0, 0.002))
    phases = Phases(["a", "b", "c"])
    phases.start("pull")
    for name in "bac":
        phases.add_bytes(name, 1)
    assert [node.name for node in phases.snapshot().pending] == ["a", "b", "c"]


@pytest.mark.usefixtures("quiet")
def test_bytes_are_reported_as_long_as_code_is_on_its_way() -> None:
    """Who has the code and gets ready is not shown as being sent to."""
    phases = Phases(["a", "b"])
    phases.start("code", "ready")
    for name in "ab":
        phases.add_bytes(name, 300)
    phases.mark_done("code", "a")
    assert [(one.name, one.transferred) for one in phases.snapshot().pending] == [("a", 0), ("b", 300)]
    assert phases.snapshot().transferred == 600
    phases.mark_done("code", "b")
    assert (phases.snapshot().transferred, [one.transferred for one in phases.snapshot().pending]) == (
        0,
        [0, 0],
    )


@pytest.mark.usefixtures("quiet")
def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No line, no sentence, no thread."""
    monkeypatch.setattr(display, "PLAIN_EVERY", 0.01)
    phases = Phases(["a"])
    phases.start("check")
    time.sleep(0.05)
    phases.stop()
    assert capsys.readouterr().err == ""


def test_without_a_terminal_a_sentence_comes_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits reads what for; nothing of it moves."""
    monkeypatch.setattr(display, "PLAIN_EVERY", 0.02)
    steps, phases = Steps(), Phases(["a", "b"])
    steps.set("b", "logging in")
    set_clock(monkeypatch, itertools.repeat(time.monotonic()))
    written: list[str] = []

    def has_sentence() -> bool:
        written.append(capsys.readouterr().err)
        return "  check 1/2 nodes after 0 s; waiting for b (logging in, 0 s)\n" in "".join(written)

    with phases.display_phase("check", steps):
        phases.mark_done("check", "a")
        wait_until(has_sentence, "the sentence")
    assert "\x1b" not in "".join(written) + capsys.readouterr().err


class Screen(io.StringIO):
    """A terminal that remembers all that was written to it."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


def open_screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Put a terminal in place of stderr; pytest puts its own there before each test."""
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", screen)
    return screen


def test_a_short_phase_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is over in a moment leaves its line and nothing else."""
    screen = open_screen(monkeypatch)
    monkeypatch.setattr(display, "SHOW_AFTER", 600.0)  # however slow the machine is, this is short
    phases = Phases(["a"])
    phases.start("check")
    phases.mark_done("check", "a")
    phases.finish("check", "all fit")
    assert re.fullmatch(r"  check   1/1 node  \d+\.\d s  all fit\n", screen.getvalue())


def test_a_long_phase_moves_and_is_replaced_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines are erased, the cursor is there, and what was reported meanwhile stands above."""
    screen = open_screen(monkeypatch)
    monkeypatch.setattr(display, "SHOW_AFTER", 0.01)
    monkeypatch.setattr(display, "CLOSE_LIMIT", 600.0)
    steps, phases = Steps(), Phases(["a", "b"])
    steps.set("b", "logging in")
    phases.set_steps(steps)
    phases.start("check")
    phases.mark_done("check", "a")
    # what moves is erased with its phase: a state that no frame has shown yet is not drawn any more
    wait_until(lambda: "check 1/2 nodes" in screen.getvalue(), "a frame with the node that is through")
    terminal.info("note: something")
    phases.finish("check", "1 finding")
    shown = screen.getvalue()
    assert "logging in" in shown
    assert "note: something" in shown
    assert shown.endswith("  check   1/2 nodes  " + shown.rsplit("nodes  ", 1)[1])
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")
    assert "\x1b[2K" in shown.rsplit("logging in", 1)[1]


def test_phases_that_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal they end in a title with the whole time, and lines that break between phases only."""
    screen = open_screen(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(display, "SHOW_AFTER", 600.0)
    set_clock(monkeypatch, itertools.repeat(5.0))
    phases = Phases(["a"], in_one_line=True)
    for phase, label in (("check", ""), ("ready", "torch 2.13.0"), ("go", "")):
        phases.start(phase)
        phases.mark_done(phase, "a")
        phases.announce("run r-1")
        phases.finish(phase, "a detail", label)
    phases.conclude("launch 1.0 s", "go  master a:29500")
    phases.break_off()
    erased = re.sub(r"\x1b\[[0-9?]*[A-Za-z]|\r", "", screen.getvalue())
    assert erased.splitlines()[-3:] == [
        "run r-1" + " " * 21 + "launch 1.0 s",
        "ok check 0.0 s  ok torch 2.13.0 0.0 s",
        "ok go  master a:29500",
    ]


def test_a_failure_ends_the_shared_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was through, and what was not; a phase that more is reported about has a line of its own."""
    screen = open_screen(monkeypatch)
    monkeypatch.setattr(display, "SHOW_AFTER", 600.0)
    set_clock(monkeypatch, itertools.repeat(5.0))
    phases = Phases(["a"], in_one_line=True)
    phases.start("check")
    phases.finish_apart("check", "1 finding")
    phases.start("start", "code", details={"start": lambda: ("", "")})
    phases.mark_done("start", "a")
    phases.break_off()
    written = re.sub(r"\x1b\[[0-9?]*[A-Za-z]|\r", "", screen.getvalue())
    assert written.startswith("  check   0/1 node  0.0 s  1 finding\n")
    assert written.endswith("ok start 0.0 s  x code\n")


def test_elsewhere_each_phase_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that a log or a script can hold, the title where it is known."""
    phases = Phases(["a"], in_one_line=True)
    phases.start("check")
    phases.mark_done("check", "a")
    phases.finish("check", "all ok", "label")
    phases.announce("run r-1: 1 node")
    phases.conclude("launch 1.0 s", "go")
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"  check   1/1 node  \d+\.\d s  all ok", first)
    assert second == "run r-1: 1 node"


def test_dumb_terminals_and_files_are_no_place_for_what_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR forbids colours, TERM=dumb motion."""
    screen = open_screen(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    assert display.can_redraw(screen)
    monkeypatch.setenv("TERM", "dumb")
    assert not display.can_redraw(screen)
    assert not display.can_redraw(io.StringIO())


def test_a_pipe_soon_shows_how_long_a_transfer_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line at once where much is left; where little is left none until the next turn."""
    monkeypatch.setattr(display, "FIRST_PLAIN", 0.0)
    monkeypatch.setattr(display, "PLAIN_EVERY", 3600.0)
    for expected, lines in ((10**15, 1), (10**6, 0)):
        shown = threading.Event()
        progress = PhaseProgress([("code", 0)], 2, 0.5, transferred=10**5, expected=expected, rate=10**5)

        def snapshot(progress: PhaseProgress = progress, shown: threading.Event = shown) -> PhaseProgress:
            shown.set()
            return progress

        live = ProgressDisplay(snapshot, list)
        assert shown.wait(HANG)
        live.close()
        assert capsys.readouterr().err.count("code 0/2 nodes") == lines
