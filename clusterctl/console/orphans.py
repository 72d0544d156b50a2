"""Processes that crashed runs have left, on the screen and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from clusterctl.console.sanitize import sanitize
from clusterctl.plans.holders import describe_age
from clusterctl.plans.orphans import Orphan, Orphans
from clusterctl.runs.orphans import Ended
from clusterctl.specs.counted import counted


def show_orphans(found: Mapping[str, Orphans]) -> None:
    """Print every process, and how many others' there are."""
    if not any(one.mine or one.others for one in found.values()):
        _print("no orphans: every process of a run is watched over")
    for name, one in found.items():
        for orphan in one.mine:
            _print(f"{name}: {render_orphan(orphan)}")
        for user, count in one.others.items():
            _print(f"{name}: {counted(count, 'orphan')} of account {user}")


def render_orphan(orphan: Orphan) -> str:
    """Say which process it is: `pid 4711 of vit-1 (ann@laptop), for 3 min: python train.py`."""
    owner = orphan.launched_by or "whose directory is gone; `clusterctl stop` ends it"
    return f"pid {orphan.pid} of {orphan.run} ({owner}), {describe_age(orphan.age or 0.0)}: {orphan.command}"


def show_ended(ended: Mapping[str, Ended]) -> None:
    """Print what was ended, and on stderr what could not be."""
    for name, one in ended.items():
        _print(f"{name}: ended {counted(len(one.ended), 'orphan')}")
        for entry in one.left:
            print(sanitize(f"{name}: COULD NOT END {entry}"), file=sys.stderr, flush=True)


def orphans_to_json(found: Mapping[str, Orphans]) -> dict[str, Any]:
    """Give `ps --orphans --json`."""
    mine = [{"node": name, **vars(orphan)} for name, one in found.items() for orphan in one.mine]
    others = [
        {"node": name, "user": user, "count": count}
        for name, one in found.items()
        for user, count in one.others.items()
    ]
    return {"schema": 1, "orphans": mine, "others": others}


def orphans_to_end(
    chosen: Mapping[str, Sequence[Orphan]], ended: Mapping[str, Ended]
) -> list[dict[str, Any]]:
    """Give the part of `clean --json` about them; `left` is null for a node on which none was ended."""
    return [
        {
            "node": name,
            "processes": [vars(orphan) for orphan in orphans],
            "ended": list(ended[name].ended) if name in ended else [],
            "left": list(ended[name].left) if name in ended else None,
        }
        for name, orphans in chosen.items()
    ]


def _print(line: str) -> None:
    print(sanitize(line), flush=True)
