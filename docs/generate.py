"""Rewrite the parts of the manual that the code knows better: keys, options, checks, in both languages.

`python docs/generate.py` rewrites them, `python docs/generate.py --check` only names the pages that are stale.
A generated part stands between `<!-- generated: KIND NAME -->` and `<!-- end of generated -->`.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

sys.path.insert(0, str(Path(__file__).parent))

import catalogue
import chinese
import english_parts
import faults
import imports
import llms
import manpage
import messages
import plots
import troubles
from examples import FILE, written
from troubles import plain

from clusterctl.cli.help import VERBS, VerbCommand
from clusterctl.cli.main import root
from clusterctl.cli.options import Seconds, WholeNumber
from clusterctl.codes.lookup import entries, family_of
from clusterctl.plans.checks.registry import all_checks
from clusterctl.plans.explain import GRADES, SEVERITIES, join_sentences
from clusterctl.plans.launch.launchers import VENDOR_NIC_RULES, network_env
from clusterctl.plans.runs.verdict import render_command
from clusterctl.protocol.known_errors import all_symptoms
from clusterctl.specs.fields import OneOrMore, ScalarType, ShortForm
from clusterctl.specs.inventory.schema import (
    InventoryFile,
    LoginEntry,
    NodeEntry,
    NodeSettings,
    SlurmEntry,
    SshEntry,
    WaiveEntry,
)
from clusterctl.specs.job.hooks import HookEntry, NotifyEntry, OnEndEntry, SetupEntry
from clusterctl.specs.job.schema import JobFile, RestartEntry, StallEntry, SyncEntry
from clusterctl.specs.placeholders import MEANINGS
from clusterctl.specs.values import Size, parse_size
from clusterctl.translation import Language, language, tr, use_language

ROOT = Path(__file__).parents[1]
PAGES, CHINESE = ROOT / "docs" / "en", ROOT / "docs" / "zh"
PART = re.compile(r"(<!-- generated: (\S+)(?: ([^\n]*?))? -->\n).*?(<!-- end of generated -->\n)", re.DOTALL)
TABLES: Mapping[str, type[BaseModel]] = {
    "inventory": InventoryFile,
    "node": NodeEntry,
    "ssh": SshEntry,
    "slurm": SlurmEntry,
    "login": LoginEntry,
    "job": JobFile,
    "sync": SyncEntry,
    "setup": SetupEntry,
    "hook": HookEntry,
    "restart": RestartEntry,
    "stall": StallEntry,
    "on_end": OnEndEntry,
    "notify": NotifyEntry,
    "waive": WaiveEntry,
}
SHARED = ("--inventory", "--lab", "--hosts", "--verbose", "--quiet", "--color")


def table(headings: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Write a Markdown table."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


# ---- the keys of both files ----


def keys(name: str) -> str:
    """Write the keys of one table of the inventory or job file."""
    model = TABLES[name]
    rows = (
        (f"`{key}`", kind_of(info), default_of(model, key), str(info.description))
        for key, info in model.model_fields.items()
    )
    return table(("key", "value", "default", "meaning"), rows)


def kind_of(info: FieldInfo) -> str:
    """Say what kind of value a key takes."""
    annotation: Any = info.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        is_short = any(isinstance(note, ShortForm) for note in info.metadata)
        return "a time, off, or keys, see below" if is_short else "keys, see below"
    if any(isinstance(note, OneOrMore) for note in info.metadata):
        return f"{noun_in(annotation)}, or a list of them, or null"
    leaf = next((note for note in info.metadata if isinstance(note, ScalarType)), None)
    if leaf is not None:
        return leaf.noun + (", or null" if leaf.nullable else "")
    if getattr(annotation, "__origin__", None) is dict:
        return "variables and their values"
    inner = get_args(annotation)[0]
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        kind = "a list of nodes" if inner is NodeEntry else "a list of keys"
        return "keys, see below, or null" if type(None) in get_args(annotation) else f"{kind}, see below"
    return f"a list; each item {noun_in(annotation)}"


def noun_in(annotation: Any) -> str:
    """Find the noun of the innermost kind of value."""
    for note in getattr(annotation, "__metadata__", ()):
        if isinstance(note, ScalarType):
            return note.noun
    return next((noun for inner in get_args(annotation) if (noun := noun_in(inner))), "")


def default_of(model: type[BaseModel], key: str) -> str:
    """Write the default of a key."""
    if model is NodeEntry and key in NodeSettings.model_fields:
        return "as at the top level"
    info = model.model_fields[key]
    if info.is_required():
        return "required"
    default: Any = info.get_default(call_default_factory=True)
    default = default.after if isinstance(default, StallEntry) else default
    if default is None or isinstance(default, BaseModel) or default in ((), {}):
        return "none"
    if any(isinstance(note, ScalarType) and note.parse is parse_size for note in info.metadata):
        return f"`{Size(default)}`"
    if isinstance(default, bool):
        return "`true`" if default else "`false`"
    return f"`{default:g}s`" if isinstance(default, float) else f"`{default}`"


def placeholders(_: str) -> str:
    """Write the placeholders of args and env."""
    return table(("placeholder", "value"), ((f"`${{{name}}}`", text) for name, text in MEANINGS.items()))


def variables(nics: str) -> str:
    """Write the network variables for some NICs, by vendor."""
    names = nics.split(",")
    rows = (
        (vendor, "<br>".join(f"`{key}={value}`" for key, value in network_env(vendor, names).items()))
        for vendor in VENDOR_NIC_RULES
    )
    return table(("accelerators", f"variables for `nic: [{', '.join(names)}]`"), rows)


# ---- the command line: its texts are in the catalogue of messages, the words around them in docs/zh/words.yaml ----

WIDTH = 118
UNBROKEN: Mapping[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
AROUND = (
    "verb",
    "what it does",
    "option",
    "meaning",
    "Default: `{}`.",
    "{} or more.",
    "**{}** ({}).",
    "See {}.",
)


def verbs(columns: str) -> str:
    """Write the list of verbs; `json`: with their own verbs, and which of them write JSON."""
    if columns != "json":
        return table(("verb", "what it does"), ((f"`{name}`", tr(line)) for name, (_, line) in VERBS.items()))
    rows = (
        (f"`{path}`", "`--json`" if any("--json" in one.opts for one in command.params) else "", tr(line))
        for path, command, line in leaves()
    )
    return table(("verb", "", "what it does"), rows)


def leaves() -> Iterator[tuple[str, click.Command, str]]:
    """Give each verb that does something, those below `lab` and the like too, with its line."""
    for name, (_, line) in VERBS.items():
        command = find_command([name])
        below = command.commands if isinstance(command, click.Group) else {}
        yield from ((f"{name} {word}", one, one.get_short_help_str(200)) for word, one in below.items())
        if not below:
            yield name, command, line


def shared(_: str) -> str:
    """Write the options that all verbs share."""
    return options(option for option in root.params if option.name in SHARED_NAMES)


SHARED_NAMES = frozenset(name.lstrip("-") for name in SHARED)


def verb(path: str) -> str:
    """Write one verb: how it is called, what it says of itself, its own options."""
    command = find_command(path.split())
    ctx = click.Context(command, info_name=f"clusterctl {path}")
    usage = " ".join(["clusterctl", path, *command.collect_usage_pieces(ctx)])
    own = [option for option in command.params if isinstance(option, click.Option) and not is_shared(option)]
    paragraphs = (" ".join(one.split()) for one in re.split(r"\n\s*\n", (command.help or "").strip()))
    text = "\n\n".join(textwrap.fill(tr(one), WIDTH, **UNBROKEN) for one in paragraphs)
    parts = [f"```\n{usage}\n```\n", text + "\n"]
    return "\n".join([*parts, *([options(iter(own))] if own else []), *examples(command)])


def examples(command: click.Command) -> Iterator[str]:
    """Write the examples of `--help`, each with what it is for."""
    found = command.examples if isinstance(command, VerbCommand) else ()
    if found:
        width = max(len(text) for text, _ in found)
        lines = (f"{text:<{width}}  # {tr(comment)}" if comment else text for text, comment in found)
        yield "```bash\n" + "\n".join(lines) + "\n```\n"


def find_command(words: list[str]) -> click.Command:
    """Find a command by the words that lead to it."""
    command: click.Command = root
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None, words
        command = found
    return command


def is_shared(option: click.Option) -> bool:
    """Tell whether an option is one that all verbs share."""
    return option.name in SHARED_NAMES


def options(params: Iterator[click.Parameter]) -> str:
    """Write options as a table."""
    return table(("option", "meaning"), (row(param) for param in params if isinstance(param, click.Option)))


def row(option: click.Option) -> tuple[str, str]:
    """Write one option with what it takes, its default and its limits."""
    value = "" if option.is_flag else f" `{value_of(option)}`"
    notes = []
    if option.show_default and option.default is not None:
        notes.append(around("Default: `{}`.").format(option.default))
    if isinstance(option.type, (WholeNumber, Seconds)):
        notes.append(around("{} or more.").format(f"{option.type.least:g}"))
    meaning = (" " if language() == "en" else "").join([tr(option.help or ""), *notes])
    return ", ".join(f"`{name}`" for name in option.opts) + value, meaning


def around(text: str) -> str:
    """Give one of `AROUND` in the language of the page."""
    return text if language() == "en" else chinese.words()[text]


def value_of(option: click.Option) -> str:
    """Write what an option takes."""
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return option.metavar or "N"


# ---- the checks ----


def findings(family: str) -> str:
    """Write the checks of one family, and the errors that come at one step."""
    return "\n".join(section(code) for code in family_codes(family) if has_section(code))


def section(code: str) -> str:
    """Write a section about one code."""
    entry = entries()[code]
    kind = tr(SEVERITIES[entry.severity])
    if entry.when.en:
        kind = tr("{severity}, {when}", severity=kind, when=entry.when.here)
    head = around("**{}** ({}).").format(plain(entry.title.here), kind)
    text = join_texts(head, plain(entry.why.here))
    return f"### {code}\n\n{text}\n\n{plain(entry.what.here)}\n"


def join_texts(*texts: str) -> str:
    """Put sentences in one line; Chinese needs no space between them."""
    return (" " if language() == "en" else "").join(filter(None, texts))


def has_section(code: str) -> bool:
    """Tell the codes that are explained in a section from those in a row of a table."""
    return code in all_checks() or bool(entries()[code].when.en) or family_of(code) == "JOB"


def family_codes(family: str) -> list[str]:
    """Give the codes of a family in their order."""
    return sorted(code for code in entries() if family_of(code) == family)


def errors(family: str) -> str:
    """Write the other errors of one family as a table."""
    rows = (
        (
            f"`{code}`",
            plain(
                reduce(join_sentences, filter(None, (entries()[code].title.here, entries()[code].what.here)))
            ),
        )
        for code in family_codes(family)
        if not has_section(code)
    )
    return table(("code", "meaning"), rows)


def symptoms(_: str) -> str:
    """Write the texts of ranks that are known, with the command that is shown for them."""
    grades = {known.code: known.grade for known in all_symptoms()}
    return "\n".join(symptom(code, tr(GRADES[grades[code]])) for code in family_codes("JOB"))


def symptom(code: str, grade: str) -> str:
    """Write what is shown of one known text."""
    entry, command = entries()[code], render_command(code, troubles.NAMED)
    head = around("**{}** ({}).").format(plain(entry.title.here), grade)
    link = f"[{entry.related}](#{entry.related.lower()})"
    related = around("See {}.").format(link) if entry.related else ""
    text = f"### {code}\n\n{join_texts(head, plain(entry.do.here), related)}\n"
    return f"{text}\n`{command}`\n" if command else text


def failing(part: str) -> str:
    """Write one part of the catalogue of what goes wrong; without a part, how much of it is covered."""
    if not part:
        return catalogue.share() + "\n"
    return table(tuple(one.here for one in catalogue.HEADINGS), catalogue.cells(part))


def told(_: str) -> str:
    """Write what one sees, its code and what to do, family by family."""
    known = chinese.words() if language() == "zh" else {}
    headings = tuple(known.get(one, one) for one in ("you see", "code", "do"))
    return "\n".join(
        f"### {title}\n\n{table(headings, troubles.rows(family, title))}"
        for family, title in troubles.families()
    )


# ---- faults ----


def fault_table(name: str) -> str:
    """Write what the tests strike, or what the bench has measured."""
    if name == "struck":
        headings = ("what breaks", "how it is made", "within", "the screen shows", "exit code", "")
        return table(headings, faults.struck())
    return f"{table(faults.measured_headings(), faults.measured())}\n{faults.machine()}\n"


# ---- pages ----

KINDS: Mapping[str, Callable[[str], str]] = {
    "keys": keys,
    "placeholders": placeholders,
    "variables": variables,
    "verbs": verbs,
    "shared": shared,
    "verb": verb,
    "findings": findings,
    "errors": errors,
    "symptoms": symptoms,
    "faults": fault_table,
    "catalogue": failing,
    "troubles": told,
    "layers": imports.layers,
    "tree": imports.tree,
    "inside": imports.inside,
    "messages": messages.messages,
}
LITERAL = ("layers", "tree", "inside", "messages")  # code, and not words: the same in every language
FROM_HELP = ("verbs", "shared", "verb")  # texts of the command line, in Chinese by the catalogue of messages
FROM_CODES = ("findings", "errors", "symptoms", "troubles", "catalogue")  # texts in both languages


def render(page: str, chosen: Language) -> str:
    """Fill every generated part of a page in its language."""
    use_language(chosen)

    def part(found: re.Match[str]) -> str:
        text = fill(found[2], found[3] or "")
        return f"{found[1]}\n{text if found[2] in LITERAL or chosen == 'en' else chinese.translate(text)}\n\n{found[4]}"

    return PART.sub(part, page)


def fill(kind: str, name: str) -> str:
    """Write one generated part."""
    return KINDS[kind](name).rstrip()


def generated() -> Iterator[tuple[Path, str]]:
    """Give every file of which a part is generated, as it should be."""
    yield from rendered([*PAGES.glob("*.md"), ROOT / "SKILL.md"], "en").items()
    yield llms.FILE, llms.index()
    yield FILE, written(catalogue.happens())
    yield from plots.drawn()
    yield from manpage.written()
    yield from chinese_pages()
    use_language("en")


def chinese_pages() -> Iterator[tuple[Path, str]]:
    """Give the Chinese pages, with what they take from others."""
    fronts = [ROOT / "README.zh-CN.md", *(ROOT / "playbooks").rglob("README.zh-CN.md")]
    english = {path: path.with_name("README.md") for path in fronts}
    english |= {path: PAGES / path.name for path in CHINESE.glob("*.md")}
    pages = rendered(english, "zh")
    by_name = {path.name: text for path, text in pages.items() if path.parent == CHINESE}
    for path, text in pages.items():
        whole = english_parts.with_english_blocks(text, english[path].read_text(encoding="utf-8"))
        yield path, english_parts.to_chinese_pages(whole, path, by_name)


def rendered(paths: Iterable[Path], chosen: Language) -> dict[Path, str]:
    """Render some pages in one language."""
    return {path: render(path.read_text(encoding="utf-8"), chosen) for path in sorted(paths)}


def main(arguments: list[str]) -> int:
    """Rewrite the pages, or with `--check` name the stale ones; returns the exit code."""
    stale = []
    for path, fresh in generated():
        if not path.exists() or path.read_text(encoding="utf-8") != fresh:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in arguments:
                path.write_text(fresh, encoding="utf-8")
    if "--check" not in arguments or not stale:
        return 0
    sys.stderr.write(f"stale: {', '.join(stale)}; run python docs/generate.py\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
