"""GPU memory that is in use, and whose: read with distrust, and put into words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterctl.plans.facts_reading import clean_text

MOST = 8  # processes named for one GPU


def render_memory(raw: object) -> tuple[str, ...]:
    """Say what is in use after a run: `GPU 0: 70000 MiB, by pid 4711 of bob (python train.py)`; never raises."""
    entries = raw if isinstance(raw, list) else []
    return tuple(_render(entry) for entry in entries[:64] if isinstance(entry, Mapping))


def _render(entry: Mapping[str, Any]) -> str:
    by = entry.get("by")
    named = [_process(one) for one in (by if isinstance(by, list) else [])[:MOST] if isinstance(one, Mapping)]
    whose = ", ".join(named) or "no process that this node shows: of another container, or one that is ending"
    return f"GPU {clean_text(str(entry.get('gpu')))}: {clean_text(str(entry.get('used')))} MiB, by {whose}"


def _process(entry: Mapping[str, Any]) -> str:
    text = f"pid {clean_text(str(entry.get('pid')))}"
    if entry.get("user"):
        text += f" of {clean_text(str(entry['user']))}"
    command = clean_text(str(entry.get("command") or ""))
    return f"{text} ({command[:80]})" if command else text
