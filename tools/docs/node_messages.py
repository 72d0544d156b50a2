"""The messages between client and nodes, from their definitions: for docs/inside/protocol.md."""

from __future__ import annotations

import ast
import textwrap
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "clusterctl" / "protocol" / "messages"
WIDTH = 118


def messages(name: str) -> str:
    """Write the messages of one module: what each is, its keys and their types; `?` is a key that may be missing."""
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    parts = [render(node) for node in ast.parse(text).body]
    return "```text\n" + "\n\n".join(filter(None, parts)) + "\n```"


def render(node: ast.stmt) -> str:
    """Write one definition; nothing of what is only a part of another."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return render_choice(node.targets[0].id, node.value)
    if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
        return ""
    what = " ".join((ast.get_docstring(node) or "").split())
    lines = textwrap.wrap(f"{node.name}: {what}", WIDTH, subsequent_indent="    ")
    return "\n".join([*lines, *(f"  {key}" for key in keys(node.name))])


def render_choice(name: str, value: ast.expr) -> str:
    """Write the words that a value may be, or the messages that it may be."""
    if not isinstance(value, ast.Subscript):
        return ""
    members = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
    words = [str(one.value) if isinstance(one, ast.Constant) else ast.unparse(one) for one in members]
    return "\n".join(textwrap.wrap(f"{name}: {' | '.join(words)}", WIDTH, subsequent_indent="    "))


@cache
def classes() -> dict[str, tuple[ast.ClassDef, list[str]]]:
    """Parse every definition of all modules, with the lines of its module."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
        found.update({node.name: (node, text.split("\n")) for node in nodes})
    return found


def keys(name: str) -> list[str]:
    """Write a definition's keys, those of what it extends first."""
    node, lines = classes()[name]
    bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in classes()]
    inherited = [key for base in bases for key in keys(base)]
    optional = any(word.arg == "total" for word in node.keywords)
    return inherited + [
        f"{one.target.id}{render_type(one.annotation, optional=optional)}{comment(lines, one)}"
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    ]


def render_type(annotation: ast.expr, *, optional: bool) -> str:
    """Write the type of a key behind its colon, with `?` for one that may be missing."""
    text = ast.unparse(annotation).strip("'")
    inner = text.removeprefix("NotRequired[")
    return f"?: {inner[:-1]}" if inner != text else f"{'?' if optional else ''}: {text}"


def comment(lines: list[str], node: ast.AnnAssign) -> str:
    """Return what stands behind a key."""
    _, mark, text = lines[(node.end_lineno or 0) - 1].partition("  # ")
    return f"  # {text}" if mark else ""
