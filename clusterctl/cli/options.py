"""The options that every verb takes, before or after its name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from clusterctl.specs.commandline import command_line


@dataclass(frozen=True)
class Settings:
    """What the shared options say."""

    inventory: str | None = None
    lab: str | None = None
    verbose: bool = False
    quiet: bool = False
    color: str = "auto"

    @property
    def command(self) -> str:
        """Give the beginning of a command to paste that means the same inventory."""
        chosen = ["-i", self.inventory] if self.inventory else ["--lab", self.lab] if self.lab else []
        return command_line("clusterctl", *chosen)


Command = Callable[..., Any]

_OPTIONS = (
    click.option("-i", "--inventory", metavar="FILE", help="The inventory file of the cluster."),
    click.option(
        "--lab", metavar="NAME", help="The running lab of this name, in place of an inventory file."
    ),
    click.option("-v", "--verbose", is_flag=True, help="Say when each node is through each phase."),
    click.option("-q", "--quiet", is_flag=True, help="Say only results and errors."),
    click.option("--color", type=click.Choice(["auto", "always", "never"]), help="Colour the output."),
)


def shared_options(function: Command) -> Command:
    """Add the shared options; the command receives `settings`, in which the later word wins."""

    @functools.wraps(function)
    def command(
        inventory: str | None, lab: str | None, verbose: bool, quiet: bool, color: str | None, **rest: Any
    ) -> Any:
        ctx = click.get_current_context()
        settings = _merge(ctx.obj or Settings(), Settings(inventory, lab, verbose, quiet, color or ""))
        ctx.obj = settings
        _announce(settings)
        return function(settings=settings, **rest)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _merge(before: Settings, later: Settings) -> Settings:
    merged = Settings(
        inventory=before.inventory if later.inventory is None else later.inventory,
        lab=before.lab if later.lab is None else later.lab,
        verbose=later.verbose or before.verbose,
        quiet=later.quiet or before.quiet,
        color=later.color or before.color,
    )
    if merged.inventory is not None and merged.lab is not None:
        from clusterctl.errors import UsageError

        text = "-i and --lab both say which nodes"
        raise UsageError(
            text, code="CC-USE-090", fix=f"leave -i {merged.inventory} or --lab {merged.lab} out"
        )
    return merged


def _announce(settings: Settings) -> None:
    """Let everything printed from here on, errors included, know the chosen colour."""
    from clusterctl.console import choice

    choice.set_color(settings.color)
    choice.set_chatter(quiet=settings.quiet, verbose=settings.verbose)


node_options = (
    click.option(
        "--nodes", "pattern", metavar="PAT", help="Only these nodes: ranks, names, gpu[01-04], globs."
    ),
    click.option("--exclude", metavar="PAT", help="Leave these nodes out."),
)


big_option = click.option("--big", is_flag=True, help="Send code of more than 500 MB or 50 000 files too.")


def takes_nodes(function: Command) -> Command:
    """Add `--nodes` and `--exclude`."""
    for option in reversed(node_options):
        function = option(function)
    return function


_WAYS = (
    click.option("--user", metavar="USER", help="As whom to log in."),
    click.option(
        "--port", metavar="PORT", type=click.IntRange(1, 65535), help="The port of the SSH servers."
    ),
    click.option("--key", metavar="FILE", help="The private key."),
    click.option("--jump", metavar="HOST", help="The bastion before the hosts, or a chain of them."),
    click.option("--ssh-config", "config", metavar="FILE", help="Read this in place of ~/.ssh/config."),
    click.option("--python", metavar="PATH", help="The Python there that has torch; default: python3."),
)


def takes_ways(function: Command) -> Command:
    """Add the options that say how to reach machines of which no inventory tells."""
    for option in reversed(_WAYS):
        function = option(function)
    return function
