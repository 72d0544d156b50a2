"""One command on one node, as data: its arguments go there, what it writes comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clusterctl.errors import NodeError
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.runs.session import Session

STREAMS = ("stdout", "stderr")
MOST_LEFT, LONGEST_NAME = 64, 64  # processes that run on, and characters of each name
NOISY_EXIT = 255  # shown for an answer that tells neither exit code nor signal

Hear = Callable[[str, bytes], None]


@dataclass(frozen=True)
class Ended:
    """How a command ended; `cut` names the streams of which only the beginning was sent, `left` what runs on."""

    exit: int | None
    signal: int | None
    cut: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Tell whether it ended with 0."""
        return self.exit == 0


@dataclass(frozen=True)
class Answer:
    """All that a command wrote on one node, and how it ended; equal answers are shown once."""

    stdout: bytes
    stderr: bytes
    ended: Ended


def hear_command(session: Session, keep: int | None, hear: Hear) -> Ended:
    """Pass on what the command writes until it has ended; a node that sends more than asked is stopped."""
    heard = dict.fromkeys(STREAMS, 0)
    while (frame := session.receive()) is not None:
        header, body = frame
        stream = header.one_of("stream", STREAMS)
        if stream:
            heard[stream] += len(body)
            if keep is not None and heard[stream] > keep:
                break
            hear(stream, body)
        elif header.has_record("ended"):
            return parse_ended(header.record("ended"))
    raise NodeError("what the node sent cannot be understood", code="CC-RUN-004", evidence=session.stderr)


def parse_ended(raw: Untrusted) -> Ended:
    """Read how a command ended."""
    code, number = raw.integer("exit", 0, 255), raw.integer("signal", 1, 128)
    cut = raw.texts("cut", len(STREAMS))
    named = tuple(name for name in STREAMS if name in cut)
    staying = raw.texts("left", MOST_LEFT, LONGEST_NAME)
    return Ended(NOISY_EXIT if code is None and number is None else code, number, named, staying)


class Collected:
    """Keeps what a command writes."""

    def __init__(self) -> None:
        self._parts: dict[str, list[bytes]] = {name: [] for name in STREAMS}

    def hear(self, stream: str, data: bytes) -> None:
        """Keep a piece."""
        self._parts[stream].append(data)

    def answer(self, ended: Ended) -> Answer:
        """Give all of it."""
        return Answer(b"".join(self._parts["stdout"]), b"".join(self._parts["stderr"]), ended)
