"""The other nodes, with and without restarts."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Optional

from ...protocol.untrusted import parse_object
from ..runtime.sockets import same
from .channel import NONCE, SHORT_LINE, Channel, Link, Meeting, SealError, describe
from .membership import (
    FAILURE,
    FAILURE_WAIT,
    Facts,
    Gang,
    Order,
    Part,
    Side,
    bounds_of,
    interval_of,
    limit_of,
    overdue_after,
    silent_beats,
)
from .messages import Again, Ask, Go, Gone, Message, Pause, Verdict, Welcome, as_facts, lost_part, make_record
from .restarts import Standing

JOIN_LIMIT = 10.0  # seconds to reach the hub, which may be busy with others
TRY_LIMIT = 5.0  # seconds of one try
PAUSE = 0.2
HUB_LIMIT = 150.0  # seconds beyond what a hub gives the others to end, in which it has told us what follows
LAST_WORDS = 0.2  # seconds for them to arrive before the connection is closed


class Peer(Gang):
    """The gang as any node but the first sees it."""

    def __init__(self, side: Side) -> None:
        super().__init__(side)
        spec = side.spec
        self.bounds = bounds_of(spec)
        self._seat = int(spec.get("seat", spec["node_rank"]))
        self._address, self._hub, self._hub_seat = str(spec["master_addr"]), str(spec["hub"]), 0
        self._port = 0
        self._until = 0.0
        self._conn: Optional[socket.socket] = None
        self._link: Optional[Link] = None
        self._meeting: Optional[Meeting] = None
        self._channel: Optional[Channel] = None
        self._part: Optional[Part] = None
        self._welcome = False
        self._lost = ""
        self._last_seen: Optional[float] = None  # the hub's last sign of life
        self._grace = float(spec.get("grace") or 0.0)  # the longest that a node of this run may take to end
        self._going = self._told = self._over = False
        self._most_quiet = silent_beats(side.spec, interval_of(side.spec))

    # the way to the hub

    def join(self, port: int) -> None:
        """Connect from the training IP and prove the token to each other."""
        self._port = port
        self._until = time.monotonic() + float(self.side.spec.get("join_limit") or JOIN_LIMIT)
        self._try()

    def _try(self) -> None:
        spec, loop = self.side.spec, self.side.loop
        loop.after(TRY_LIMIT, "join", lambda: self._miss("no answer"))
        conn = self._conn = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        conn.setblocking(False)
        try:
            if spec.get("address"):
                conn.bind((spec["address"], 0))
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            conn.connect((self._address, self._port))
        except BlockingIOError:
            pass
        except OSError as error:
            self._miss(describe(error))
            return
        loop.watch_room(conn.fileno(), self._connected)

    def _connected(self) -> None:
        if self._conn is None:
            return
        self.side.loop.forget(self._conn.fileno())
        number = self._conn.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._miss(os.strerror(number))
            return
        conn, self._conn = self._conn, None
        self._link = Link(self.side.loop, conn, self._answer, self._miss)

    def _answer(self, line: bytes) -> None:
        """Take the hub's question, then its proof."""
        said = parse_object(line, SHORT_LINE)
        if self._link is None:
            raise SealError("not the hub of this run")
        if self._meeting is None:
            nonce, spec = said.text("nonce"), self.side.spec
            if len(nonce) != NONCE:
                raise SealError("not the hub of this run")
            self._meeting = Meeting(spec["run"], self._seat, self.here, nonce, os.urandom(16).hex())
            proof = self._meeting.prove(self.side.token, "the peer is who it says")
            about = {"rank": self._meeting.rank, "node": self.here, "nonce": self._meeting.peer_nonce}
            self._link.send(json.dumps({**about, "proof": proof}).encode("ascii") + b"\n")
        elif same(said.text("proof"), self._meeting.prove(self.side.token, "the hub is who it says")):
            self._channel = Channel(self._link, self._meeting, self.side.token, self.bounds, hub=False)
            self._channel.open(self._hear, self._lose)
        else:
            raise SealError("it does not know the token of this run")

    def _miss(self, why: str) -> None:
        """Try again, or say what is in the way."""
        loop = self.side.loop
        loop.drop("join")
        if self._conn is not None:
            loop.forget(self._conn.fileno())
            self._conn.close()
        if self._link is not None:
            self._link.close()
        self._conn, self._link, self._meeting = None, None, None
        if time.monotonic() + PAUSE < self._until:
            loop.after(PAUSE, "join", self._try)
        elif not self._over:
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        """End here: the hub cannot be reached."""
        self.side.tell("join_failed", error=why, port=self._port)
        self.side.stop(Order(f"node 0 ({self._hub}) could not be reached: {why}", 0.0, FAILURE))

    # what the hub says

    def _hear(self, message: Message) -> None:
        if isinstance(message, Ask):
            self._send("beat", at=message.at, time=time.time())
        elif isinstance(message, Welcome) and not self._welcome:
            self._welcome = True
            self.side.loop.drop("join")
            self.side.tell("joined")
        elif isinstance(message, Order):
            self._take_order(message)
            if self._part is None:
                self.side.stop(message)
        elif isinstance(message, Verdict) and self._part is not None:
            self._keep(message)

    def _keep(self, verdict: Verdict) -> None:
        """Keep the hub's record, unless it tells of our own end what is not true."""
        if self._part is not None and not any(map(self._is_ours, verdict.record["parts"])):
            raise SealError("it sent a record without this node's own part")
        self._told = True
        self.side.loop.drop("hub")
        self.side.keep(verdict.record)
        self._send("ack")
        self.side.loop.after(FAILURE_WAIT, "farewell", self._leave)

    def _is_ours(self, part: Facts) -> bool:
        return self._part is not None and (part["node"], part["state"]) == (self.here, self._part["state"])

    def _take_order(self, order: Order) -> None:
        """The run is to end: if our part has, only the others are waited for."""
        self._grace = max(self._grace, min(order.grace, self.bounds.grace))
        if self._part is not None:
            self._expect_hub()

    def _expect_hub(self) -> None:
        """The run ends and our part has: a hub that never says how is as good as lost."""
        limit = overdue_after(self.side.spec, self._grace) + float(
            self.side.spec.get("hub_limit") or HUB_LIMIT
        )
        self.side.loop.after(limit, "hub", lambda: self._give_up_hub("it did not report how the run ended"))

    def _give_up_hub(self, why: str) -> None:
        if self._channel is not None:
            self._channel.close()
            self._lose(why)

    def _lose(self, why: str) -> None:
        """End our part without the hub; if it has ended, all that can be done is done."""
        self._forget_channel()
        self.side.loop.drop("join")
        self.side.loop.drop("hub")
        self._lost = why
        if self._part is not None:
            self._conclude()
        elif not self._over:
            self.side.tell("join_failed", error=why, port=self._port)
            self.side.stop(self._without_hub(why))

    def _forget_channel(self) -> None:
        """Forget the connection, but for when the hub was last heard."""
        if self._channel is not None:
            self._last_seen, self._channel = self._channel.last_seen, None

    def _without_hub(self, why: str) -> Order:
        return Order(f"node {self._hub_seat} ({self._hub}) is lost: {why}", FAILURE_WAIT, FAILURE)

    # what happens here

    def went(self) -> None:
        """From now on the others are to hear of our end, and we of theirs."""
        self._going = True

    def failed(self, reason: str) -> None:
        """Tell the hub of a failure."""
        self._send("failed", reason=reason)

    def stopped(self, order: Order) -> None:
        """Tell the hub of somebody's wish."""
        self._send("stop", **as_facts(order, self.bounds))
        self._take_order(order)

    def ended(self, part: Part) -> None:
        """Tell the hub, and wait for what it makes of all parts; before GO there is no such thing."""
        self._part = part
        if self._channel is None:
            self._conclude()
            return
        self._send("ended", part=part)
        if part["state"] != "SUCCEEDED":
            self._expect_hub()
        if not self._going:
            self.side.loop.after(LAST_WORDS, "farewell", self._leave)

    def beat(self) -> None:
        """Count the hub's silence."""
        channel = self._channel
        if channel is None:
            return
        channel.quiet += 1
        if channel.quiet > self._most_quiet:
            self._give_up_hub(f"it was silent for {limit_of(self.side.spec):g} s")

    def _send(self, kind: str, **facts: object) -> None:
        if self._channel is not None:
            self._channel.send(kind, **facts)

    def _conclude(self) -> None:
        """Keep what is known here: our part, and that the hub is gone."""
        if self._lost and self._part is not None and not self._told:
            hub = lost_part(self._hub, 0, self._lost, time.time(), self._last_seen)
            self.side.keep(make_record(self.side.spec, [hub, self._part], None, whole=False))
        self._leave()

    def _leave(self) -> None:
        for name in ("farewell", "join", "hub"):
            self.side.loop.drop(name)
        if self._channel is not None:
            self._channel.close()
        if not self._over:
            self._over = True
            self.side.leave()


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
        self._forget_channel()
        if self._last_seen is not None:
            self.standing.last_seen[self._hub_seat] = self._last_seen
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
