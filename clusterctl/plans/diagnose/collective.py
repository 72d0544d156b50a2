"""The deep check: the job that it runs, and what that job's leader tells of its rounds, read with distrust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.untrusted import read_value
from clusterctl.plans.launch.launchers import has_simulated_gpus
from clusterctl.protocol.untrusted import MalformedError, parse_json
from clusterctl.specs.job.model import Job, Sync

MARK = "clusterctl-deep "  # how the leader's lines begin
NAME = "deep-check"
FOLDER = "deepcheck"  # the package that is sent
MODULES = (
    "node/__init__",
    "node/diagnose/__init__",
    "node/diagnose/collective",
    "protocol/__init__",
    "protocol/untrusted",
)
LIMITS = {"nccl": 60, "gloo": 20}  # seconds for the round of all; NCCL may take long to connect
BUDGET = 60  # seconds after which no further round begins
STARTING = 120.0


@dataclass(frozen=True)
class Group:
    """How one group of nodes fared: rows are [bytes, seconds of an all_reduce], the first is the latency."""

    nodes: tuple[int, ...] = ()
    ranks: int = 0
    ok: bool = False
    error: str | None = None
    rank: int | None = None
    at: int | None = None
    rows: tuple[tuple[float, ...], ...] = ()
    joined: float | None = None

    @property
    def latency(self) -> float:
        """Seconds of the smallest all_reduce."""
        return self.rows[0][1] if self.rows else 0.0

    @property
    def bandwidth(self) -> float:
        """Give the best bus bandwidth in bytes per second: what one rank's link carries each way."""
        return max((bus_bandwidth(size, seconds, self.ranks) for size, seconds in self.rows), default=0.0)


@dataclass(frozen=True)
class DeepRound:
    """One round: all, alone, pairs, again, or rest."""

    kind: str = ""
    seconds: float = 0.0
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True)
class Found:
    """Who is to blame, by node number; `rest` tells whether all others work together without them."""

    ok: bool = False
    nodes: tuple[int, ...] = ()
    links: tuple[tuple[int, ...], ...] = ()
    slow_nodes: tuple[int, ...] = ()
    slow_links: tuple[tuple[int, ...], ...] = ()
    rest: bool | None = None


@dataclass(frozen=True)
class Deep:
    """What a deep check has shown; `trouble` says why it did not come to its end."""

    backend: str
    names: tuple[str, ...]
    ranks: int
    rounds: tuple[DeepRound, ...] = ()
    found: Found | None = None
    trouble: str = ""
    fix: str = ""
    at: tuple[str, ...] = field(default=())  # the nodes that the trouble names

    @property
    def whole(self) -> Group | None:
        """The group of all nodes, if its round came to an end."""
        return next((group for one in self.rounds for group in one.groups if one.kind == "all"), None)

    def name(self, number: int) -> str:
        """Give a node's name."""
        return self.names[number]

    def complaint(self, group: Group | None) -> str:
        """Say what went wrong in a group, and on which rank."""
        if group is None or not group.error:
            return "no answer"
        where = (
            f" on {self.name(group.at)}" if group.at is not None and 0 <= group.at < len(self.names) else ""
        )
        return group.error if group.rank is None else f"rank {group.rank}{where}: {group.error}"

    def groups_with(self, *nodes: int, kinds: Sequence[str] = ("alone", "pairs", "again")) -> list[Group]:
        """Give the smaller groups in which these nodes were, the latest first."""
        wanted = set(nodes)
        groups = [group for one in self.rounds if one.kind in kinds for group in one.groups]
        return [group for group in reversed(groups) if wanted <= set(group.nodes)]

    @property
    def usual(self) -> tuple[float, float]:
        """Bandwidth and latency that a node usually reaches with its best partner."""
        pairs = [group for group in self._pairs if group.ok]
        numbers = {number for group in pairs for number in group.nodes}
        best = [[group for group in pairs if number in group.nodes] for number in numbers]
        widths = [max(group.bandwidth for group in own) for own in best]
        delays = [min(group.latency for group in own) for own in best]
        return (median(widths), median(delays)) if best else (0.0, 0.0)

    @property
    def pairs(self) -> list[Group]:
        """Give each pair of nodes that was tried once: of two tries that went well the better one, else the later."""
        known: dict[frozenset[int], Group] = {}
        for group in self._pairs:
            pair = frozenset(group.nodes)
            old = known.get(pair)
            stays = old is not None and old.ok and group.ok and old.bandwidth >= group.bandwidth
            known[pair] = old if old is not None and stays else group
        return [group for pair, group in known.items() if len(pair) == 2]

    @property
    def _pairs(self) -> list[Group]:
        """Every try of a pair; one that looked slow was tried again."""
        return [group for one in self.rounds if one.kind in {"pairs", "again"} for group in one.groups]


