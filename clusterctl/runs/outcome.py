"""What became of one node: a value, or the error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from clusterctl.errors import ClusterctlError
from clusterctl.specs.inventory import Node

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The end of one node's part; `value` is None when there is an `error`; `seconds` is how long it took."""

    node: Node
    value: T | None
    error: ClusterctlError | None
    seconds: float

    @property
    def ok(self) -> bool:
        """Tell whether the node did its part."""
        return self.error is None
