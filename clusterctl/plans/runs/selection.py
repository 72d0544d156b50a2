"""Which run is meant; owner."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from clusterctl.errors import UsageError
from clusterctl.plans.runs.state import NodeState, Parts, roster_of
from clusterctl.plans.runs.verdict import find_lost, has_ended
from clusterctl.protocol.run_id import RunId, parse_run_id
from clusterctl.protocol.run_paths import is_meant
from clusterctl.translation import tr


@dataclass(frozen=True)
class Owner:
    """A person who launches: `name` is `user@host`, `id` random and kept in the user's state directory."""

    name: str
    id: str = ""

    def is_same(self, other: Owner) -> bool:
        """Return whether both are one; two laptops may have the same user and host name, one may change its own."""
        if self.id and other.id:
            return self.id == other.id
        return self.name == other.name


Runs = Mapping[RunId, Parts]


def gather_runs(
    answers: Mapping[str, Sequence[NodeState]], silent: Sequence[str]
) -> dict[RunId, dict[str, NodeState | None]]:
    """Put the nodes' lists together, newest run first; a silent node may have had a part in any of them."""
    runs: dict[RunId, dict[str, NodeState | None]] = {}
    for name, states in answers.items():
        for state in (state for state in states if state.run_id):
            runs.setdefault(state.run_id, {})[name] = state
    for parts in runs.values():
        missing = max(state.agent_count for state in parts.values() if state) - len(parts)
        known = {slot.node for slot in roster_of(parts)}
        possible = [name for name in silent if not known or name in known]
        parts.update(dict.fromkeys(possible if missing > 0 else (), None))
    return dict(sorted(runs.items(), key=lambda item: -submitted_at(item[1])))


def is_complete(parts: Parts) -> bool:
    """Return whether every node has reported that was given a run, but for those that are lost for good.

    A node that has lost half of the others is cut off itself: that its roster calls all others lost means nothing.
    """
    answered, lost = {name for name, state in parts.items() if state}, find_lost(parts)
    expected = max((state.agent_count for state in parts.values() if state), default=1 << 30)
    return len(answered) >= expected or (
        2 * len(lost) < expected and len(answered - lost) >= expected - len(lost)
    )


def submitted_at(parts: Parts) -> float:
    """Return when a run was launched."""
    return max((state.submitted for state in parts.values() if state), default=0.0)


def is_live(parts: Parts) -> bool:
    """Return whether a run has not ended."""
    return not has_ended(parts)


def owner_of(parts: Parts) -> Owner:
    """Return who launched a run."""
    return next((Owner(state.launched_by, state.launched_id) for state in parts.values() if state), Owner(""))


def sort_own_first(runs: Runs, user: Owner) -> dict[RunId, Parts]:
    """Put one's own runs before the others', each in the order in which they came."""
    return dict(sorted(runs.items(), key=lambda item: not owner_of(item[1]).is_same(user)))


def choose_run(runs: Runs, prefix: str | None, user: Owner) -> RunId:
    """Return the run with that prefix, or the newest of one's own."""
    if prefix is not None:
        return _find_by_prefix(runs, prefix)
    for run_id, parts in runs.items():
        if owner_of(parts).is_same(user):
            return run_id
    if not runs:
        raise UsageError("CC-USE-020", "none")
    raise UsageError("CC-USE-020", user=user.name, runs=_render_others(runs, user))


def choose_to_attach(runs: Runs, prefix: str | None, user: Owner) -> RunId:
    """Return the run to attach to: the named one, the newest live one of one's own, or the newest of one's own."""
    live = {
        run_id: parts for run_id, parts in runs.items() if is_live(parts) and owner_of(parts).is_same(user)
    }
    return next(iter(live)) if prefix is None and live else choose_run(runs, prefix, user)


def choose_live_run(runs: Runs, prefix: str | None, user: Owner) -> RunId:
    """Return the run to stop: the named one, also if no node remembers it, or the only live one of one's own."""
    if prefix is not None:
        return parse_run_id(prefix) or _find_by_prefix(runs, prefix)
    live = [run_id for run_id, parts in runs.items() if is_live(parts) and owner_of(parts).is_same(user)]
    if len(live) == 1:
        return live[0]
    if not live:
        others = {run_id: parts for run_id, parts in runs.items() if is_live(parts)}
        if not others:
            raise UsageError("CC-USE-021", "none", user=user.name)
        raise UsageError("CC-USE-021", user=user.name, runs=_render_others(others, user))
    raise UsageError("CC-USE-022", count=len(live), names=", ".join(live))


def may_have_processes(name: str, parts: Parts, answered: Collection[str]) -> bool:
    """Return whether a node may have processes of a run: it reports some, or a part is missing, maybe removed."""
    if name in parts:
        return parts[name] is not None
    complete = len(parts) >= max((state.agent_count for state in parts.values() if state), default=1)
    return not complete and name in answered


def _find_by_prefix(runs: Runs, prefix: str) -> RunId:
    exact = parse_run_id(prefix)
    if exact is not None and exact in runs:
        return exact
    matches = [run_id for run_id in runs if is_meant(run_id, prefix)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise UsageError("CC-USE-023", "" if runs else "none", prefix=prefix, runs=_render_some(runs))
    raise UsageError("CC-USE-024", prefix=prefix, count=len(matches), names=", ".join(matches))


def _render_others(runs: Runs, user: Owner) -> str:
    """List runs of others, and why one that has one's own name is not one's own."""
    shown = _render_some(runs)
    if not any(owner_of(parts).name == user.name for parts in runs.values()):
        return shown
    return tr(
        "{runs}; {user} launched from another machine or with another state directory counts as another",
        runs=shown,
        user=user.name,
    )


def _render_some(runs: Runs) -> str:
    names = list(runs)
    shown, hidden = ", ".join(names[:5]), len(names) - 5
    return tr("{names} and {n} more", names=shown, n=hidden) if hidden > 0 else shown
