"""Process that owns a lab; node handles."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import traceback
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from clusterctl.lab import linux
from clusterctl.lab.layout import LabNodePlan, LabPlan
from clusterctl.lab.netns.init import MESSAGE_BYTES, failure_message, host_pid, reap_children
from clusterctl.node.runtime.processes import wake_on

if TYPE_CHECKING:
    from clusterctl.lab.messages import LabReply, LabRequest, NodeReport, NodeRequest, NodeState

STEP_SECONDS = 20.0


class StepError(Exception):
    """A step failed in a node; holds the message for the caller."""

    def __init__(self, message: NodeReport) -> None:
        super().__init__(str(message))
        self.message = message


class NodeHandle:
    """A node's place in the lab; `pid` is its init's number here (0: powered off), `host_pid` outside."""

    def __init__(self, plan: LabNodePlan) -> None:
        self.plan = plan
        self.pid = 0
        self.host_pid = 0
        self._channel: socket.socket | None = None

    def attach(self, channel: socket.socket) -> None:
        """A new init is being started at the other end of the channel."""
        channel.settimeout(STEP_SECONDS)
        self._channel = channel

    def detach(self) -> None:
        """The init has ended."""
        if self._channel is not None:
            self._channel.close()
        self.pid, self.host_pid, self._channel = 0, 0, None

    def is_disconnected(self) -> bool:
        """Return whether the init has dropped the line: it has ended or is about to."""
        if self._channel is None:
            return False
        poll = select.poll()
        poll.register(self._channel, 0)
        return bool(poll.poll(0))

    def wait_for_pids(self) -> None:
        """Wait for the init and its parent to report the init's two numbers."""
        while not (self.pid and self.host_pid):
            message = self.receive()
            self.pid = message.get("pid", self.pid)
            self.host_pid = message.get("host_pid", self.host_pid)

    def request(self, request: NodeRequest) -> NodeReport:
        """Send a request to the init and return its answer; StepError if there is none."""
        self._discard_late_replies()
        self.send(request)
        return self.receive()

    def send(self, request: NodeRequest) -> None:
        """Send a message to the init."""
        if self._channel is None:
            raise StepError({"error": f"{self.plan.name} is powered off"})
        try:
            self._channel.send(json.dumps(request).encode())
        except OSError as error:
            raise StepError({"error": f"{self.plan.name} does not answer: {error}"}) from error

    def receive(self) -> NodeReport:
        """The next message of the init; StepError on failure, silence or death."""
        assert self._channel is not None
        try:
            message = self._channel.recv(MESSAGE_BYTES)
        except OSError as error:
            raise StepError({"error": f"{self.plan.name} does not answer: {error}"}) from error
        reply: NodeReport = json.loads(message or b'{"error": "the first process of a node ended"}')
        if "error" in reply:
            raise StepError(reply)
        return reply

    def read_state(self) -> NodeState:
        """The node as it is now."""
        if not self.pid:
            return {"pid": 0, "sshd": 0, "nics": {}}
        report = self.request({"do": "look"})
        return {"pid": self.host_pid, "sshd": report["sshd"], "nics": report["nics"]}

    def _discard_late_replies(self) -> None:
        if self._channel is not None:
            self._channel.setblocking(False)
            with suppress(BlockingIOError):
                while self._channel.recv(MESSAGE_BYTES):
                    pass
            self._channel.settimeout(STEP_SECONDS)


