"""Shell completion: the script for each shell, and the values of runs, nodes and codes.

All values come from files of this machine: completion must not wait for a node, and prints nothing but values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress

import click
from click.shell_completion import CompletionItem, get_completion_class

from clusterctl.specs.text import quote_word

SHELLS = ("bash", "zsh", "fish")
COMPLETE_VARIABLE = "_CLUSTERCTL_COMPLETE"  # with a value the command completes: click's way
_FUNCTION = "_clusterctl_completion"  # click's name for it, from the program's
_FOR_SHORT_NAME = {
    "bash": f"complete -o nosort -F {_FUNCTION} cctl",
    "zsh": f"compdef {_FUNCTION} cctl",
    "fish": f'complete --no-files --command cctl --arguments "({_FUNCTION})"',
}


def completion_script(root: click.Command, shell: str) -> str:
    """Write the script that a shell evaluates, for both names of the program."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    completer = completion_class(root, {}, "clusterctl", COMPLETE_VARIABLE)
    script = completer.source_template % completer.source_vars()
    return f"{script.rstrip()}\n{_FOR_SHORT_NAME[shell]}\n"


Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def _completer(values: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Complete by a list of values; a list that cannot be read has no values."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
        found: list[str] = []
        with suppress(Exception):  # an error between two keys of the user would only spoil the line
            found = [value for value in values(ctx) if value.startswith(incomplete)]
        return [CompletionItem(value) for value in found]

    return complete


def _run_ids(_: click.Context) -> Iterable[str]:
    from clusterctl.cli.context.load import known_runs

    return known_runs()


def _node_names(ctx: click.Context) -> Iterable[str]:
    from clusterctl.cli.context.load import Settings, load_inventory
    from clusterctl.console import terminal

    terminal.set_verbosity(quiet=True, verbose=False)
    given = {**(ctx.parent.params if ctx.parent else {}), **{k: v for k, v in ctx.params.items() if v}}
    inventory, lab, hosts = map(given.get, ("inventory", "lab", "machines"))
    settings = Settings(inventory, lab, hosts=hosts)
    inventory = load_inventory(settings, on_slurm=True)
    return [node.name for node in inventory.nodes]


def _codes(_: click.Context) -> Iterable[str]:
    from clusterctl.codes.lookup import entries

    return sorted(entries())


def complete_job_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's
    """Complete folders and YAML files, inventories among them: only the content shows which is a job file."""
    folder, _, start = incomplete.rpartition("/")
    prefix = f"{folder}/" if "/" in incomplete else ""
    found: list[str] = []
    with suppress(OSError):
        for entry in sorted(os.scandir(prefix or "."), key=lambda entry: entry.name):
            if entry.name.startswith(start) and (start or not entry.name.startswith(".")):
                if entry.is_dir():
                    found.append(f"{prefix}{entry.name}/")
                elif entry.name.endswith((".yaml", ".yml")):
                    found.append(f"{prefix}{entry.name}")
    # what we print becomes part of the line as it is; the shell completes and quotes its own names
    if incomplete.startswith("~") or any(quote_word(value) != value for value in found):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(value) for value in found]


def complete_copy_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of nodes with a colon, else files of this machine."""
    if "/" in incomplete or incomplete.startswith((".", "~")):
        return [CompletionItem(incomplete, type="file")]
    nodes = complete_nodes(ctx, param, incomplete)
    found = [CompletionItem(f"{item.value}:") for item in nodes]
    return found or ([] if ":" in incomplete else [CompletionItem(incomplete, type="file")])


complete_run = _completer(_run_ids)
complete_nodes = _completer(_node_names)
complete_code = _completer(_codes)


def complete_to_stop(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete what `stop` takes: a run, with `--warm` a choice of nodes."""
    is_warm = ctx.params.get("warm")  # type: ignore[record-key]  # an option as click gives it
    return (complete_nodes if is_warm else complete_run)(ctx, param, incomplete)
