"""Nodes as network namespaces."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import NoReturn

from clusterctl.lab import linux
from clusterctl.lab.holder import STEP_SECONDS, Holder, Room
from clusterctl.lab.layout import SSH_PORT, LabPlan, render_bridges, render_cables
from clusterctl.lab.netns.init import Init, run_ip


def wait_for_banners(addresses: list[str], seconds: float) -> None:
    """Return when every address has told its SSH version; TimeoutError names the first one that has not."""
    deadline = time.monotonic() + seconds
    for address in addresses:
        while not _answers(address, deadline):
            if time.monotonic() > deadline:
                raise TimeoutError(None, f"sshd on {address} does not answer")
            time.sleep(0.003)


def _answers(address: str, deadline: float) -> bool:
    limit = max(0.1, deadline - time.monotonic())
    try:
        with socket.create_connection((address, SSH_PORT), limit) as connection:
            banner = connection.makefile("rb").readline(256)
    except OSError:
        return False
    return banner.startswith(b"SSH-") and banner.endswith(b"\n")


_OWN = linux.NEWNS | linux.NEWUTS | linux.NEWIPC | linux.NEWNET | linux.NEWPID


class NamespaceHolder(Holder):
    """Nodes in namespaces of their own, joined by bridges."""

    def lay_ground(self) -> None:
        """Build the network that the nodes are plugged into."""
        linux.keep_mounts_private()
        self._ip(render_bridges(self.plan.nodes))

    def power_on(self, rooms: list[Room]) -> None:
        """Start nodes side by side; returns when sshd answers on all of them."""
        for room in rooms:
            self.conceive(room)
        for room in rooms:
            room.learn_numbers()
        self._ip("".join(render_cables(room.plan, room.pid) for room in rooms))
        for room in rooms:
            room.tell({"do": "go"})
        for room in rooms:
            room.hear()
        wait_for_banners([room.plan.host for room in rooms], STEP_SECONDS)

    def live(self, room: Room, line: socket.socket) -> NoReturn:
        """Leave the node's init behind."""
        Init(self.plan, room.plan, line).be_born()

    def power_off(self, room: Room) -> None:
        """Cut the cables first, so that no dying connection says goodbye; then kill the node's init."""
        if room.pid:
            self._ip("".join(f"link set dev {nic.cable} down\n" for nic in room.plan.nics))
            os.kill(room.pid, signal.SIGKILL)
            self.await_death(room)
        self._drop_cables(room)

    def nic_down(self, room: Room) -> None:
        """Take the node's training NIC down."""
        room.ask({"do": "link", "nics": [room.plan.training_nic], "state": "down"})

    def heal(self, room: Room) -> None:
        """Undo every break of a node."""
        if not room.pid:
            self._drop_cables(room)
            self.power_on([room])
            return
        room.ask({"do": "link", "nics": [nic.name for nic in room.plan.nics], "state": "up"})
        room.ask({"do": "start-sshd"})
        wait_for_banners([room.plan.host], STEP_SECONDS)

    def end(self) -> None:
        """The kernel ends all that lives here when PID 1 does."""

    def _ip(self, lines: str, *, force: bool = False) -> None:
        run_ip(self.plan.ip, lines, force=force)

    def _drop_cables(self, room: Room) -> None:
        """The kernel drops them too, but later; whoever is first, they are gone afterwards."""
        self._ip("".join(f"link del dev {nic.cable}\n" for nic in room.plan.nics), force=True)


def enter(plan: LabPlan) -> None:
    """Put this process (for PIDs: its next child) into the lab's namespaces."""
    if plan.account.uid != 0:
        linux.become(0, 0, plan.account.uid, plan.account.gid)
    linux.unshare(_OWN)
