"""A peer of a gang that may start the run again: it hears of further attempts, and looks for the next hub."""

from __future__ import annotations

from typing import Optional

from .gang import FAILURE, FAILURE_WAIT, Order, Part, as_facts, read_order
from .peer import Peer
from .seal import Message
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
        kind = message["kind"]
        if kind in ("pause", "again"):
            self._going = True  # GO was given, also where the client's has not come yet
        if kind == "welcome" and self._follows and not self._welcome:
            super()._hear(message)
            self.standing.found()
            self._send("hello", part=self._part, **self.course.as_facts())
            if self.standing.clear is not None:
                self._send("clear", **self.standing.clear)
            if self.standing.wish is not None:
                self._send("stop", **as_facts(self.standing.wish))
        elif kind == "lost":
            self.course.lose(int(message["seat"]), str(message["why"]))
        elif kind == "pause":
            self.course.take(message)
            self.standing.restarts.pause(message["entry"], float(message["seconds"]))
        elif kind == "again":
            self._begin(message)
        elif kind == "go":
            self.standing.restarts.go(str(message["master_addr"]), int(message["master_port"]))
        elif kind == "stop":
            self._hear_stop(read_order(message))
        elif kind == "verdict":
            self._hear_verdict(message)
        else:
            super()._hear(message)

    def _begin(self, message: Message) -> None:
        self.course.take(message)
        self._part, self._master_port = None, None
        self.standing.restarts.time_given = message.get("time_left")
        self.standing.begin()

    def _hear_stop(self, order: Order) -> None:
        self.standing.hear_wish(order)
        if self._part is None and not (self.standing.idle and order.kind == FAILURE):
            self.side.stop(order)

    def _hear_verdict(self, message: Message) -> None:
        self._told = True
        self.side.keep(message["record"])
        self.standing.restarts.conclude(message["end"])
        self._send("ack")
        self.side.loop.after(FAILURE_WAIT, "farewell", self._leave)

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
        self._over = True
        self.course.lose(self._hub_seat, why)
        if self._part is not None or self.standing.idle:
            self.standing.succeed(self._hub_seat)
        else:
            self.side.stop(self._without_hub(why))

    # what happens here

    def departs(self, event: str, facts: Message) -> None:
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
        self.side.loop.drop("join")
        self.side.loop.drop("farewell")
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _send(self, kind: str, **facts: object) -> None:
        super()._send(kind, attempt=self.course.attempt, **facts)

    def _leave(self) -> None:
        self.standing.close()
        super()._leave()
