"""What `--help` shows: verbs by group, a verb's own options, examples; and the verb that a wrong word stands for.

Not here: the options themselves (`options`) and the verbs (`commands/`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from clusterctl.console.text import display_width, wrap_text
from clusterctl.translation import to_translate, tr

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Group -> verb -> (module under clusterctl.cli.commands, one line for --help). A module loads when its verb is called.
VERB_GROUPS = {
    to_translate("Everyday"): {
        "init": (
            "inventory",
            to_translate("From machines to the first training: log in, write the files, check, launch."),
        ),
        "check": ("launch", to_translate("Check that all nodes are ready for a job.")),
        "launch": ("launch", to_translate("Send the code and start torchrun on every node.")),
        "logs": ("runs", to_translate("Show the output of the ranks.")),
        "status": ("runs", to_translate("Show one run: its nodes and its ranks.")),
        "ps": ("runs", to_translate("List the runs on the nodes.")),
        "stop": ("runs", to_translate("Stop a run on every node.")),
        "pull": ("runs", to_translate("Download a run's outputs.")),
        "top": ("nodes", to_translate("Show how busy the nodes are: GPUs, CPUs, memory, network.")),
        "diagnose": (
            "runs",
            to_translate("Find out why a run hangs: which rank, which collective, which line."),
        ),
        "report": ("runs", to_translate("Write one HTML file about a run, or about two side by side.")),
        "ui": ("nodes", to_translate("Show runs, logs and plots on a page in the browser of this machine.")),
        "lab": ("lab", to_translate("Start a practice cluster on this machine.")),
    },
    to_translate("More"): {
        "attach": ("runs", to_translate("Follow a run until it ends.")),
        "cp": ("nodes", to_translate("Copy files between this machine and nodes, or between nodes.")),
        "clean": (
            "nodes",
            to_translate("Remove old runs, unused files and leftover processes from the nodes."),
        ),
        "exec": ("nodes", to_translate("Run a command on every node; equal output is shown once.")),
        "ssh": ("nodes", to_translate("Open a shell on a node, also with a run's environment.")),
        "forward": ("nodes", to_translate("Connect a port here to a port of a run's node.")),
        "debug": ("nodes", to_translate("Type in pdb of a rank that waits at breakpoint().")),
        "sync": ("launch", to_translate("Send a job's code to the nodes without starting it.")),
        "stage": ("launch", to_translate("Copy the models and data that a job names to its nodes.")),
        "export": ("launch", to_translate("Write a script that runs this job without clusterctl.")),
        "inventory": ("inventory", to_translate("Show an inventory with all defaults filled in.")),
        "explain": ("explain", to_translate("Explain an error code, a key, or words of a message.")),
        "help": ("explain", to_translate("Show the help of a verb, or the JSON that it writes.")),
        "completion": ("explain", to_translate("Print the completion script for your shell.")),
    },
}
VERBS = {verb: entry for group in VERB_GROUPS.values() for verb, entry in group.items()}
FORMER_VERBS = {"keys": ("inventory", "")}  # still work, for scripts; no help lists them
CALLABLE_VERBS = {**VERBS, **FORMER_VERBS}

# What users of other tools type, by the verb that has it (after `clusterctl`, or after `clusterctl lab`).
OTHER_WORDS = {
    "init": ("config", "create", "new", "setup"),
    "lab up": ("up",),
    "lab down": ("down",),
    "check": ("doctor", "ping", "test", "validate", "verify"),
    "launch": ("run", "start", "submit", "train"),
    "sync": ("push", "upload"),
    "stage": ("broadcast", "distribute", "mirror", "prefetch", "replicate"),
    "export": ("eject", "sbatch", "slurm"),
    "stop": ("abort", "cancel", "end", "kill"),
    "ps": ("history", "jobs", "list", "ls", "queue", "runs", "squeue"),
    "status": ("describe", "info", "show"),
    "logs": ("log", "tail"),
    "attach": ("follow", "wait", "watch"),
    "debug": ("breakpoint", "pdb"),
    "forward": ("port-forward", "tensorboard", "tunnel"),
    "ssh": ("login", "shell"),
    "diagnose": ("hang", "hung", "py-spy", "pystack", "stacks", "stuck"),
    "top": ("gpus", "htop", "monitor", "nvidia-smi"),
    "report": ("html", "plot", "wandb"),
    "ui": ("browser", "dashboard", "gui", "open", "page", "serve", "web"),
    "pull": ("download", "fetch", "get"),
    "cp": ("copy", "put", "rsync", "scp"),
    "clean": ("delete", "gc", "prune", "rm"),
    "exec": ("foreach", "sh"),
    "explain": ("error",),
    "help": ("man", "usage"),
    "--version": ("version",),
}
LAB_WORDS = {
    "status": ("list", "ls", "ps", "show"),
    "up": ("create", "new", "start"),
    "down": ("delete", "end", "kill", "rm", "stop"),
    "ssh": ("exec", "login", "shell"),
}
COMMAND_WIDTH = 46  # of the examples: what is longer has its comment on the next line


class SharedOption(click.Option):
    """An option that every verb takes; only `clusterctl --help` describes it."""


class TranslatedHelp(click.Command):
    """A command whose texts, constants in English, are translated where they are shown."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return one line for a list of commands; click cuts one that is too long in English."""
        if self.short_help or not self.help:
            return tr(self.short_help or "")
        first = _paragraphs(self.help)[0]
        translated = tr(first)
        return super().get_short_help_str(limit) if translated == first else translated

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete as click does, with the help texts that some shells show beside the values."""
        items = super().shell_complete(ctx, incomplete)
        for item in items:
            item.help = item.help and tr(item.help)
        return items

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write the docstring of the command."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("\n\n".join(map(tr, _paragraphs(self.help or ""))))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all options."""
        write_options(
            [param for param in self.get_params(ctx) if isinstance(param, click.Option)], ctx, formatter
        )


