"""Nodes as network namespaces."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import NoReturn

from clusterctl.lab import linux
from clusterctl.lab.holder import STEP_SECONDS, LabHolder, NodeHandle
from clusterctl.lab.layout import SSH_PORT, render_bridges, render_cables
from clusterctl.lab.netns.init import NodeInit, run_ip


def wait_for_banners(addresses: list[str], seconds: float) -> None:
    """Return when every address has sent its SSH version; TimeoutError names the first one that has not."""
    deadline = time.monotonic() + seconds
    for address in addresses:
        while not _has_banner(address, deadline):
            if time.monotonic() > deadline:
                raise TimeoutError(None, f"sshd on {address} does not answer")
            time.sleep(0.003)


def _has_banner(address: str, deadline: float) -> bool:
    limit = max(0.1, deadline - time.monotonic())
    try:
        with socket.create_connection((address, SSH_PORT), limit) as connection:
            banner = connection.makefile("rb").readline(256)
    except OSError:
        return False
    return banner.startswith(b"SSH-") and banner.endswith(b"\n")


_LAB_NAMESPACES = linux.NEWNS | linux.NEWUTS | linux.NEWIPC | linux.NEWNET | linux.NEWPID


class Holder(LabHolder):
    """Nodes in namespaces of their own, joined by bridges."""

    def enter(self) -> None:
        """Put this process (for PIDs: its next child) into the lab's namespaces."""
        account = self.plan.account
        if account.uid != 0:
            linux.enter_user_namespace(0, 0, account.uid, account.gid)
        linux.unshare(_LAB_NAMESPACES)

    def create_network(self) -> None:
        """Build the network that the nodes are plugged into."""
        linux.keep_mounts_private()
        self._run_ip(render_bridges(self.plan.nodes))

    def power_on(self, nodes: list[NodeHandle]) -> None:
        """Start nodes side by side; returns when sshd answers on all of them."""
        for node in nodes:
            self.fork_node(node)
        for node in nodes:
            node.wait_for_pids()
        self._run_ip("".join(render_cables(node.plan, node.pid) for node in nodes))
        for node in nodes:
            node.send({"do": "go"})
        for node in nodes:
            node.receive()
        wait_for_banners([node.plan.host for node in nodes], STEP_SECONDS)

    def run_init(self, node: NodeHandle, channel: socket.socket) -> NoReturn:
        """Start the node's init."""
        NodeInit(self.plan, node.plan, channel).enter_namespaces()

    def power_off(self, node: NodeHandle) -> None:
        """Cut the cables first, so that no ending connection sends its end; then kill the node's init."""
        if node.pid:
            self._run_ip("".join(f"link set dev {nic.cable} down\n" for nic in node.plan.nics))
            os.kill(node.pid, signal.SIGKILL)
            self.wait_for_exit(node)
        self._remove_cables(node)

    def nic_down(self, node: NodeHandle) -> None:
        """Take the node's training NIC down."""
        node.request({"do": "link", "nics": [node.plan.training_nic], "state": "down"})

    def heal(self, node: NodeHandle) -> None:
        """Undo every break of a node."""
        if not node.pid:
            self._remove_cables(node)
            self.power_on([node])
            return
        node.request({"do": "link", "nics": [nic.name for nic in node.plan.nics], "state": "up"})
        node.request({"do": "start-sshd"})
        wait_for_banners([node.plan.host], STEP_SECONDS)

    def kill_nodes(self) -> None:
        """The kernel ends all processes here when PID 1 ends."""

    def _run_ip(self, lines: str, *, force: bool = False) -> None:
        run_ip(self.plan.ip, lines, force=force)

    def _remove_cables(self, node: NodeHandle) -> None:
        """The kernel drops them too, but later; either way they are removed afterwards."""
        self._run_ip("".join(f"link del dev {nic.cable}\n" for nic in node.plan.nics), force=True)
