"""Lines of many ranks or nodes on one screen: of logs, and of a command, whose equal outputs are shown once."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Protocol, TextIO

from clusterctl.client.rpc.tasks import CommandEnd, CommandOutput
from clusterctl.console.errors import ERRORS
from clusterctl.console.terminal import BOLD, RED, clear_live_line, paint, print_error_line
from clusterctl.console.text import display_width, json_text, sanitize
from clusterctl.plans.runs.state import attempt_of
from clusterctl.protocol.exit_status import signal_name
from clusterctl.protocol.ranks import NodeRank, Rank
from clusterctl.protocol.run_paths import torchrun_log
from clusterctl.protocol.tracebacks import starts_traceback
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import as_in_project
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.client.watch.follower import LogLines
    from clusterctl.console.documents.runs import LogLine

# Of 256 colours some whose contrast is at least 3:1 on black and on white; neighbours differ much.
_COLORS = (33, 166, 29, 162, 98, 64, 30, 127, 130, 69)
_FEW_COLORS = (36, 35, 32, 34)  # for terminals that have only eight
_EIGHT_COLORS = ("linux", "ansi", "vt100", "vt220", "cygwin")


class LogSink(Protocol):
    """Takes log lines as they come."""

    @property
    def hidden(self) -> int:
        """Count the lines that were not written."""

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""


class BatchLogSink(ABC):
    """Writes all lines, those of several files at once too."""

    hidden = 0

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file."""
        self.show_all((entry,))

    @abstractmethod
    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write complete lines of several files."""


class LogPrinter(BatchLogSink):
    """Writes log lines as `gpu02 r3 | text`; lines of stderr have `!` for `|`, the rest of a long line has `+`.

    `with_times` puts before each line when it was written, by the clock and in the zone of this machine. On a terminal
    the files of a run's copy of the code have the names that they have in the project; a file gets what was written.
    """

    def __init__(
        self, names: Iterable[str], world_size: int, stream: TextIO | None = None, *, with_times: bool = False
    ) -> None:
        self._stream = stream or sys.stdout
        self._with_times = with_times
        self._cached_second: tuple[int, str] = (-1, "")
        self._prepare = _shown_line if self._stream.isatty() else sanitize
        self._indices = {name: index for index, name in enumerate(names)}
        self._width = max(map(display_width, self._indices), default=0)
        self._rank_width = len(str(max(world_size - 1, 0))) + 1

    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write the lines of several files in one go."""
        clear_live_line()
        self._stream.write("".join(self._render(entry) for entry in entries))
        self._stream.flush()

    def _render(self, entry: LogLines) -> str:
        label, separators = self._label(entry), self._separators(entry)
        dropped_line = (
            f"{self._render_time(entry.began)}{label} ~ {describe_dropped(entry.gone)}\n"
            if entry.gone
            else ""
        )
        if not self._with_times:
            lines = zip(separators, entry.lines, strict=False)
            return dropped_line + "".join(
                [f"{label} {separator} {self._prepare(line)}\n" for separator, line in lines]
            )
        timed_lines = zip(entry.times, separators, entry.lines, strict=False)
        return dropped_line + "".join(
            [
                f"{self._render_time(timestamp)}{label} {separator} {self._prepare(line)}\n"
                for timestamp, separator, line in timed_lines
            ]
        )

    def _render_time(self, timestamp: float) -> str:
        """Write a time as `11-21 14:05:03.2 `; of the seconds the last is remembered, for lines come in crowds."""
        if not self._with_times:
            return ""
        tenths = int(timestamp * 10)
        if self._cached_second[0] != tenths // 10:
            self._cached_second = tenths // 10, time.strftime("%m-%d %H:%M:%S", time.localtime(tenths // 10))
        return f"{self._cached_second[1]}.{tenths % 10} "

    def _separators(self, entry: LogLines) -> Iterator[str]:
        """Return the sign before each line."""
        more, sign = "+", "|"
        if entry.stream == "stderr":
            more, sign = paint("+", RED, self._stream), paint("!", RED, self._stream)
        return chain([more] if entry.continues else [], repeat(sign))

    def _label(self, entry: LogLines) -> str:
        rank = "-" if entry.rank is None else f"r{entry.rank}"
        name = sanitize(entry.node) + " " * (self._width - display_width(entry.node))
        label = f"{name} {rank.ljust(self._rank_width)}"
        index = entry.rank if entry.rank is not None else self._indices.get(entry.node, 0)
        return paint(label, label_color(index), self._stream)


