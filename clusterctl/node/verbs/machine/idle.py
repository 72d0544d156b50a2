"""The verb `idle`: nothing. Its process waits for the next verb, whose client needs not wait for a process then."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....protocol.messages.verbs import Workdir
    from ...runtime.stream import Stream


def run(request: Workdir, stream: Stream) -> None:
    """Return at once."""
