"""Bring results home: ask all nodes what they have, then fetch what is not here, from all at once."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from clusterctl.cli.actions.find_runs import ask_runs
from clusterctl.cli.context.load import expand
from clusterctl.cli.context.nodes import myself, notice, open_cluster, tell_failures, with_any_python
from clusterctl.client.results.pull import (
    Listed,
    bring,
    choose_bringer,
    choose_wants,
    group_homes,
    list_results,
    make_rest,
    name_homes,
)
from clusterctl.client.results.receive import Account, Room
from clusterctl.client.results.target_dir import Landing, prepare_target
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.fanout import fan_out
from clusterctl.client.rpc.session import Session
from clusterctl.console.results import Progress, pulled_to_json, tell_account, tell_outside
from clusterctl.console.terminal import say
from clusterctl.console.text import json_text
from clusterctl.errors import ClusterctlError, NodeError, SystemRefusal, UsageError
from clusterctl.plans.launch.placement import choose_nodes
from clusterctl.plans.runs.selection import Runs, choose_run
from clusterctl.plans.sync.results import (
    CODE,
    LOGS,
    MAX_BYTES,
    MAX_ENTRIES,
    MAX_NAMES,
    Entry,
    found_outside,
    judge,
)
from clusterctl.protocol.run_id import RunId, job_of, parse_job_name
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line

NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class Wishes:
    """What is to be brought, where to, and how."""

    run: str | None
    job: str | None
    folder: str | None
    logs: bool
    everything: bool
    overwrite: bool
    no_limit: bool
    as_json: bool
    command: str = "clusterctl"  # how hints begin, with the `-i` that was given


@dataclass
class Part:
    """One node's part: the open conversation, what it has, and the name here of its outputs if it brings them."""

    node: Node
    session: Session
    listed: Listed
    home: str | None = None
    account: Account = field(default_factory=Account)
    landed: set[str] = field(default_factory=set)  # places here that are done

    def entries(self, place: str) -> list[Entry]:
        """Choose what goes to `DIR/<place>/`: the outputs to their home, the rest to the node's own name."""
        wanted = {False: place == self.home, True: place == self.node.name}
        return [entry for entry in self.listed.entries if wanted[entry.own]]


