"""Lines on the screen: of logs with aligned prefixes and colours, of commands once; tracebacks wait for the cause."""

from __future__ import annotations

import io
import json
import time
from dataclasses import replace

import pytest

from clusterctl.cli.actions.remote import build_argv, exit_code
from clusterctl.client.rpc.tasks import CommandEnd, CommandOutput, parse_command_end
from clusterctl.client.watch.follower import LogLines
from clusterctl.console import terminal
from clusterctl.console.lines import (
    HOLD_LIMIT,
    MAX_HELD,
    HeldTracebacks,
    JsonLogPrinter,
    LinePrinter,
    LogPrinter,
    TorchrunFilter,
    answers_to_json,
    label_color,
    show_answers,
)
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.run_paths import ATTEMPT
from clusterctl.protocol.untrusted import Untrusted


def lines(*text: str, node: str = "gpu01", rank: int | None = 3, stream: str = "stdout") -> LogLines:
    """Build an entry that begins at byte 10 of its file."""
    return LogLines(node, rank, stream, "f", 10, 1.5, text, tuple(len(line.encode()) + 1 for line in text))


def printed(
    *entries: LogPrinter | LogLines, names: tuple[str, ...] = ("gpu01", "n2"), size: int = 16
) -> list[str]:
    """Print entries without colour and give the lines."""
    stream = io.StringIO()
    printer = LogPrinter(names, size, stream)
    for entry in entries:
        assert isinstance(entry, LogLines)
        printer.show(entry)
    return stream.getvalue().splitlines()


def test_prefixes_align_and_mark_stderr() -> None:
    """Names are padded to the longest, ranks to the largest, stderr is marked."""
    shown = printed(lines("a"), lines("b", node="n2", rank=12, stream="stderr"), lines("c", rank=None))

    assert shown == ["gpu01 r3  | a", "n2    r12 ! b", "gpu01 -   | c"]


@pytest.mark.parametrize("at_terminal", [True, False])
def test_on_a_terminal_a_traceback_names_the_files_of_the_project(at_terminal: bool) -> None:
    """A user's editor knows no copy of the code on a node; a file gets what was written."""
    line = '  File "/w/runs/a-1/0-gpu01/code/train.py", line 3'
    stream = io.StringIO()
    stream.isatty = lambda: at_terminal  # type: ignore[method-assign]  # a terminal of our own
    LogPrinter(("gpu01",), 16, stream).show(lines(line))

    shown = stream.getvalue()
    assert ("| " in shown, 'File "train.py"' in shown, line in shown) == (True, at_terminal, not at_terminal)


def test_the_rest_of_a_long_line_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the first line of an entry can be that; a later part of the entry has it no more."""
    entry = replace(lines("rest", "next"), continues=True)
    assert printed(entry, replace(lines("b", stream="stderr"), continues=True)) == [
        "gpu01 r3  + rest",
        "gpu01 r3  | next",
        "gpu01 r3  + b",
    ]
    assert printed(entry.cut(slice(1, 2), None)) == ["gpu01 r3  | next"]
    JsonLogPrinter("run", {}).show(entry)
    assert [json.loads(line).get("continues") for line in capsys.readouterr().out.splitlines()] == [
        True,
        None,
    ]


def test_names_are_padded_by_display_width() -> None:
    """A Chinese character takes two columns."""
    assert printed(lines("x", node="节点"), lines("y", node="abcd"), names=("节点", "abcd"), size=2) == [
        "节点 r3 | x",
        "abcd r3 | y",
    ]


def test_escape_sequences_do_not_reach_the_screen() -> None:
    """A script's output cannot rewrite the terminal."""
    assert printed(lines("a\x1b[2J\x07b")) == ["gpu01 r3  | ab"]


