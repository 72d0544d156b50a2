"""The locks of a launch on all its nodes: who holds them, who yields, and the wait until all are free.

Every agent takes its node's locks by itself, all or none, and reports that before it is ready. Only where one found a
holder there is more to do. Two launches that meet while they prepare cannot wait for each other: the one submitted
later lets go of everything first, so that the earlier one gets all.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.session import Session
from clusterctl.errors import NodesBusy
from clusterctl.interrupts import INTERRUPTS
from clusterctl.plans.facts.facts import describe_holders, parse_holders
from clusterctl.protocol.messages.facts import LockHolder
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.nodeset import fold_names
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import Spec
    from clusterctl.protocol.messages.verbs import EventName, LockOrder

PREPARE_LIMIT = 2.0  # seconds for launches that meet while they prepare
POLL = 2.0  # seconds between looks at whether all is free
MAX_LINES = 12
MAX_LOCK_SKEW = 5.0  # seconds between the locks of one run on two nodes

HoldersByNode = dict[str, tuple[LockHolder, ...]]  # by node; nodes that are ours are left out


@dataclass(frozen=True)
class LockPolicy:
    """What to do when another run holds the locks: `wait` for it, and `notify` the user of it."""

    wait: bool = False
    notify: Callable[[str], None] = lambda _: None


def parse_lock_holders(events: Mapping[EventName, Untrusted]) -> tuple[LockHolder, ...]:
    """Read the lock holders from the events of an agent."""
    return parse_holders(events["locks"].unread("holders") or ()) if "locks" in events else ()


def busy_error(blocked: HoldersByNode, specs: Mapping[str, Spec]) -> NodesBusy:
    """Return the error that names every holder."""
    return NodesBusy(
        "CC-RUN-040", node=fold_names(blocked), evidence="\n".join(describe_blocked(blocked, specs))
    )


def describe_blocked(blocked: HoldersByNode, specs: Mapping[str, Spec]) -> list[str]:
    """Describe the lock holders; nodes with the same holders are folded."""
    groups: dict[str, list[str]] = {}
    for name, holders in _align_ages(blocked).items():
        gpus = specs[name].get("gpus") or ()
        indices = {gpu["id"]: gpu["index"] for gpu in gpus if gpu["index"] is not None}
        for line in describe_holders(holders, indices, _render_since):
            groups.setdefault(line, []).append(name)
    lines = [f"{fold_names(names)}: {line}" for line, names in groups.items()]
    return lines[:MAX_LINES] + _render_rest(len(lines) - MAX_LINES)


def _render_rest(count: int) -> list[str]:
    return [trn("and {n} more", "and {n} more", count)] if count > 0 else []


def _align_ages(blocked: HoldersByNode) -> HoldersByNode:
    """Use the same age for a run on all nodes where these differ by a moment, so that it is reported once."""
    ages: dict[str, float] = {}
    for holder in _all_holders(blocked):
        if holder.run and holder.age is not None:
            ages[holder.run] = max(ages.get(holder.run, 0.0), holder.age)

    def aligned(holder: LockHolder) -> LockHolder:
        age = ages.get(holder.run or "", holder.age)
        near = age is not None and holder.age is not None and age - holder.age < MAX_LOCK_SKEW
        return holder.replace(age=age) if near else holder

    return {name: tuple(map(aligned, holders)) for name, holders in blocked.items()}


def _render_since(age: float) -> str:
    """Describe since when, by the clock of this machine."""
    started = time.localtime(time.time() - max(0.0, min(age, 1e9)))
    clock = time.strftime("%H:%M:%S" if age < 86400 else "%Y-%m-%d %H:%M", started)
    return tr("since {time}", time=clock)


class LockWaiter:
    """The locks of one launch, whose agents are all up."""

    def __init__(
        self, sessions: Mapping[str, Session], specs: Mapping[str, Spec], lock_policy: LockPolicy
    ) -> None:
        self._sessions, self._specs, self._lock_policy = sessions, specs, lock_policy
        first = next(iter(specs.values()))
        self._priority = (float(first.get("submitted") or 0.0), str(first["run"]))
        self._reported: set[tuple[str, str | None, str | None]] = set()

    def acquire(self, blocked: HoldersByNode) -> None:
        """Return when all nodes are ours; NodesBusy if that is not to be waited for."""
        began = time.monotonic()
        while blocked:
            waited_out = time.monotonic() - began > PREPARE_LIMIT or any(
                map(will_not_yield, _all_holders(blocked))
            )
            if waited_out and not self._lock_policy.wait:
                raise busy_error(blocked, self._specs)
            if waited_out or not self._is_first(_all_holders(blocked)):
                self._send_order("unlock", self._sessions)
            if waited_out:
                self._wait_until_free(blocked)
                began = time.monotonic()
            else:
                INTERRUPTS.sleep(random.uniform(0.05, 0.3))
            blocked = self._send_order("lock", self._sessions)

    def _wait_until_free(self, blocked: HoldersByNode) -> None:
        """Poll, holding nothing, until no other run holds a lock."""
        while blocked:
            waiting_for = {
                (name, holder.name, holder.run) for name, holders in blocked.items() for holder in holders
            }
            # fewer holders, or another age of the same ones, is no news
            if not waiting_for <= self._reported:
                self._reported = waiting_for
                self._lock_policy.notify(
                    tr(
                        "waiting (Ctrl-C cancels) for {holders}",
                        holders="; ".join(describe_blocked(blocked, self._specs)),
                    )
                )
            INTERRUPTS.sleep(POLL * random.uniform(0.8, 1.2))
            blocked = self._send_order("list_holders", self._sessions)

    def _is_first(self, holders: Sequence[LockHolder]) -> bool:
        """Return whether this launch was submitted before all that are in its way."""
        return all(self._priority < (holder.submitted or 0.0, holder.run or "") for holder in holders)

    def _send_order(self, order: LockOrder, nodes: Mapping[str, Session]) -> HoldersByNode:
        """Send an order to all nodes, and then read all answers."""
        for session in nodes.values():
            session.send({"do": order})
        answers = {
            name: parse_lock_holders(tasks.await_event(session, "locks", tasks.ANSWER_LIMIT, node=name))
            for name, session in nodes.items()
        }
        return {name: holders for name, holders in answers.items() if holders}


def will_not_yield(holder: LockHolder) -> bool:
    """Return whether a holder will not yield: its run has started, or is unknown."""
    return bool(holder.going) or not holder.run


def _all_holders(blocked: HoldersByNode) -> list[LockHolder]:
    return [holder for holders in blocked.values() for holder in holders]
