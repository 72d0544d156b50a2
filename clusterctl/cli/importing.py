"""From another tool's inventory file to one of ours: reading, and writing without losing a file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from clusterctl.cli.loading import expand, read_spec
from clusterctl.errors import UsageError

if TYPE_CHECKING:
    from clusterctl.specs.foreign import Foreign

STANDARD_INPUT = "-"


def read_foreign(path: str) -> str:
    """Read the file, or standard input for `-`, as far as an inventory can be long."""
    from clusterctl.specs.foreign import MOST_FOREIGN

    if path != STANDARD_INPUT:
        return read_spec(expand(path), MOST_FOREIGN)
    from clusterctl.specs.document import decode_source

    return decode_source(sys.stdin.buffer.read(MOST_FOREIGN + 1), "standard input", most=MOST_FOREIGN)


def find_unread(path: str) -> list[str]:
    """Name the directories beside an Ansible inventory in which variables may stand."""
    beside = expand(path).parent
    return [
        name for name in ("group_vars", "host_vars") if path != STANDARD_INPUT and (beside / name).is_dir()
    ]


def with_config(foreign: Foreign, path: str) -> Foreign:
    """Have the nodes of an SSH configuration connect by that file, unless ssh reads it anyway."""
    from clusterctl.specs.ssh_hosts import KIND

    usual = Path("~/.ssh/config").expanduser()
    if foreign.kind != KIND or path == STANDARD_INPUT or expand(path).resolve() == usual.resolve():
        return foreign
    config = str(expand(path).absolute())
    return replace(foreign, hosts=tuple(replace(host, config=config) for host in foreign.hosts))


def refuse_existing(path: str) -> None:
    """Say at once that a file is there, before anything else is done for it."""
    if expand(path).exists():
        raise UsageError(f"{path} is there already", code="CC-USE-040", fix="another name, or --force")


def write_inventory(text: str, path: str, *, force: bool) -> None:
    """Write the new inventory; a file that is there is replaced only if that was asked for, and then at once."""
    target = expand(path)
    if target.is_dir():
        raise UsageError(f"{path} is a directory", code="CC-USE-040", fix="name a file")
    if not force:
        try:
            _write_new(target, text)
        except FileExistsError as error:
            raise UsageError(
                f"{path} is there already", code="CC-USE-040", fix="another name, or --force"
            ) from error
        return
    aside = target.with_name(f".{target.name}.new")
    aside.unlink(missing_ok=True)
    _write_new(aside, text)
    Path.replace(aside, target)


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
