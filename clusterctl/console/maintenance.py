"""Clean, orphans."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clusterctl.client.maintenance import Ended, Found, Removed, Spare
from clusterctl.console.progress import render_size
from clusterctl.console.text import sanitize
from clusterctl.console.verdict import render_outside
from clusterctl.errors import ClusterctlError
from clusterctl.plans.cleanup import Choice, Orphan, Orphans, Part
from clusterctl.plans.facts.gpu_use import describe_age
from clusterctl.plans.runs.state import whole_state
from clusterctl.plans.sync.results import outside_to_json
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import counted

NAMED = 10
SHOWN = 3  # runs that are named of those kept for one reason


def show_choice(choice: Choice, found: Mapping[str, Found]) -> None:
    """Print what would go: every run once, then the store and the payloads, once where nodes share them."""
    runs: dict[str, list[tuple[Part, str]]] = {}
    for part, why in choice.parts:
        runs.setdefault(part.run, []).append((part, why))
    stranded = choice.stranded
    for run, parts in runs.items():
        names = fold_names([part.node for part, _ in parts])
        size = render_size(sum(part.bytes for part, _ in parts))
        state = _state_of(
            run, [*(part for part, _ in parts), *(p for one in found.values() for p in one.parts)]
        )
        _print(
            f"{run}  {state}, still for {_age(min(p.age for p, _ in parts))}, {size} on {names}: {parts[0][1]}"
        )
        if run in stranded:
            _print(f"  {render_outside(stranded[run])}")
    _show_stays(choice)
    for what, spares in (
        ("stored contents that nobody uses", {name: one.store for name, one in found.items()}),
        ("old versions of clusterctl's own part", {name: one.payloads for name, one in found.items()}),
        ("environments that no run uses", {name: one.environments for name, one in found.items()}),
    ):
        _show_spares(what, spares, found)


def _state_of(run: str, known: Iterable[Part]) -> str:
    """Name the state of a whole run as `ps` does, from all its parts."""
    states = [part.state for part in known if part.run == run and part.state]
    return whole_state({state.node: state for state in states}) if states else "never started"


def _show_stays(choice: Choice) -> None:
    """Print what is kept although it is beyond the bounds, once for each reason: there may be many such runs."""
    reasons: dict[str, list[Part]] = {}
    for part, why in choice.stays:
        reasons.setdefault(why, []).append(part)
    for why, parts in reasons.items():
        runs = list(dict.fromkeys(part.run for part in parts))
        more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
        _print(f"{', '.join(runs[:SHOWN])}{more}  kept on {fold_names([part.node for part in parts])}: {why}")


def _show_spares(what: str, spares: Mapping[str, Spare], found: Mapping[str, Found]) -> None:
    places: dict[str, list[str]] = {}
    for name, spare in spares.items():
        if spare.contents:
            places.setdefault(found[name].place, []).append(name)
    if places:
        once = [spares[names[0]] for names in places.values()]
        files, size = sum(one.contents for one in once), sum(one.bytes for one in once)
        everybody = fold_names([name for names in places.values() for name in names])
        _print(f"{files} {what}, {render_size(size)} on {everybody}")


def show_removed(removed: Mapping[str, Removed]) -> None:
    """Print what went, and on stderr what could not."""
    for name, one in removed.items():
        what = f"{counted(one.runs, 'run')}, {counted(one.contents, 'content')}{_environments(one)}"
        _print(f"{name}: removed {what}, {render_size(one.bytes)}")
        for line in one.failed[:NAMED]:
            print(sanitize(f"{name}: NOT removed: {line}"), file=sys.stderr, flush=True)
        if len(one.failed) > NAMED:
            print(f"{name}: NOT removed: {len(one.failed) - NAMED} more", file=sys.stderr, flush=True)


def _environments(one: Removed) -> str:
    return f", {counted(one.environments, 'environment')}" if one.environments else ""


def cleaned_to_json(
    choice: Choice,
    found: Mapping[str, Found],
    removed: Mapping[str, Removed],
    errors: Mapping[str, ClusterctlError],
) -> dict[str, Any]:
    """Give `clean --json`; `removed` is null for a node on which nothing was."""
    runs = [
        {
            "run": part.run,
            "node": part.node,
            "bytes": part.bytes,
            "why": why,
            "outside": outside_to_json(part.outside),
        }
        for part, why in choice.parts
    ]
    stays = [{"run": part.run, "node": part.node, "why": why} for part, why in choice.stays]
    nodes = [
        {
            "node": name,
            "store": vars(one.store),
            "payloads": vars(one.payloads),
            "environments": vars(one.environments),
            "removed": {**vars(removed[name]), "failed": list(removed[name].failed)}
            if name in removed
            else None,
        }
        for name, one in found.items()
    ]
    told = [{"node": name, "error": f"{error.code} {error.message}"} for name, error in errors.items()]
    return {"schema": 1, "runs": runs, "stays": stays, "nodes": nodes, "errors": told}


def _age(seconds: float) -> str:
    days = int(seconds // 86400)
    if days:
        return counted(days, "day")
    if seconds >= 3600:
        return counted(int(seconds // 3600), "hour")
    return counted(int(seconds // 60), "minute") if seconds >= 60 else "less than a minute"


def _print(line: str) -> None:
    print(sanitize(line), flush=True)


def show_orphans(found: Mapping[str, Orphans]) -> None:
    """Print every process, and how many others' there are."""
    if not any(one.mine or one.others for one in found.values()):
        _print_orphans("no orphans: every process of a run is watched over")
    for name, one in found.items():
        for orphan in one.mine:
            _print_orphans(f"{name}: {render_orphan(orphan)}")
        for user, count in one.others.items():
            _print_orphans(f"{name}: {counted(count, 'orphan')} of account {user}")


def render_orphan(orphan: Orphan) -> str:
    """Say which process it is: `pid 4711 of vit-1 (ann@laptop), for 3 min: python train.py`."""
    owner = orphan.launched_by or "whose directory is gone; `clusterctl stop` ends it"
    return f"pid {orphan.pid} of {orphan.run} ({owner}), {describe_age(orphan.age or 0.0)}: {orphan.command}"


def show_ended(ended: Mapping[str, Ended]) -> None:
    """Print what was ended, and on stderr what could not be."""
    for name, one in ended.items():
        _print_orphans(f"{name}: ended {counted(len(one.ended), 'orphan')}")
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


def _print_orphans(line: str) -> None:
    print(sanitize(line), flush=True)
