"""What `clean` would remove and has removed, orphans and warm processes among it; on the screen and as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from clusterctl.client.cleanup import EndedOrphans, NodeStorage, RemovalReport, UnusedStorage
from clusterctl.console.run.remarks import render_outside
from clusterctl.console.terminal import print_error_line, print_line
from clusterctl.errors import ClusterctlError
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.cleanup import BEYOND_NEWEST, CleanupPlan, Orphans, StoredRun, WarmServer
from clusterctl.plans.runs.verdict import name_state
from clusterctl.plans.sync.staged import STATES, StagedContent
from clusterctl.protocol.messages.facts import Orphan
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import render_duration, render_size
from clusterctl.translation import to_translate, tr, trn

if TYPE_CHECKING:
    from clusterctl.console.documents.nodes import (
        CleanDocument,
        CleanedNode,
        CleanStagedDocument,
        EndedOrphansEntry,
        FailedNode,
        KeptRun,
        OrphansDocument,
        OtherOrphans,
        RemovedRun,
        RemovedStaged,
    )
    from clusterctl.console.documents.runs import WarmProcess

MAX_FAILURES = 10
REASONS = {  # why something goes, as JSON has it, and on the screen
    "old": to_translate("older than the limit"),
    BEYOND_NEWEST: to_translate("not among the newest runs of its job"),
    "never started": to_translate("never started"),
}
MAX_RUNS = 3  # runs that are named of those kept for one reason


def show_cleanup_plan(cleanup_plan: CleanupPlan, contents: Mapping[str, NodeStorage]) -> None:
    """Print what would go: every run once, then the store and the payloads, once where nodes share them."""
    runs = group_values((stored.run_id, (stored, reason)) for stored, reason in cleanup_plan.removals)
    outside = cleanup_plan.lost_files
    for run_id, stored in runs.items():
        names = fold_names([stored_run.node for stored_run, _ in stored])
        size = render_size(sum(stored_run.bytes for stored_run, _ in stored))
        kept = [p for node_contents in contents.values() for p in node_contents.stored_runs]
        state = _state_of(run_id, [*(stored_run for stored_run, _ in stored), *kept])
        print_line(
            tr(
                "{run}  {state}, ended {age} ago, {size} on {nodes}: {reason}",
                run=run_id,
                state=state,
                age=render_duration(min(p.age for p, _ in stored)),
                size=size,
                nodes=names,
                reason=tr(REASONS[stored[0][1]]) if stored[0][1] in REASONS else stored[0][1],
            )
        )
        if run_id in outside:
            print_line(f"  {render_outside(outside[run_id])}")
    _show_kept(cleanup_plan)
    for message, unused in (
        (
            to_translate("{n} stored files that no run uses, {size} on {nodes}"),
            {name: node_contents.store for name, node_contents in contents.items()},
        ),
        (
            to_translate("{n} old versions of clusterctl's own code, {size} on {nodes}"),
            {name: node_contents.payloads for name, node_contents in contents.items()},
        ),
        (
            to_translate("{n} environments that no run uses, {size} on {nodes}"),
            {name: node_contents.environments for name, node_contents in contents.items()},
        ),
    ):
        _show_unused(message, unused, contents)


def _state_of(run_id: RunId, stored_runs: Iterable[StoredRun]) -> str:
    """Name the state of a whole run as `ps` does, from all its parts."""
    states = [
        stored_run.state for stored_run in stored_runs if stored_run.run_id == run_id and stored_run.state
    ]
    return name_state(run_id, {state.node: state for state in states}) if states else tr("never started")


def _show_kept(cleanup_plan: CleanupPlan) -> None:
    """Print what is kept although it is beyond the bounds, once for each reason: there may be many such runs."""
    for reason, kept in group_values((reason, stored) for stored, reason in cleanup_plan.kept).items():
        run_ids = list(dict.fromkeys(stored.run_id for stored in kept))
        named = ", ".join(run_ids[:MAX_RUNS])
        if len(run_ids) > MAX_RUNS:
            named = tr("{names} and {n} more", names=named, n=len(run_ids) - MAX_RUNS)
        nodes = fold_names([stored.node for stored in kept])
        shown = translate_node_text(reason)
        print_line(tr("{runs}  kept on {nodes}: {reason}", runs=named, nodes=nodes, reason=shown))


def _show_unused(
    message: str, unused: Mapping[str, UnusedStorage], contents: Mapping[str, NodeStorage]
) -> None:
    nodes_by_directory = group_values(
        (contents[name].workdir_id, name) for name, entry in unused.items() if entry.contents
    )
    if nodes_by_directory:
        distinct = [unused[node_names[0]] for node_names in nodes_by_directory.values()]
        files, size = sum(entry.contents for entry in distinct), sum(entry.bytes for entry in distinct)
        nodeset = fold_names([name for node_names in nodes_by_directory.values() for name in node_names])
        print_line(tr(message, n=files, size=render_size(size), nodes=nodeset))


def show_removed(removed: Mapping[str, RemovalReport]) -> None:
    """Print what went, and on stderr what could not."""
    for name, removal in removed.items():
        counts = [trn("{n} file", "{n} files", removal.contents)]
        if removal.runs:
            counts.insert(0, trn("{n} run", "{n} runs", removal.runs))
        if removal.environments:
            counts.append(trn("{n} environment", "{n} environments", removal.environments))
        print_line(
            tr(
                "{node}: removed {counts}, {size}",
                node=name,
                counts=tr(", ").join(counts),
                size=render_size(removal.bytes),
            )
        )
        lines = list(removal.failed[:MAX_FAILURES])
        if len(removal.failed) > MAX_FAILURES:
            lines.append(tr("{n} more", n=len(removal.failed) - MAX_FAILURES))
        for line in lines:
            print_error_line(tr("{node}: NOT removed: {what}", node=name, what=line))


def show_staged(staged: Mapping[str, Sequence[StagedContent]]) -> None:
    """Print what was staged on each node, the largest first, and the size of all of it."""
    for name, contents in staged.items():
        for content in sorted(contents, key=lambda content: content.bytes, reverse=True):
            print_line(
                tr(
                    "{node}: {path}  {size}, from {source}, {age} ago by {user}: {state}",
                    node=name,
                    path=content.path,
                    size=render_size(content.bytes),
                    source=content.source,
                    age=render_duration(max(0.0, time.time() - content.time)),
                    user=content.by,
                    state=tr(STATES[content.state], path=content.problem),
                )
            )
        total = render_size(sum(content.bytes for content in contents))
        print_line(tr("{node}: {size} staged in all", node=name, size=total))


def staged_to_json(
    staged: Mapping[str, Sequence[StagedContent]],
    removed: Mapping[str, RemovalReport],
    errors: Mapping[str, ClusterctlError],
) -> CleanStagedDocument:
    """Return the document of `clean --staged --json`."""
    entries = [{"node": name, **asdict(content)} for name, contents in staged.items() for content in contents]
    nodes: list[RemovedStaged] = [
        {
            "node": name,
            "removed": {**vars(removed[name]), "failed": list(removed[name].failed)}
            if name in removed
            else None,
        }
        for name in staged
    ]
    failed: list[FailedNode] = [
        {"node": name, "error": f"{error.code} {error.message}"} for name, error in errors.items()
    ]
    return {"schema": 1, "staged": entries, "nodes": nodes, "errors": failed}


def cleanup_to_json(
    cleanup_plan: CleanupPlan,
    contents: Mapping[str, NodeStorage],
    removed: Mapping[str, RemovalReport],
    errors: Mapping[str, ClusterctlError],
    orphans: list[EndedOrphansEntry],
    warm: list[WarmProcess],
) -> CleanDocument:
    """Return the document of `clean --json`; `removed` is null for a node on which nothing was."""
    runs: list[RemovedRun] = [
        {
            "run": stored_run.run_id,
            "node": stored_run.node,
            "bytes": stored_run.bytes,
            "why": reason,
            "outside": None if (files := stored_run.outside_files) is None else asdict(files),
        }
        for stored_run, reason in cleanup_plan.removals
    ]
    kept: list[KeptRun] = [
        {"run": stored_run.run_id, "node": stored_run.node, "why": reason}
        for stored_run, reason in cleanup_plan.kept
    ]
    nodes: list[CleanedNode] = [
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
    error_entries: list[FailedNode] = [
        {"node": name, "error": f"{error.code} {error.message}"} for name, error in errors.items()
    ]
    return {
        "schema": 1,
        "runs": runs,
        "stays": kept,
        "nodes": nodes,
        "errors": error_entries,
        "orphans": orphans,
        "warm": warm,
    }


def show_orphans(orphans_by_node: Mapping[str, Orphans]) -> None:
    """Print every process, and how many others' there are."""
    if not any(node_orphans.own or node_orphans.others for node_orphans in orphans_by_node.values()):
        print_line(tr("no orphans: every process of a run has its agent"))
    for name, node_orphans in orphans_by_node.items():
        for orphan in node_orphans.own:
            print_line(tr("{subject}: {text}", subject=name, text=render_orphan(orphan)))
        for user, orphan_count in node_orphans.others.items():
            text = trn(
                "{node}: {n} orphan of account {user}",
                "{node}: {n} orphans of account {user}",
                orphan_count,
                node=name,
                user=user,
            )
            print_line(text)


