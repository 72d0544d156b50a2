"""Nodes as plain processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from clusterctl.lab import linux
from clusterctl.lab.holder import LabHolder, NodeHandle, StepError
from clusterctl.lab.inproc.server import Children, SshServer
from clusterctl.lab.layout import LabNodePlan, LabPlan
from clusterctl.lab.linux import kill_descendants
from clusterctl.lab.netns.init import close_other_descriptors, failure_message, serve_requests
from clusterctl.node.runtime.processes import set_subreaper, wake_on

if TYPE_CHECKING:
    from clusterctl.lab.messages import NodeReport, NodeRequest


class InprocNode:
    """The init of a node: serves the holder, and ends all of the node when the holder has ended."""

    def __init__(self, plan: LabPlan, node: LabNodePlan, channel: socket.socket) -> None:
        self.plan = plan
        self.node = node
        self.channel = channel
        self.children = Children()

    def run(self) -> NoReturn:
        """Serve until the holder disconnects."""
        try:
            wakeup_fd = self._prepare()
            self._start_server()
            self.channel.send(b'{"ready": true}')
            serve_requests(self.channel, self._handle_request, wakeup_fd, self._on_child_exit)
        except OSError as error:
            self.channel.send(failure_message(f"set up {self.node.name}", error))
        except Exception:
            traceback.print_exc()  # to the node's sshd.log
        finally:
            kill_descendants(os.getpid())
            os._exit(1)

    def _prepare(self) -> int:
        linux.set_process_name("lab-init")
        os.setsid()
        for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signal_number, signal.SIG_IGN)
        close_other_descriptors(self.channel.fileno())
        set_subreaper()
        log = os.open(self._node_path("sshd.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        self.channel.send(json.dumps({"pid": os.getpid(), "host_pid": os.getpid()}).encode())
        return wake_on(signal.SIGCHLD)

    def _node_path(self, name: str) -> str:
        return os.path.join(self.plan.directory, "nodes", self.node.name, name)  # noqa: PTH118  (a path as text)

    def _start_server(self) -> None:
        self.server = SshServer(self.plan, self.node, self.children)
        self.server.open()

    def _on_child_exit(self, wakeup_fd: int) -> None:
        with suppress(BlockingIOError):
            os.read(wakeup_fd, 4096)
        self.children.reap()

    def _handle_request(self, request: NodeRequest) -> bytes:
        try:
            if request["do"] == "start-sshd":
                self.server.open()
            elif request["do"] == "kill-sshd":
                self.server.close()
        except OSError as error:
            return failure_message(request["do"], error)
        sshd = os.getpid() if self.server.is_listening else 0
        report: NodeReport = {"sshd": sshd, "nics": {self.node.training_nic: "up"}}
        return json.dumps(report).encode()


class Holder(LabHolder):
    """Nodes that share everything but their home, their address and their SSH server."""

    def enter(self) -> None:
        """Stay where this process is."""

    def create_network(self) -> None:
        """Orphans of a node whose init was killed come to the holder, so that none gets lost."""
        set_subreaper()

    def power_on(self, nodes: list[NodeHandle]) -> None:
        """Start nodes side by side; returns when their SSH servers listen."""
        for node in nodes:
            self.fork_node(node)
        for node in nodes:
            node.wait_for_pids()
            node.receive()

    def run_init(self, node: NodeHandle, channel: socket.socket) -> NoReturn:
        """Become the node's init."""
        InprocNode(self.plan, node.plan, channel).run()

    def power_off(self, node: NodeHandle) -> None:
        """Stop the init first, so that it starts nothing more; then kill all below it, and at last itself."""
        if node.pid:
            os.kill(node.pid, signal.SIGSTOP)
            kill_descendants(node.pid)
            os.kill(node.pid, signal.SIGKILL)
            self.wait_for_exit(node)

    def nic_down(self, node: NodeHandle) -> None:
        """There is none of its own."""
        raise StepError({"error": f"{node.plan.name} has no NIC of its own"})

    def heal(self, node: NodeHandle) -> None:
        """Undo every break of a node."""
        if not node.pid:
            self.power_on([node])
            return
        node.request({"do": "start-sshd"})

    def kill_nodes(self) -> None:
        """End the nodes with all their processes, and the orphans of a killed init."""
        kill_descendants(os.getpid())


def make_key(path: Path, comment: str) -> None:
    """Write an Ed25519 key pair as ssh-keygen does."""
    key = Ed25519PrivateKey.generate()
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode("ascii")
    path.with_name(path.name + ".pub").write_text(f"{public} {comment}\n", encoding="ascii")
