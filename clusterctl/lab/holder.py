"""Process that owns a lab; node handles."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, NoReturn

from clusterctl.lab import linux
from clusterctl.lab.layout import LabPlan, NodePlan
from clusterctl.lab.netns.init import MESSAGE_BYTES, describe, host_pid, reap, watch_children

STEP_SECONDS = 20.0


class StepError(Exception):
    """A step failed in a node; holds the message for whoever asked."""

    def __init__(self, message: dict[str, Any]) -> None:
        super().__init__(str(message))
        self.message = message


class Room:
    """A node's place in the lab; `pid` is its init's number here (0: powered off), `host_pid` outside."""

    def __init__(self, plan: NodePlan) -> None:
        self.plan = plan
        self.pid = 0
        self.host_pid = 0
        self._line: socket.socket | None = None

    def open(self, line: socket.socket) -> None:
        """A new init is on its way at the other end of the line."""
        line.settimeout(STEP_SECONDS)
        self._line = line

    def close(self) -> None:
        """The init has ended."""
        if self._line is not None:
            self._line.close()
        self.pid, self.host_pid, self._line = 0, 0, None

    def hung_up(self) -> bool:
        """Whether the init has dropped the line: it has ended or is about to."""
        if self._line is None:
            return False
        poll = select.poll()
        poll.register(self._line, 0)
        return bool(poll.poll(0))

    def learn_numbers(self) -> None:
        """Wait for the init and its parent to tell the init's two numbers."""
        while not (self.pid and self.host_pid):
            heard = self.hear()
            self.pid = heard.get("pid", self.pid)
            self.host_pid = heard.get("host_pid", self.host_pid)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the init and return its answer; StepError if there is none."""
        self._forget_late_answers()
        self.tell(request)
        return self.hear()

    def tell(self, request: dict[str, Any]) -> None:
        """Send a message to the init."""
        if self._line is None:
            raise StepError({"error": f"{self.plan.name} is powered off"})
        try:
            self._line.send(json.dumps(request).encode())
        except OSError as error:
            raise StepError({"error": f"{self.plan.name} does not answer: {error}"}) from error

    def hear(self) -> dict[str, Any]:
        """The next message of the init; StepError on failure, silence or death."""
        assert self._line is not None
        try:
            message = self._line.recv(MESSAGE_BYTES)
        except OSError as error:
            raise StepError({"error": f"{self.plan.name} does not answer: {error}"}) from error
        answer: dict[str, Any] = json.loads(message or b'{"error": "the first process of a node ended"}')
        if "error" in answer:
            raise StepError(answer)
        return answer

    def state(self) -> dict[str, Any]:
        """The node as it is now."""
        if not self.pid:
            return {"pid": 0, "sshd": 0, "nics": {}}
        return {"pid": self.host_pid, **self.ask({"do": "look"})}

    def _forget_late_answers(self) -> None:
        if self._line is not None:
            self._line.setblocking(False)
            with suppress(BlockingIOError):
                while self._line.recv(MESSAGE_BYTES):
                    pass
            self._line.settimeout(STEP_SECONDS)


class Holder(ABC):
    """Builds the lab, then serves `look`, `break` and `heal` on the control socket; a backend fills in how."""

    def __init__(self, plan: LabPlan, leash: socket.socket) -> None:
        self.plan = plan
        self.leash: socket.socket | None = leash
        self.rooms = {node.name: Room(node) for node in plan.nodes}

    @abstractmethod
    def lay_ground(self) -> None:
        """Build what the nodes stand on."""

    @abstractmethod
    def power_on(self, rooms: list[Room]) -> None:
        """Start nodes side by side; returns when SSH answers on all of them."""

    @abstractmethod
    def live(self, room: Room, line: socket.socket) -> NoReturn:
        """In a new process: become the node's init, or leave it behind."""

    @abstractmethod
    def power_off(self, room: Room) -> None:
        """End the node and all that lives in it."""

    @abstractmethod
    def nic_down(self, room: Room) -> None:
        """Take the node's training NIC down."""

    @abstractmethod
    def heal(self, room: Room) -> None:
        """Undo every break of a node."""

    @abstractmethod
    def end(self) -> None:
        """End what would outlive this process."""

    def run(self) -> None:
        """Build, report, and serve until killed, told to end, or until the leash is dropped."""
        control, wake = self._prepare()
        try:
            self.lay_ground()
            self.power_on(list(self.rooms.values()))
        except OSError as error:
            self._tell(describe("build the network", error))
            return
        except StepError as failure:
            self._tell(json.dumps(failure.message).encode())
            return
        self._tell(b'{"ready": true}')
        self._serve(control, wake)

    def conceive(self, room: Room) -> None:
        """Fork the process that becomes the node's init or leaves it behind."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self.live(room, theirs)
        theirs.close()
        room.open(ours)

    def await_death(self, room: Room) -> None:
        """Wait until the node's init has ended."""
        while room.pid:
            self._note_deaths([os.waitpid(-1, 0)[0]])

    def _prepare(self) -> tuple[socket.socket, int]:
        linux.set_name("clusterctl-lab")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._leave())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.chdir(self.plan.directory)
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.bind("control")  # relative, because a socket's path must be short
        control.listen(16)
        os.chdir("/")
        self._tell(json.dumps({"host_pid": host_pid()}).encode())
        return control, watch_children()

    def _leave(self) -> NoReturn:
        try:
            self.end()
        finally:
            os._exit(0)

    def _tell(self, message: bytes) -> None:
        assert self.leash is not None
        self.leash.send(message)

    def _note_deaths(self, numbers: list[int]) -> None:
        for room in self.rooms.values():
            if room.pid in numbers:
                room.close()

    def _serve(self, control: socket.socket, wake: int) -> None:
        while True:
            sources = [control.fileno(), wake, *([self.leash.fileno()] if self.leash else [])]
            readable, _, _ = select.select(sources, [], [])
            if wake in readable:
                self._note_deaths(reap(wake))
            if self.leash and self.leash.fileno() in readable and not self._goes_on():
                return
            if control.fileno() in readable:
                self._receive(control)

    def _goes_on(self) -> bool:
        """Whether the lab was let loose; a leash that was dropped ends it."""
        assert self.leash is not None
        loose = self.leash.recv(MESSAGE_BYTES) == b"loose"
        self.leash.close()
        self.leash = None
        return loose

    def _receive(self, control: socket.socket) -> None:
        caller, _ = control.accept()
        with caller:
            caller.settimeout(STEP_SECONDS)
            try:
                answer = self._answer(json.loads(caller.recv(MESSAGE_BYTES)))
            except StepError as failure:
                answer = failure.message
            except (OSError, ValueError, KeyError) as error:
                answer = {"error": str(error)}
            try:
                caller.send(json.dumps(answer).encode())
            except OSError:
                return  # the caller has left

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        rooms = [self.rooms[request["node"]]] if "node" in request else list(self.rooms.values())
        for room in rooms:
            if room.hung_up():
                self.await_death(room)
            if request["do"] == "break":
                self._break(room, request["how"])
            elif request["do"] == "heal":
                self.heal(room)
        return {"nodes": {room.plan.name: self._state(room) for room in rooms}}

    def _state(self, room: Room) -> dict[str, Any]:
        try:
            return room.state()
        except StepError:
            if not room.hung_up():
                raise
            self.await_death(room)  # it died while it was asked
            return room.state()

    def _break(self, room: Room, how: str) -> None:
        if how == "power":
            self.power_off(room)
        elif how == "nic-down":
            self.nic_down(room)
        elif how == "sshd":
            room.ask({"do": "kill-sshd"})