def test_a_rank_has_a_colour_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours differ, wherever they run, and only when colour is wanted; eight colours are enough for a console."""
    monkeypatch.setitem(terminal._OPTIONS, "color", "always")
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = io.StringIO()
    LogPrinter(["gpu01"], 8, stream).show(lines("x", rank=3))

    assert stream.getvalue().startswith(f"\x1b[{label_color(3)}mgpu01 r3")
    assert len({label_color(rank) for rank in range(8)}) == 8
    monkeypatch.setenv("TERM", "linux")
    assert "38;5" not in label_color(3)


def luminance(number: int) -> float:
    """Return the relative luminance of one of xterm's 216 colours, as WCAG defines it."""
    levels = (0, 95, 135, 175, 215, 255)
    parts = [levels[(number - 16) // place % 6] / 255 for place in (36, 6, 1)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_colours_are_legible_on_black_and_on_white(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contrast is 3:1 at least on both."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for rank in range(20):
        light = luminance(int(label_color(rank).removeprefix("38;5;")))
        assert min(1.05 / (light + 0.05), (light + 0.05) / 0.05) >= 3


TORCHRUN = (
    "W1123 00:41:02.100000 46 torch/distributed/run.py:803] a warning",
    "the user's own sitecustomize speaks",
    "E1123 00:41:03.569000 46 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)",
    "Traceback (most recent call last):",
    '  File "<frozen runpy>", line 198, in _run_module_as_main',
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "============================================================",
    "oom.py FAILED",
)


def test_torchruns_own_report_stays_in_its_log() -> None:
    """Its log lines and its traceback are counted; what else is in its log, and a rank's traceback, is shown."""
    stream = io.StringIO()
    shown = TorchrunFilter(LogPrinter(["gpu01"], 1, stream))
    of_torchrun = replace(lines(*TORCHRUN, rank=None, stream="stderr"), file="attempt-1/torchrun.log")
    shown.show(replace(of_torchrun, gone=(0, 1000)))
    shown.show(lines("Traceback (most recent call last):", rank=0, stream="stderr"))
    shown.show(replace(lines("from the job's `before`", rank=None), file="attempt-1/before.log"))

    assert stream.getvalue().splitlines() == [
        "gpu01 -  ~ 1.0 kB of this log are missing here: dropped to hold log_limit, or a hole in the file",
        "gpu01 -  ! the user's own sitecustomize speaks",
        "gpu01 r0 ! Traceback (most recent call last):",
        "gpu01 -  | from the job's `before`",
    ]
    assert shown.hidden == 7


def test_json_lines_carry_raw_text_and_byte_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    """The offset of the second line counts the bytes of the first, not its characters."""
    JsonLogPrinter("r-1", {"gpu01": 0}).show(lines("é\x1b[0m", "b"))

    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["line"], first["offset"]) == ("é\x1b[0m", 10)
    assert (second["offset"], second["node_rank"], second["rank"], second["schema"]) == (17, 0, 3, 1)


def test_times_stand_before_the_prefix_in_the_zone_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a second the tenths are right, before and after its change."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    stream = io.StringIO()
    printer = LogPrinter(["gpu01"], 4, stream, with_times=True)
    moments = (1795240799.96, 1795240800.04, 1795240800.96)
    printer.show(replace(lines("a", "b", "c"), times=moments))
    monkeypatch.undo()
    time.tzset()

    shown = stream.getvalue().splitlines()
    assert shown[0] == "11-21 13:59:59.9 gpu01 r3 | a"
    assert [line[:16] for line in shown[1:]] == ["11-21 14:00:00.0", "11-21 14:00:00.9"]


def test_what_was_dropped_is_reported_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    """On the screen and in JSON."""
    cut = replace(lines("after"), gone=(1000, 3_200_001_000), began=5.0)
    assert printed(cut) == [
        "gpu01 r3  ~ 3.2 GB of this log are missing here: dropped to hold log_limit, or a hole in the file",
        "gpu01 r3  | after",
    ]
    JsonLogPrinter("r-1", {}).show(cut)
    gap, line = map(json.loads, capsys.readouterr().out.splitlines())
    assert (gap["line"], gap["dropped"], gap["offset"], gap["time"]) == ("", 3_200_000_000, 1000, 5.0)
    assert "dropped" not in line


def test_json_lines_carry_the_time_of_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    """And their places in the file, which do not follow one another where lines were chosen."""
    JsonLogPrinter("r-1", {}).show(replace(lines("a", "b"), times=(7.0, 8.0), line_offsets=(100, 900)))
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["time"], one["offset"]) for one in found] == [(7.0, 100), (8.0, 900)]


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
    for _ in range(MAX_HELD):
        logs.show(written(0, "x"))

    assert len(screen.lines) >= MAX_HELD


OK = CommandEnd(0, None)


def said(stdout: str, stderr: str = "", ended: CommandEnd = OK) -> CommandOutput:
    """Make an answer."""
    return CommandOutput(stdout.encode(), stderr.encode(), ended)


