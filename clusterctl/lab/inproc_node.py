"""The first process of a node without namespaces: an SSH server that starts processes, and reaps them."""

from __future__ import annotations

import json
import os
import signal
import socket
import traceback
from contextlib import suppress
from typing import Any, NoReturn

from clusterctl.lab import syscalls
from clusterctl.lab.inproc_children import Children
from clusterctl.lab.inproc_server import Server
from clusterctl.lab.layout import LabPlan, NodePlan
from clusterctl.lab.node import close_all_but, describe, obey, watch_children
from clusterctl.lab.processes import end_below


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
        syscalls.set_name("lab-init")
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        close_all_but(self.channel.fileno())
        syscalls.become_subreaper()
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
