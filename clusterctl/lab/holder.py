"""The process that a lab lives in: PID 1 of its own namespaces. With it the kernel ends all the rest."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import traceback
from pathlib import Path
from typing import Any, NoReturn

from clusterctl.lab import syscalls
from clusterctl.lab.layout import LabPlan, render_bridges, render_cables
from clusterctl.lab.node import MESSAGE_BYTES, Init, describe, host_pid, reap, run_ip, watch_children
from clusterctl.lab.openings import wait_for_banners
from clusterctl.lab.room import STEP_SECONDS, Room, StepError

_OWN = syscalls.NEWNS | syscalls.NEWUTS | syscalls.NEWIPC | syscalls.NEWNET | syscalls.NEWPID


class Holder:
    """Builds the lab, then serves `look`, `break` and `heal` on the control socket."""

    def __init__(self, plan: LabPlan, leash: socket.socket) -> None:
        self.plan = plan
        self.leash: socket.socket | None = leash
        self.rooms = {node.name: Room(node) for node in plan.nodes}

    def run(self) -> None:
        """Build, report, and serve until killed, told to end, or until the leash is dropped."""
        control, wake = self._prepare()
        try:
            syscalls.keep_mounts_private()
            self._ip(render_bridges(self.plan.nodes))
            self._power_on(list(self.rooms.values()))
        except OSError as error:
            self._tell(describe("build the network", error))
            return
        except StepError as failure:
            self._tell(json.dumps(failure.message).encode())
            return
        self._tell(b'{"ready": true}')
        self._serve(control, wake)

    def _prepare(self) -> tuple[socket.socket, int]:
        syscalls.set_name("clusterctl-lab")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.chdir(self.plan.directory)
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.bind("control")  # relative, because a socket's path must be short
        control.listen(16)
        os.chdir("/")
        self._tell(json.dumps({"host_pid": host_pid()}).encode())
        return control, watch_children()

    def _tell(self, message: bytes) -> None:
        assert self.leash is not None
        self.leash.send(message)

    def _ip(self, lines: str, *, force: bool = False) -> None:
        run_ip(self.plan.ip, lines, force=force)

    def _power_on(self, rooms: list[Room]) -> None:
        """Start nodes side by side; returns when sshd answers on all of them."""
        for room in rooms:
            self._conceive(room)
        for room in rooms:
            room.learn_numbers()
        self._ip("".join(render_cables(room.plan, room.pid) for room in rooms))
        for room in rooms:
            room.tell({"do": "go"})
        for room in rooms:
            room.hear()
        wait_for_banners([room.plan.host for room in rooms], STEP_SECONDS)

    def _conceive(self, room: Room) -> None:
        """Fork the process that leaves the node's init behind."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            Init(self.plan, room.plan, theirs).be_born()
        theirs.close()
        room.open(ours)

    def _power_off(self, room: Room) -> None:
        """Cut the cables first, so that no dying connection says goodbye; then kill the node's init."""
        if room.pid:
            self._ip("".join(f"link set dev {nic.cable} down\n" for nic in room.plan.nics))
            os.kill(room.pid, signal.SIGKILL)
            self._await_death(room)
        self._drop_cables(room)

    def _await_death(self, room: Room) -> None:
        """Wait until the kernel has ended all that lived in the node."""
        while room.pid:
            self._note_deaths([os.waitpid(-1, 0)[0]])

    def _drop_cables(self, room: Room) -> None:
        """The kernel drops them too, but later; whoever is first, they are gone afterwards."""
        self._ip("".join(f"link del dev {nic.cable}\n" for nic in room.plan.nics), force=True)

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
                self._await_death(room)
            if request["do"] == "break":
                self._break(room, request["how"])
            elif request["do"] == "heal":
                self._heal(room)
        return {"nodes": {room.plan.name: self._state(room) for room in rooms}}

    def _state(self, room: Room) -> dict[str, Any]:
        try:
            return room.state()
        except StepError:
            if not room.hung_up():
                raise
            self._await_death(room)  # it died while it was asked
            return room.state()

    def _break(self, room: Room, how: str) -> None:
        if how == "power":
            self._power_off(room)
        elif how == "nic-down":
            room.ask({"do": "link", "nics": [room.plan.training_nic], "state": "down"})
        elif how == "sshd":
            room.ask({"do": "kill-sshd"})

    def _heal(self, room: Room) -> None:
        if not room.pid:
            self._drop_cables(room)
            self._power_on([room])
            return
        room.ask({"do": "link", "nics": [nic.name for nic in room.plan.nics], "state": "up"})
        room.ask({"do": "start-sshd"})
        wait_for_banners([room.plan.host], STEP_SECONDS)


def main(directory: str, leash_descriptor: str) -> NoReturn:
    """Enter the lab's namespaces, leave the holder there as PID 1, and end."""
    leash = socket.socket(fileno=int(leash_descriptor))
    try:
        values = json.loads(Path(directory, "plan.json").read_text(encoding="utf-8"))
        plan = LabPlan.from_dict(values)
        if plan.account.uid != 0:
            syscalls.become(0, 0, plan.account.uid, plan.account.gid)
        syscalls.unshare(_OWN)
        if os.fork() == 0:
            Holder(plan, leash).run()
    except OSError as error:
        leash.send(describe("create namespaces", error))
    except Exception:
        traceback.print_exc()  # to the lab's holder.log
    finally:
        os._exit(0)
