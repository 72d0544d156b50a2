"""The process that a lab lives in: PID 1 of its own namespaces. When it dies, the kernel ends all the rest."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from clusterctl.lab.layout import LabPlan, NodePlan, render_bridges, render_cables
from clusterctl.lab.node import MESSAGE_BYTES, Init, describe, run_ip
from clusterctl.lab.openings import wait_for_banners
from clusterctl.lab.syscalls import (
    NEWIPC,
    NEWNET,
    NEWNS,
    NEWPID,
    NEWUTS,
    become,
    keep_mounts_private,
    set_name,
    unshare,
)

_ALL = NEWNS | NEWUTS | NEWIPC | NEWNET | NEWPID
STEP_SECONDS = 20.0


class StepFailed(Exception):
    """A step of building failed; holds the message for whoever asked."""

    def __init__(self, message: dict[str, Any]) -> None:
        super().__init__(str(message))
        self.message = message


class Room:
    """A node as the holder sees it: the init's PIDs (here and on the machine) and the line to it."""

    def __init__(self, plan: NodePlan) -> None:
        self.plan = plan
        self.pid = 0
        self.host_pid = 0
        self.channel: socket.socket | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the init and return its answer; StepFailed if there is none."""
        if self.channel is None:
            raise StepFailed({"error": f"{self.plan.name} is powered off"})
        self.channel.send(json.dumps(request).encode())
        return self.hear()

    def hear(self) -> dict[str, Any]:
        """The next message of the init; StepFailed on failure, silence or death."""
        assert self.channel is not None
        try:
            message = self.channel.recv(MESSAGE_BYTES)
        except OSError as error:
            raise StepFailed({"error": f"{self.plan.name} does not answer: {error}"}) from error
        answer: dict[str, Any] = json.loads(message or b'{"error": "its first process ended"}')
        if "error" in answer:
            raise StepFailed(answer)
        return answer


class Holder:
    """Builds the lab, then serves `status`, `break` and `heal` on the control socket."""

    def __init__(self, plan: LabPlan, leash: socket.socket) -> None:
        self.plan = plan
        self.leash: socket.socket | None = leash
        self.rooms = {node.name: Room(node) for node in plan.nodes}

    def run(self) -> None:
        """Build, report, and serve until killed, told to end, or until the leash is dropped."""
        self._prepare()
        try:
            keep_mounts_private()
            self._ip(render_bridges(self.plan.nodes))
            self._power_on(list(self.rooms.values()))
        except OSError as error:
            self._tell(describe("build the network", error))
            return
        except StepFailed as failure:
            self._tell(json.dumps(failure.message).encode())
            return
        self._tell(b'{"ready": true}')
        self._serve()

    def _prepare(self) -> None:
        set_name("clusterctl-lab")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._wake, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        os.chdir(self.plan.directory)
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.bind("control")
        self._control.listen(16)
        os.chdir("/")
        self._tell(json.dumps({"host_pid": int(os.readlink("/proc/self"))}).encode())

    def _tell(self, message: bytes) -> None:
        assert self.leash is not None
        self.leash.send(message)

    def _ip(self, lines: str) -> None:
        run_ip(self.plan.ip, lines)

    # -- nodes ------------------------------------------------------------------------------------------------

    def _power_on(self, rooms: list[Room]) -> None:
        """Start nodes side by side; returns when sshd answers on all of them."""
        for room in rooms:
            self._conceive(room)
        for room in rooms:
            while not (room.pid and room.host_pid):
                heard = room.hear()
                room.pid = heard.get("pid", room.pid)
                room.host_pid = heard.get("host_pid", room.host_pid)
        self._ip("".join(render_cables(room.plan, room.pid) for room in rooms))
        for room in rooms:
            assert room.channel is not None
            room.channel.send(b'{"do": "go"}')
        for room in rooms:
            room.hear()
        wait_for_banners([room.plan.host for room in rooms], STEP_SECONDS)

    def _conceive(self, room: Room) -> None:
        """Fork the process that will leave the node's init behind."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            Init(self.plan, room.plan, theirs).be_born()
        theirs.close()
        ours.settimeout(STEP_SECONDS)
        room.channel = ours

    def _power_off(self, room: Room) -> None:
        """Cut the cables first, so that no dying connection says goodbye; then kill the node's init."""
        if not room.pid:
            return
        self._ip("".join(f"link set dev {nic.cable} down\n" for nic in room.plan.nics))
        os.kill(room.pid, signal.SIGKILL)
        while room.pid:
            self._note_death(os.waitpid(-1, 0)[0])
        self._ip("".join(f"link del dev {nic.cable}\n" for nic in room.plan.nics))

    def _note_death(self, pid: int) -> None:
        for room in self.rooms.values():
            if room.pid == pid and room.channel is not None:
                room.channel.close()
                room.pid, room.host_pid, room.channel = 0, 0, None

    # -- requests ---------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            sources = [self._control, self._wake] + ([self.leash] if self.leash else [])
            readable, _, _ = select.select(sources, [], [])
            if self._wake in readable:
                self._reap()
            if self.leash in readable and not self._hold_on():
                return
            if self._control in readable:
                self._receive()

    def _hold_on(self) -> bool:
        """Whether the lab goes on: let loose, or still held; a leash that was dropped ends it."""
        assert self.leash is not None
        loose = self.leash.recv(MESSAGE_BYTES) == b"loose"
        self.leash.close()
        self.leash = None
        return loose

    def _reap(self) -> None:
        os.read(self._wake, 4096)
        try:
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._note_death(pid)
        except ChildProcessError:
            pass

    def _receive(self) -> None:
        caller, _ = self._control.accept()
        with caller:
            caller.settimeout(STEP_SECONDS)
            try:
                answer = self._answer(json.loads(caller.recv(MESSAGE_BYTES)))
            except StepFailed as failure:
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
            if request["do"] == "break":
                self._break(room, request["how"])
            elif request["do"] == "heal":
                self._heal(room)
        return {"nodes": {room.plan.name: self._state(room) for room in rooms}}

    def _break(self, room: Room, how: str) -> None:
        if how == "power":
            self._power_off(room)
        elif how == "nic-down":
            room.ask({"do": "link", "nics": [room.plan.training_nic], "state": "down"})
        elif how == "sshd":
            room.ask({"do": "kill-sshd"})

    def _heal(self, room: Room) -> None:
        if not room.pid:
            self._power_on([room])
            return
        room.ask({"do": "link", "nics": [nic.name for nic in room.plan.nics], "state": "up"})
        room.ask({"do": "start-sshd"})
        wait_for_banners([room.plan.host], STEP_SECONDS)

    def _state(self, room: Room) -> dict[str, Any]:
        if not room.pid:
            return {"pid": 0, "sshd": 0, "nics": {}}
        return {"pid": room.host_pid, **room.ask({"do": "look"})}


def main(directory: str, leash_descriptor: str) -> NoReturn:
    """Enter the lab's namespaces and leave the holder there; the starter waits only for this first process."""
    leash = socket.socket(fileno=int(leash_descriptor))
    code = 1
    try:
        values = json.loads(Path(directory, "plan.json").read_text(encoding="utf-8"))
        plan = LabPlan.from_dict(values)
        if plan.account.uid != 0:
            become(0, 0, plan.account.uid, plan.account.gid)
        unshare(_ALL)
        if os.fork() == 0:
            Holder(plan, leash).run()
        code = 0
    except OSError as error:
        leash.send(describe("create namespaces", error))
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
