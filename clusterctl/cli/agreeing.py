"""Ask before something ends that nobody has named: on a terminal a person answers, elsewhere it must be said before."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from clusterctl.console.sanitize import sanitize
from clusterctl.errors import UsageError

CODE = "CC-USE-091"


def agree(about: Sequence[str], question: str, what: str, command: str) -> None:
    """Return if a person agrees; UsageError if nobody does. `command` does it without a question."""
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
