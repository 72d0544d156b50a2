"""Clean and orphans."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from clusterctl.cli.context.nodes import (
    myself,
    notice,
    open_cluster,
    reading_exit_code,
    tell_failures,
    with_any_python,
)
from clusterctl.client.maintenance import (
    Ended,
    Found,
    Removed,
    ask_to_remove,
    end_orphans,
    find_orphans,
    hear_found,
)
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.fanout import fan_out
from clusterctl.client.rpc.session import Session
from clusterctl.console.maintenance import (
    cleaned_to_json,
    orphans_to_end,
    orphans_to_json,
    render_orphan,
    show_choice,
    show_ended,
    show_orphans,
    show_removed,
)
from clusterctl.console.terminal import say
from clusterctl.console.text import json_text, sanitize
from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.plans.cleanup import UNUSED, Bounds, Choice, Orphan, Orphans, Part, choose, to_end
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.text import counted


@dataclass(frozen=True)
class Asked:
    """The nodes' answers, and the nodes that gave none."""

    found: dict[str, Orphans]
    errors: dict[str, ClusterctlError]


def ask_orphans(cluster: Cluster, nodes: Sequence[Node]) -> Asked:
    """Ask every node at the same time."""
    found: dict[str, Orphans] = {}
    errors: dict[str, ClusterctlError] = {}
    for outcome in cluster.each(
        nodes, lambda c, node: with_any_python(node, lambda used: find_orphans(c, node, used))[0]
    ):
        if outcome.value is not None:
            found[outcome.node.name] = outcome.value
        elif outcome.error is not None:
            errors[outcome.node.name] = outcome.error
    return Asked({node.name: found[node.name] for node in nodes if node.name in found}, errors)


def end_all(
    cluster: Cluster, nodes: Sequence[Node], orphans: Mapping[str, Sequence[Orphan]]
) -> tuple[dict[str, Ended], dict[str, ClusterctlError]]:
    """End these on every node at the same time; gives what came of it, and the nodes where nothing did."""
    ended: dict[str, Ended] = {}
    errors: dict[str, ClusterctlError] = {}
    wanted = [node for node in nodes if orphans.get(node.name)]
    for outcome in cluster.each(
        wanted,
        lambda c, node: with_any_python(node, lambda used: end_orphans(c, node, used, orphans[node.name]))[0],
    ):
        if outcome.value is not None:
            ended[outcome.node.name] = outcome.value
        elif outcome.error is not None:
            errors[outcome.node.name] = outcome.error
    return ended, errors


def list_orphans(cluster: Cluster, nodes: Sequence[Node], *, as_json: bool) -> int:
    """Carry out `ps --orphans`; gives the exit code."""
    asked = ask_orphans(cluster, nodes)
    tell_failures(asked.errors.values())
    if as_json:
        click.echo(json_text(orphans_to_json(asked.found), indent=2))
    elif asked.found:
        show_orphans(asked.found)
    return reading_exit_code(len(asked.found), len(nodes))


@dataclass(frozen=True)
class Wishes:
    """What is to be kept, and how to go about it."""

    bounds: Bounds
    everyone: bool
    dry_run: bool
    yes: bool
    as_json: bool
    command: str = "clusterctl"  # how hints begin, with the `-i` that was given


