"""The proof on the wire: this node listens on its training address and calls others, as a training would.

The client's orders come over stdin, after the probe's facts:
{"mesh": "listen", "name", "addresses": {rail: address}, "token", "ports", "master"}
    -> {"listening": {"ports": {rail: port}, "master_port"}} or {"problem"}; rail "" is the training address
{"mesh": "call", "peers": [{"name", "address", "port", "door", "rail"}]} -> {"ways": [...]}, see Caller.
The end of stdin ends all, and the kernel does after ALARM seconds: no listener stays behind.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List

from .loop import Loop
from .mesh_ends import BACKLOG, Caller, Door
from .mesh_talk import Badge, describe

if TYPE_CHECKING:
    from .wire import Stream

ORDER_LIMIT = 60  # seconds for the first order: the slowest node's probe comes before it; nothing listens yet
ALARM = 30  # seconds from the first order to the end of this process, whatever happens
MAIN = ""  # the rail of the training address
PATIENCE = 5.0  # seconds for a client that does not read


def serve(stream: Stream) -> None:
    """Take part in one proof, as far as the client wants it."""
    try:
        frame = stream.receive(ORDER_LIMIT)
    except TimeoutError:
        return
    if frame is not None and frame[0].get("mesh") == "listen":
        signal.alarm(min(ALARM, int(frame[0].get("alarm") or ALARM)))  # its default is to end the process
        stream.patience = PATIENCE
        Mesh(stream, frame[0]).run()
        signal.alarm(0)


class Mesh:
    """This node's part: its doors, its calls, and the client's orders."""

    def __init__(self, stream: Stream, order: Dict[str, Any]) -> None:
        self._loop = Loop()
        self._stream = stream
        self._addresses: Dict[str, str] = order["addresses"]
        self._badge = Badge(str(order["name"]), bytes.fromhex(order["token"]))
        self._order = order
        self._doors: List[Door] = []
        self._calls: List[Caller] = []
        self._calling = False

    def run(self) -> None:
        """Serve until the client has enough."""
        try:
            self._stream.send(self._listen())
            self._loop.watch(self._stream.fileno(), self._obey)
            self._obey()
            self._loop.run()
        finally:
            for call in self._calls:
                call.close()
            for door in self._doors:
                door.close()

    def _listen(self) -> Dict[str, Any]:
        """Listen on the training address, and on those of further NICs as far as that can be done."""
        try:
            ports = {MAIN: self._open(listen(self._addresses[MAIN], [0]))}
            told: Dict[str, Any] = {"ports": ports}
            if self._order.get("master"):
                from .ports import candidates, ephemeral_range  # node 0's part alone

                free = candidates(self._order.get("ports"), ephemeral_range(), os.urandom(1)[0] / 256)
                told["master_port"] = self._open(listen(self._addresses[MAIN], free))
        except OSError as error:
            return {"problem": describe(error)}
        for rail in self._addresses.keys() - {MAIN}:
            with suppress(OSError):
                ports[rail] = self._open(listen(self._addresses[rail], [0]))
        return {"listening": told}

    def _open(self, sock: socket.socket) -> int:
        self._doors.append(Door(self._loop, sock, self._badge))
        return int(sock.getsockname()[1])

    def _obey(self) -> None:
        for order, _ in self._stream.arrived():
            if order.get("mesh") == "call":
                self._call(order["peers"])
        if self._stream.ended:
            self._loop.stop()

    def _call(self, peers: List[Dict[str, Any]]) -> None:
        self._calls = [
            Caller(self._loop, self._badge, self._addresses[peer.get("rail", MAIN)], peer, self._tell)
            for peer in peers
        ]
        for call in self._calls:
            call.begin()
        self._calling = True
        self._tell()

    def _tell(self) -> None:
        """Report when the last call has ended; those who call us may still be at it."""
        if self._calling and all(call.report is not None for call in self._calls):
            self._calling = False
            self._stream.send({"ways": [call.report for call in self._calls]})


def listen(address: str, ports: Any) -> socket.socket:
    """Listen on one address, on the first of the ports that is free; 0 lets the kernel pick."""
    refusal = OSError("every port is taken")
    for port in ports:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.bind((address, port))
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            refusal = error
        else:
            sock.setblocking(False)
            return sock
    raise refusal