def _shown_line(line: str) -> str:
    return as_in_project(sanitize(line))


class JsonLogPrinter(BatchLogSink):
    """Writes log lines as NDJSON, one object a line, text as it came."""

    def __init__(self, run_id: str, node_ranks: Mapping[str, NodeRank]) -> None:
        self._run_id = run_id
        self._node_ranks = node_ranks

    def show_all(self, entries: Iterable[LogLines]) -> None:
        """Write the lines of several files; `offset` is each line's place in the file in bytes.

        `continues` marks the rest of a line that is too long for one piece.
        """
        ERRORS.has_result = True
        for entry in entries:
            sys.stdout.write("".join(json_text(record) + "\n" for record in self._records(entry)))
        sys.stdout.flush()

    def _records(self, entry: LogLines) -> Iterator[LogLine]:
        common: LogLine = {
            "schema": 1,
            "run": self._run_id,
            "node": entry.node,
            "node_rank": entry.node_rank if entry.node_rank is not None else self._node_ranks.get(entry.node),
            "attempt": attempt_of(entry.file),
            "rank": entry.rank,
            "stream": entry.stream,
            "offset": 0,
            "time": entry.time,
            "line": "",
        }
        if entry.gone:
            begin, end = entry.gone
            yield {**common, "offset": begin, "time": entry.began or entry.time, "dropped": end - begin}
        times = entry.times or (entry.time,) * len(entry.lines)
        for line, offset, timestamp in zip(entry.lines, entry.offsets, times, strict=True):
            record: LogLine = {**common, "offset": offset, "time": timestamp, "line": line}
            if entry.continues and offset == entry.offsets[0]:
                record["continues"] = True
            yield record


class TorchrunFilter:
    """Keeps what torchrun itself reports of a failed rank from the screen: the rank's own error shows it.

    torchrun writes log lines and, when it ends, a traceback with a summary, all to a log of its own. Other lines there
    are shown.
    """

    _LOG_LINE = re.compile(r"[IWE]\d{4} \S+ +\d+ +(?:\S*/)?torch/distributed/(?:elastic|launcher|run\.py)")

    def __init__(self, logs: LogSink) -> None:
        self._logs = logs
        self._ending: set[tuple[str, str]] = set()  # logs in which the last traceback has begun
        self.hidden = 0

    def show(self, entry: LogLines) -> None:
        """Write the lines of a file, without those of torchrun's own end."""
        if entry.rank is not None or entry.file != torchrun_log(attempt_of(entry.file)):
            self._logs.show(entry)
            return
        if entry.gone:
            self._logs.show(entry.cut(slice(0, 0), entry.gone))
        for number, line in enumerate(entry.lines):
            if self._is_hidden((entry.node, entry.file), line):
                self.hidden += 1
            else:
                self._logs.show(entry.cut(slice(number, number + 1), None))

    def _is_hidden(self, log: tuple[str, str], line: str) -> bool:
        if starts_traceback(line):
            self._ending.add(log)
        return log in self._ending or self._LOG_LINE.match(line) is not None


def describe_dropped(dropped: tuple[int, int]) -> str:
    """Return what is missing in a log that was cut."""
    from clusterctl.specs.text import render_size

    size = render_size(dropped[1] - dropped[0])
    # a part of a log: English, as all of it
    return f"{size} of this log are missing here: dropped to hold log_limit, or a hole in the file"


def label_color(index: int) -> str:
    """Return the colour, as SGR has it, for a rank, or for the place of a node: neighbours never have the same."""
    if os.environ.get("TERM", "") in _EIGHT_COLORS:
        return str(_FEW_COLORS[index % len(_FEW_COLORS)])
    return f"38;5;{_COLORS[index % len(_COLORS)]}"


HOLD_LIMIT = 3.0  # seconds; after it the script has survived the exception, or the run is not being ended
MAX_HELD = 2000  # lines of one rank


