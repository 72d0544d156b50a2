"""The output of a command on many nodes: equal outputs once, or every line as it comes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from clusterctl.client.rpc.tasks import CommandEnd, CommandOutput
from clusterctl.console.errors import ERRORS
from clusterctl.console.run.logs import label_color
from clusterctl.console.terminal import BOLD, RED, paint, print_error_line
from clusterctl.console.text import display_width, json_text, sanitize
from clusterctl.protocol.exit_status import signal_name
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.translation import tr, trn

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

    LONGEST = 1 << 16  # bytes of a line that are waited for

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
            if len(partial) > self.LONGEST:
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
