"""Keep the Chinese catalogue in step with the code: `python tools/messages.py update`; `check` changes nothing.

A message is a text of the table of codes, a known failure, the text of `tr`, `trn` or `to_translate`, a help text of
an option or verb, the comment of an example in `--help`, or a message of click. `update` collects them, keeps the
translations of those that stayed, and compiles the catalogue; what is not translated is for a text editor. click's
messages are those of the version that is installed at `update`, and of earlier ones: `check` leaves them as they are,
so that another version of click fails nothing.
git holds the catalogue as text only: builds, `./demo` and the tests `compile` it.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from clusterctl.codes.entry import Same  # noqa: E402 - the tree's own, not an installed one
from clusterctl.translation import CATALOGUES, placeholders  # noqa: E402 - the same

FOLDER = CATALOGUES / "zh_CN" / "LC_MESSAGES"
CATALOGUE, COMPILED = FOLDER / "clusterctl.po", FOLDER / "clusterctl.mo"
CALLS = {"tr": 1, "trn": 2, "to_translate": 1, "json_option": 1}  # how many of their arguments are messages
CALLS_OF_CLICK = {"_": 1, "ngettext": 2}
CODES = "clusterctl/codes/"
PAGES = "tools/docs/"  # what is written around texts of the code on generated pages
FAILURES = f"{PAGES}catalogue.yaml"
CLICK = "click/"  # how the places of its messages begin
FROM_CLICK = (  # not what only a programmer of a command line or of a shell's completion meets
    "core.py",
    "decorators.py",
    "exceptions.py",
    "formatting.py",
    "parser.py",
    "termui.py",
    "types.py",
)
PYTHON_ERRORS = ("TypeError", "ValueError", "RuntimeError")  # click's own errors are the user's
QUOTED, HAN = re.compile(r"`[^`]*`"), re.compile("[\u4e00-\u9fff]")
NO_DATE = datetime(2000, 1, 1, tzinfo=timezone.utc)
Message = str | tuple[str, str]


def collect() -> dict[Message, list[str]]:
    """Find every message with the files in which it stands."""
    found: dict[Message, list[str]] = {}
    for file in sorted([*(ROOT / "clusterctl").rglob("*.py"), *(ROOT / PAGES).glob("*.py")]):
        place = file.relative_to(ROOT).as_posix()
        tree = ast.parse(file.read_text("utf-8"))
        for message in (*_messages_of(tree, "/cli/" in place), *_messages_of_codes(place)):
            if place not in (places := found.setdefault(message, [])):
                places.append(place)
    for failure in _known_failures():
        found.setdefault(failure, []).append(FAILURES)
    return found


def _known_failures() -> Iterator[Message]:
    """Yield the failures that `explain` lists for a code."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - compiling needs no YAML

    for part in YAML(typ="safe").load((ROOT / FAILURES).read_text("utf-8")):
        yield from (row["fails"] for row in part["rows"])


def _messages_of_codes(place: str) -> Iterator[Message]:
    """Yield the texts that a module of the table of codes has; nothing of another module."""
    if not place.startswith(CODES):
        return
    module = importlib.import_module(place.removesuffix(".py").replace("/", "."))
    texts = [*getattr(module, "FAMILIES", {}).values()]
    texts += [text for entry in getattr(module, "ENTRIES", {}).values() for text in entry.prose()]
    yield from (text for text in texts if not isinstance(text, Same))


def collect_from_click() -> dict[Message, list[str]]:
    """Find the messages of the installed click."""
    import click  # noqa: PLC0415 - only where the catalogue is updated

    folder = Path(click.__file__).parent
    found: dict[Message, list[str]] = {}
    for name in FROM_CLICK:
        tree = ast.parse((folder / name).read_text("utf-8"))
        unseen = {inner for node in ast.walk(tree) if _is_for_programmers(node) for inner in ast.walk(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node not in unseen:
                for message in _arguments(node, CALLS_OF_CLICK):
                    found.setdefault(message, []).append(f"{CLICK}{name}")
    return found


def _is_for_programmers(node: ast.AST) -> bool:
    """Tell what click shows to no user: a mistake in the declaration of an option, and the form of a value."""
    if isinstance(node, ast.FunctionDef):
        return node.name == "__repr__"
    return (
        isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _name_of(node.exc) in PYTHON_ERRORS
    )


def _name_of(call: ast.Call) -> str:
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))


def _messages_of(tree: ast.Module, is_command_line: bool) -> Iterator[Message]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _messages_of_call(node, is_command_line)
        elif is_command_line and isinstance(node, ast.FunctionDef) and _is_verb(node):
            paragraphs = inspect.cleandoc(ast.get_docstring(node) or "").split("\n\n")
            yield from filter(None, (" ".join(paragraph.split()) for paragraph in paragraphs))


def _arguments(call: ast.Call, functions: Mapping[str, int]) -> Iterator[Message]:
    """Give the message of a call: of a function that takes two, both."""
    wanted = functions.get(_name_of(call), 0)
    texts = [text for argument in call.args[:wanted] if (text := _constant(argument))]
    if len(texts) == 2:
        yield texts[0], texts[1]
    else:
        yield from texts