class VerbCommand(TranslatedHelp):
    """A verb whose help has its own options, examples as (command, comment), and one line for the shared options."""

    def __init__(
        self,
        *args: Any,
        examples: Sequence[tuple[str, str]] = (),
        former: Mapping[str, str] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        """`former`: option -> the one that has taken its place; it still works, for scripts, and no help shows it."""
        super().__init__(*args, **kwargs)
        self.examples, self._former = tuple(examples), former

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read former options as those of today; what stands behind `--` is not ours."""
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*map(self._rename, args[:end]), *args[end:]])

    def _rename(self, word: str) -> str:
        option, equals, value = word.partition("=")
        return f"{self._former.get(option, option)}{equals}{value}"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verb's own options, the examples, and the names of the shared options."""
        write_options(own_options(self, ctx), ctx, formatter)
        if self.examples:
            with formatter.section(tr("Examples")):
                formatter.write_dl(
                    [(command, comment and tr(comment)) for command, comment in self.examples],
                    col_max=COMMAND_WIDTH,
                )
        write_shared_options(self, ctx, formatter)


class RawArgumentsCommand(VerbCommand):
    """A verb that remembers its words as they were typed; click takes the `--` away."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words, then do as every command does."""
        ctx.meta[TYPED_KEY] = tuple(args)
        return super().parse_args(ctx, args)


TYPED_KEY = "clusterctl.words"


class VerbGroup(TranslatedHelp, click.Group):
    """A verb that has verbs of its own, such as `lab`; an unknown one leads to the nearest, or to all of them."""

    command_class = VerbCommand

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs below and the names of the shared options."""
        write_options(own_options(self, ctx), ctx, formatter)
        self.format_commands(ctx, formatter)
        write_shared_options(self, ctx, formatter)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name the verbs in the order in which they are written, without those that are kept for scripts."""
        return [name for name, command in self.commands.items() if not command.hidden]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the verbs that there are when one is unknown; completion has nothing to complete then."""
        if args and args[0] not in self.commands and not ctx.resilient_parsing:
            other_words = LAB_WORDS if ctx.info_name == "lab" else {}
            raise click.UsageError(
                describe_unknown_verb(args[0], self.list_commands(ctx), other_words, f"{ctx.info_name} "),
                ctx=ctx,
            )
        return super().resolve_command(ctx, args)


def own_options(command: click.Command, ctx: click.Context) -> list[click.Option]:
    """Return the options that only this command has."""
    return [
        param
        for param in command.get_params(ctx)
        if isinstance(param, click.Option)
        and not isinstance(param, SharedOption)
        and "--help" not in param.opts
    ]


def write_options(
    options: Iterable[click.Option], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write options with their help texts; click adds defaults to these in its own words."""
    records = []
    for option in options:
        if (record := option.get_help_record(ctx)) is not None:
            term, text = record
            english = option.help or ""
            records.append((term, tr(english) + text.removeprefix(english) if english else text))
    if records:
        with formatter.section(tr("Options")):
            formatter.write_dl(records)


def write_shared_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write one line for the options that every verb takes."""
    names = [
        " ".join(filter(None, (param.opts[0], param.metavar)))
        for param in command.get_params(ctx)
        if isinstance(param, SharedOption)
    ]
    if names:
        formatter.write_paragraph()
        with formatter.indentation():
            options = ", ".join([*names, "-h"])
            formatter.write_text(tr("Every verb takes {options}; see `clusterctl --help`.", options=options))


def _paragraphs(docstring: str) -> list[str]:
    """Split a docstring into its paragraphs, each on one line, as the catalogue has them."""
    return [" ".join(paragraph.split()) for paragraph in inspect.cleandoc(docstring).split("\n\n")]


def describe_unknown_verb(
    word: str, verbs: Iterable[str], other_words: dict[str, tuple[str, ...]], group: str = ""
) -> str:
    """Name the verb that is meant, or all of them; `group` stands before the verbs of a group."""
    from difflib import get_close_matches

    known, typed = list(verbs), group + word
    meant = next((verb for verb, words in other_words.items() if word in words), None)
    if meant is None:
        meant = next(iter(get_close_matches(word, known, n=1)), None)
    if meant is None:
        return tr("no verb {word!r}; available: {verbs}", word=typed, verbs=", ".join(known))
    return tr("no verb {word!r}; did you mean {meant!r}?", word=typed, meant=group + meant)


class WideFormatter(click.HelpFormatter):
    """Lays out what click does in Chinese: a character takes two columns, and lines break between any two of them."""

    def write_heading(self, heading: str) -> None:
        """Write a heading with a Chinese colon."""
        self.write(f"{'':>{self.current_indent}}{heading}：\n")  # noqa: RUF001 - the Chinese colon

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage with its arguments below each other."""
        start = f"{prefix or tr('Usage:')}{prog} "
        lines = _wrap(args, self.width - display_width(start)) if args else [""]
        self.write(f"{start}{lines[0]}".rstrip() + "\n")
        self._write_lines(lines[1:], display_width(start))

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        for number, paragraph in enumerate(text.split("\n\n")):
            if number:
                self.write("\n")
            self._write_lines(_wrap(paragraph, self.width - self.current_indent), self.current_indent)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of two columns; what is too wide for the first has its text on the next line."""
        rows = list(rows)
        first = min(max((display_width(term) for term, _ in rows), default=0), col_max) + col_spacing
        for term, text in rows:
            lines = _wrap(text, max(self.width - first - self.current_indent, 10)) if text else []
            gap = first - display_width(term)
            beside = lines.pop(0) if lines and gap >= col_spacing else ""
            self.write(f"{'':>{self.current_indent}}{term}{'':{max(gap, 0)}}{beside}".rstrip() + "\n")
            self._write_lines(lines, first + self.current_indent)

    def _write_lines(self, lines: Iterable[str], indent: int) -> None:
        for line in lines:
            self.write(f"{'':{indent}}{line}\n")


def _wrap(text: str, width: int) -> list[str]:
    return wrap_text(" ".join(text.split()), width) or [""]
