"""What `attach` shows of the lines from before it came, and of an end at which it is interrupted."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from clusterctl.cli.actions import attach
from clusterctl.cli.actions.attach import RecentLogs, watch_run
from clusterctl.cli.context.run_output import RunOutput
from clusterctl.client.watch.follower import LogLines
from clusterctl.console.lines import HeldTracebacks
from clusterctl.protocol.ranks import Rank


class Heard:
    """Keeps what it is shown."""

    hidden = 0

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []

    def show(self, entry: LogLines) -> None:
        """Remember each line with its offset."""
        self.lines += zip(entry.offsets, entry.lines, strict=True)


@pytest.mark.parametrize(
    ("before", "shown", "first"),
    [(0, 2, 0), (12, 2, 2), (10, 2, 1), (16, 2, 3), (16, 0, 4), (20, 0, 5), (24, 0, None), (99, 2, 4)],
)
def test_old_lines_are_cut_to_their_end_and_new_ones_are_all_shown(
    before: int, shown: int, first: int | None
) -> None:
    """Six lines of four bytes from offset 0: those that begin below `before` are old."""
    heard = Heard()
    lines = tuple(f"l{number}x" for number in range(6))
    entry = LogLines("gpu01", 0, "stdout", "f", 0, None, lines, (4,) * 6, initial_size=before)

    RecentLogs(heard, shown).show(entry)

    assert heard.lines == [] if first is None else [(4 * number, f"l{number}x") for number in range(first, 6)]


def test_ctrl_c_while_the_end_is_explained_loses_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run has ended: its plain verdict is shown, written and sent, with the exit code of the signal."""

    def interrupt(_: object) -> NoReturn:
        raise KeyboardInterrupt

    verdict, seen = SimpleNamespace(run_id="a", exit_code=0, cause=None, seconds=None), []
    monitor = SimpleNamespace(watch=lambda: verdict, explain=interrupt, stopping=False)
    monkeypatch.setattr(attach, "RunMonitor", lambda *_, **__: monitor)
    monkeypatch.setattr(attach, "verdict_to_json", lambda shown: {"state": str(shown is verdict)})
    monkeypatch.setattr(attach, "show_verdict", lambda shown, *_: seen.append(("shown", shown)))
    monkeypatch.setattr(attach, "notify_end", lambda shown, *_: seen.append(("sent", shown)))
    cluster: Any = SimpleNamespace()
    options: Any = SimpleNamespace(run_id="a", nodes=(), secrets=())

    assert watch_run(cluster, options, RunOutput(True, "clusterctl"), Heard(), 0.0) == 130
    assert seen == [("shown", verdict), ("sent", verdict)]
    printed = capsys.readouterr()
    assert json.loads(printed.out)["verdict"] == {"state": "True"}
    assert "continues" not in printed.err


def test_new_lines_behind_old_ones_are_shown_whole() -> None:
    """A traceback that begins after what was there before is new, although the entry begins earlier."""
    shown: list[str] = []
    logs: Any = SimpleNamespace(hidden=0, show=lambda entry: shown.extend(entry.lines))
    lines = (*(f"old {n}" for n in range(30)), "Traceback (most recent call last):", "ValueError: x")
    sizes = tuple(len(line) + 1 for line in lines)
    entry = LogLines("gpu01", Rank(0), "stderr", "f", 0, None, lines, sizes, initial_size=sum(sizes[:30]))
    held = HeldTracebacks(logs)
    RecentLogs(held, 10).show(entry)
    held.finish(())

    assert shown == list(lines[20:])