def render_orphan(orphan: Orphan) -> str:
    """Return which process it is: `pid 4711 of vit-1 (ann@laptop), running for 3m: python train.py`."""
    owner = orphan.launched_by or tr("its directory was removed; `clusterctl stop` ends it")
    return tr(
        "pid {pid} of {run} ({owner}), running for {age}: {command}",
        pid=orphan.pid,
        run=orphan.run,
        owner=owner,
        age=render_duration(orphan.age or 0.0),
        command=orphan.command,
    )


def show_ended_orphans(ended: Mapping[str, EndedOrphans]) -> None:
    """Print what was ended, and on stderr what could not be."""
    for name, node_ended in ended.items():
        text = trn("{node}: ended {n} orphan", "{node}: ended {n} orphans", len(node_ended.ended), node=name)
        print_line(text)
        for entry in node_ended.remaining:
            print_error_line(tr("{node}: COULD NOT END {process}", node=name, process=entry))


def orphans_to_json(orphans_by_node: Mapping[str, Orphans]) -> OrphansDocument:
    """Return the processes that crashed runs left."""
    own_orphans = [
        {"node": name, **vars(orphan)}
        for name, node_orphans in orphans_by_node.items()
        for orphan in node_orphans.own
    ]
    other_orphans: list[OtherOrphans] = [
        {"node": name, "user": user, "count": count}
        for name, node_orphans in orphans_by_node.items()
        for user, count in node_orphans.others.items()
    ]
    return {"schema": 1, "orphans": own_orphans, "others": other_orphans}


