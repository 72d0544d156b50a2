"""Clean, orphans."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clusterctl.client.maintenance import EndedOrphans, NodeStorage, RemovalReport, UnusedStorage
from clusterctl.console.progress import render_size
from clusterctl.console.text import sanitize
from clusterctl.console.verdict import render_outside
from clusterctl.errors import ClusterctlError
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.cleanup import CleanupPlan, Orphan, Orphans, StoredRun
from clusterctl.plans.facts.gpu_use import describe_age
from clusterctl.plans.runs.verdict import name_state
from clusterctl.plans.sync.results import outside_to_json
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import plural

MOST_FAILURES = 10
MOST_RUNS = 3  # runs that are named of those kept for one reason


def show_cleanup_plan(cleanup_plan: CleanupPlan, contents: Mapping[str, NodeStorage]) -> None:
    """Print what would go: every run once, then the store and the payloads, once where nodes share them."""
    runs: dict[RunId, list[tuple[StoredRun, str]]] = {}
    for stored_run, reason in cleanup_plan.removals:
        runs.setdefault(stored_run.run_id, []).append((stored_run, reason))
    outside = cleanup_plan.lost_files
    for run_id, stored in runs.items():
        names = fold_names([stored_run.node for stored_run, _ in stored])
        size = render_size(sum(stored_run.bytes for stored_run, _ in stored))
        state = _state_of(
            run_id,
            [
                *(stored_run for stored_run, _ in stored),
                *(p for node_contents in contents.values() for p in node_contents.stored_runs),
            ],
        )
        _print(
            f"{run_id}  {state}, still for {_age(min(p.age for p, _ in stored))}, {size} on {names}: {stored[0][1]}"
        )
        if run_id in outside:
            _print(f"  {render_outside(outside[run_id])}")
    _show_kept(cleanup_plan)
    for description, unused in (
        (
            "stored contents that nobody uses",
            {name: node_contents.store for name, node_contents in contents.items()},
        ),
        (
            "old versions of clusterctl's own part",
            {name: node_contents.payloads for name, node_contents in contents.items()},
        ),
        (
            "environments that no run uses",
            {name: node_contents.environments for name, node_contents in contents.items()},
        ),
    ):
        _show_unused(description, unused, contents)


def _state_of(run_id: RunId, stored_runs: Iterable[StoredRun]) -> str:
    """Name the state of a whole run as `ps` does, from all its parts."""
    states = [
        stored_run.state for stored_run in stored_runs if stored_run.run_id == run_id and stored_run.state
    ]
    return name_state(run_id, {state.node: state for state in states}) if states else "never started"


def _show_kept(cleanup_plan: CleanupPlan) -> None:
    """Print what is kept although it is beyond the bounds, once for each reason: there may be many such runs."""
    reasons: dict[str, list[StoredRun]] = {}
    for stored, reason in cleanup_plan.kept:
        reasons.setdefault(reason, []).append(stored)
    for reason, kept in reasons.items():
        run_ids = list(dict.fromkeys(stored.run_id for stored in kept))
        more = f" and {len(run_ids) - MOST_RUNS} more" if len(run_ids) > MOST_RUNS else ""
        nodes = fold_names([stored.node for stored in kept])
        shown = translate_node_text(reason)
        _print(f"{', '.join(run_ids[:MOST_RUNS])}{more}  kept on {nodes}: {shown}")


def _show_unused(
    description: str, unused: Mapping[str, UnusedStorage], contents: Mapping[str, NodeStorage]
) -> None:
    nodes_by_directory: dict[str, list[str]] = {}
    for name, entry in unused.items():
        if entry.contents:
            nodes_by_directory.setdefault(contents[name].workdir_id, []).append(name)
    if nodes_by_directory:
        distinct = [unused[node_names[0]] for node_names in nodes_by_directory.values()]
        files, size = sum(entry.contents for entry in distinct), sum(entry.bytes for entry in distinct)
        nodeset = fold_names([name for node_names in nodes_by_directory.values() for name in node_names])
        _print(f"{files} {description}, {render_size(size)} on {nodeset}")


def show_removed(removed: Mapping[str, RemovalReport]) -> None:
    """Print what went, and on stderr what could not."""
    for name, removal in removed.items():
        summary = f"{plural(removal.runs, 'run')}, {plural(removal.contents, 'content')}{_render_environments(removal)}"
        _print(f"{name}: removed {summary}, {render_size(removal.bytes)}")
        for line in removal.failed[:MOST_FAILURES]:
            print(sanitize(f"{name}: NOT removed: {line}"), file=sys.stderr, flush=True)
        if len(removal.failed) > MOST_FAILURES:
            print(
                f"{name}: NOT removed: {len(removal.failed) - MOST_FAILURES} more",
                file=sys.stderr,
                flush=True,
            )


def _render_environments(removal: RemovalReport) -> str:
    return f", {plural(removal.environments, 'environment')}" if removal.environments else ""


def cleanup_to_json(
    cleanup_plan: CleanupPlan,
    contents: Mapping[str, NodeStorage],
    removed: Mapping[str, RemovalReport],
    errors: Mapping[str, ClusterctlError],
) -> dict[str, Any]:
    """Give `clean --json`; `removed` is null for a node on which nothing was."""
    runs = [
        {
            "run": stored_run.run_id,
            "node": stored_run.node,
            "bytes": stored_run.bytes,
            "why": reason,
            "outside": outside_to_json(stored_run.outside_files),
        }
        for stored_run, reason in cleanup_plan.removals
    ]
    kept = [
        {"run": stored_run.run_id, "node": stored_run.node, "why": reason}
        for stored_run, reason in cleanup_plan.kept
    ]
    nodes = [
        {
            "node": name,
            "store": vars(node_contents.store),
            "payloads": vars(node_contents.payloads),
            "environments": vars(node_contents.environments),
            "removed": {**vars(removed[name]), "failed": list(removed[name].failed)}
            if name in removed
            else None,
        }
        for name, node_contents in contents.items()
    ]
    error_entries = [
        {"node": name, "error": f"{error.code} {error.message}"} for name, error in errors.items()
    ]
    return {"schema": 1, "runs": runs, "stays": kept, "nodes": nodes, "errors": error_entries}


def _age(seconds: float) -> str:
    days = int(seconds // 86400)
    if days:
        return plural(days, "day")
    if seconds >= 3600:
        return plural(int(seconds // 3600), "hour")
    return plural(int(seconds // 60), "minute") if seconds >= 60 else "less than a minute"


def _print(line: str) -> None:
    print(sanitize(line), flush=True)


def show_orphans(orphans_by_node: Mapping[str, Orphans]) -> None:
    """Print every process, and how many others' there are."""
    if not any(node_orphans.own or node_orphans.others for node_orphans in orphans_by_node.values()):
        _print_line("no orphans: every process of a run is watched over")
    for name, node_orphans in orphans_by_node.items():
        for orphan in node_orphans.own:
            _print_line(f"{name}: {render_orphan(orphan)}")
        for user, orphan_count in node_orphans.others.items():
            _print_line(f"{name}: {plural(orphan_count, 'orphan')} of account {user}")


