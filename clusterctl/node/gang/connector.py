"""A peer's connection to the hub: from the training IP, each proves the token, tried again until a deadline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, Optional

from ...protocol.ranks import Slot
from ...protocol.untrusted import Untrusted
from ..runtime.connections import AuthenticatingCaller, LineSocket
from .channel import Handshake, SecureChannel
from .membership import GangContext, read_bounds

if TYPE_CHECKING:
    from ...protocol.messages.network import GangAnswer
    from ..runtime.connections import HandshakeAnswer

JOIN_LIMIT = 10.0  # seconds to reach the hub, which may be busy with others
TRY_LIMIT = 5.0  # seconds of one try, up to the hub's welcome
RETRY_PAUSE = 0.2
TIMER = "join"


class Connector:
    """Hands over a channel for each try in which the hub proved itself, and reports when the last one has failed."""

    def __init__(
        self,
        context: GangContext,
        slot: Slot,
        on_channel: Callable[[SecureChannel], None],
        on_unreachable: Callable[[str], None],
    ) -> None:
        self._context, self._slot = context, slot
        self._on_channel, self._on_unreachable = on_channel, on_unreachable
        self._address, self.port, self._deadline = "", 0, 0.0
        self._caller: Optional[AuthenticatingCaller] = None
        self._handshake: Optional[Handshake] = None
        self._proven = False

    def connect(self, address: str, port: int) -> None:
        """Try until it is stopped, or the deadline has come."""
        self._address, self.port = address, port
        self._deadline = time.monotonic() + float(self._context.spec.get("join_limit") or JOIN_LIMIT)
        self._try()

    def stop(self) -> None:
        """Try no more: the hub has welcomed us, or its welcome is not needed."""
        self._context.loop.cancel(TIMER)
        if self._caller is not None and not self._proven:
            self._caller.line_socket.close()

    def _try(self) -> None:
        loop, source = self._context.loop, str(self._context.spec.get("address") or "")
        loop.after(TRY_LIMIT, TIMER, lambda: self._on_failed("no answer"))
        self._proven = False
        self._caller = AuthenticatingCaller(loop, self._answer, self._on_proven, self._on_failed)
        self._caller.connect((self._address, self.port), source, (TRY_LIMIT, TRY_LIMIT))

    def _answer(self, hub_nonce: str, own_nonce: str) -> HandshakeAnswer:
        spec, token = self._context.spec, self._context.token
        handshake = Handshake(spec["run"], self._slot, str(spec["node"]), hub_nonce, own_nonce)
        self._handshake = handshake
        proof = handshake.prove(token, "the peer is who it says")
        fields: GangAnswer = {"slot": self._slot, "node": handshake.node, "nonce": own_nonce, "proof": proof}
        return fields, handshake.prove(token, "the hub is who it says")

    def _on_proven(self, line_socket: LineSocket, _: Untrusted) -> None:
        assert self._handshake is not None
        self._proven = True
        bounds, token = read_bounds(self._context.spec), self._context.token
        self._on_channel(SecureChannel(line_socket, self._handshake, token, bounds, hub=False))

    def _on_failed(self, why: str) -> None:
        """Try again, or report why not."""
        self._context.loop.cancel(TIMER)
        if self._caller is not None:
            self._caller.line_socket.close()
        if time.monotonic() + RETRY_PAUSE < self._deadline:
            self._context.loop.after(RETRY_PAUSE, TIMER, self._try)
        else:
            self._on_unreachable(why)