def ended_orphans_to_json(
    chosen: Mapping[str, Sequence[Orphan]], ended: Mapping[str, EndedOrphans]
) -> list[EndedOrphansEntry]:
    """Return the part of `clean --json` about them; `left` is null for a node on which none was ended."""
    return [
        {
            "node": name,
            "processes": [vars(orphan) for orphan in orphans],
            "ended": list(ended[name].ended) if name in ended else [],
            "left": list(ended[name].remaining) if name in ended else None,
        }
        for name, orphans in chosen.items()
    ]


def show_warm(servers_by_node: Mapping[str, Sequence[WarmServer]]) -> None:
    """Print the processes that wait for the next launch, those of equal nodes in one line."""
    groups = group_values(
        ((server.python, server.torch, server.preload), (name, server))
        for name, servers in servers_by_node.items()
        for server in servers
    )
    for group in groups.values():
        servers = [server for _, server in group]
        modules = ", ".join((f"torch {servers[0].torch}".strip(), *servers[0].preload))
        print_line(
            tr(
                "{nodes}: warm for {age}, ends in {remaining}: {modules} in {python}, {size}",
                nodes=fold_names(name for name, _ in group),
                age=render_duration(round(max(server.age for server in servers))),
                remaining=render_duration(round(min(server.ends_in for server in servers))),
                modules=modules,
                python=servers[0].python,
                size=render_size(max(server.bytes for server in servers)),
            )
        )


def show_ended_warm(servers_by_node: Mapping[str, Sequence[WarmServer]]) -> None:
    """Print where they were ended."""
    names = [name for name, servers in servers_by_node.items() if servers]
    if names:
        print_line(tr("{nodes}: no longer warm", nodes=fold_names(names)))
    else:
        print_line(tr("no node is warm"))


def warm_to_json(servers_by_node: Mapping[str, Sequence[WarmServer]]) -> list[WarmProcess]:
    """Return them for `ps --json`."""
    return [
        {"node": name, **asdict(server)} for name, servers in servers_by_node.items() for server in servers
    ]