class Clean:
    """One cleaning: holds what the steps share."""

    def __init__(self, nodes: Sequence[Node], wishes: Wishes) -> None:
        self._nodes, self._wishes = nodes, wishes
        self._sessions: dict[str, Session] = {}
        self._found: dict[str, Found] = {}
        self._removed: dict[str, Removed] = {}
        self._orphans: dict[str, tuple[Orphan, ...]] = {}
        self._ended: dict[str, Ended] = {}
        self._errors: dict[str, ClusterctlError] = {}
        self._kept = False  # whether somebody has chosen to keep what was shown

    def run(self) -> int:
        """Go through the steps; gives the exit code."""
        with open_cluster() as cluster:
            try:
                self._ask(cluster)
                tell_failures(self._errors.values())
                answered = len(self._nodes) - len(self._errors)
                if not answered:
                    return 4
                choice = self._choose()
                self._find_orphans(cluster)
                if not self._wishes.as_json:
                    show_choice(choice, self._found)
                    self._show_orphans()
                if not self._wishes.dry_run:
                    choice = self._spare_stranded(choice)
                if self._is_empty(choice):
                    say("nothing to remove")
                elif not self._wishes.dry_run:
                    self._confirm()
                    self._end_orphans(cluster)
                    self._remove(choice)
            finally:
                for session in self._sessions.values():
                    session.close()
        return self._report(choice, answered)

    def _ask(self, cluster: Cluster) -> None:
        """Ask every node what it holds; the conversations stay open."""
        arrived: dict[str, Found] = {}
        for outcome in cluster.each(self._nodes, self._open):
            name = outcome.node.name
            if outcome.error is not None:
                self._errors[name] = outcome.error
            elif outcome.value is not None:
                self._sessions[name], found = outcome.value
                if found is None:
                    notice(f"{name}: no {outcome.node.workdir} there")
                else:
                    arrived[name] = found
        self._found = {node.name: arrived[node.name] for node in self._nodes if node.name in arrived}

    def _open(self, c: Any, node: Node) -> tuple[Session, Found | None]:
        unused = min(UNUSED, self._wishes.bounds.older_than)

        def ask(used: tasks.Interpreter) -> tuple[Session, Found | None]:
            session = tasks.clean(c, node, used, unused)
            try:
                return session, hear_found(session, node.name)
            except BaseException:
                session.close()
                raise

        return with_any_python(node, ask)[0]

    def _choose(self) -> Choice:
        parts = [part for found in self._found.values() for part in found.parts]
        return choose(parts, self._wishes.bounds, None if self._wishes.everyone else myself())

    def _is_empty(self, choice: Choice) -> bool:
        spare = any(spare.contents for found in self._found.values() for spare in found.spares)
        return not choice.parts and not spare and not self._orphans

    def _find_orphans(self, cluster: Cluster) -> None:
        """Ask what may be ended; a node that does not say has nothing."""
        nodes = [node for node in self._nodes if node.name in self._found]
        asked = ask_orphans(cluster, nodes)
        tell_failures(asked.errors.values())
        self._errors.update(asked.errors)
        me = None if self._wishes.everyone else myself()
        chosen = {name: to_end(one.mine, me) for name, one in asked.found.items()}
        self._orphans = {name: orphans for name, orphans in chosen.items() if orphans}

    def _show_orphans(self) -> None:
        for name, orphans in self._orphans.items():
            for orphan in orphans:
                click.echo(sanitize(f"{name}: running without an agent: {render_orphan(orphan)}"))

    def _end_orphans(self, cluster: Cluster) -> None:
        self._ended, errors = end_all(cluster, self._nodes, self._orphans)
        tell_failures(errors.values())
        self._errors.update(errors)
        if not self._wishes.as_json:
            show_ended(self._ended)

    @property
    def _asks(self) -> bool:
        """Tell whether somebody sits there who has seen what would go."""
        return not self._wishes.yes and not self._wishes.as_json and sys.stdin.isatty()

    def _spare_stranded(self, choice: Choice) -> Choice:
        """Ask about runs that have files outside the output directory: nobody else has these."""
        stranded = choice.stranded
        if not stranded or not self._asks:
            return choice
        one = f"{self._wishes.command} pull {next(iter(stranded))} --all"
        say(f"{counted(len(stranded), 'run')} with files outside ${{output_dir}}; to bring them home: {one}")
        if click.confirm("Remove these files too?", err=True):
            return choice
        say("kept: " + ", ".join(stranded))
        self._kept = True
        return choice.without(stranded)

    def _confirm(self) -> None:
        """Never remove anything that nobody has agreed to."""
        what = "the rest" if self._kept else "all this"
        question = f"End and remove {what}?" if self._orphans else f"Remove {what}?"
        if self._wishes.yes or (self._asks and click.confirm(question, err=True)):
            return
        fix = (
            "look at --dry-run first, then add -y"
            if self._wishes.as_json
            else "add -y to remove what is shown"
        )
        raise UsageError("nothing was removed", code="CC-USE-031", fix=fix)

    def _remove(self, choice: Choice) -> None:
        """Let all nodes remove at once; each only knows its own parts."""
        wanted: dict[str, list[Part]] = {name: [] for name in self._found}
        for part, _ in choice.parts:
            wanted[part.node].append(part)
        nodes = [node for node in self._nodes if node.name in self._found]
        for outcome in fan_out(
            nodes, lambda node: ask_to_remove(self._sessions[node.name], wanted[node.name], node.name)
        ):
            if outcome.value is not None:
                self._removed[outcome.node.name] = outcome.value
            elif outcome.error is not None:
                self._errors[outcome.node.name] = outcome.error
                tell_failures([outcome.error])

    def _report(self, choice: Choice, answered: int) -> int:
        removed: Mapping[str, Removed] = {
            node.name: self._removed[node.name] for node in self._nodes if node.name in self._removed
        }
        if self._wishes.as_json:
            document = cleaned_to_json(choice, self._found, removed, self._errors)
            document["orphans"] = orphans_to_end(self._orphans, self._ended)
            click.echo(json_text(document, indent=2))
        else:
            show_removed(removed)
        undone = any(one.failed for one in removed.values()) or any(one.left for one in self._ended.values())
        if undone or (self._errors and answered):
            return 5
        return reading_exit_code(answered, len(self._nodes))