def test_equal_answers_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes of a group are folded, and groups stand in the order of their first node."""
    answers = {f"gpu{n:02}": said("a\nb\n") for n in (1, 2, 3, 5)} | {
        "gpu04": said("c\n", "x\n", CommandEnd(2, None))
    }
    show_answers(answers, 1024)
    seen = capsys.readouterr()
    assert seen.out == "gpu[01-03,05] (4 nodes)\na\nb\ngpu04: exit 2\nc\n"
    assert seen.err == "! x\n"


def test_one_line_each_is_one_line_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    """Short answers stay short."""
    show_answers({"a1": said("x\n"), "a2": said("y\n"), "a3": said("x\n")}, 1024)
    assert capsys.readouterr().out == "a[1,3]: x\na2: y\n"


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Folded or not, in both streams."""
    evil = "\x1b]0;title\x07\x1b[2Jtext\u202e\n"
    show_answers({"a1": said(evil), "a2": said(evil, evil)}, 1024)
    printer = LinePrinter(["a1"], as_json=False)
    printer.on_output("a1", "stderr", evil.encode())
    seen = capsys.readouterr()
    assert not set("\x1b\x07\u202e") & set(seen.out + seen.err)
    assert seen.out.endswith("a1 ! text\n")


def test_lines_are_whole_however_they_arrive(capsys: pytest.CaptureFixture[str]) -> None:
    """Pieces are put together; what had no newline comes at the end."""
    printer = LinePrinter(["a1", "long"], as_json=False)
    for piece in (b"on", b"e\ntw", b"o"):
        printer.on_output("a1", "stdout", piece)
    printer.on_exit("a1", CommandEnd(None, 9))
    seen = capsys.readouterr()
    assert seen.out == "a1   | one\na1   | two\n"
    assert seen.err == "a1   ! SIGKILL\n"


def test_json_has_every_node() -> None:
    """Also the one that could not be asked."""
    nodes = answers_to_json({"a1": said("x")}, {"a2": "CC-SSH-002 closed"}, ["a1", "a2"])["nodes"]
    assert [(node["node"], node["exit"], node["stdout"], node["error"]) for node in nodes] == [
        ("a1", 0, "x", None),
        ("a2", None, "", "CC-SSH-002 closed"),
    ]


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (["hostname"], ["hostname"]),
        (["ls", "a b"], ["ls", "a b"]),
        (["ls | wc"], ["/bin/sh", "-c", "ls | wc"]),
        (["echo $HOME"], ["/bin/sh", "-c", "echo $HOME"]),
        (["~/x"], ["/bin/sh", "-c", "~/x"]),
    ],
)
def test_one_word_may_be_a_line_of_shell(words: list[str], argv: list[str]) -> None:
    """Several words never meet a shell."""
    assert build_argv(words) == argv


@pytest.mark.parametrize(
    ("answers", "failed", "code"),
    [
        ([OK], 0, 0),
        ([OK], 1, 5),
        ([], 2, 4),
        ([OK, CommandEnd(1, None)], 0, 1),
        ([CommandEnd(None, 9)], 1, 1),
    ],
)
def test_exit_codes(answers: list[CommandEnd], failed: int, code: int) -> None:
    """A command that failed counts before a node that was not reached."""
    assert exit_code([said("", "", ended) for ended in answers], failed) == code


def test_an_ending_is_read_with_distrust() -> None:
    """Nonsense is an ending too, and no good one."""
    assert parse_command_end(
        Untrusted({"exit": "0", "signal": True, "cut": "stdout", "left": 3})
    ) == CommandEnd(255, None, ())


def test_what_runs_on_is_reported_once_for_equal_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, also where the answers are one line each, and for lines as they come."""
    answers = {
        name: CommandOutput(b"up\n", b"", CommandEnd(0, None, still_running=("sleep", "x\x1b[2J")))
        for name in ("a1", "a2")
    }
    show_answers(answers, 1024)
    folded = capsys.readouterr()
    LinePrinter(["a1"], as_json=False).on_exit("a1", CommandEnd(0, None, still_running=("sleep",)))

    assert folded.out == "a[1-2]: up\n"
    assert folded.err == "a[1-2]: still running in the background: sleep, x\n"
    assert capsys.readouterr().err == "a1: still running in the background: sleep\n"
