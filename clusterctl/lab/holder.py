"""The process that a lab lives in: it builds the nodes, serves the control socket, and ends them."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import traceback
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NoReturn

from clusterctl.lab import syscalls
from clusterctl.lab.layout import LabPlan
from clusterctl.lab.node import MESSAGE_BYTES, describe, host_pid, reap, watch_children
from clusterctl.lab.room import STEP_SECONDS, Room, StepError


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
        syscalls.set_name("clusterctl-lab")
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


def _holder(plan: LabPlan, leash: socket.socket) -> Holder:
    """Enter the backend's namespaces, if it has some; its modules are imported only when it is used."""
    if plan.backend == "inproc":
        from clusterctl.lab.inproc import InprocHolder  # noqa: PLC0415  (needs packages, which the other does without)

        return InprocHolder(plan, leash)
    from clusterctl.lab.netns import NamespaceHolder, enter  # noqa: PLC0415  (the same)

    enter(plan)
    return NamespaceHolder(plan, leash)


def main(directory: str, leash_descriptor: str) -> NoReturn:
    """Leave the holder behind in a process of its own, and end."""
    leash = socket.socket(fileno=int(leash_descriptor))
    try:
        values = json.loads(Path(directory, "plan.json").read_text(encoding="utf-8"))
        holder = _holder(LabPlan.from_dict(values), leash)
        if os.fork() == 0:
            try:
                holder.run()
            finally:
                holder.end()
    except OSError as error:
        leash.send(describe("create namespaces", error))
    except Exception:
        traceback.print_exc()  # to the lab's holder.log
    finally:
        os._exit(0)
