"""What `explain` prints: a code in full, the codes of a family, a key of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from clusterctl.codes.lookup import FAMILIES, family_of
from clusterctl.console.findings import break_fix, print_behind
from clusterctl.console.text import wrap_prose
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.console.documents.runs import ExplainedKey, ExplanationDocument
    from clusterctl.plans.explain import Explanation
    from clusterctl.specs.json_schema import KeyEntry

KEY_INDENT = "    "  # before the second line of a key
EXPLAIN_INDENT = 10  # columns before a text
WIDEST = 100


def render_explanation(console: Console, explanation: Explanation) -> None:
    """Print a code in full."""
    console.print(
        Text.assemble(
            (explanation.code, "bold"),
            f"  {explanation.title}",
            ("  " + tr("({text})", text=explanation.kind), "dim"),
        )
    )
    console.print()
    example, see = explanation.example, f"clusterctl explain {explanation.see}" if explanation.see else ""
    for label, text in (
        (tr("effect"), explanation.effect),
        (tr("role"), explanation.role),
        (tr("why"), explanation.why),
        (tr("what"), explanation.text),
        (tr("fix"), explanation.do),
        (tr("occurs as"), "\n".join(explanation.happens)),
        (tr("example"), example["seen"] if example else ""),
    ):
        _print_text(console, label, text)
    for label, text in (
        (tr("fix"), example["fix"] if example else ""),
        (tr("next"), explanation.command),
        (tr("see"), see),
    ):
        _print_text(console, label, text, break_fix)


def _print_text(
    console: Console, label: str, text: str, break_line: Callable[[str, int], list[str]] = wrap_prose
) -> None:
    start = Text(f"{' ' * (EXPLAIN_INDENT - 2 - cell_len(label))}{label}  ", "cyan")
    print_behind(console, start, text, break_line, indent=EXPLAIN_INDENT, widest=WIDEST)


def render_codes(console: Console, titles: Mapping[str, str], family: str) -> None:
    """List the codes of a family, or of all."""
    for name, heading in FAMILIES.items():
        codes = [code for code in titles if family_of(code) == name]
        if codes and family in ("", name):
            console.print(Text(tr(heading), style="bold"))
            for code in codes:
                console.print(Text.assemble((f"  {code}  ", "cyan"), titles[code]), soft_wrap=True)
    console.print(Text(tr("clusterctl explain CODE shows the details of a code.")), style="dim")


def explanation_to_json(explanation: Explanation) -> ExplanationDocument:
    """Return an explanation as `explain --json` prints it."""
    example = explanation.example
    return {
        "schema": 1,
        "code": explanation.code,
        "kind": explanation.kind,
        "title": explanation.title,
        "effect": explanation.effect or explanation.role,
        "why": explanation.why,
        "text": explanation.text,
        "do": explanation.do,
        "happens": list(explanation.happens),
        "example": None if example is None else {"seen": example["seen"], "fix": example["fix"]},
        "command": explanation.command,
        "see": explanation.see,
    }


def render_keys(console: Console, keys: Sequence[KeyEntry]) -> None:
    """Print keys of a file; of a group also the keys below it."""
    for number, key in enumerate(keys):
        if number:
            console.print()
        _print_key(console, key.path, key.text)
        _print_text(console, tr("value"), key.value)
        default = tr("required") if key.required else key.default
        _print_text(console, tr("default"), default)
        for name, text in key.below:
            _print_key(console, name, text, "  ")
    if any(key.below for key in keys):
        path = f"{keys[0].path}.{keys[0].below[0][0]}"
        console.print(Text(tr("clusterctl explain {path} shows one of them.", path=path), style="dim"))


def _print_key(console: Console, name: str, text: str, indent: str = "") -> None:
    width = max(20, min(console.width, 100) - len(indent))
    first, *more = wrap_prose(f"{name}  {text}", width, KEY_INDENT)
    console.print(Text.assemble(indent, (name, "cyan"), first[len(name) :]), soft_wrap=True)
    for line in more:
        console.print(Text(f"{indent}{KEY_INDENT}{line.lstrip()}"), soft_wrap=True)


def key_to_json(key: KeyEntry) -> ExplainedKey:
    """Return a key as `explain --json` prints it."""
    return {
        "path": key.path,
        "text": key.text,
        "value": key.value or None,
        "default": key.default or None,
        "required": key.required,
        "keys": [name for name, _ in key.below],
    }
