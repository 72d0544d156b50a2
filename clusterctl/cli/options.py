"""Options and arguments that verbs share, their completion, and the question before something is stopped.

Completion uses only files of this machine: it must not wait for a node, and prints nothing but values.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf, isnan, nan
from typing import Any, Literal

import click
from click.shell_completion import CompletionItem, get_completion_class

from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import TYPED_KEY, SharedOption
from clusterctl.console.text import sanitize
from clusterctl.errors import UsageError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.specs.text import quote_word
from clusterctl.translation import to_translate, tr, use_language

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
    from clusterctl.cli.context.load import load_inventory
    from clusterctl.cli.context.settings import Settings
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


Command = Callable[..., Any]

_shared_option = functools.partial(click.option, cls=SharedOption)
_OPTIONS = (
    _shared_option("-i", "--inventory", metavar="FILE", help="The inventory file of the cluster."),
    _shared_option("--lab", metavar="NAME", help="Use this running lab instead of an inventory file."),
    _shared_option(
        "--hosts", "machines", metavar="HOSTS", help="Use these machines instead of a file: gpu01,user@gpu02."
    ),
    _shared_option("-v", "--verbose", is_flag=True, help="Print each phase of each node."),
    _shared_option("-q", "--quiet", is_flag=True, help="Print only results and errors."),
    _shared_option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        metavar="auto|always|never",
        help="Colour the output.",
    ),
)


def shared_options(function: Command) -> Command:
    """Add the shared options; the command receives `settings`, in which the later word wins."""

    @functools.wraps(function)
    def command(
        inventory: str | None,
        lab: str | None,
        machines: str | None,
        verbose: bool,
        quiet: bool,
        color: str | None,
        **rest: Any,
    ) -> Any:
        ctx = click.get_current_context()
        given = Settings(inventory, lab, verbose, quiet, color or "", machines)
        settings = _merge(ctx.obj or Settings(), given)
        ctx.obj = settings
        _apply_output_settings(settings)
        return function(settings=settings, **rest)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _merge(earlier: Settings, later: Settings) -> Settings:
    merged = Settings(
        inventory=earlier.inventory if later.inventory is None else later.inventory,
        lab=earlier.lab if later.lab is None else later.lab,
        verbose=later.verbose or earlier.verbose,
        quiet=later.quiet or earlier.quiet,
        color=later.color or earlier.color,
        hosts=earlier.hosts if later.hosts is None else later.hosts,
    )
    if len(merged.choices) > 1:
        (first, value), (second, other) = merged.choices[:2]
        raise UsageError("CC-USE-090", first=first, value=value, second=second, other=other)
    return merged


def _apply_output_settings(settings: Settings) -> None:
    """Use the chosen colour for everything that is printed from here on, errors included."""
    from clusterctl.console import terminal

    terminal.set_color(settings.color)
    terminal.set_verbosity(quiet=settings.quiet, verbose=settings.verbose)


class Number(click.ParamType):  # type: ignore[type-arg]  # not generic at run time in older versions of click
    """A number within limits, with the message for what is none: `{value!r} is not a number of lines`."""

    name = "number"

    def __init__(
        self, parse: Callable[[Any], float], message: str, least: float = 0, most: float = inf
    ) -> None:
        self._parse, self._message = parse, message
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse it; an error names the option and the limit."""
        try:
            number = self._parse(value)
        except ValueError:
            number = nan
        if isnan(number):
            self.fail(tr(self._message, value=value), param, ctx)
        facts = {
            "number": f"{number:.12g}",
            "limit": f"{self.least if number < self.least else self.most:.12g}",
        }
        if number < self.least:
            self.fail(tr("{number} is too small, the minimum is {limit}", **facts), param, ctx)
        if number > self.most:
            self.fail(tr("{number} is too large, the maximum is {limit}", **facts), param, ctx)
        return number


WholeNumber = functools.partial(Number, int)
Seconds = functools.partial(Number, float, to_translate("{value!r} is not a number of seconds"))
PORT_MESSAGE = to_translate("{value!r} is not a port")
PORT = WholeNumber(PORT_MESSAGE, 1, 65535)
RANK = WholeNumber(to_translate("{value!r} is not a rank"))


def json_option(help_text: str) -> Callable[[Command], Command]:
    """Add `--json`, which is for programs: whatever the language of the user, its texts are English."""

    def choose_english(ctx: click.Context, param: click.Parameter, value: bool) -> bool:  # noqa: ARG001 - click's signature
        if value:
            use_language("en")
        return value

    return click.option(
        "--json", "as_json", is_flag=True, is_eager=True, callback=choose_english, help=help_text
    )


node_options = (
    click.option(
        "--nodes",
        "pattern",
        metavar="PAT",
        shell_complete=complete_nodes,
        help="Only these nodes: node ranks, names, gpu[01-04], globs.",
    ),
    click.option("--exclude", metavar="PAT", shell_complete=complete_nodes, help="All but these nodes."),
)


