"""What client and node send each other during the verb `tunnel`; the bytes of a channel are in the body."""

from __future__ import annotations

from typing import TypedDict


class OpenChannel(TypedDict):
    """Begin a channel, with a number of the client's."""

    open: int


class ChannelData(TypedDict):
    """Bytes of a channel, in the body."""

    data: int


class ChannelTaken(TypedDict):
    """So many bytes of a channel have been passed on, so that as many more may be sent."""

    taken: int
    bytes: int


class TerminalSize(TypedDict):
    """Rows and columns of the client's terminal."""

    size: list[int]


class _CloseChannel(TypedDict):
    """No more is sent on this channel."""

    close: int


class CloseChannel(_CloseChannel, total=False):
    """No more is sent on this channel; a node gives the reason."""

    reason: str


class RankWaits(TypedDict):
    """The rank waits at a breakpoint; null: it does not yet."""

    waits: int | None


class TunnelFrame(OpenChannel, ChannelData, ChannelTaken, TerminalSize, CloseChannel):
    """Any of them, as it is received: the key that is there says which it is."""
