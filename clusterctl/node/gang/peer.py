"""The other nodes, with and without restarts."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Optional

from ...protocol.ranks import NodeRank, Slot
from ...protocol.untrusted import parse_object
from ..runtime.sockets import is_same_proof
from .channel import (
    NONCE_LENGTH,
    UNPROVEN_LINE,
    ChannelError,
    Handshake,
    LineSocket,
    SecureChannel,
    describe_os_error,
)
from .membership import (
    FAILURE,
    FAILURE_WAIT,
    Gang,
    GangContext,
    JsonObject,
    NodePart,
    StopOrder,
    beat_interval,
    overdue_after,
    read_bounds,
    silence_limit,
    silent_beats,
)
from .messages import (
    Go,
    HubBeat,
    Message,
    NextAttempt,
    Pause,
    SlotLost,
    Verdict,
    Welcome,
    lost_part,
    make_record,
    order_fields,
)
from .restarts import GangState

JOIN_LIMIT = 10.0  # seconds to reach the hub, which may be busy with others
TRY_LIMIT = 5.0  # seconds of one try
RETRY_PAUSE = 0.2
HUB_LIMIT = 150.0  # seconds beyond what a hub gives the others to end, in which it has told us what follows
FINAL_SEND_TIME = 0.2  # seconds for them to arrive before the connection is closed


class Peer(Gang):
    """The gang as any node but the first sees it."""

    def __init__(self, context: GangContext) -> None:
        super().__init__(context)
        spec = context.spec
        self.bounds = read_bounds(spec)
        self._slot = Slot(int(spec.get("seat", spec["node_rank"])))
        self._address, self._hub_name, self._hub_slot = str(spec["master_addr"]), str(spec["hub"]), Slot(0)
        self._port = 0
        self._join_deadline = 0.0
        self._conn: Optional[socket.socket] = None
        self._line_socket: Optional[LineSocket] = None
        self._handshake: Optional[Handshake] = None
        self._channel: Optional[SecureChannel] = None
        self._part: Optional[NodePart] = None
        self._welcomed = False
        self._lost_reason = ""
        self._last_seen: Optional[float] = None  # the hub's last sign of life
        self._grace = float(spec.get("grace") or 0.0)  # the longest that a node of this run may take to end
        self._started = self._verdict_received = self._finished = False
        self._beat_limit = silent_beats(context.spec, beat_interval(context.spec))

    # the way to the hub

    def join(self, port: int) -> None:
        """Connect from the training IP and prove the token to each other."""
        self._port = port
        self._join_deadline = time.monotonic() + float(self.context.spec.get("join_limit") or JOIN_LIMIT)
        self._connect()

    def _connect(self) -> None:
        spec, loop = self.context.spec, self.context.loop
        loop.after(TRY_LIMIT, "join", lambda: self._on_connect_failed("no answer"))
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
            self._on_connect_failed(describe_os_error(error))
            return
        loop.watch_writable(conn.fileno(), self._on_connected)

    def _on_connected(self) -> None:
        if self._conn is None:
            return
        self.context.loop.unwatch(self._conn.fileno())
        number = self._conn.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._on_connect_failed(os.strerror(number))
            return
        conn, self._conn = self._conn, None
        self._line_socket = LineSocket(
            self.context.loop, conn, self._on_handshake_line, self._on_connect_failed
        )

    def _on_handshake_line(self, line: bytes) -> None:
        """Take the hub's question, then its proof."""
        message = parse_object(line, UNPROVEN_LINE)
        if self._line_socket is None:
            raise ChannelError("not the hub of this run")
        if self._handshake is None:
            nonce, spec = message.text("nonce"), self.context.spec
            if len(nonce) != NONCE_LENGTH:
                raise ChannelError("not the hub of this run")
            self._handshake = Handshake(spec["run"], self._slot, self.own_node, nonce, os.urandom(16).hex())
            proof = self._handshake.prove(self.context.token, "the peer is who it says")
            identity = {
                "rank": self._handshake.slot,
                "node": self.own_node,
                "nonce": self._handshake.peer_nonce,
            }
            self._line_socket.send(json.dumps({**identity, "proof": proof}).encode("ascii") + b"\n")
        elif is_same_proof(
            message.text("proof"), self._handshake.prove(self.context.token, "the hub is who it says")
        ):
            self._channel = SecureChannel(
                self._line_socket, self._handshake, self.context.token, self.bounds, hub=False
            )
            self._channel.open(self._on_message, self._on_hub_lost)
        else:
            raise ChannelError("it does not know the token of this run")

    def _on_connect_failed(self, why: str) -> None:
        """Try again, or say what is in the way."""
        loop = self.context.loop
        loop.cancel("join")
        if self._conn is not None:
            loop.unwatch(self._conn.fileno())
            self._conn.close()
        if self._line_socket is not None:
            self._line_socket.close()
        self._conn, self._line_socket, self._handshake = None, None, None
        if time.monotonic() + RETRY_PAUSE < self._join_deadline:
            loop.after(RETRY_PAUSE, "join", self._connect)
        elif not self._finished:
            self._on_hub_unreachable(why)

    def _on_hub_unreachable(self, why: str) -> None:
        """End here: the hub cannot be reached."""
        self.context.report("join_failed", error=why, port=self._port)
        self.context.stop(StopOrder(f"node 0 ({self._hub_name}) could not be reached: {why}", 0.0, FAILURE))

    # what the hub says

    def _on_message(self, message: Message) -> None:
        if isinstance(message, HubBeat):
            self._send("beat", at=message.at, time=time.time())
        elif isinstance(message, Welcome) and not self._welcomed:
            self._welcomed = True
            self.context.loop.cancel("join")
            self.context.report("joined")
        elif isinstance(message, StopOrder):
            self._on_stop_order(message)
            if self._part is None:
                self.context.stop(message)
        elif isinstance(message, Verdict) and self._part is not None:
            self._save_verdict(message)

    def _save_verdict(self, verdict: Verdict) -> None:
        """Keep the hub's record, unless it tells of our own end what is not true."""
        if self._part is not None and not any(map(self._is_own_part, verdict.record["parts"])):
            raise ChannelError("it sent a record without this node's own part")
        self._verdict_received = True
        self.context.loop.cancel("hub")
        self.context.save_record(verdict.record)
        self._send("ack")
        self.context.loop.after(FAILURE_WAIT, "farewell", self._shut_down)

    def _is_own_part(self, part: JsonObject) -> bool:
        return self._part is not None and (part["node"], part["state"]) == (
            self.own_node,
            self._part["state"],
        )

    def _on_stop_order(self, order: StopOrder) -> None:
        """The run is to end: if our part has, only the others are waited for."""
        self._grace = max(self._grace, min(order.grace, self.bounds.grace))
        if self._part is not None:
            self._start_hub_timeout()

    def _start_hub_timeout(self) -> None:
        """The run ends and our part has: a hub that never says how is as good as lost."""
        limit = overdue_after(self.context.spec, self._grace) + float(
            self.context.spec.get("hub_limit") or HUB_LIMIT
        )
        self.context.loop.after(limit, "hub", lambda: self._drop_hub("it did not report how the run ended"))

    def _drop_hub(self, why: str) -> None:
        if self._channel is not None:
            self._channel.close()
            self._on_hub_lost(why)

    def _on_hub_lost(self, why: str) -> None:
        """End our part without the hub; if it has ended, all that can be done is done."""
        self._forget_channel()
        self.context.loop.cancel("join")
        self.context.loop.cancel("hub")
        self._lost_reason = why
        if self._part is not None:
            self._finish_without_hub()
        elif not self._finished:
            self.context.report("join_failed", error=why, port=self._port)
            self.context.stop(self._hub_lost_order(why))

    def _forget_channel(self) -> None:
        """Forget the connection, but for when the hub was last heard."""
        if self._channel is not None:
            self._last_seen, self._channel = self._channel.last_seen, None

    def _hub_lost_order(self, why: str) -> StopOrder:
        return StopOrder(f"node {self._hub_slot} ({self._hub_name}) is lost: {why}", FAILURE_WAIT, FAILURE)

    # what happens here

    def on_go(self) -> None:
        """From now on the others are to hear of our end, and we of theirs."""
        self._started = True

    def on_failure(self, reason: str) -> None:
        """Tell the hub of a failure."""
        self._send("failed", reason=reason)

    def on_stop(self, order: StopOrder) -> None:
        """Tell the hub of somebody's wish."""
        self._send("stop", **order_fields(order, self.bounds))
        self._on_stop_order(order)

    def on_end(self, part: NodePart) -> None:
        """Tell the hub, and wait for what it makes of all parts; before GO there is no such thing."""
        self._part = part
        if self._channel is None:
            self._finish_without_hub()
            return
        self._send("ended", part=part)
        if part["state"] != "SUCCEEDED":
            self._start_hub_timeout()
        if not self._started:
            self.context.loop.after(FINAL_SEND_TIME, "farewell", self._shut_down)

    def beat(self) -> None:
        """Count the hub's silence."""
        channel = self._channel
        if channel is None:
            return
        channel.unanswered_beats += 1
        if channel.unanswered_beats > self._beat_limit:
            self._drop_hub(f"it was silent for {silence_limit(self.context.spec):g} s")

    def _send(self, kind: str, **facts: object) -> None:
        if self._channel is not None:
            self._channel.send(kind, **facts)

    def _finish_without_hub(self) -> None:
        """Keep what is known here: our part, and that the hub is gone."""
        if self._lost_reason and self._part is not None and not self._verdict_received:
            hub = lost_part(self._hub_name, NodeRank(0), self._lost_reason, time.time(), self._last_seen)
            self.context.save_record(make_record(self.context.spec, [hub, self._part], None, whole=False))
        self._shut_down()

    def _shut_down(self) -> None:
        for name in ("farewell", "join", "hub"):
            self.context.loop.cancel(name)
        if self._channel is not None:
            self._channel.close()
        if not self._finished:
            self._finished = True
            self.context.leave()