class HeldTracebacks:
    """Passes lines on, but from a traceback on those of its file, until the run ends or goes on.

    Only the traceback of the rank that failed first is of use. Nothing is lost: the logs on the nodes hold every line,
    and what is not shown is counted.
    """

    def __init__(self, logs: LogSink, clock: Callable[[], float] = time.monotonic) -> None:
        self._logs, self._clock = logs, clock
        self._held: dict[tuple[str, str], list[LogLines]] = {}
        self._since: dict[tuple[str, str], float] = {}
        self._left_out = 0

    @property
    def hidden(self) -> int:
        """Count the lines that were not written."""
        return self._logs.hidden + self._left_out

    def show(self, entry: LogLines) -> None:
        """Write complete lines of one file, or keep them."""
        log = (entry.node, entry.file)
        for earlier in [log for log in self._held if attempt_of(log[1]) < attempt_of(entry.file)]:
            self._release(earlier)  # the run goes on in another attempt
        if log in self._held:
            self._held[log].append(entry)
            if sum(len(one.lines) for one in self._held[log]) > MAX_HELD:
                self._release(log)
            return
        start = _find_traceback(entry)
        if start is None:
            self._logs.show(entry)
            return
        if start or entry.gone:
            self._logs.show(entry.cut(slice(0, start), entry.gone))
        self._held[log] = [entry.cut(slice(start, None), None)]
        self._since[log] = self._clock()

    def tick(self, *, stopping: bool) -> None:
        """Write what has been kept for long, unless the run is being ended because a rank failed."""
        if stopping:
            return
        now = self._clock()
        for log in [log for log, since in self._since.items() if now - since > HOLD_LIMIT]:
            self._release(log)

    def finish(self, culprits: Collection[tuple[str, Rank]]) -> None:
        """Write the kept lines of these ranks (node, rank) and count the others; without culprits write all."""
        for log, entries in list(self._held.items()):
            first = entries[0]
            if not culprits or (first.rank is not None and (first.node, first.rank) in culprits):
                self._release(log)
            else:
                self._left_out += sum(len(entry.lines) for entry in entries)
                del self._held[log], self._since[log]

    def _release(self, log: tuple[str, str]) -> None:
        for entry in self._held.pop(log):
            self._logs.show(entry)
        del self._since[log]


def _find_traceback(entry: LogLines) -> int | None:
    """Return the index of the first line of a traceback of a rank."""
    if entry.rank is None or entry.stream != "stderr":
        return None
    return next((index for index, line in enumerate(entry.lines) if starts_traceback(line)), None)


if TYPE_CHECKING:
    from clusterctl.console.documents.nodes import CommandAnswer, ExecDocument
    from clusterctl.console.documents.runs import CommandEndLine, CommandLine
    from clusterctl.protocol.messages.verbs import StreamName


def group_answers(answers: Mapping[str, CommandOutput]) -> list[tuple[tuple[str, ...], CommandOutput]]:
    """Put nodes with equal answers together, in the order of the first node of each group."""
    groups = group_values((answer, name) for name, answer in answers.items())
    return [(tuple(names), answer) for answer, names in groups.items()]


def show_answers(answers: Mapping[str, CommandOutput], limit: int) -> None:
    """Print every different answer once, under the names of the nodes that gave it."""
    groups = group_answers(answers)
    if all(_is_single_line(answer) for _, answer in groups):
        for names, answer in groups:
            heading = paint(sanitize(fold_names(names)), BOLD, sys.stdout)
            print(f"{heading}: {''.join(_lines(answer.stdout))}", flush=True)
    else:
        for names, answer in groups:
            _show_block(names, answer, limit)
    for names, answer in groups:
        _print_background(fold_names(names), answer.end)


def _print_background(names: str, ended: CommandEnd) -> None:
    if ended.still_running:
        processes = ", ".join(ended.still_running)
        print_error_line(
            tr("{nodes}: still running in the background: {processes}", nodes=names, processes=processes)
        )


def _is_single_line(answer: CommandOutput) -> bool:
    has_one_line = len(_lines(answer.stdout)) == 1
    return has_one_line and not answer.stderr and answer.end.ok and not answer.end.truncated


def _show_block(names: Sequence[str], answer: CommandOutput, limit: int) -> None:
    heading = fold_names(names)
    if len(names) > 1:
        heading = trn("{nodes} ({n} node)", "{nodes} ({n} nodes)", len(names), nodes=heading)
    ending = render_ending(answer.end)
    ending_text = tr(": {end}", end=ending) if ending else ""
    print(paint(sanitize(heading), BOLD, sys.stdout) + paint(ending_text, RED, sys.stdout))
    for line in _lines(answer.stdout):
        print(line)
    print(end="", flush=True)
    for line in _lines(answer.stderr):
        print(f"{paint('!', RED, sys.stderr)} {line}", file=sys.stderr)
    for stream in answer.end.truncated:
        text = tr(
            "! {stream} is longer: only the first {limit} KiB are shown; --no-fold shows all",
            stream=sanitize(stream),
            limit=limit >> 10,
        )
        print(text, file=sys.stderr)
    sys.stderr.flush()


