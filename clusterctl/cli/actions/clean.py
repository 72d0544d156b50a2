"""Remove old runs, unused files and leftover processes from the nodes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from clusterctl.cli.actions.find_runs import slurm_login
from clusterctl.cli.context.nodes import (
    current_owner,
    notice,
    open_cluster,
    query_nodes,
    reading_exit_code,
    report_failures,
)
from clusterctl.cli.options import is_confirmed
from clusterctl.client.cleanup import (
    EndedOrphans,
    NodeStorage,
    RemovalReport,
    find_orphans,
    query_staged,
    query_warm,
    read_storage,
    remove_staged,
    remove_stored_runs,
    stop_orphans,
)
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster, fan_out
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.console.cleanup import (
    cleanup_to_json,
    ended_orphans_to_json,
    orphans_to_json,
    render_orphan,
    show_cleanup_plan,
    show_ended_orphans,
    show_ended_warm,
    show_orphans,
    show_removed,
    show_staged,
    show_warm,
    staged_to_json,
    warm_to_json,
)
from clusterctl.console.documents.output import write_document
from clusterctl.console.run.remarks import render_outside
from clusterctl.console.terminal import info, print_line
from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.plans.cleanup import (
    STORE_UNUSED_FOR,
    CleanupPlan,
    Orphans,
    RetentionPolicy,
    StoredRun,
    WarmServer,
    plan_cleanup,
    select_orphans,
)
from clusterctl.protocol.messages.facts import Orphan
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.text import command_line
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.console.documents.nodes import CleanOrphansDocument, CleanWarmDocument

MAX_STRANDED = 5  # runs


def query_warm_servers(
    cluster: Cluster, nodes: Sequence[Node], *, end: bool = False
) -> tuple[dict[str, tuple[WarmServer, ...]], dict[str, ClusterctlError]]:
    """Ask every node for what waits there for the next launch, and end it if wanted."""
    return query_nodes(cluster, nodes, partial(query_warm, end=end))


def stop_orphans_everywhere(
    cluster: Cluster, nodes: Sequence[Node], orphans: Mapping[str, Sequence[Orphan]]
) -> tuple[dict[str, EndedOrphans], dict[str, ClusterctlError]]:
    """End these on every node; gives what came of it, and the nodes where nothing did."""
    targets = [node for node in nodes if orphans.get(node.name)]
    return query_nodes(
        cluster, targets, lambda c, node, python: stop_orphans(c, node, python, orphans[node.name])
    )


def list_orphans(cluster: Cluster, nodes: Sequence[Node], *, as_json: bool) -> int:
    """List them; gives the exit code."""
    orphans, _ = query_nodes(cluster, nodes, find_orphans)
    if as_json:
        write_document(orphans_to_json(orphans))
    elif orphans:
        show_orphans(orphans)
    return reading_exit_code(len(orphans), len(nodes))


@dataclass(frozen=True)
class CleanOptions:
    """What is to be kept, and how to go about it."""

    bounds: RetentionPolicy
    everyone: bool
    dry_run: bool
    yes: bool
    as_json: bool
    command: str = "clusterctl"  # how hints begin, with the `-i` that was given


class Clean:
    """One cleaning: holds what the steps share."""

    def __init__(self, nodes: Sequence[Node], options: CleanOptions) -> None:
        self._nodes, self._options = nodes, options
        self._sessions: dict[str, Session] = {}
        self._storage: dict[str, NodeStorage] = {}
        self._removed: dict[str, RemovalReport] = {}
        self._orphans: dict[str, tuple[Orphan, ...]] = {}
        self._ended: dict[str, EndedOrphans] = {}
        self._errors: dict[str, ClusterctlError] = {}
        self._warm: dict[str, tuple[WarmServer, ...]] = {}
        self._some_kept = False  # whether the user has chosen to keep some of what was shown

    def run(self) -> int:
        """Go through the steps; gives the exit code."""
        with open_cluster() as cluster:
            try:
                self._query_storage(cluster)
                answered = len(self._nodes) - len(self._errors)
                if not answered:
                    return 4
                cleanup = self._plan_cleanup()
                if slurm_login(self._nodes) is None:  # Slurm ends every process of a job
                    self._find_orphans(cluster)
                    self._find_warm(cluster)
                if not self._options.as_json:
                    show_cleanup_plan(cleanup, self._storage)
                    self._show_orphans()
                    show_warm(self._warm)
                if not self._options.dry_run:
                    cleanup = self._keep_stranded(cleanup)
                if self._is_empty(cleanup):
                    info(tr("nothing to remove"))
                elif not self._options.dry_run:
                    self._confirm()
                    self._stop_orphans(cluster)
                    self._stop_warm(cluster)
                    self._remove(cleanup)
            finally:
                for session in self._sessions.values():
                    session.close()
        return self._report(cleanup, answered)

    def _query_storage(self, cluster: Cluster) -> None:
        """Ask every node what it holds; the conversations stay open."""
        opened, self._errors = query_nodes(cluster, self._nodes, self._open)
        paths = {node.name: node.workdir for node in self._nodes}
        for name, (session, storage) in opened.items():
            self._sessions[name] = session
            if storage is None:
                notice(tr("{node}: {path} does not exist", node=name, path=paths[name]))
            else:
                self._storage[name] = storage

    def _open(self, c: Any, node: Node, python: Interpreter) -> tuple[Session, NodeStorage | None]:
        session = tasks.clean(c, node, python, min(STORE_UNUSED_FOR, self._options.bounds.older_than))
        try:
            return session, read_storage(session, node.name)
        except BaseException:
            session.close()
            raise

    def _plan_cleanup(self) -> CleanupPlan:
        parts = [part for storage in self._storage.values() for part in storage.stored_runs]
        return plan_cleanup(parts, self._options.bounds, None if self._options.everyone else current_owner())

    def _is_empty(self, cleanup: CleanupPlan) -> bool:
        spare = any(spare.contents for storage in self._storage.values() for spare in storage.unused)
        return not cleanup.removals and not spare and not self._orphans and not self._warm

    def _find_orphans(self, cluster: Cluster) -> None:
        """Find leftover processes that may be stopped; a node without an answer has none."""
        orphans, errors = query_nodes(cluster, self._nodes_with_storage, find_orphans)
        self._errors.update(errors)
        self._orphans = _select_own(orphans, self._options)

    def _find_warm(self, cluster: Cluster) -> None:
        """Find what waits for the next launch."""
        warm, errors = query_warm_servers(cluster, self._nodes_with_storage)
        self._errors.update(errors)
        self._warm = {name: servers for name, servers in warm.items() if servers}

    @property
    def _nodes_with_storage(self) -> list[Node]:
        return [node for node in self._nodes if node.name in self._storage]

    def _stop_warm(self, cluster: Cluster) -> None:
        if self._warm:
            nodes = [node for node in self._nodes if node.name in self._warm]
            ended, errors = query_warm_servers(cluster, nodes, end=True)
            self._errors.update(errors)
            if not self._options.as_json:
                show_ended_warm(ended)

    def _show_orphans(self) -> None:
        for name, orphans in self._orphans.items():
            for orphan in orphans:
                process = render_orphan(orphan)
                print_line(tr("{node}: running without an agent: {process}", node=name, process=process))

    def _stop_orphans(self, cluster: Cluster) -> None:
        self._ended, errors = stop_orphans_everywhere(cluster, self._nodes, self._orphans)
        self._errors.update(errors)
        if not self._options.as_json:
            show_ended_orphans(self._ended)

    @property
    def _is_interactive(self) -> bool:
        """Return whether a user at a terminal has seen what would be removed."""
        return not self._options.yes and not self._options.as_json and sys.stdin.isatty()

    def _keep_stranded(self, cleanup: CleanupPlan) -> CleanupPlan:
        """Ask about runs that have files outside the output directory: there may be no other copy."""
        stranded = cleanup.lost_files
        if not stranded or not self._is_interactive:
            return cleanup
        info(
            trn(
                "{n} run with files outside ${output_dir}; clusterctl cannot know whether they were downloaded:",
                "{n} runs with files outside ${output_dir}; clusterctl cannot know whether they were downloaded:",
                len(stranded),
            )
        )
        for run_id, outside in list(stranded.items())[:MAX_STRANDED]:
            info(f"  {run_id}: {render_outside(outside)}")
            info(f"    {command_line('pull', run_id, '--all', command=self._options.command)}")
        if len(stranded) > MAX_STRANDED:
            more = len(stranded) - MAX_STRANDED
            info("  " + trn("and {n} more run, shown above", "and {n} more runs, shown above", more))
        if is_confirmed(tr("Remove these files too?")):
            return cleanup
        info(tr("kept: {runs}", runs=", ".join(stranded)))
        self._some_kept = True
        return cleanup.without_runs(stranded)

    def _confirm(self) -> None:
        """Remove nothing that the user has not confirmed."""
        if self._orphans or self._warm:
            question = tr("Stop and remove the rest?") if self._some_kept else tr("Stop and remove all this?")
        else:
            question = tr("Remove the rest?") if self._some_kept else tr("Remove all this?")
        _confirm(question, self._options)

    def _remove(self, cleanup: CleanupPlan) -> None:
        """Remove on all nodes at once; each removes its own parts."""
        by_node: dict[str, list[StoredRun]] = {name: [] for name in self._storage}
        for part, _ in cleanup.removals:
            by_node[part.node].append(part)
        for outcome in fan_out(
            self._nodes_with_storage,
            lambda node: remove_stored_runs(self._sessions[node.name], by_node[node.name], node.name),
        ):
            if outcome.value is not None:
                self._removed[outcome.node.name] = outcome.value
            elif outcome.error is not None:
                self._errors[outcome.node.name] = outcome.error
                report_failures([outcome.error])

    def _report(self, cleanup: CleanupPlan, answered: int) -> int:
        removed: Mapping[str, RemovalReport] = {
            node.name: self._removed[node.name] for node in self._nodes if node.name in self._removed
        }
        if self._options.as_json:
            orphans = ended_orphans_to_json(self._orphans, self._ended)
            warm = warm_to_json(self._warm)
            write_document(cleanup_to_json(cleanup, self._storage, removed, self._errors, orphans, warm))
        else:
            show_removed(removed)
        incomplete = any(entry.failed for entry in removed.values()) or any(
            entry.remaining for entry in self._ended.values()
        )
        if incomplete or (self._errors and answered):
            return 5
        return reading_exit_code(answered, len(self._nodes))


def clean_warm(nodes: Sequence[Node], *, dry_run: bool = False, as_json: bool = False) -> int:
    """Stop what waits for the next launch, and nothing else; gives the exit code."""
    with open_cluster() as cluster:
        warm, _ = query_warm_servers(cluster, nodes, end=not dry_run)
    if as_json:
        document: CleanWarmDocument = {"schema": 1, "warm": warm_to_json(warm)}
        write_document(document)
    elif warm:
        (show_warm if dry_run else show_ended_warm)(warm)
    return reading_exit_code(len(warm), len(nodes))


def clean_orphans(nodes: Sequence[Node], options: CleanOptions) -> int:
    """List the processes that crashed runs left, and end the user's own; gives the exit code."""
    with open_cluster() as cluster:
        if options.dry_run:
            return list_orphans(cluster, nodes, as_json=options.as_json)
        orphans, failed = query_nodes(cluster, nodes, find_orphans)
        chosen = _select_own(orphans, options)
        if not options.as_json and orphans:
            show_orphans(orphans)
        ended: dict[str, EndedOrphans] = {}
        if chosen:
            _confirm(tr("End these processes?"), options)
            ended, errors = stop_orphans_everywhere(cluster, nodes, chosen)
            failed.update(errors)
    if options.as_json:
        document: CleanOrphansDocument = {"schema": 1, "orphans": ended_orphans_to_json(chosen, ended)}
        write_document(document)
    else:
        show_ended_orphans(ended)
    if any(entry.remaining for entry in ended.values()) or (failed and orphans):
        return 5
    return reading_exit_code(len(orphans), len(nodes))


