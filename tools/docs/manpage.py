"""The man page: from the verbs, their options and examples, and from tables of the manual."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from clusterctl import __version__
from clusterctl.cli.help import VERB_GROUPS, VerbCommand, own_options
from clusterctl.cli.main import root

DOCS = Path(__file__).parents[2] / "docs"
FOLDER, PAGES = DOCS / "man", DOCS / "en"
TABLES = {  # heading of the man page: page of the manual, and the heading there
    "EXIT STATUS": ("command-line.md", "Exit codes"),
    "ENVIRONMENT": ("command-line.md", "Environment variables"),
    "FILES": ("reference/verbs.md", "Files on your machine"),
}


def written() -> Iterator[tuple[Path, str]]:
    """Give the man page, and the one of the second name, which includes it."""
    yield FOLDER / "clusterctl.1", "\n".join(lines()) + "\n"
    yield FOLDER / "cctl.1", ".so man1/clusterctl.1\n"


def lines() -> Iterator[str]:
    """Write the man page in roff."""
    summary, *more = paragraphs(root.help or "")
    yield f'.TH CLUSTERCTL 1 "" "clusterctl {__version__}" "User Commands"'
    yield from (".SH NAME", f"clusterctl \\- {escape(summary[0].lower() + summary[1:].rstrip('.'))}")
    yield from (".SH SYNOPSIS", ".B clusterctl", "[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGS\\fR]...")
    yield from (".SH DESCRIPTION", inline(summary))
    for paragraph in more:
        yield from (".PP", inline(paragraph))
    yield ".SH OPTIONS"
    context = click.Context(root, info_name="clusterctl", **root.context_settings)
    for option in root.get_params(context):
        yield from entry(option, context)
    for title, verbs in VERB_GROUPS.items():
        yield f'.SH "COMMANDS: {title.upper()}"'
        for name in verbs:
            command = root.get_command(context, name)
            assert command is not None
            yield from verb(command, click.Context(command, context, info_name=name))
    for heading, (page, on_page) in TABLES.items():
        yield from (f'.SH "{heading}"', *table(page, on_page))
    yield from (
        ".SH SEE ALSO",
        ".BR ssh (1),",
        ".BR ssh_config (5)",
        ".PP",
        inline("`clusterctl VERB --help`, `clusterctl explain CODE`"),
    )


def verb(command: click.Command, context: click.Context) -> Iterator[str]:
    """Write one verb with its options and examples; of a group, each of its verbs."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from verb(found, click.Context(found, context, info_name=name))
        return
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f'.SS "{escape(usage)}"'
    for number, paragraph in enumerate(paragraphs(command.help or "")):
        yield from (*([".PP"] if number else []), inline(paragraph))
    for option in own_options(command, context):
        yield from entry(option, context)
    examples = command.examples if isinstance(command, VerbCommand) else ()
    if examples:
        width = max(len(text) for text, _ in examples)
        yield from (".PP", "Examples:", ".PP", ".EX")
        for text, comment in examples:
            bare = comment.replace("`", "")  # nothing is bold within an example
            yield escape(f"    {text:<{width}}  # {bare}" if bare else f"    {text}")
        yield ".EE"


def entry(option: click.Parameter, context: click.Context) -> Iterator[str]:
    """Write one option: names bold, what it takes in italics."""
    record = option.get_help_record(context)
    if record is not None:
        term = re.sub(r"-{1,2}[\w-]+|[\w|\[\]+.,=]+(?<!,)", _emphasize, record[0])
        yield from (".TP", term, inline(record[1]))


def _emphasize(found: re.Match[str]) -> str:
    return f"\\f{'B' if found[0].startswith('-') else 'I'}{escape(found[0])}\\fR"


def table(page: str, heading: str) -> Iterator[str]:
    """Write the first table below a heading of a page as a list."""
    section = (PAGES / page).read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ", 1) for line in section.splitlines() if line.startswith("|")]
    for term, text in rows[2:]:
        yield from (".TP", inline(term.strip()), inline(text.strip()))


def paragraphs(docstring: str) -> list[str]:
    """Split a docstring into paragraphs of one line."""
    return [" ".join(paragraph.split()) for paragraph in inspect.cleandoc(docstring).split("\n\n")]


def inline(text: str) -> str:
    """Write a text in roff: what Markdown has in backticks is bold, a link is only its words."""
    without_links = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)
    parts = re.split(r"`([^`]+)`", without_links)
    return "".join(
        f"\\fB{escape(part)}\\fR" if place % 2 else escape(part) for place, part in enumerate(parts)
    )


def escape(text: str) -> str:
    """Keep roff from reading a text as commands; hyphens stay what a shell reads."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