class Pull:
    """One pull: holds what the steps share."""

    def __init__(self, inventory: Inventory, wishes: Wishes) -> None:
        self._inventory, self._wishes = inventory, wishes
        self._errors: dict[str, ClusterctlError] = {}
        self._parts: dict[str, Part] = {}
        self._groups: list[list[str]] = []
        self._marks: dict[str, str] = {}
        self._progress = Progress()
        self._run: RunId | None = None
        self._job = wishes.job or ""

    def run(self, pattern: str | None, exclude: str | None) -> int:
        """Go through the steps; gives the exit code."""
        nodes = choose_nodes(self._inventory, pattern, exclude)
        with open_cluster() as cluster:
            if self._wishes.job is None:
                nodes = self._choose(cluster, nodes)
            elif not parse_job_name(self._job):
                raise UsageError(
                    f"{self._job!r} is not the name of a job",
                    code="CC-PULL-005",
                    fix="it stands in the job file: `name:`",
                )
            if not nodes:
                return 4
            target = self._target()
            try:
                self._list(cluster, nodes)
                self._check_job()
                folds = prepare_target(target)
                self._name(nodes, target)
                self._bring(target, folds=folds)
            finally:
                self._progress.stop()
                for part in self._parts.values():
                    part.session.close()
        return self._report(nodes, target)

    def _choose(self, cluster: Cluster, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Find the run, and the nodes that had a part in it."""
        remembered = ask_runs(cluster, nodes, self._wishes.run)
        if not remembered.answered:
            tell_failures(remembered.errors)
            return ()
        self._run = self._choose_run(remembered.runs)
        self._job = job_of(self._run)
        say(f"run {self._run}")
        parts = remembered.runs[self._run]
        self._errors = {error.node: error for error in remembered.errors if error.node in parts}
        return tuple(node for node in nodes if node.name in parts)

    def _choose_run(self, runs: Runs) -> RunId:
        """Find the run; a name without a slash that is none may have been meant as the directory."""
        wanted = self._wishes.run
        try:
            return choose_run(runs, wanted, myself())
        except UsageError as error:
            if wanted and not self._wishes.folder and not any(run.startswith(wanted) for run in runs):
                pull = command_line("clusterctl", "pull", f"./{wanted}")
                error.fix += f"; if it is the directory to pull into: {pull}"
            raise

    def _target(self) -> Path:
        folder = self._wishes.folder
        return expand(folder) if folder else Path("outputs") / self._job

    def _list(self, cluster: Cluster, nodes: Sequence[Node]) -> None:
        """Ask every node what it has; the conversations stay open."""
        beacon = secrets.token_hex(16)
        self._marks = {node.name: secrets.token_hex(16) for node in nodes}
        asked = [node for node in nodes if node.name not in self._errors]
        for outcome in cluster.each(asked, lambda c, node: self._ask(c, node, beacon)):
            if outcome.value is not None:
                self._parts[outcome.node.name] = outcome.value
            elif outcome.error is not None:
                self._errors[outcome.node.name] = outcome.error

    def _check_job(self) -> None:
        """Refuse a job that has put out nothing anywhere: its name is likely misspelled."""
        found = any(part.listed.entries for part in self._parts.values())
        if self._wishes.job is not None and self._parts and not found and not self._errors:
            raise UsageError(
                f"no node has outputs of a job {self._job!r}",
                code="CC-PULL-008",
                fix="see `clusterctl ps`: a run is called JOB-TIME-NUMBER",
            )

    def _name(self, nodes: Sequence[Node], target: Path) -> None:
        """Decide under which name each node's outputs are kept; of nodes with one work directory one brings them."""
        listed = {node.name: self._parts[node.name].listed for node in nodes if node.name in self._parts}
        self._groups = group_homes(listed, self._marks)
        names = name_homes(self._groups, listed, target)
        for group in self._groups:
            home = names[group[0]]
            self._parts[choose_bringer(group, home)].home = home
            if len(group) > 1:
                shared = f"{fold_names(group)} share one work directory"
                notice(f"{shared}: its outputs are brought once, as {home}")

    def _ask(self, c: Any, node: Node, beacon: str) -> Part:
        most = NO_LIMIT if self._wishes.no_limit else MAX_ENTRIES
        parts = [LOGS, CODE] if self._wishes.everything else [LOGS] if self._wishes.logs else []

        def ask(used: tasks.Interpreter) -> Part:
            mark, named = self._marks[node.name], None if self._wishes.no_limit else MAX_NAMES
            session = tasks.pull(
                c, node, used, self._job, self._run, parts=parts, most=most, beacon=beacon, mark=mark
            )
            try:
                listed = list_results(session, most, self._run, node.name, most_named=named)
                return Part(node, session, listed)
            except BaseException:
                session.close()
                raise

        return with_any_python(node, ask)[0]

    def _bring(self, target: Path, *, folds: bool) -> None:
        """Fetch from all nodes at once; where one fails, the next that shares its work directory takes over."""
        room = Room(target)
        nodes = [part.node for part in self._parts.values()]
        self._progress.begin([node.name for node in nodes])
        try:
            while nodes:
                late: list[Node] = []
                for outcome in fan_out(
                    nodes, lambda node: self._fetch(self._parts[node.name], target, room, folds=folds)
                ):
                    if outcome.value is False:
                        late.append(outcome.node)
                        continue
                    self._progress.arrive(outcome.node.name)
                    if outcome.error is not None:
                        self._errors[outcome.node.name] = outcome.error
                room.measure()
                nodes = late + self._heirs()
        except BaseException:
            room.close()
            self._progress.stop()
            say("\nwhat has arrived stays; the next pull goes on there")
            raise

    def _heirs(self) -> list[Node]:
        """Hand on the outputs that a node could not bring to one that has them too."""
        heirs = []
        for group in self._groups:
            holder = next((self._parts[name] for name in group if self._parts[name].home), None)
            error = self._errors.get(holder.node.name) if holder else None
            if holder is None or error is None or isinstance(error, SystemRefusal):
                continue
            heir = next((self._parts[name] for name in group if name not in self._errors), None)
            if heir is not None:
                heir.home, holder.home = holder.home, None
                heirs.append(heir.node)
        return heirs

    def _fetch(self, part: Part, target: Path, room: Room, *, folds: bool) -> bool:
        """Fetch what one node brings: its outputs, its logs, into one place or two; False if others must end first."""
        for place in dict.fromkeys((part.home, part.node.name)):
            entries = part.entries(place) if place and place not in part.landed else []
            if place and entries:
                with room.entered():
                    if not self._land(part, entries, Landing(target, place), room, folds=folds):
                        return False
                part.landed.add(place)
        return True

    def _land(self, part: Part, entries: list[Entry], landing: Landing, room: Room, *, folds: bool) -> bool:
        account = Account()
        try:
            judged = judge(entries, folds=folds)
            self._check_size(judged.size)
            wants = list(choose_wants(judged, landing, account, overwrite=self._wishes.overwrite))
            size = sum(want.entry.size - want.offset for want in wants)
            if not room.reserve(size):
                return False
            self._progress.expect(size)

            def moved(count: int) -> None:
                room.check()
                self._progress.move(count)

            part.account.add(account)
            bring(part.session, wants, landing, part.account, node=part.node.name, moved=moved)
            make_rest(judged, landing, part.account)
            landing.sweep()
        except SystemRefusal as refusal:
            room.close(refusal)
            raise
        finally:
            landing.close()
        return True

    def _check_size(self, size: int) -> None:
        if size > MAX_BYTES and not self._wishes.no_limit:
            raise NodeError(
                f"there are {size >> 30} GiB to bring, more than {MAX_BYTES >> 30}",
                code="CC-PULL-001",
                fix="--no-limit brings them all the same",
            )

    def _report(self, nodes: Sequence[Node], target: Path) -> int:
        names = [node.name for node in nodes]
        accounts = {name: self._parts[name].account for name in names if name in self._parts}
        brought = {name: account for name, account in accounts.items() if name not in self._errors}
        outside = found_outside({name: part.listed.outside for name, part in self._parts.items()})
        if self._wishes.as_json:
            document = pulled_to_json(self._run, self._job, target, accounts, self._errors, names, outside)
            click.echo(json_text(document, indent=2))
        else:
            for name, account in accounts.items():
                part = self._parts[name]
                if part.home or self._wishes.logs or self._wishes.everything:
                    tell_account(name, account, target / (part.home or name), whole=name in brought)
            if outside and not self._wishes.everything:
                tell_outside(outside, self._run or "", self._wishes.command)
        tell_failures(_once(self._errors, names))
        stranded = bool(outside) and all(account.is_empty for account in accounts.values())
        return exit_code(brought, list(self._errors.values()), stranded=stranded)


def _once(errors: Mapping[str, ClusterctlError], names: Sequence[str]) -> list[ClusterctlError]:
    """Tell of the full disk here once, of the nodes each."""
    told: dict[object, ClusterctlError] = {}
    for name in names:
        if name in errors:
            error = errors[name]
            if isinstance(error, SystemRefusal):
                error.node = ""
            told.setdefault(error.message if isinstance(error, SystemRefusal) else name, error)
    return list(told.values())


def exit_code(
    brought: Mapping[str, Account], errors: Sequence[ClusterctlError], *, stranded: bool = False
) -> int:
    """Give 1 when this machine refused, 4 or 1 when no node brought anything, 5 when something is not here, else 0.

    `stranded`: all that the run has put out lies where this pull did not look.
    """
    if any(isinstance(error, SystemRefusal) for error in errors):
        return 1
    if errors and not brought:
        return 4 if any(error.exit_code == 4 for error in errors) else 1
    missing = any(account.refused or account.kept for account in brought.values())
    return 5 if errors or missing or stranded else 0
