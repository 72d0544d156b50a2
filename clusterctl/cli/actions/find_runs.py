"""Read the list of runs from the nodes, which is the same from any machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import click

from clusterctl.cli.context.load import load_inventory, remember_runs
from clusterctl.cli.context.nodes import (
    current_owner,
    notice,
    open_cluster,
    query_nodes,
    reading_exit_code,
    report_failures,
    with_any_python,
)
from clusterctl.cli.context.settings import Settings
from clusterctl.client.cleanup import query_warm
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.session import Interpreter
from clusterctl.console.cleanup import show_warm, warm_to_json
from clusterctl.console.documents.output import write_document
from clusterctl.console.run.listing import runs_to_json, show_runs
from clusterctl.console.run.status import describe_launch
from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.plans.cleanup import WarmServer, may_be_warm
from clusterctl.plans.runs.selection import (
    Owner,
    Runs,
    choose_run,
    gather_runs,
    is_complete,
    is_live,
    owner_of,
    sort_own_first,
)
from clusterctl.plans.runs.state import NodeState, Parts
from clusterctl.plans.runs.verdict import name_state
from clusterctl.protocol.run_id import RunId, parse_run_id
from clusterctl.specs.inventory.model import Allocation, Inventory, Node
from clusterctl.specs.text import command_line
from clusterctl.translation import tr, trn

MAX_LISTED_RUNS = 200


@dataclass(frozen=True)
class FoundRuns:
    """The runs by id, newest first, the nodes that did not answer, and the Python that answered on the others."""

    runs: dict[RunId, dict[str, NodeState | None]]
    errors: tuple[ClusterctlError, ...]
    asked: int
    pythons: dict[str, Interpreter]
    offsets: dict[str, float]  # each node's clock minus ours, in seconds
    nodes: tuple[Node, ...] = ()  # those that were asked; of a Slurm cluster the login node
    skipped: tuple[str, ...] = ()  # names of nodes that were not waited for

    @property
    def answered(self) -> int:
        """Count the nodes that answered."""
        return self.asked - len(self.errors)

    @property
    def node_names(self) -> list[str]:
        """Name the nodes that may have runs: those that were asked, of a Slurm cluster also those of its runs."""
        of_runs = [name for parts in self.runs.values() for name in parts] if slurm_login(self.nodes) else []
        return list(dict.fromkeys([*(node.name for node in self.nodes), *of_runs]))

    def nodes_of(self, run_id: RunId) -> list[Node]:
        """Return the nodes that have a part of a run, as the verbs reach them."""
        parts = self.runs.get(run_id, {})
        login = slurm_login(self.nodes)
        if login is None:
            return [node for node in self.nodes if node.name in parts]
        job = next((part.slurm_job for part in parts.values() if part), "")
        return slurm_nodes(login, list(parts), job)

    def holders(self, run_id: RunId) -> list[Node]:
        """Return the nodes that have a part of a run and answer."""
        parts = self.runs[run_id]
        return [node for node in self.nodes_of(run_id) if parts.get(node.name) and node.name in self.pythons]


def refuse_queued(run_id: RunId, parts: Parts, verb: str, command: str) -> None:
    """Raise UsageError for a run that waits in Slurm's queue, or never left it: no node has anything of it."""
    queued = next((part for part in parts.values() if part and part.is_queued), None)
    if queued is not None:
        shown = command_line("attach" if queued.live else "status", run_id, command=command)
        raise UsageError("CC-SLURM-008", verb=verb, run=run_id, reason=queued.reason, command=shown)


def refuse_without_nodes(found: FoundRuns, run_id: RunId, verb: str, command: str) -> None:
    """Raise UsageError for a run on a Slurm cluster whose nodes cannot be reached: it waits, or has ended."""
    parts = found.runs[run_id]
    refuse_queued(run_id, parts, verb, command)
    if slurm_login(found.nodes) is not None and not is_live(parts):
        shown = command_line("status", run_id, command=command)
        raise UsageError("CC-SLURM-009", "ended", verb=verb, run=run_id, command=shown)


MAX_SESSIONS = 8  # on one connection to a login node: sshd allows 10 unless it is set otherwise