run_argument = click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
set_option = click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Override a key of the job."
)
skip_option = click.option(
    "--skip",
    multiple=True,
    metavar="CODES",
    help="Do not run these checks: codes, families such as NET, globs.",
)
recheck_option = click.option(
    "--recheck", is_flag=True, help="Test network and GPU health again, also right after they have passed."
)
big_option = click.option("--big", is_flag=True, help="Allow code of more than 500 MB or 50 000 files.")


def with_node_options(function: Command) -> Command:
    """Add `--nodes` and `--exclude`."""
    for option in reversed(node_options):
        function = option(function)
    return function


_CONNECT_OPTIONS = (
    click.option("--user", metavar="USER", help="The user name on the hosts."),
    click.option(
        "--port",
        metavar="PORT",
        type=PORT,
        help="The port of the SSH servers.",
    ),
    click.option("--key", metavar="FILE", help="The private key."),
    click.option("--jump", metavar="HOST", help="The jump host, or a chain of them."),
    click.option("--ssh-config", "config", metavar="FILE", help="Read this file instead of ~/.ssh/config."),
    click.option(
        "--python", metavar="PATH", help="The Python on the hosts that has torch; default: python3."
    ),
)


def with_connect_options(function: Command) -> Command:
    """Add the options for connecting to machines that are in no inventory."""
    for option in reversed(_CONNECT_OPTIONS):
        function = option(function)
    return function


class _YesNo(click.ParamType):  # type: ignore[type-arg]  # as above
    """The answer to a question, in English or Chinese."""

    name = "yes or no"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """Parse it."""
        word = str(value).strip().lower()
        if word in ("y", "yes", "是", "true"):
            return True
        if word not in ("n", "no", "否", "false"):
            self.fail(tr("enter y or n"), param, ctx)
        return False


def is_confirmed(question: str, *, default: bool = False) -> bool:
    """Ask a question until it is answered with yes or no; an empty answer is `default`."""
    choices = "Y/n" if default else "y/N"
    return bool(
        prompt(
            question,
            default=default,
            type=_YesNo(),
            show_default=False,
            prompt_suffix=f" [{choices}]: ",
        )
    )


def prompt(question: str, **options: Any) -> Any:
    """Ask at the terminal, as click does with these options; a signal ends the wait for the answer.

    The end of a line that was typed right after Ctrl-C is no answer.
    """
    answer = INTERRUPTS.call(lambda: click.prompt(question, err=True, **options))
    INTERRUPTS.check()
    return answer


def confirm(lines: Sequence[str], question: str, what: Literal["run", "lab"], command: str) -> None:
    """Return if the user confirms, else raise UsageError; `command` does the same without a question."""
    if not sys.stdin.isatty():
        raise UsageError("CC-USE-091", what, evidence="\n".join(lines), command=command)
    for line in lines:
        click.echo(sanitize(line), err=True)
    if not is_confirmed(question):
        raise UsageError("CC-USE-091", command=command)


def refuse_surplus(words: Sequence[str], verb: str) -> None:
    """Refuse arguments of a script without `--` before them: they may be misspelled options, or files."""
    before, behind = _split_at_dashes(_typed())
    surplus = list(words[: len(words) - len(behind)])
    if not surplus:
        return
    kept = list(before)
    for word in reversed(surplus):
        del kept[len(kept) - 1 - kept[::-1].index(word)]
    raise UsageError(
        "CC-USE-092",
        "" if len(surplus) > 1 else "one",
        words=shlex.join(surplus),
        command=f"{_command()} {verb} {shlex.join([*kept, '--', *surplus, *behind])}",
    )


def split_job_file(job_file: str | None, words: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """Part the job file from the arguments of the script: where none is named click takes the first of these for it."""
    behind = _split_at_dashes(_typed())[1]
    named = [] if job_file is None else [job_file]
    if behind and len(named) + len(words) == len(behind):
        return None, (*named, *words)
    return job_file, tuple(words)


def refuse_mixed(command: Sequence[str], verb: str) -> None:
    """Refuse options after the first word of a command without `--`: they may be meant for the command."""
    typed = list(_typed())
    if "--" in typed or not command or typed[-len(command) :] == list(command):
        return
    start = typed.index(command[0])
    corrected = f"{verb} {shlex.join([*typed[:start], '--', *typed[start:]])}"
    command_shown = f"{_command()} {corrected}"
    raise UsageError("CC-USE-092", "options", words=shlex.join(typed[start:]), command=command_shown)


def _typed() -> tuple[str, ...]:
    words: tuple[str, ...] = click.get_current_context().meta[TYPED_KEY]
    return words


def _command() -> str:
    """Return what stood before the verb."""
    parent = click.get_current_context().parent
    settings = parent.find_object(Settings) if parent is not None else None
    return (settings or Settings()).command


def _split_at_dashes(typed: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Part the words at the first `--`."""
    if "--" not in typed:
        return typed, ()
    index = typed.index("--")
    return typed[:index], typed[index + 1 :]
