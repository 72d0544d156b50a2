"""Verb `idle`: nothing to do yet; the process waits for the verb that is sent next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...protocol.messages.verbs import Workdir
    from ..runtime.stream import Stream


def run(request: Workdir, stream: Stream) -> None:
    """End at once; `node/boot.py` waits."""