def render_orphan(orphan: Orphan) -> str:
    """Say which process it is: `pid 4711 of vit-1 (ann@laptop), for 3 min: python train.py`."""
    owner = orphan.launched_by or "whose directory is gone; `clusterctl stop` ends it"
    return f"pid {orphan.pid} of {orphan.run} ({owner}), {describe_age(orphan.age or 0.0)}: {orphan.command}"


def show_ended_orphans(ended: Mapping[str, EndedOrphans]) -> None:
    """Print what was ended, and on stderr what could not be."""
    for name, node_ended in ended.items():
        _print_line(f"{name}: ended {plural(len(node_ended.ended), 'orphan')}")
        for entry in node_ended.remaining:
            print(sanitize(f"{name}: COULD NOT END {entry}"), file=sys.stderr, flush=True)


def orphans_to_json(orphans_by_node: Mapping[str, Orphans]) -> dict[str, Any]:
    """Give `ps --orphans --json`."""
    own_orphans = [
        {"node": name, **vars(orphan)}
        for name, node_orphans in orphans_by_node.items()
        for orphan in node_orphans.own
    ]
    other_orphans = [
        {"node": name, "user": user, "count": count}
        for name, node_orphans in orphans_by_node.items()
        for user, count in node_orphans.others.items()
    ]
    return {"schema": 1, "orphans": own_orphans, "others": other_orphans}


def ended_orphans_to_json(
    chosen: Mapping[str, Sequence[Orphan]], ended: Mapping[str, EndedOrphans]
) -> list[dict[str, Any]]:
    """Give the part of `clean --json` about them; `left` is null for a node on which none was ended."""
    return [
        {
            "node": name,
            "processes": [vars(orphan) for orphan in orphans],
            "ended": list(ended[name].ended) if name in ended else [],
            "left": list(ended[name].remaining) if name in ended else None,
        }
        for name, orphans in chosen.items()
    ]


def _print_line(line: str) -> None:
    print(sanitize(line), flush=True)
