"""What `--help` shows: verbs by group, a verb's own options, examples; and the verb that a wrong word stands for.

Not here: the options themselves (`options`) and the verbs (`commands/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

# Group -> verb -> (module under clusterctl.cli.commands, one line for --help). A module loads when its verb is called.
VERB_GROUPS = {
    "Get started": {
        "init": ("init", "Write an inventory and a job file for your machines."),
        "lab": ("lab", "Start a practice cluster on this machine."),
        "keys": ("keys", "Install your public key on every node."),
        "inventory": ("inventory", "Show an inventory, import one, or discover machines."),
    },
    "Run": {
        "check": ("check", "Check that all nodes are ready for a job."),
        "launch": ("launch", "Send the code and start torchrun on every node."),
        "sync": ("launch", "Send a job's code to the nodes without starting it."),
        "stop": ("stop", "Stop a run on every node."),
    },
    "Watch": {
        "ps": ("status", "List the runs on the nodes."),
        "status": ("status", "Show one run: its nodes and its ranks."),
        "logs": ("logs", "Show the output of the ranks."),
        "attach": ("attach", "Follow a run until it ends."),
        "top": ("top", "Show how busy the nodes are: GPUs, CPUs, memory, network."),
    },
    "Results": {
        "pull": ("pull", "Download a run's outputs."),
        "clean": ("clean", "Remove old runs and unused files from the nodes."),
    },
    "Tools": {
        "exec": ("exec", "Run a command on every node; equal output is shown once."),
        "explain": ("explain", "Explain an error code and how to fix it."),
        "completion": ("completion", "Print the completion script for your shell."),
    },
}
VERBS = {verb: entry for group in VERB_GROUPS.values() for verb, entry in group.items()}

# What users of other tools type, by the verb that has it (after `clusterctl`, or after `clusterctl lab`).
OTHER_WORDS = {
    "init": ("config", "create", "new", "setup"),
    "lab up": ("up",),
    "lab down": ("down",),
    "check": ("doctor", "ping", "test", "validate", "verify"),
    "launch": ("run", "start", "submit", "train"),
    "sync": ("push", "upload"),
    "stop": ("abort", "cancel", "end", "kill"),
    "ps": ("history", "jobs", "list", "ls", "queue", "runs", "squeue"),
    "status": ("describe", "info", "show"),
    "logs": ("log", "tail"),
    "attach": ("follow", "wait", "watch"),
    "top": ("gpus", "htop", "monitor", "nvidia-smi"),
    "pull": ("cp", "download", "fetch", "get", "scp"),
    "clean": ("delete", "gc", "prune", "rm"),
    "exec": ("foreach", "sh", "shell"),
    "explain": ("error",),
    "--help": ("help", "man"),
    "--version": ("version",),
}
LAB_WORDS = {
    "status": ("list", "ls", "ps", "show"),
    "up": ("create", "new", "start"),
    "down": ("delete", "end", "kill", "rm", "stop"),
    "ssh": ("exec", "login", "shell"),
}
SSH_HINT = (
    "a node of the lab: `clusterctl lab ssh NODE`; a command: `clusterctl exec --nodes NODE -- COMMAND`"
)
COMMAND_WIDTH = 46  # of the examples: what is longer has its comment on the next line


class SharedOption(click.Option):
    """An option that every verb takes; only `clusterctl --help` describes it."""


class VerbCommand(click.Command):
    """A verb whose help has its own options, examples as (command, comment), and one line for the shared options."""

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verb's own options, the examples, and the names of the shared options."""
        write_own_options(self, ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                formatter.write_dl(self.examples, col_max=COMMAND_WIDTH)
        write_shared_options(self, ctx, formatter)


class RawArgumentsCommand(VerbCommand):
    """A verb that remembers its words as they were typed; click takes the `--` away."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words, then do as every command does."""
        ctx.meta[TYPED_KEY] = tuple(args)
        return super().parse_args(ctx, args)


TYPED_KEY = "clusterctl.words"


class VerbGroup(click.Group):
    """A verb that has verbs of its own, such as `lab`; an unknown one leads to the nearest, or to all of them."""

    command_class = VerbCommand

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs below and the names of the shared options."""
        write_own_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)
        write_shared_options(self, ctx, formatter)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name the verbs in the order in which they are written."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the verbs that there are when one is unknown; completion has nothing to complete then."""
        if args and args[0] not in self.commands and not ctx.resilient_parsing:
            other_words = LAB_WORDS if ctx.info_name == "lab" else {}
            message = f"{ctx.info_name} has no verb {args[0]!r}"
            raise click.UsageError(message + suggest_verb(args[0], self.commands, other_words), ctx=ctx)
        return super().resolve_command(ctx, args)


def write_own_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the options that only this command has."""
    own = [
        param
        for param in command.get_params(ctx)
        if isinstance(param, click.Option)
        and not isinstance(param, SharedOption)
        and "--help" not in param.opts
    ]
    records = [record for param in own if (record := param.get_help_record(ctx)) is not None]
    if records:
        with formatter.section("Options"):
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
            formatter.write_text(f"Every verb takes {', '.join(names)}, -h; see `clusterctl --help`.")


def suggest_verb(word: str, verbs: Iterable[str], other_words: dict[str, tuple[str, ...]]) -> str:
    """Render the verb that is meant, or all of them, as the end of a message."""
    from difflib import get_close_matches

    known = list(verbs)
    meant = next((verb for verb, words in other_words.items() if word in words), None)
    if word == "ssh" and word not in known:
        return f"; {SSH_HINT}"
    if meant is None:
        meant = next(iter(get_close_matches(word, known, n=1)), None)
    return f"; did you mean {meant!r}?" if meant else f"; there are: {', '.join(known)}"
