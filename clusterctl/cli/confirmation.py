"""Confirmation before something unnamed is stopped: a question on a terminal, an error without one."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from clusterctl.console.sanitize import sanitize
from clusterctl.errors import UsageError

CODE = "CC-USE-091"


def confirm(about: Sequence[str], question: str, what: str, command: str) -> None:
    """Return if the user confirms, else raise UsageError; `command` does the same without a question."""
    if not sys.stdin.isatty():
        raise UsageError(
            f"no {what} was named, and there is no terminal to ask at; there is:",
            code=CODE,
            fix=f"{command}  (or add -y)",
            evidence="\n".join(about),
        )
    for line in about:
        click.echo(sanitize(line), err=True)
    if not click.confirm(question, err=True):
        raise UsageError("nothing was ended", code=CODE, fix=command)