class RestartPeer(Peer):
    """The gang as any slot but the hub's sees it."""

    def __init__(self, state: GangState, hub_slot: Slot) -> None:
        super().__init__(state.context)
        self.state = state
        self.roster = state.roster
        self._hub_slot, self._hub_name = hub_slot, self.roster.node(hub_slot)
        self._master_port: Optional[int] = None
        self._rejoining = False

    def rejoin(self, address: str, port: int) -> None:
        """Go to who is to be the next hub, our part having ended."""
        self._rejoining = self._started = True
        self._part = self.state.part
        self._address = address
        self.join(port)

    # what the hub says

    def _on_message(self, message: Message) -> None:
        if isinstance(message, (Pause, NextAttempt)):
            self._started = True  # GO was given, also where the client's has not come yet
        if isinstance(message, Welcome) and self._rejoining and not self._welcomed:
            super()._on_message(message)
            self._send_hello()
        elif isinstance(message, SlotLost):
            self._on_slot_lost(message)
        elif isinstance(message, Pause):
            self.roster.apply(message.roster)
            self.state.restarts.on_pause(message.entry, message.seconds)
            self._start_hub_timeout()
        elif isinstance(message, NextAttempt):
            self._on_next_attempt(message)
        elif isinstance(message, Go):
            self.state.restarts.on_go(message.address, message.port)
        elif isinstance(message, StopOrder):
            self._on_hub_stop(message)
        elif isinstance(message, Verdict):
            self._on_verdict(message)
        else:
            super()._on_message(message)

    def _send_hello(self) -> None:
        """Tell the next hub what we know, and what became of our part."""
        self.state.on_hub_found()
        self._send("hello", part=self._part, **self.roster.to_fields())
        self._start_hub_timeout()
        if self.state.clear is not None:
            self._send("clear", **self.state.clear)
        if self.state.stop_order is not None:
            self._send("stop", **order_fields(self.state.stop_order, self.bounds))

    def _on_slot_lost(self, message: SlotLost) -> None:
        if message.slot == self.roster.own_slot:
            raise ChannelError("it told us that we are lost")
        self.roster.mark_lost(message.slot, message.why)

    def _on_next_attempt(self, message: NextAttempt) -> None:
        if message.roster.attempt <= self.roster.attempt:
            raise ChannelError(f"it began attempt {message.roster.attempt} after {self.roster.attempt}")
        self.roster.apply(message.roster)
        self._part, self._master_port = None, None
        self.context.loop.cancel("hub")
        self.state.restarts.time_left_given = message.time_left
        self.state.begin()

    def _on_hub_stop(self, order: StopOrder) -> None:
        self.state.record_stop(order)
        self._on_stop_order(order)
        if self._part is None and not (self.state.idle and order.kind == FAILURE):
            self.context.stop(order)

    def _on_verdict(self, verdict: Verdict) -> None:
        self._save_verdict(verdict)
        self.state.restarts.conclude(verdict.end)

    # the hub is gone

    def _on_hub_unreachable(self, why: str) -> None:
        """Try the next one, unless nothing has begun yet."""
        if self._rejoining:
            self._finished = True
            self.roster.mark_lost(self._hub_slot, why)
            self.state.elect_hub(self._hub_slot)
        else:
            super()._on_hub_unreachable(why)

    def _on_hub_lost(self, why: str) -> None:
        """End our part, if it has not ended, and then look who follows."""
        if self._verdict_received or self._finished or not self._started:
            super()._on_hub_lost(why)
            return
        self._forget_channel()
        if self._last_seen is not None:
            self.state.last_seen[self._hub_slot] = self._last_seen
        self.context.loop.cancel("join")
        self.context.loop.cancel("hub")
        self._finished = True
        self.roster.mark_lost(self._hub_slot, why)
        if self._part is not None or self.state.idle:
            self.state.elect_hub(self._hub_slot)
        else:
            self.context.stop(self._hub_lost_order(why))

    # what happens here

    def on_startup_event(self, event: str, facts: JsonObject) -> None:
        """Tell the hub how far the attempt has come."""
        if event == "port":
            self._master_port = int(facts["port"])
        elif event == "ready":
            self._send("ready", port=self._master_port, address=self.state.address)
        elif event == "listening":
            self._send("listening", port=int(facts["port"]))

    def on_end(self, part: NodePart) -> None:
        """Tell the hub; if there is none any more, look for the next."""
        if self._finished and not self._verdict_received:
            self._part = part
            self.state.elect_hub(self._hub_slot)
        else:
            super().on_end(part)

    def on_cleared(self, unfit: str, progress: Optional[bool]) -> None:
        """Tell the hub that we could begin anew."""
        self._send("clear", unfit=unfit, progress=progress)

    def leave(self) -> None:
        """Close the connection."""
        self._finished = True
        for name in ("join", "farewell", "hub"):
            self.context.loop.cancel(name)
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _send(self, kind: str, **facts: object) -> None:
        super()._send(kind, attempt=self.roster.attempt, **facts)

    def _shut_down(self) -> None:
        self.state.close()
        super()._shut_down()