def clean_staged(nodes: Sequence[Node], options: CleanOptions) -> int:
    """List what was staged on the nodes, and remove it if that is wanted; gives the exit code."""
    removed: dict[str, RemovalReport] = {}
    with open_cluster() as cluster:
        found, failed = query_nodes(cluster, nodes, query_staged)
        staged = {name: contents for name, contents in found.items() if contents}
        if not options.as_json:
            show_staged(staged)
        if not staged and found:
            info(tr("nothing to remove"))
        elif staged and not options.dry_run:
            _confirm(tr("Remove all this?"), options)
            targets = [node for node in nodes if node.name in staged]
            removed, errors = query_nodes(
                cluster, targets, lambda c, node, python: remove_staged(c, node, python, staged[node.name])
            )
            failed.update(errors)
    if options.as_json:
        write_document(staged_to_json(found, removed, failed))
    else:
        show_removed(removed)
    if any(report.failed for report in removed.values()) or (failed and found):
        return 5
    return reading_exit_code(len(found), len(nodes))


def _select_own(by_node: Mapping[str, Orphans], options: CleanOptions) -> dict[str, tuple[Orphan, ...]]:
    """Return the processes that may be ended, by node; a node without any is left out."""
    me = None if options.everyone else current_owner()
    chosen = {name: select_orphans(one.own, me) for name, one in by_node.items()}
    return {name: orphans for name, orphans in chosen.items() if orphans}


def _confirm(question: str, options: CleanOptions) -> None:
    """Return if the user agrees to what was shown, else raise UsageError."""
    is_interactive = not options.as_json and sys.stdin.isatty()
    if options.yes or (is_interactive and is_confirmed(question)):
        return
    raise UsageError("CC-USE-031", "json" if options.as_json else "")
