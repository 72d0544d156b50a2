"""What a node told of the environment that the job's `setup` makes, and what it cannot tell before that is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterctl.plans.facts_records import Installed, Nccl, Torch

if TYPE_CHECKING:
    from clusterctl.plans.facts import Facts

PACKAGES = frozenset({"torch", "nccl", "packages", "installed"})  # answers that depend on the environment


@dataclass(frozen=True)
class Made:
    """Whether the environment is there (`None`: the job has none), where, and whether packages are known only then."""

    made: bool | None = None
    prefix: str | None = None
    pending: bool = False


def await_setup(facts: Facts, *, brings_torch: bool) -> Facts:
    """Forget what the node's own Python said of packages where the environment will have others."""
    if facts.setup.made is not False or (facts.torch.version and not brings_torch):
        return facts
    pending = replace(facts.setup, pending=True)
    nothing = {"torch": Torch(), "nccl": Nccl(), "packages": {}, "installed": Installed()}
    return replace(facts, setup=pending, **nothing)  # type: ignore[arg-type]  # each fits its field