def render_ending(ended: CommandEnd) -> str:
    """Return how a command ended, unless it was with 0: `exit 2`, `SIGKILL`."""
    if ended.ok:
        return ""
    if ended.signal is not None:
        return signal_name(ended.signal)
    return tr("exit {code}", code=ended.exit)


def _lines(data: bytes) -> list[str]:
    text = data.decode("utf-8", "replace")
    return [sanitize(line) for line in text.removesuffix("\n").split("\n")] if text else []


def answers_to_json(
    answers: Mapping[str, CommandOutput], errors: Mapping[str, str], node_names: Iterable[str]
) -> ExecDocument:
    """Return the document of `exec --json`; a node that could not be asked has an `error` and no answer."""
    return {
        "schema": 1,
        "nodes": [_node_to_json(name, answers.get(name), errors.get(name)) for name in node_names],
    }


def _node_to_json(name: str, answer: CommandOutput | None, error: str | None) -> CommandAnswer:
    output = answer or CommandOutput(b"", b"", CommandEnd(None, None, (), ()))
    return {
        "node": name,
        "exit": output.end.exit,
        "signal": output.end.signal,
        "stdout": output.stdout.decode("utf-8", "replace"),
        "stderr": output.stderr.decode("utf-8", "replace"),
        "cut": list(output.end.truncated),
        "left": list(output.end.still_running),
        "error": error,
    }


class LinePrinter:
    """Writes lines as they come, as `gpu02 | text`, stderr with `!`; called from many threads."""

    MAX_LINE = 1 << 16  # bytes of a line that are waited for

    def __init__(self, names: Iterable[str], *, as_json: bool) -> None:
        self._as_json = as_json
        self._indices = {name: index for index, name in enumerate(names)}
        self._width = max(map(display_width, self._indices), default=0)
        self._lock = threading.Lock()
        self._partial: dict[tuple[str, str], bytes] = {}
        self._write_error: OSError | None = None

    def raise_write_error(self) -> None:
        """Raise the error of writing lines: the reader has left, or a disk is full."""
        if self._write_error is not None:
            raise self._write_error

    def on_output(self, node: str, stream: StreamName, data: bytes) -> None:
        """Print the lines that are complete."""
        with self._lock:
            *lines, partial = (self._partial.pop((node, stream), b"") + data).split(b"\n")
            if len(partial) > self.MAX_LINE:
                lines, partial = [*lines, partial], b""
            self._partial[node, stream] = partial
            self._print(node, stream, lines)

    def on_exit(self, node: str, ended: CommandEnd | None) -> None:
        """Print what had no newline, and a bad end."""
        with self._lock:
            for stream in ("stdout", "stderr"):
                partial = self._partial.pop((node, stream), b"")
                self._print(node, stream, [partial] if partial else [])
            if ended is None:
                return
            if self._as_json:
                self._write_json(
                    {
                        "schema": 1,
                        "node": node,
                        "exit": ended.exit,
                        "signal": ended.signal,
                        "left": list(ended.still_running),
                    }
                )
                return
            if not ended.ok:
                print(f"{self._prefix(node, '!')}{render_ending(ended)}", file=sys.stderr, flush=True)
            _print_background(node, ended)

    def _print(self, node: str, stream: StreamName, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        texts = [line.decode("utf-8", "replace") for line in lines]
        if self._as_json:
            for text in texts:
                self._write_json({"schema": 1, "node": node, "stream": stream, "line": text})
            return
        prefix = self._prefix(node, "!" if stream == "stderr" else "|")
        self._write_stdout("".join(f"{prefix}{sanitize(text)}\n" for text in texts))

    def _prefix(self, node: str, separator: str) -> str:
        name = node + " " * (self._width - display_width(node))
        return f"{paint(sanitize(name), label_color(self._indices.get(node, 0)), sys.stdout)} {separator} "

    def _write_json(self, entry: CommandLine | CommandEndLine) -> None:
        ERRORS.has_result = True
        self._write_stdout(json_text(entry) + "\n")

    def _write_stdout(self, text: str) -> None:
        self.raise_write_error()
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            self._write_error = error
            raise
