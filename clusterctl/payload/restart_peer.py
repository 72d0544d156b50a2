"""A peer of a gang that may start the run again: it hears of further attempts, and looks for the next hub."""

from __future__ import annotations

from typing import Optional

from .gang import FAILURE, Facts, Order, Part
from .messages import Again, Go, Gone, Message, Pause, Verdict, Welcome, as_facts
from .peer import Peer
from .seal import SealError
from .standing import Standing


class RestartPeer(Peer):
    """The gang as any seat but the hub's sees it."""

    def __init__(self, standing: Standing, hub: int) -> None:
        super().__init__(standing.side)
        self.standing = standing
        self.course = standing.course
        self._hub_seat, self._hub = hub, self.course.node(hub)
        self._master_port: Optional[int] = None
        self._follows = False

    def follow(self, address: str, port: int) -> None:
        """Go to who is to be the next hub, our part having ended."""
        self._follows = self._going = True
        self._part = self.standing.part
        self._address = address
        self.join(port)

    # what the hub says

    def _hear(self, message: Message) -> None:
        if isinstance(message, (Pause, Again)):
            self._going = True  # GO was given, also where the client's has not come yet
        if isinstance(message, Welcome) and self._follows and not self._welcome:
            super()._hear(message)
            self._introduce()
        elif isinstance(message, Gone):
            self._hear_loss(message)
        elif isinstance(message, Pause):
            self.course.follow(message.course)
            self.standing.restarts.pause(message.entry, message.seconds)
            self._expect_hub()
        elif isinstance(message, Again):
            self._begin(message)
        elif isinstance(message, Go):
            self.standing.restarts.go(message.address, message.port)
        elif isinstance(message, Order):
            self._hear_stop(message)
        elif isinstance(message, Verdict):
            self._hear_verdict(message)
        else:
            super()._hear(message)

    def _introduce(self) -> None:
        """Tell the next hub what we know, and what became of our part."""
        self.standing.found()
        self._send("hello", part=self._part, **self.course.as_facts())
        self._expect_hub()
        if self.standing.clear is not None:
            self._send("clear", **self.standing.clear)
        if self.standing.wish is not None:
            self._send("stop", **as_facts(self.standing.wish, self.bounds))

    def _hear_loss(self, message: Gone) -> None:
        if message.seat == self.course.here:
            raise SealError("it told us that we are lost")
        self.course.lose(message.seat, message.why)

    def _begin(self, message: Again) -> None:
        if message.course.attempt <= self.course.attempt:
            raise SealError(f"it began attempt {message.course.attempt} after {self.course.attempt}")
        self.course.follow(message.course)
        self._part, self._master_port = None, None
        self.side.loop.drop("hub")
        self.standing.restarts.time_given = message.time_left
        self.standing.begin()

    def _hear_stop(self, order: Order) -> None:
        self.standing.hear_wish(order)
        self._take_order(order)
        if self._part is None and not (self.standing.idle and order.kind == FAILURE):
            self.side.stop(order)

    def _hear_verdict(self, verdict: Verdict) -> None:
        self._keep(verdict)
        self.standing.restarts.conclude(verdict.end)

    # the hub is gone

    def _give_up(self, why: str) -> None:
        """Try the next one, unless nothing has begun yet."""
        if self._follows:
            self._over = True
            self.course.lose(self._hub_seat, why)
            self.standing.succeed(self._hub_seat)
        else:
            super()._give_up(why)

    def _lose(self, why: str) -> None:
        """End our part, if it has not ended, and then look who follows."""
        if self._told or self._over or not self._going:
            super()._lose(why)
            return
        self._channel = None
        self.side.loop.drop("join")
        self.side.loop.drop("hub")
        self._over = True
        self.course.lose(self._hub_seat, why)
        if self._part is not None or self.standing.idle:
            self.standing.succeed(self._hub_seat)
        else:
            self.side.stop(self._without_hub(why))

    # what happens here

    def departs(self, event: str, facts: Facts) -> None:
        """Tell the hub how far the attempt has come."""
        if event == "port":
            self._master_port = int(facts["port"])
        elif event == "ready":
            self._send("ready", port=self._master_port, address=self.standing.address)
        elif event == "listening":
            self._send("listening", port=int(facts["port"]))

    def ended(self, part: Part) -> None:
        """Tell the hub; if there is none any more, look for the next."""
        if self._over and not self._told:
            self._part = part
            self.standing.succeed(self._hub_seat)
        else:
            super().ended(part)

    def cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """Tell the hub that we could begin anew."""
        self._send("clear", unfit=unfit, progress=progress)

    def desert(self) -> None:
        """Close the connection."""
        self._over = True
        for name in ("join", "farewell", "hub"):
            self.side.loop.drop(name)
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _send(self, kind: str, **facts: object) -> None:
        super()._send(kind, attempt=self.course.attempt, **facts)

    def _leave(self) -> None:
        self.standing.close()
        super()._leave()