def slurm_login(nodes: Sequence[Node]) -> Node | None:
    """Return the login node, if the inventory is that of a Slurm cluster."""
    return nodes[0] if nodes and nodes[0].allocation is not None else None


def with_live_nodes(inventory: Inventory) -> Inventory:
    """Put the nodes of one's live runs into the inventory of a Slurm cluster: only they can be reached.

    Raises UsageError if there are none; other inventories stay as they are.
    """
    if inventory.slurm is None:
        return inventory
    with open_cluster() as cluster:
        found = find_runs(cluster, inventory.nodes, None)
    if not found.answered:
        raise found.errors[0]
    nodes: dict[str, Node] = {}
    for run_id, parts in found.runs.items():
        begun = is_live(parts) and not any(part.is_queued for part in parts.values() if part)
        if begun and owner_of(parts).is_same(current_owner()):
            nodes.update((node.name, node) for node in found.nodes_of(run_id) if node.name not in nodes)
    if not nodes:
        raise UsageError("CC-SLURM-009", file=inventory.file)
    return replace(inventory, nodes=tuple(nodes.values()))


def slurm_nodes(login: Node, names: Sequence[str], job: str) -> list[Node]:
    """Return the nodes of a Slurm job: each is reached over the login node, some on one connection."""
    connections = [
        login.name if index < MAX_SESSIONS else f"{login.name}/{index // MAX_SESSIONS}"
        for index in range(len(names))
    ]
    return [
        replace(login, name=name, index=index, allocation=Allocation(connection=connections[index], job=job))
        for index, name in enumerate(names)
    ]


def find_runs(
    cluster: Cluster,
    nodes: Sequence[Node],
    prefix: str | None,
    *,
    pulse: bool = False,
    only_one: bool = False,
) -> FoundRuns:
    """Ask every node for its runs at the same time; `pulse`: with signs of life of those that live.

    `only_one`: no other run is needed, so once all of its nodes have answered, a silent node is not waited for.
    """
    answers: dict[str, tasks.RunListing] = {}
    pythons: dict[str, Interpreter] = {}
    errors: dict[str, ClusterctlError] = {}
    login = slurm_login(nodes)
    nodes = nodes if login is None else [login]  # which answers for all

    for outcome in cluster.each(
        nodes,
        lambda c, node: with_any_python(
            node, lambda python: tasks.ps(c, node, python, prefix, MAX_LISTED_RUNS, pulse=pulse)
        ),
    ):
        if outcome.value is not None:
            answers[outcome.node.name], pythons[outcome.node.name] = outcome.value
            _warn_invalid(outcome.node.name, outcome.value[0])
        elif outcome.error is not None:
            errors[outcome.node.name] = outcome.error
        if (
            only_one
            and prefix is not None
            and parse_run_id(prefix)
            and is_complete(_states_of(answers, prefix))
        ):
            break
    asked = len(answers) + len(errors)
    names = [node.name for node in nodes]  # what has a rank has it in this order
    listed = {name: answers[name].runs for name in names if name in answers}
    missing = [name for name in names if name not in answers]
    if login is not None and not missing:
        listed = _sort_by_node(listed[login.name])
        names = [*listed, login.name]
        pythons = dict.fromkeys(names, pythons[login.name])
        answers = dict.fromkeys(names, answers[login.name])
    offsets = {name: listing.offset for name, listing in answers.items()}
    runs = {
        run_id: {name: parts[name] for name in names if name in parts}
        for run_id, parts in gather_runs(listed, missing).items()
    }
    if login is not None:
        runs = {run_id: dict(sorted(parts.items(), key=_node_rank)) for run_id, parts in runs.items()}
    remember_runs(runs)
    skipped = tuple(name for name in missing if name not in errors)
    return FoundRuns(runs, tuple(errors.values()), asked, pythons, offsets, tuple(nodes), skipped)


def _sort_by_node(states: Sequence[NodeState]) -> dict[str, Sequence[NodeState]]:
    """Sort the answer of a login node, which answers for all nodes, by the nodes that it names."""
    by_node: dict[str, list[NodeState]] = {}
    for state in states:
        by_node.setdefault(state.node, []).append(state)
    return {**by_node}


def _node_rank(item: tuple[str, NodeState | None]) -> int:
    return item[1].node_rank if item[1] else 0


