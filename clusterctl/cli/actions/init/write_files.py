"""Files that a verb writes for the user: nothing is replaced unasked, several are written together or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from clusterctl.cli.context.load import expand
from clusterctl.console.terminal import is_quiet
from clusterctl.console.text import make_visible
from clusterctl.errors import UsageError
from clusterctl.interrupts import INTERRUPTS


def refuse_existing(path: str, *, for_init: bool = False) -> None:
    """Raise UsageError if a file is there, before anything else is done for it."""
    if expand(path).exists():
        raise UsageError("CC-USE-040", "init" if for_init else "", path=path)


def show_file(path: Path | str, text: str) -> None:
    """Show a file as it is, without line breaks of our own, so that it can be copied."""
    if not is_quiet():
        lines = "".join(f"  {make_visible(line)}\n" for line in text.splitlines())
        click.echo(f"{path}:\n{lines}", err=True)


def write_new_files(texts: Mapping[Path, str], *, force: bool) -> None:
    """Write files that belong together; of those that are new none stays if a later one cannot be written."""
    INTERRUPTS.check()  # a signal that came before the first file comes before all
    written: list[Path] = []
    try:
        for path, text in texts.items():
            is_new = not path.exists()
            write_new_file(text, str(path), force=force)
            written += [path] if is_new else []
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise


def write_new_file(text: str, path: str, *, force: bool) -> None:
    """Write what a verb has made; an existing file is replaced only with `force`, and then atomically."""
    target = expand(path)
    if target.is_dir():
        raise UsageError("CC-USE-040", "directory", path=path)
    if not force:
        try:
            _write_new(target, text)
        except FileExistsError as error:
            raise UsageError("CC-USE-040", path=path) from error
        return
    temporary = target.with_name(f".{target.name}.new")
    temporary.unlink(missing_ok=True)
    _write_new(temporary, text)
    Path.replace(temporary, target)


def _write_new(file: Path, text: str) -> None:
    """Write a file that is not there yet; nothing is left of it if the disk refuses."""
    try:
        with file.open("x", encoding="utf-8") as sink:
            sink.write(text)
    except OSError as error:
        if error.filename is None:  # it was opened, and then refused
            file.unlink()
            error.filename = str(file)
        raise
