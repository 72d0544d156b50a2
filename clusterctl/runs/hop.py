"""One SSH server on the way to a node, every setting decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Hop:
    """A node or a bastion; `name` is the node that errors are about, `jump` the last bastion before it."""

    name: str
    host: str
    user: str
    port: int = 22
    bastion: str = ""  # how it is written, if it is one
    key: str | None = None  # must be usable
    identities: tuple[str, ...] | None = None  # files to try; None: the usual ones
    offered: str | None = None  # a file to try before those
    certificates: tuple[str, ...] = ()
    identities_only: bool = False
    agent: str | None = None  # a socket, `none`, or None for SSH_AUTH_SOCK's
    known_hosts: tuple[str, ...] = ()  # where new keys are recorded first; none: the usual ones
    revoked_keys: str | None = None  # a file; what stands in it is never believed
    host_key_alias: str | None = None
    host_keys: Literal["strict", "accept-new"] = "strict"
    proxy_command: str | None = None  # expanded
    jump: Hop | None = None

    @property
    def place(self) -> str:
        """Say where it is."""
        return f"{self.host} port {self.port}"

    @property
    def called(self) -> str:
        """Say what it is."""
        return f"the bastion {self.bastion}" if self.bastion else "the node"

    def named(self, name: str) -> Hop:
        """Make it the way of another node, for messages."""
        return replace(self, name=name)

    def chain(self) -> Iterator[Hop]:
        """Yield the bastions on the way, the nearest to us first."""
        if self.jump is not None:
            yield from self.jump.chain()
            yield self.jump
