"""What a command said on many nodes: equal answers once, or every line as it comes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from clusterctl.client.rpc.tasks import Answer, Ended
from clusterctl.console.logs import display_width, node_color
from clusterctl.console.terminal import wants_color
from clusterctl.console.text import json_text, sanitize
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import counted

_RED, _BOLD, _PLAIN = "\x1b[31m", "\x1b[1m", "\x1b[0m"


def fold_answers(answers: Mapping[str, Answer]) -> list[tuple[tuple[str, ...], Answer]]:
    """Put nodes with equal answers together, in the order of the first node of each group."""
    groups: dict[Answer, list[str]] = {}
    for name, answer in answers.items():
        groups.setdefault(answer, []).append(name)
    return [(tuple(names), answer) for answer, names in groups.items()]


def show_answers(answers: Mapping[str, Answer], limit: int) -> None:
    """Print every different answer once, under the names of the nodes that gave it."""
    groups = fold_answers(answers)
    if all(_is_line(answer) for _, answer in groups):
        for names, answer in groups:
            head = _paint(fold_names(names), _BOLD, sys.stdout)
            print(f"{head}: {''.join(_lines(answer.stdout))}", flush=True)
    else:
        for names, answer in groups:
            _show_block(names, answer, limit)
    for names, answer in groups:
        _tell_left(fold_names(names), answer.ended)


def _tell_left(names: str, ended: Ended) -> None:
    if ended.left:
        print(
            sanitize(f"{names}: left in the background there: {', '.join(ended.left)}"),
            file=sys.stderr,
            flush=True,
        )


def _is_line(answer: Answer) -> bool:
    one = len(_lines(answer.stdout)) == 1
    return one and not answer.stderr and answer.ended.ok and not answer.ended.cut


def _show_block(names: Sequence[str], answer: Answer, limit: int) -> None:
    count = f" ({counted(len(names), 'node')})" if len(names) > 1 else ""
    head = fold_names(names) + count
    ending = render_ending(answer.ended)
    print(_paint(head, _BOLD, sys.stdout) + _paint(ending, _RED, sys.stdout))
    for line in _lines(answer.stdout):
        print(line)
    print(end="", flush=True)
    for line in _lines(answer.stderr):
        print(f"{_paint('!', _RED, sys.stderr)} {line}", file=sys.stderr)
    for stream in answer.ended.cut:
        print(
            f"! {sanitize(stream)} is longer: only its first {limit >> 10} KiB are shown; --no-fold shows all",
            file=sys.stderr,
        )
    sys.stderr.flush()


def render_ending(ended: Ended) -> str:
    """Say how a command ended, unless it was with 0: `: exit 2`, `: SIGKILL`."""
    if ended.ok:
        return ""
    from clusterctl.protocol.root_cause import signal_name

    return f": {signal_name(ended.signal)}" if ended.signal is not None else f": exit {ended.exit}"


def _lines(data: bytes) -> list[str]:
    text = data.decode("utf-8", "replace")
    return [sanitize(line) for line in text.removesuffix("\n").split("\n")] if text else []


def _paint(text: str, style: str, stream: TextIO) -> str:
    text = sanitize(text)
    return f"{style}{text}{_PLAIN}" if text and wants_color(stream) else text


def answers_to_json(
    answers: Mapping[str, Answer], errors: Mapping[str, str], order: Iterable[str]
) -> dict[str, Any]:
    """Give `exec --json`; a node that could not be asked has an `error` and no answer."""
    return {
        "schema": 1,
        "nodes": [_node_to_json(name, answers.get(name), errors.get(name)) for name in order],
    }


def _node_to_json(name: str, answer: Answer | None, error: str | None) -> dict[str, Any]:
    if answer is None:
        return {
            "node": name,
            "exit": None,
            "signal": None,
            "stdout": "",
            "stderr": "",
            "cut": [],
            "left": [],
            "error": error,
        }
    return {
        "node": name,
        "exit": answer.ended.exit,
        "signal": answer.ended.signal,
        "stdout": answer.stdout.decode("utf-8", "replace"),
        "stderr": answer.stderr.decode("utf-8", "replace"),
        "cut": list(answer.ended.cut),
        "left": list(answer.ended.left),
        "error": None,
    }


class LinePrinter:
    """Writes lines as they come, as `gpu02 | text`, stderr with `!`; called from many threads."""

    LONGEST = 1 << 16  # bytes of a line that are waited for

    def __init__(self, names: Iterable[str], *, as_json: bool) -> None:
        self._as_json = as_json
        self._width = max((display_width(name) for name in names), default=0)
        self._lock = threading.Lock()
        self._rest: dict[tuple[str, str], bytes] = {}
        self._refused: OSError | None = None

    def check(self) -> None:
        """Raise what was wrong when lines were written: nobody reads them any more, or a disk is full."""
        if self._refused is not None:
            raise self._refused

    def hear(self, node: str, stream: str, data: bytes) -> None:
        """Print the lines that are complete."""
        with self._lock:
            *lines, rest = (self._rest.pop((node, stream), b"") + data).split(b"\n")
            if len(rest) > self.LONGEST:
                lines, rest = [*lines, rest], b""
            self._rest[node, stream] = rest
            self._print(node, stream, lines)

    def end(self, node: str, ended: Ended | None) -> None:
        """Print what had no newline, and a bad end."""
        with self._lock:
            for stream in ("stdout", "stderr"):
                rest = self._rest.pop((node, stream), b"")
                self._print(node, stream, [rest] if rest else [])
            if ended is None:
                return
            if self._as_json:
                left = list(ended.left)
                self._write({"node": node, "exit": ended.exit, "signal": ended.signal, "left": left})
                return
            if not ended.ok:
                print(f"{self._prefix(node, '!')}{render_ending(ended)[2:]}", file=sys.stderr, flush=True)
            _tell_left(node, ended)

    def _print(self, node: str, stream: str, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        texts = [line.decode("utf-8", "replace") for line in lines]
        if self._as_json:
            for text in texts:
                self._write({"node": node, "stream": stream, "line": text})
            return
        prefix = self._prefix(node, "!" if stream == "stderr" else "|")
        self._put("".join(f"{prefix}{sanitize(text)}\n" for text in texts))

    def _prefix(self, node: str, mark: str) -> str:
        name = node + " " * (self._width - display_width(node))
        return f"{_paint(name, f'{chr(27)}[{node_color(node)}m', sys.stdout)} {mark} "

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._put(json_text({"schema": 1, **entry}) + "\n")

    def _put(self, text: str) -> None:
        self.check()
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            self._refused = error
            raise
