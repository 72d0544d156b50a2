"""Which run is meant; owner."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from clusterctl.errors import UsageError
from clusterctl.plans.runs.state import NodeState, roster_of
from clusterctl.protocol.run_id import RunId, parse_run_id


@dataclass(frozen=True)
class Owner:
    """Somebody who launches: `name` is `user@host`, `id` random and kept in the user's state directory."""

    name: str
    id: str = ""

    def is_same(self, other: Owner) -> bool:
        """Tell whether both are one; two laptops may have the same user and host name, one may change its own."""
        if self.id and other.id:
            return self.id == other.id
        return self.name == other.name


Parts = Mapping[str, NodeState | None]
Runs = Mapping[RunId, Parts]


def gather_runs(
    answers: Mapping[str, Sequence[NodeState]], silent: Sequence[str]
) -> dict[RunId, dict[str, NodeState | None]]:
    """Put the nodes' lists together, newest run first; a silent node may have had a part in any of them."""
    runs: dict[RunId, dict[str, NodeState | None]] = {}
    for name, states in answers.items():
        for state in (state for state in states if state.run):
            runs.setdefault(state.run, {})[name] = state
    for parts in runs.values():
        missing = max(state.agents for state in parts.values() if state) - len(parts)
        known = {seat.node for seat in roster_of(parts)}
        may = [name for name in silent if not known or name in known]
        parts.update(dict.fromkeys(may if missing > 0 else (), None))
    return dict(sorted(runs.items(), key=lambda item: -submitted(item[1])))


def is_complete(parts: Parts) -> bool:
    """Tell whether every node has spoken that takes part in a run, or waits to."""
    roster = roster_of(parts)
    if roster:
        return all(seat.lost or parts.get(seat.node) for seat in roster)
    return len(parts) >= max((state.agents for state in parts.values() if state), default=1 << 30)


def submitted(parts: Parts) -> float:
    """Give when a run was launched."""
    return max((state.submitted for state in parts.values() if state), default=0.0)


def is_live(parts: Parts) -> bool:
    """Tell whether any known part of a run lives."""
    return any(state.live for state in parts.values() if state)


def owner_of(parts: Parts) -> Owner:
    """Give who launched a run."""
    return next((Owner(state.launched_by, state.launched_id) for state in parts.values() if state), Owner(""))


def own_first(runs: Runs, me: Owner) -> dict[RunId, Parts]:
    """Put one's own runs before the others', each in the order in which they came."""
    return dict(sorted(runs.items(), key=lambda item: not owner_of(item[1]).is_same(me)))


def choose_run(runs: Runs, wanted: str | None, me: Owner) -> RunId:
    """Give the run with that prefix, or the newest of one's own."""
    if wanted is not None:
        return _by_prefix(runs, wanted)
    for run, parts in runs.items():
        if owner_of(parts).is_same(me):
            return run
    raise UsageError(
        f"no run of yours ({me.name}) on these nodes" if runs else "no runs on these nodes",
        code="CC-USE-020",
        fix=f"name one: {_some(runs)}{_namesake(runs, me)}"
        if runs
        else "clusterctl launch JOB.yaml starts one",
    )


def choose_to_attach(runs: Runs, wanted: str | None, me: Owner) -> RunId:
    """Give the run to attach to: the named one, the newest live one of one's own, or the newest of one's own."""
    live = {run: parts for run, parts in runs.items() if is_live(parts) and owner_of(parts).is_same(me)}
    return next(iter(live)) if wanted is None and live else choose_run(runs, wanted, me)


def choose_live_run(runs: Runs, wanted: str | None, me: Owner) -> RunId:
    """Give the run to stop: the named one, also if no node remembers it, or the only live one of one's own."""
    if wanted is not None:
        return parse_run_id(wanted) or _by_prefix(runs, wanted)
    live = [run for run, parts in runs.items() if is_live(parts) and owner_of(parts).is_same(me)]
    if len(live) == 1:
        return live[0]
    if not live:
        others = {run: parts for run, parts in runs.items() if is_live(parts)}
        raise UsageError(
            f"no live run of yours ({me.name})",
            code="CC-USE-021",
            fix=f"others' runs must be named: {_some(others)}{_namesake(others, me)}"
            if others
            else "clusterctl ps lists what there was",
        )
    raise UsageError(f"{len(live)} runs are live", code="CC-USE-022", fix="name one: " + ", ".join(live))


def may_hold(name: str, parts: Parts, answered: Collection[str]) -> bool:
    """Tell whether a node may have processes of a run: it says so, or a part is missing that may have been removed."""
    if name in parts:
        return parts[name] is not None
    complete = len(parts) >= max((state.agents for state in parts.values() if state), default=1)
    return not complete and name in answered


def _by_prefix(runs: Runs, prefix: str) -> RunId:
    whole = parse_run_id(prefix)
    if whole is not None and whole in runs:
        return whole
    matches = [run for run in runs if run.startswith(prefix)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise UsageError(
            f"no run {prefix!r} on these nodes",
            code="CC-USE-023",
            fix=f"there are: {_some(runs)}"
            if runs
            else "`clusterctl ps` lists the runs that the nodes remember",
        )
    raise UsageError(
        f"{prefix!r} fits {len(matches)} runs", code="CC-USE-024", fix="one of: " + ", ".join(matches)
    )


def _namesake(runs: Runs, me: Owner) -> str:
    """Say why a run that bears one's own name is not one's own."""
    if any(owner_of(parts).name == me.name for parts in runs.values()):
        return f"; {me.name} launched from another machine or with another state directory counts as another"
    return ""


def _some(runs: Runs) -> str:
    names = list(runs)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
