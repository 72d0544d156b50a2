"""The verb `idle`: loads the next verb, whose client needs not wait for a process and its imports then."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....protocol.messages.verbs import IdleRequest
    from ...runtime.stream import Stream


def run(request: IdleRequest, stream: Stream) -> None:  # noqa: ARG001 - as other verbs
    """Return when the module is loaded."""
    import_module("clusterctl.node.verbs." + request["module"])
