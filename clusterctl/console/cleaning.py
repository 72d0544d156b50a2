"""What is removed from the nodes, on the screen and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from clusterctl.console.outside import render_outside
from clusterctl.console.progress import render_size
from clusterctl.console.sanitize import sanitize
from clusterctl.errors import ClusterctlError
from clusterctl.plans.cleaning import Choice, Part
from clusterctl.plans.outside import outside_to_json
from clusterctl.plans.state import whole_state
from clusterctl.runs.cleaning import Found, Removed, Spare
from clusterctl.specs.counted import counted
from clusterctl.specs.nodeset import fold_names

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
