"""Nodes as plain processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from clusterctl.lab import linux
from clusterctl.lab.holder import Holder, Room, StepError
from clusterctl.lab.inproc.server import Children, Server
from clusterctl.lab.layout import LabPlan, NodePlan
from clusterctl.lab.linux import end_below
from clusterctl.lab.netns.init import close_all_but, describe, obey, watch_children


class InprocNode:
    """The init of a node: obeys the holder, and ends all of the node when the holder is gone."""

    def __init__(self, plan: LabPlan, node: NodePlan, channel: socket.socket) -> None:
        self.plan = plan
        self.node = node
        self.channel = channel
        self.children = Children()

    def live(self) -> NoReturn:
        """Serve until the holder hangs up."""
        try:
            wake = self._prepare()
            self._listen()
            self.channel.send(b'{"ready": true}')
            obey(self.channel, self._answer, wake, self._reap)
        except OSError as error:
            self.channel.send(describe(f"set up {self.node.name}", error))
        except Exception:
            traceback.print_exc()  # to the node's sshd.log
        finally:
            end_below(os.getpid())
            os._exit(1)

    def _prepare(self) -> int:
        linux.set_name("lab-init")
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        close_all_but(self.channel.fileno())
        linux.become_subreaper()
        log = os.open(self._own("sshd.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        self.channel.send(json.dumps({"pid": os.getpid(), "host_pid": os.getpid()}).encode())
        return watch_children()

    def _own(self, name: str) -> str:
        return os.path.join(self.plan.directory, "nodes", self.node.name, name)  # noqa: PTH118  (a path as text)

    def _listen(self) -> None:
        self.server = Server(self.plan, self.node, self.children)
        self.server.open()

    def _reap(self, wake: int) -> None:
        with suppress(BlockingIOError):
            os.read(wake, 4096)
        self.children.reap()

    def _answer(self, request: dict[str, Any]) -> bytes:
        try:
            if request["do"] == "start-sshd":
                self.server.open()
            elif request["do"] == "kill-sshd":
                self.server.close()
        except OSError as error:
            return describe(str(request["do"]), error)
        sshd = os.getpid() if self.server.listens else 0
        return json.dumps({"sshd": sshd, "nics": {self.node.training_nic: "up"}}).encode()


class InprocHolder(Holder):
    """Nodes that share everything but their home, their address and their SSH server."""

    def lay_ground(self) -> None:
        """Orphans of a node whose init was killed come to the holder, so that none gets lost."""
        linux.become_subreaper()

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


def make_key(path: Path, comment: str) -> None:
    """Write an Ed25519 key pair as ssh-keygen does."""
    key = Ed25519PrivateKey.generate()
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode("ascii")
    path.with_name(path.name + ".pub").write_text(f"{public} {comment}\n", encoding="ascii")
