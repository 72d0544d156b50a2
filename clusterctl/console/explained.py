"""How the explanation of a code looks, and the list of codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from clusterctl.plans.explaining import Explanation, family_of

SCHEMA = 1
INDENT = 10  # columns before a text


def render_explanation(console: Console, one: Explanation) -> None:
    """Print a code in full; commands stay unwrapped, because they are there to be pasted."""
    console.print(Text.assemble((one.code, "bold"), f"  {one.title}", (f"  ({one.kind})", "dim")))
    console.print()
    _print(console, "effect", one.effect)
    _print(console, "why", one.why)
    _print(console, "what", one.text)
    _print(console, "do", one.do)
    _print(console, "in life", "\n".join(one.happens))
    if one.example is not None:
        _print(console, "example", one.example.seen)
        _print(console, "fix", one.example.fix, wrap=False)
    _print(console, "try", one.command, wrap=False)
    _print(console, "see", f"clusterctl explain {one.see}" if one.see else "", wrap=False)


def _print(console: Console, label: str, text: str, *, wrap: bool = True) -> None:
    width = max(20, min(console.width, 100) - INDENT)
    lines = [Text(line) for line in text.split("\n")] if text else []
    pieces = [piece for line in lines for piece in (line.wrap(console, width) if wrap else [line])]
    for place, piece in enumerate(pieces):
        piece.rstrip()
        head = (f"{label:>{INDENT - 2}}  " if place == 0 else " " * INDENT, "cyan")
        console.print(Text.assemble(head, piece), soft_wrap=True)


def render_codes(
    console: Console, families: Mapping[str, str], titles: Mapping[str, str], family: str
) -> None:
    """List the codes of a family, or of all."""
    for name, heading in families.items():
        codes = [code for code in titles if family_of(code) == name]
        if codes and family in ("", name):
            console.print(Text(f"{heading}", style="bold"))
            for code in codes:
                console.print(Text.assemble((f"  {code}  ", "cyan"), titles[code]), soft_wrap=True)
    console.print(Text("clusterctl explain CODE tells more of one."), style="dim")


def explanation_to_json(one: Explanation) -> dict[str, Any]:
    """Give an explanation as `explain --json` prints it."""
    return {"schema": SCHEMA, **asdict(one)}
