"""GPU memory that is in use, and whose: read with distrust, and put into words."""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.plans.facts_reading import clean_text
from clusterctl.protocol.untrusted import Untrusted

MOST = 8  # processes named for one GPU


def render_memory(entries: Sequence[Untrusted]) -> tuple[str, ...]:
    """Say what is in use after a run: `GPU 0: 70000 MiB, by pid 4711 of bob (python train.py)`."""
    return tuple(map(_render, entries))


def _render(entry: Untrusted) -> str:
    named = [_process(one) for one in entry.records("by", MOST)]
    whose = ", ".join(named) or "no process that this node shows: of another container, or one that is ending"
    return f"GPU {_number(entry, 'gpu')}: {_number(entry, 'used')} MiB, by {whose}"


def _process(entry: Untrusted) -> str:
    text, user = f"pid {_number(entry, 'pid')}", clean_text(entry.text("user", 80))
    command = clean_text(entry.text("command", 80))
    return text + (f" of {user}" if user else "") + (f" ({command})" if command else "")


def _number(entry: Untrusted, key: str) -> str:
    value = entry.integer(key, 0)
    return "?" if value is None else str(value)