def bus_bandwidth(size: float, seconds: float, ranks: int) -> float:
    """Give what one rank's link carries each way in an all_reduce of `size` bytes, in bytes per second."""
    return 2.0 * (ranks - 1) / ranks * size / seconds if seconds > 0 and ranks > 1 else 0.0


def choose_backend(job: Job | None, facts: Sequence[Facts]) -> str:
    """Take the job's backend; without a job NCCL where every node has GPUs and a torch for them."""
    if job is not None:
        return job.backend
    return "nccl" if all(map(_computes_on_gpus, facts)) else "gloo"


def _computes_on_gpus(facts: Facts) -> bool:
    return bool(facts.gpus.count and not has_simulated_gpus(facts) and (facts.torch.cuda or facts.torch.hip))


def plan_deep_job(job: Job | None, backend: str, folder: str) -> Job:
    """Make the job of a deep check: with the interpreter, environment and GPUs of the job that it is done for."""
    limit = LIMITS.get(backend, LIMITS["nccl"])
    nproc = (job.nproc_per_node if job else "gpu") if backend == "nccl" else 1
    return Job(
        name=NAME,
        file=f"{folder}/job.yaml",
        module=f"{FOLDER}.node.diagnose.collective",
        args=(backend, str(limit), str(BUDGET)),
        nproc_per_node=nproc,
        backend=job.backend if job else ("nccl" if backend == "nccl" else "gloo"),
        gpus=job.gpus if job else (),
        env=job.env if job else {},
        python=job.python if job else None,
        activate=job.activate if job else None,
        sync=Sync(source="."),
        grace=2.0,
        time_limit=STARTING + limit + BUDGET,
    )


def read_deep(lines: Sequence[str], deep: Deep) -> Deep:
    """Add what the leader's lines tell to an empty result; what is no such line, or not understood, is left out."""
    rounds, found = list(deep.rounds), deep.found
    for line in lines:
        entry = _entry(line)
        if isinstance(entry.get("round"), str):
            one = read_value(DeepRound, {**entry, "kind": entry["round"]}, "round", [])
            rounds += [one] if one is not None and _is_sound(one, len(deep.names)) else []
        elif "found" in entry:
            told = read_value(Found, entry["found"], "found", [])
            found = told if told is not None and _is_known(told, len(deep.names)) else None
    return Deep(deep.backend, deep.names, deep.ranks, tuple(rounds), found, deep.trouble, deep.fix, deep.at)


def _entry(line: str) -> Mapping[str, Any]:
    try:
        entry = parse_json(line.removeprefix(MARK).encode()) if line.startswith(MARK) else {}
    except MalformedError:
        return {}
    return entry if isinstance(entry, Mapping) else {}


def _is_sound(one: DeepRound, count: int) -> bool:
    """Tell whether the numbers can be calculated with, and the nodes are ours."""
    rows = [row for group in one.groups for row in group.rows]
    numbers = {number for group in one.groups for number in group.nodes}
    return all(len(row) == 2 and row[1] > 0 for row in rows) and numbers <= set(range(count))


def _is_known(found: Found, count: int) -> bool:
    links = (*found.links, *found.slow_links)
    numbers = {*found.nodes, *found.slow_nodes, *(number for link in links for number in link)}
    return all(len(link) == 2 for link in links) and numbers <= set(range(count))
