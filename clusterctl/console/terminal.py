"""What the user chose for all that is printed: colour or not, chatter or not."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from clusterctl.console.text import drop_controls, sanitize

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"  # of SGR
MAX_TABLE_WIDTH = 120  # columns that a table takes to keep its words whole, on however narrow a terminal
_OPTIONS = {"color": "auto", "chatter": "normal"}


def set_color(color: str) -> None:
    """Remember `auto`, `always` or `never`."""
    _OPTIONS["color"] = color


def set_verbosity(*, quiet: bool, verbose: bool) -> None:
    """Set how much is printed besides results and errors; quiet wins over verbose."""
    _OPTIONS["chatter"] = "quiet" if quiet else "verbose" if verbose else "normal"


def is_quiet() -> bool:
    """Return whether only results and errors are printed."""
    return _OPTIONS["chatter"] == "quiet"


def is_verbose() -> bool:
    """Return whether more than usual is printed."""
    return _OPTIONS["chatter"] == "verbose"


def uses_color(stream: TextIO) -> bool:
    """Decide by the option first, then by NO_COLOR (https://no-color.org), then by what the stream is."""
    if _OPTIONS["color"] != "auto":
        return _OPTIONS["color"] == "always"
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def paint(text: str, style: str, stream: TextIO) -> str:
    """Colour a text for a stream that shows colours; `style` has the numbers of SGR."""
    return f"\x1b[{style}m{text}\x1b[0m" if text and uses_color(stream) else text


def stdout() -> Console:
    """Return the console for results."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Return the console for everything that is not a result."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    """Make a console whose cursor only rich moves, never a text; rich is imported here, when something is printed."""
    from rich.console import Console
    from rich.segment import Segment

    class SanitizedConsole(Console):
        """Drops control characters from all texts; they have no width, so columns stay where they are."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                text, style, control = segment
                yield segment if control else Segment(drop_controls(text), style)

    color = uses_color(stream)
    columns = os.environ.get("COLUMNS", "")
    width = None if stream.isatty() else int(columns) if columns.isdecimal() and int(columns) > 0 else 120
    return SanitizedConsole(
        file=stream,
        force_terminal=color or None,
        no_color=not color,
        highlight=False,
        width=width,
        soft_wrap=False,
    )


_SYMBOLS = {
    "ok": ("\u2713", "ok"),
    "failed": ("\u2717", "x"),
    "stopped": ("\u25a0", "-"),
    "live": ("\u25cf", "*"),
}


def symbol(name: str, stream: TextIO) -> str:
    """Return a check mark and the like, or plain letters where the stream's encoding has none."""
    mark, plain = _SYMBOLS[name]
    return mark if (stream.encoding or "").lower().replace("-", "").startswith("utf") else plain


def make_table(*headings: str, no_wrap: bool = False, numbers_from: int | None = None) -> Table:
    """Begin a table of columns without lines; those from `numbers_from` on hold numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, heading in enumerate(headings):
        is_number = numbers_from is not None and index >= numbers_from
        table.add_column(
            heading,
            overflow="ellipsis" if no_wrap else "fold",
            no_wrap=no_wrap,
            justify="right" if is_number else "left",
        )
    return table


def table_width(console: Console, table: Table, most: int = MAX_TABLE_WIDTH) -> int:
    """Count the columns of a table that has each row in one line."""
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(max_width=most), table).maximum


def print_fitted_table(console: Console, table: Table) -> None:
    """Print a table whose cells break their own lines, as wide as a terminal is."""
    if console.is_terminal:
        console.print(table)
    else:
        print_table(console, table)


def print_table(console: Console, table: Table) -> None:
    """Print a table with whole words: what is to be copied is broken by a narrow terminal, if at all, not by us."""
    natural_width = table_width(console, table)
    width = console.width
    console.width = max(width, natural_width) if natural_width < MAX_TABLE_WIDTH else width
    console.print(table)
    console.width = width


_live_line: list[str] = []  # the line below all others, which is redrawn


def can_redraw(stream: TextIO) -> bool:
    """Return whether lines can be redrawn; NO_COLOR is about colours only."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def show_live_line(text: str) -> None:
    """Write one line on stderr, a terminal, in place of the last one of these; an empty text takes it away."""
    from clusterctl.console.text import cut_text

    if can_redraw(sys.stderr) and _live_line != ([text] if text else []):
        clear_live_line()
        if text:
            _live_line.append(text)
            print(cut_text(sanitize(text), stderr().width - 1), end="", file=sys.stderr, flush=True)


def clear_live_line() -> None:
    """Take away the line that stands below all others, so that something can be written."""
    if _live_line:
        _live_line.clear()
        print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def info(line: str, *, is_safe: bool = False) -> None:
    """Write one line of chatter to stderr, unless `-q`; a text that `is_safe` may hold colours of our own."""
    if not is_quiet():
        clear_live_line()
        lines = [sanitize(part) for part in line.split("\n")]
        text = line if is_safe else "\n".join(text for part in lines for text in _wrap_for_terminal(part))
        sys.stderr.write(f"{text}\n")  # at once: threads report at the same time
        sys.stderr.flush()


def _wrap_for_terminal(line: str) -> list[str]:
    """Break a line between words where stderr is a terminal; a command at its end stays whole, to be copied."""
    from clusterctl.console.text import display_width, wrap_text

    if not sys.stderr.isatty() or display_width(line) <= stderr().width:
        return [line]
    ended = re.search("(?:: |\uff1a)(?=clusterctl )", line)  # the second is a Chinese colon
    if ended is None:
        return [line] if "clusterctl " in line else wrap_text(line, stderr().width, indent="  ")
    lines = wrap_text(line[: ended.end()].rstrip(), stderr().width, indent="  ")
    return [*lines, f"  {line[ended.end() :]}"]


def print_line(line: str) -> None:
    """Write one line of a result."""
    print(sanitize(line), flush=True)


def print_error_line(line: str) -> None:
    """Write one line to stderr, also with `-q`."""
    print(sanitize(line), file=sys.stderr, flush=True)


def hint(line: str) -> None:
    """Write one dimmed line to stderr, unless `-q`."""
    if not is_quiet():
        clear_live_line()
        print(paint(sanitize(line), DIM, sys.stderr), file=sys.stderr, flush=True)
