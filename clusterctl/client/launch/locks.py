"""The locks of a launch on all its nodes: who is in the way, who makes way, and the wait until all are free.

Every agent takes its node's locks by itself, all or none, and says so before it is ready. Only where one found a
holder there is more to do. Two launches that meet while they prepare cannot wait for each other: the one submitted
later lets go of everything first, so that the earlier one gets all.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.session import Session
from clusterctl.errors import NodesBusy
from clusterctl.plans.facts.gpu_use import describe_holders, parse_holders
from clusterctl.plans.facts.records import Holder
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.nodeset import fold_names

PATIENCE = 2.0  # seconds for launches that meet while they prepare
POLL = 2.0  # seconds between looks at whether all is free
MOST_LINES = 12
MOMENT = 5.0  # seconds between the locks of one run on two nodes

InTheWay = dict[str, tuple[Holder, ...]]  # by node; nodes that are ours are left out


@dataclass(frozen=True)
class Manners:
    """What to do when somebody is in the way: `wait` for him, and `tell` for whom."""

    wait: bool = False
    tell: Callable[[str], None] = lambda _: None


def heard(seen: Mapping[str, Untrusted]) -> tuple[Holder, ...]:
    """Read who was in the way from what an agent has said."""
    return parse_holders(seen["locks"].unread("holders") or ()) if "locks" in seen else ()


def refuse(found: InTheWay, specs: Mapping[str, Mapping[str, Any]]) -> NodesBusy:
    """Give the error that names every holder."""
    return NodesBusy(
        "another run has what this one needs",
        code="CC-RUN-040",
        node=fold_names(found),
        evidence="\n".join(describe(found, specs)),
        fix="`clusterctl launch --wait` waits until it is free; or take other GPUs (`gpus:`) or nodes (--exclude)",
    )


def describe(found: InTheWay, specs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say who is in the way, nodes with the same words folded."""
    alike: dict[str, list[str]] = {}
    for name, holders in _with_one_age(found).items():
        gpus = specs[name].get("gpus") or ()
        indices = {gpu["id"]: gpu["index"] for gpu in gpus if gpu["index"] is not None}
        for line in describe_holders(holders, indices, _since):
            alike.setdefault(line, []).append(name)
    lines = [f"{fold_names(names)}: {line}" for line, names in alike.items()]
    return lines[:MOST_LINES] + ([f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else [])


def _with_one_age(found: InTheWay) -> InTheWay:
    """Give a run the same age on all nodes where these differ by a moment, so that it is told once."""
    ages: dict[str, float] = {}
    for holder in _all(found):
        if holder.run and holder.age is not None:
            ages[holder.run] = max(ages.get(holder.run, 0.0), holder.age)

    def settled(holder: Holder) -> Holder:
        age = ages.get(holder.run or "", holder.age)
        near = age is not None and holder.age is not None and age - holder.age < MOMENT
        return replace(holder, age=age) if near else holder

    return {name: tuple(map(settled, holders)) for name, holders in found.items()}


def _since(age: float) -> str:
    """Say since when, by the clock of this machine."""
    begun = time.localtime(time.time() - max(0.0, min(age, 1e9)))
    return time.strftime("since %H:%M:%S" if age < 86400 else "since %Y-%m-%d %H:%M", begun)


class Claim:
    """The locks of one launch, whose agents are all up."""

    def __init__(
        self, leashes: Mapping[str, Session], specs: Mapping[str, Mapping[str, Any]], manners: Manners
    ) -> None:
        self._leashes, self._specs, self._manners = leashes, specs, manners
        first = next(iter(specs.values()))
        self._place = (float(first.get("submitted") or 0.0), str(first["run"]))
        self._told: set[tuple[str, str | None, str | None]] = set()

    def settle(self, found: InTheWay) -> None:
        """Return when all nodes are ours; NodesBusy if that is not to be waited for."""
        began = time.monotonic()
        while found:
            over = time.monotonic() - began > PATIENCE or any(map(is_settled, _all(found)))
            if over and not self._manners.wait:
                raise refuse(found, self._specs)
            if over or not self._is_first(_all(found)):
                self._ask("unlock", self._leashes)
            if over:
                self._wait(found)
                began = time.monotonic()
            else:
                time.sleep(random.uniform(0.05, 0.3))
            found = self._ask("lock", self._leashes)

    def _wait(self, found: InTheWay) -> None:
        """Look from time to time, holding nothing, until nobody is in the way."""
        while found:
            who = {(name, one.name, one.run) for name, holders in found.items() for one in holders}
            if not who <= self._told:  # that some have left is no news, nor that a clock is read anew
                self._told = who
                self._manners.tell("waiting (Ctrl-C cancels) for " + "; ".join(describe(found, self._specs)))
            time.sleep(POLL * random.uniform(0.8, 1.2))
            found = self._ask("look", self._leashes)

    def _is_first(self, holders: Sequence[Holder]) -> bool:
        """Tell whether this launch was submitted before all that are in its way."""
        return all(self._place < (holder.submitted or 0.0, holder.run or "") for holder in holders)

    def _ask(self, order: str, nodes: Mapping[str, Session]) -> InTheWay:
        """Give an order to all nodes, and then hear all."""
        for leash in nodes.values():
            leash.send({"do": order})
        answers = {
            name: heard(tasks.await_event(leash, "locks", tasks.ANSWER_LIMIT, node=name))
            for name, leash in nodes.items()
        }
        return {name: holders for name, holders in answers.items() if holders}


def is_settled(holder: Holder) -> bool:
    """Tell whether a holder will not make way: its run has started, or it does not say."""
    return bool(holder.going) or not holder.run


def _all(found: InTheWay) -> list[Holder]:
    return [holder for holders in found.values() for holder in holders]