class LabHolder(ABC):
    """Builds the lab, then serves `look`, `break` and `heal` on the control socket; a backend fills in how."""

    def __init__(self, plan: LabPlan, owner_socket: socket.socket) -> None:
        self.plan = plan
        self.owner_socket: socket.socket | None = owner_socket
        self.nodes = {node_plan.name: NodeHandle(node_plan) for node_plan in plan.nodes}

    @classmethod
    def start(cls, directory: str, owner_descriptor: str) -> NoReturn:
        """Start the holder in a process of its own, and end."""
        owner_socket = socket.socket(fileno=int(owner_descriptor))
        try:
            values = json.loads(Path(directory, "plan.json").read_text(encoding="utf-8"))
            holder = cls(LabPlan.from_dict(values), owner_socket)
            holder.enter()
            if os.fork() == 0:
                try:
                    holder.run()
                finally:
                    holder.kill_nodes()
        except OSError as error:
            owner_socket.send(failure_message("create namespaces", error))
        except Exception:
            traceback.print_exc()  # to the lab's holder.log
        finally:
            os._exit(0)

    @abstractmethod
    def enter(self) -> None:
        """Enter the lab's namespaces, if it has some; this is called before the holder's own process begins."""

    @abstractmethod
    def create_network(self) -> None:
        """Build what the nodes stand on."""

    @abstractmethod
    def power_on(self, nodes: list[NodeHandle]) -> None:
        """Start nodes side by side; returns when SSH answers on all of them."""

    @abstractmethod
    def run_init(self, node: NodeHandle, channel: socket.socket) -> NoReturn:
        """In a new process: become the node's init, or start it."""

    @abstractmethod
    def power_off(self, node: NodeHandle) -> None:
        """End the node and all its processes."""

    @abstractmethod
    def nic_down(self, node: NodeHandle) -> None:
        """Take the node's training NIC down."""

    @abstractmethod
    def heal(self, node: NodeHandle) -> None:
        """Undo every break of a node."""

    @abstractmethod
    def kill_nodes(self) -> None:
        """End what would outlive this process."""

    def run(self) -> None:
        """Build, report, and serve until killed or terminated, or until `owner_socket` is closed."""
        control, wakeup_fd = self._prepare()
        try:
            self.create_network()
            self.power_on(list(self.nodes.values()))
        except OSError as error:
            self._report(failure_message("build the network", error))
            return
        except StepError as step_error:
            self._report(json.dumps(step_error.message).encode())
            return
        self._report(b'{"ready": true}')
        self._serve(control, wakeup_fd)

    def fork_node(self, node: NodeHandle) -> None:
        """Fork the process that becomes the node's init or starts it."""
        holder_end, node_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self.run_init(node, node_end)
        node_end.close()
        node.attach(holder_end)

    def wait_for_exit(self, node: NodeHandle) -> None:
        """Wait until the node's init has ended."""
        while node.pid:
            self._on_exits([os.waitpid(-1, 0)[0]])

    def _prepare(self) -> tuple[socket.socket, int]:
        linux.set_process_name("clusterctl-lab")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._exit())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.chdir(self.plan.directory)
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.bind("control")  # relative, because a socket's path must be short
        control.listen(256)  # more than clients connect at a time
        os.chdir("/")
        self._report(json.dumps({"host_pid": host_pid()}).encode())
        return control, wake_on(signal.SIGCHLD)

    def _exit(self) -> NoReturn:
        try:
            self.kill_nodes()
        finally:
            os._exit(0)

    def _report(self, message: bytes) -> None:
        assert self.owner_socket is not None
        self.owner_socket.send(message)

    def _on_exits(self, pids: list[int]) -> None:
        for node in self.nodes.values():
            if node.pid in pids:
                node.detach()

    def _serve(self, control: socket.socket, wakeup_fd: int) -> None:
        while True:
            sources = [
                control.fileno(),
                wakeup_fd,
                *([self.owner_socket.fileno()] if self.owner_socket else []),
            ]
            readable, _, _ = select.select(sources, [], [])
            if wakeup_fd in readable:
                self._on_exits(reap_children(wakeup_fd))
            if self.owner_socket and self.owner_socket.fileno() in readable and not self._is_released():
                return
            if control.fileno() in readable:
                self._serve_request(control)

    def _is_released(self) -> bool:
        """Return whether the owner released the lab; a closed `owner_socket` without that ends it."""
        assert self.owner_socket is not None
        released = self.owner_socket.recv(MESSAGE_BYTES) == b"loose"
        self.owner_socket.close()
        self.owner_socket = None
        return released

    def _serve_request(self, control: socket.socket) -> None:
        connection, _ = control.accept()
        with connection:
            connection.settimeout(STEP_SECONDS)
            try:
                request: LabRequest = json.loads(connection.recv(MESSAGE_BYTES))
                if request["do"] == "socket":
                    _send_socket(connection)
                    return
                reply = self._handle_request(request)
            except StepError as step_error:
                reply = {"error": step_error.message["error"]}
            except (OSError, ValueError, KeyError) as error:
                reply = {"error": str(error)}
            try:
                connection.send(json.dumps(reply).encode())
            except OSError:
                return  # the caller has disconnected

    def _handle_request(self, request: LabRequest) -> LabReply:
        selected = [self.nodes[request["node"]]] if "node" in request else list(self.nodes.values())
        for node in selected:
            if node.is_disconnected():
                self.wait_for_exit(node)
            if request["do"] == "break":
                self._break_node(node, request["how"])
            elif request["do"] == "heal":
                self.heal(node)
        return {"nodes": {node.plan.name: self._read_state(node) for node in selected}}

    def _read_state(self, node: NodeHandle) -> NodeState:
        try:
            return node.read_state()
        except StepError:
            if not node.is_disconnected():
                raise
            self.wait_for_exit(node)  # it died during the request
            return node.read_state()

    def _break_node(self, node: NodeHandle, break_kind: str) -> None:
        if break_kind == "power":
            self.power_off(node)
        elif break_kind == "nic-down":
            self.nic_down(node)
        elif break_kind == "sshd":
            node.request({"do": "kill-sshd"})


def _send_socket(connection: socket.socket) -> None:
    """Send a client a socket of the lab's network: what it connects to is reached as from inside."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as inside:
        socket.send_fds(connection, [b"{}"], [inside.fileno()])
