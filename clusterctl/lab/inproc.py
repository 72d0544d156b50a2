"""The holder of a lab without namespaces: nodes are processes of this user at loopback addresses."""

from __future__ import annotations

import os
import signal
import socket
from typing import NoReturn

from clusterctl.lab import syscalls
from clusterctl.lab.holder import Holder
from clusterctl.lab.inproc_node import InprocNode
from clusterctl.lab.processes import end_below
from clusterctl.lab.room import Room, StepError


class InprocHolder(Holder):
    """Nodes that share everything but their home, their address and their SSH server."""

    def lay_ground(self) -> None:
        """Orphans of a node whose init was killed come to the holder, so that none gets lost."""
        syscalls.become_subreaper()

    def power_on(self, rooms: list[Room]) -> None:
        """Start nodes side by side; returns when their SSH servers listen."""
        for room in rooms:
            self.conceive(room)
        for room in rooms:
            room.learn_numbers()
            room.hear()

    def live(self, room: Room, line: socket.socket) -> NoReturn:
        """Become the node's init."""
        InprocNode(self.plan, room.plan, line).live()

    def power_off(self, room: Room) -> None:
        """Stop the init first, so that it starts nothing more; then kill all below it, and at last itself."""
        if room.pid:
            os.kill(room.pid, signal.SIGSTOP)
            end_below(room.pid)
            os.kill(room.pid, signal.SIGKILL)
            self.await_death(room)

    def nic_down(self, room: Room) -> None:
        """There is none of its own."""
        raise StepError({"error": f"{room.plan.name} has no NIC of its own"})

    def heal(self, room: Room) -> None:
        """Undo every break of a node."""
        if not room.pid:
            self.power_on([room])
            return
        room.ask({"do": "start-sshd"})

    def end(self) -> None:
        """End the nodes with all they hold, and what a killed init has left to this process."""
        end_below(os.getpid())