def _messages_of_call(call: ast.Call, is_command_line: bool) -> Iterator[Message]:
    yield from _arguments(call, CALLS)
    for keyword in call.keywords if is_command_line else ():
        if keyword.arg in ("help", "short_help", "epilog") and (text := _constant(keyword.value)):
            yield text
        elif keyword.arg == "examples" and isinstance(keyword.value, (ast.List, ast.Tuple)):
            yield from (
                text
                for example in keyword.value.elts
                if isinstance(example, ast.Tuple) and (text := _constant(example.elts[-1]))
            )


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_verb(function: ast.FunctionDef) -> bool:
    """Tell a click command or group by its decorators."""
    calls = [one.func for one in function.decorator_list if isinstance(one, ast.Call)]
    return any(isinstance(one, ast.Attribute) and one.attr in ("command", "group") for one in calls)


def read_catalogue() -> Catalog:
    """Read the catalogue as it stands."""
    with CATALOGUE.open("rb") as file:
        return read_po(file, locale="zh_CN", ignore_obsolete=True)


def updated(from_click: Mapping[Message, list[str]] | None = None) -> Catalog:
    """Give the catalogue with exactly the messages of the code, those of click, and the translations that exist."""
    entries = [entry for entry in read_catalogue() if entry.id] if CATALOGUE.exists() else []
    old = {entry.id: entry.string for entry in entries}
    catalogue = Catalog(
        locale="zh_CN", project="clusterctl", header_comment="# Chinese messages of clusterctl.", fuzzy=False
    )
    messages = collect()
    known_of_click = {
        entry.id: [place for place, _ in entry.locations if place.startswith(CLICK)] for entry in entries
    }
    for message, places in {**known_of_click, **(from_click or {})}.items():
        if places:
            messages[message] = [*messages.get(message, []), *dict.fromkeys(places)]
    for message, places in messages.items():
        catalogue.add(message, old.get(message, ""), [(place, None) for place in places])
    return catalogue


def problems_of(catalogue: Catalog) -> Iterator[str]:
    """Name what keeps the catalogue from being complete: no translation, other placeholders or other commands."""
    for entry in catalogue:
        if not entry.id:
            continue
        ids = entry.id if isinstance(entry.id, tuple) else (entry.id,)
        strings = entry.string if isinstance(entry.string, tuple) else (entry.string,)
        place = entry.locations[0][0] if entry.locations else "?"
        if not all(strings):
            yield f"{place}: not translated: {ids[0]!r}"
        elif any(placeholders(text) != placeholders(ids[-1]) for text in strings):
            yield f"{place}: other placeholders: {ids[-1]!r}"
        elif any(not _have_same_commands(text, ids[-1]) for text in strings):
            yield f"{place}: other commands: {ids[-1]!r}"


def _have_same_commands(chinese: str, english: str) -> bool:
    """Return whether both quote the same; a command with a Chinese word for a value is left to the translator."""
    quoted = set(QUOTED.findall(chinese))
    return quoted == set(QUOTED.findall(english)) or any(HAN.search(text) for text in quoted)


def render(catalogue: Catalog) -> bytes:
    """Return the catalogue as text, without what changes with the day or a moved line."""
    text = io.BytesIO()
    write_po(text, catalogue, width=120, omit_header=False, sort_by_file=True, include_lineno=False)
    lines = text.getvalue().replace(b"clusterctl VERSION", b"clusterctl").splitlines(keepends=True)
    changing = (
        b'"POT-Creation-Date',
        b'"PO-Revision-Date',
        b'"Generated-By',
        b'"Last-Translator',
        b'"Language-Team',
        b'"Report-Msgid',
    )
    return b"".join(line for line in lines if not line.startswith(changing))


def is_compiled() -> bool:
    """Return whether the compiled catalogue is there and not older than the text."""
    return COMPILED.exists() and COMPILED.stat().st_mtime_ns >= CATALOGUE.stat().st_mtime_ns


def compile_catalogue() -> None:
    """Write the compiled catalogue, in one step, so that a reader never sees half of it."""
    catalogue = read_catalogue()
    catalogue.creation_date = catalogue.revision_date = NO_DATE
    partial = COMPILED.with_suffix(f".{os.getpid()}")
    with partial.open("wb") as file:
        write_mo(file, catalogue)
    partial.replace(COMPILED)


def main() -> int:
    """Update or check, and name what is not translated."""
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__ or ""))
    parser.add_argument("action", choices=["update", "compile", "check"])
    action = parser.parse_args().action
    if action == "compile":
        compile_catalogue()
        return 0
    catalogue = updated(collect_from_click() if action == "update" else None)
    text = render(catalogue)
    if action == "update":
        FOLDER.mkdir(parents=True, exist_ok=True)
        CATALOGUE.write_bytes(text)
        compile_catalogue()
    found = [*problems_of(catalogue)]
    if CATALOGUE.read_bytes() != text:
        found.append("the catalogue is not that of the code: run `python tools/messages.py update`")
    print(*found, f"{len(catalogue)} messages, {len(found)} problems", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