def _warn_invalid(node: str, listing: tasks.RunListing) -> None:
    if listing.invalid:
        notice(
            trn(
                "{node}: ignored {n} invalid line of its list of runs; check that this node can be trusted",
                "{node}: ignored {n} invalid lines of its list of runs; check that this node can be trusted",
                listing.invalid,
                node=node,
            )
        )


def _states_of(answers: Mapping[str, tasks.RunListing], run_id: str) -> Parts:
    return {
        name: state for name, listing in answers.items() for state in listing.runs if state.run_id == run_id
    }


SEVERAL_RUNS = "CC-USE-024"
MAX_CHOICES = 10  # runs that are listed


def choose_found_run(
    choose: Callable[[Runs, str | None, Owner], RunId], runs: Runs, prefix: str | None, *option: str
) -> RunId:
    """Choose one of the runs; the error of an ambiguous prefix lists them, with the command for the newest.

    `option` is the name of the option whose value the run is, if it is none of the verb's arguments.
    """
    try:
        return choose(runs, prefix, current_owner())
    except UsageError as error:
        if error.code != SEVERAL_RUNS or prefix is None:
            raise
        matches = [run_id for run_id in runs if run_id.startswith(prefix)]
        lines = [
            tr(
                "{run}  {state}, {launch}",
                run=run_id,
                state=name_state(run_id, runs[run_id]),
                launch=describe_launch(runs[run_id]),
            )
            for run_id in matches
        ]
        context = click.get_current_context(silent=True)
        settings = context.find_object(Settings) if context else None
        verb = str(context.info_name) if context else "status"
        raise UsageError(
            SEVERAL_RUNS,
            "newest",
            evidence="\n".join(lines[:MAX_CHOICES]),
            prefix=prefix,
            count=len(matches),
            command=command_line(verb, *option, matches[0], command=(settings or Settings()).command),
        ) from error


def find_one_run(
    cluster: Cluster, nodes: Sequence[Node], prefix: str | None, *, pulse: bool = False
) -> tuple[FoundRuns, RunId | None]:
    """Find a run and report the nodes that failed; without a run if no node answered."""
    found = find_runs(cluster, nodes, prefix, pulse=pulse, only_one=True)
    report_failures(found.errors)
    return found, choose_found_run(choose_run, found.runs, prefix) if found.answered else None


def fetch_end_record(
    cluster: Cluster, nodes: Sequence[Node], found_runs: FoundRuns, run_id: RunId, *, named: bool
) -> Parts:
    """Return the parts of a run; of one that has ended with the record of its end.

    `named`: the nodes were asked for this run; in a list of all they may leave that out.
    """
    parts = found_runs.runs[run_id]
    has_record = named and any(part.record for part in parts.values() if part)
    if has_record or is_live(parts):
        return parts
    again = find_runs(cluster, [node for node in nodes if parts.get(node.name)], run_id).runs.get(run_id, {})
    return {**parts, **{name: part for name, part in again.items() if part}}


def list_runs(settings: Settings, *, as_json: bool) -> int:
    """Print the runs on the nodes, and what waits there for the next launch; 0 when all answered, 5 some, 4 none."""
    inventory = load_inventory(settings, on_slurm=True)
    with open_cluster() as cluster:
        found = find_runs(cluster, inventory.nodes, None)
        warm = _query_warm(cluster, inventory.nodes, found)
    report_failures(found.errors)
    me, names = current_owner(), found.node_names
    if as_json:
        runs = sort_own_first(found.runs, me)
        write_document(runs_to_json(runs, me, names, warm_to_json(warm), found.offsets))
    elif found.answered:
        show_runs(found.runs, me, names, found.offsets)
        show_warm(warm)
    return reading_exit_code(found.answered, found.asked)


def _query_warm(
    cluster: Cluster, nodes: Sequence[Node], found: FoundRuns
) -> Mapping[str, Sequence[WarmServer]]:
    """Ask only where a run has left something warm."""
    states = [part for parts in found.runs.values() for part in parts.values() if part is not None]
    names = may_be_warm(states, found.offsets, time.time())
    warm, _ = query_nodes(cluster, [node for node in nodes if node.name in names], query_warm)
    return {name: servers for name, servers in warm.items() if servers}
