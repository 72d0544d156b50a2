"""Servers that nobody here knows yet: remembered with the key that they showed, so that a person can agree to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from clusterctl.errors import HostKeyError
from clusterctl.runs.hop import Hop
from clusterctl.runs.hostkeys import HostKeys
from clusterctl.runs.knownhosts import fingerprint

UNKNOWN = "CC-SSH-009"


@dataclass(frozen=True)
class Stranger:
    """A server whose host key is not known yet."""

    node: str
    place: str
    key_type: str
    fingerprint: str


class Introductions(HostKeys):
    """Host keys that remembers the unknown ones; those that a person agrees to are accepted, and no others."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        super().__init__(
            lambda new: notice(f"{new.node}: new host key {new.fingerprint} recorded in {new.file}")
        )
        self.strangers: dict[tuple[str, bytes], Stranger] = {}
        self._welcome: set[tuple[str, bytes]] = set()
        self._turn = threading.Lock()

    def verify(self, hop: Hop, key_type: str, key: bytes, certificate: bytes = b"") -> None:
        """Judge as always; an unknown key that was agreed to is recorded."""
        who = (hop.place, key)
        try:
            super().verify(hop, key_type, key, certificate)
        except HostKeyError as error:
            if error.code != UNKNOWN:
                raise
            with self._turn:
                if who not in self._welcome:
                    self.strangers[who] = Stranger(
                        hop.bastion or hop.name, hop.place, key_type, fingerprint(key)
                    )
                    raise
            super().verify(replace(hop, host_keys="accept-new"), key_type, key, certificate)

    def welcome_all(self) -> None:
        """Accept the strangers met so far, each with the very key that it has shown."""
        with self._turn:
            self._welcome |= set(self.strangers)
            self.strangers.clear()
