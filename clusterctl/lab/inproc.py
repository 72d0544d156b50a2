"""Nodes as plain processes on loopback addresses: each has an SSH server, built with paramiko, and its sessions.

Not here: nodes with namespaces (`netns/`).
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import socket
import struct
import termios
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, NoReturn

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_FAILED_UNKNOWN_CHANNEL_TYPE,
    OPEN_SUCCEEDED,
    cMSG_CHANNEL_SUCCESS,
)

from clusterctl.lab import linux
from clusterctl.lab.holder import LabHolder, NodeHandle, StepError
from clusterctl.lab.layout import LabNodePlan, LabPlan, session_environment
from clusterctl.lab.linux import kill_descendants
from clusterctl.lab.netns.init import close_other_descriptors, failure_message, serve_requests
from clusterctl.node.runtime.processes import reap, set_subreaper, wake_on

if TYPE_CHECKING:
    from clusterctl.lab.messages import NodeReport, NodeRequest


class Child:
    """A process that a session started; `status` is its exit code, 128 and the signal's number, or None."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self.ended = threading.Event()


class Children:
    """The processes that sessions have started; one thread reaps for all, because orphans come here as well."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: dict[int, Child] = {}

    def start(
        self, argv: Sequence[str], cwd: str, env: dict[str, str], streams: tuple[int, int, int]
    ) -> Child:
        """Start a process in a session of its own; OSError if it cannot be."""
        stdin, stdout, stderr = streams
        with self._lock:  # reaped only after it is known
            process = Popen(
                argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
            )
            process.returncode = 0  # it is reaped here, not by Popen
            child = self._children[process.pid] = Child(process.pid)
        return child

    def signal(self, child: Child, signal_number: int) -> None:
        """Signal what is left of a child's process group, unless it has been reaped."""
        with self._lock, suppress(ProcessLookupError, PermissionError):
            if not child.ended.is_set():
                os.killpg(child.pid, signal_number)

    def reap(self) -> None:
        """Collect all that has ended."""
        with self._lock:
            for pid, status in reap():
                child = self._children.pop(pid, None)
                if child is not None:
                    code = os.waitstatus_to_exitcode(status)
                    child.status = code if code >= 0 else 128 - code
                    child.ended.set()


_CHUNK = 1 << 15
_REPLY_SECONDS = 1.0  # some clients request no confirmation of their command
_POLL_SECONDS = 0.2  # seconds between checks whether the client is still connected
_HANGUP_SECONDS = 1.0  # between the polite signal and the hard one
# A session leader without a terminal gets the first one that it opens.
_RUN_ON_TERMINAL = 'exec <>"$1" >&0 2>&0; shift; exec "$@"'


class Terminal:
    """A pseudo-terminal, once it is open; sizes are in characters."""

    def __init__(self, kind: str, width: int, height: int) -> None:
        self.kind = kind
        self.size = (height, width)
        self.master: int | None = None

    def open(self) -> tuple[int, int]:
        """Both ends: ours, the process's."""
        self.master, slave = os.openpty()
        self.resize(self.size[1], self.size[0])
        return self.master, slave

    def resize(self, width: int, height: int) -> None:
        """Return it another size."""
        self.size = (height, width)
        if self.master is not None:
            with suppress(OSError):
                fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


class CommandSession:
    """A command on a channel."""

    def __init__(
        self,
        channel: paramiko.Channel,
        children: Children,
        argv: Sequence[str],
        cwd: str,
        env: dict[str, str],
        terminal: Terminal | None,
    ) -> None:
        self.channel = channel
        self.children = children
        self.argv = list(argv)
        self.cwd = cwd
        self.env = env
        self.terminal = terminal

    def start(self, replied: threading.Event) -> bool:
        """Start the command, and serve it once the client has its answer; False if it cannot be started."""
        try:
            child, stdin, outputs = self._start_on_terminal() if self.terminal else self._start_on_pipes()
        except OSError:
            return False
        self._start_thread(self._serve, replied, child, stdin, outputs)
        return True

    def _serve(
        self,
        replied: threading.Event,
        child: Child,
        stdin: int,
        outputs: list[tuple[int, Callable[[bytes], object]]],
    ) -> None:
        replied.wait(_REPLY_SECONDS)
        pumps = [self._start_thread(self._copy_out, descriptor, send) for descriptor, send in outputs]
        self._start_thread(self._copy_in, stdin)
        self._wait_and_report(child, pumps)

    def _start_on_pipes(self) -> tuple[Child, int, list[tuple[int, Callable[[bytes], object]]]]:
        child_ends, our_ends = [], []
        try:
            for stream_number in range(3):
                readable, writable = os.pipe()
                child_ends.append(readable if stream_number == 0 else writable)
                our_ends.append(writable if stream_number == 0 else readable)
            child = self.children.start(
                self.argv, self.cwd, self.env, (child_ends[0], child_ends[1], child_ends[2])
            )
        except OSError:
            for descriptor in our_ends:
                os.close(descriptor)
            raise
        finally:
            for descriptor in child_ends:
                os.close(descriptor)
        return (
            child,
            our_ends[0],
            [(our_ends[1], self.channel.sendall), (our_ends[2], self.channel.sendall_stderr)],
        )

    def _start_on_terminal(self) -> tuple[Child, int, list[tuple[int, Callable[[bytes], object]]]]:
        assert self.terminal is not None
        master, slave = self.terminal.open()
        name = os.ttyname(slave)
        argv = ["/bin/sh", "-c", _RUN_ON_TERMINAL, "sh", name, *self.argv]
        env = {**self.env, "TERM": self.terminal.kind, "SSH_TTY": name}
        try:
            child = self.children.start(argv, self.cwd, env, (slave, slave, slave))
        except OSError:
            os.close(master)
            raise
        finally:
            os.close(slave)
        return child, os.dup(master), [(master, self.channel.sendall)]

    def _start_thread(self, task: Callable[..., None], *args: object) -> threading.Thread:
        thread = threading.Thread(target=task, args=args, daemon=True)
        thread.start()
        return thread

    def _copy_in(self, stdin: int) -> None:
        with suppress(OSError):
            while data := self.channel.recv(_CHUNK):
                while data:
                    data = data[os.write(stdin, data) :]
        os.close(stdin)

    def _copy_out(self, descriptor: int, send: Callable[[bytes], object]) -> None:
        """Until the last process that holds the stream has closed it, or the client has disconnected."""
        with suppress(OSError):  # a terminal ends by an error
            while data := os.read(descriptor, _CHUNK):
                send(data)
        os.close(descriptor)

    def _wait_and_report(self, child: Child, pumps: list[threading.Thread]) -> None:
        """Report to the client how the command ended, or end the command when the client has disconnected."""
        while not child.ended.wait(_POLL_SECONDS):
            if self.channel.closed:
                self.children.signal(child, signal.SIGHUP)
                if not child.ended.wait(_HANGUP_SECONDS):
                    self.children.signal(child, signal.SIGKILL)
                return
        with suppress(OSError):
            self.channel.send_exit_status(child.status or 0)
        for pump in pumps:
            # a process in the background may hold a stream
            while pump.is_alive() and not self.channel.closed:
                pump.join(_POLL_SECONDS)
        self.channel.close()


MAX_SESSIONS = 10  # MaxSessions of OpenSSH
MAX_UNAUTHENTICATED = 100  # connections that have not logged in yet, as MaxStartups of OpenSSH
LOGIN_SECONDS = 30.0


class SshServer:
    """Listens at the node's address; open connections continue when it stops listening."""

    def __init__(self, plan: LabPlan, node: LabNodePlan, children: Children) -> None:
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # a port scan must not fill the disk
        self.plan = plan
        self.node = node
        self.children = children
        directory = Path(plan.directory)
        self.host_key = paramiko.Ed25519Key(filename=str(directory / "nodes" / node.name / "host_key"))
        key_fields = (directory / "id_ed25519.pub").read_text(encoding="ascii").split()
        self.authorized_key = key_fields[1]
        self._socket: socket.socket | None = None
        self._unauthenticated = threading.BoundedSemaphore(MAX_UNAUTHENTICATED)

    @property
    def is_listening(self) -> bool:
        """Return whether new connections get in."""
        return self._socket is not None

    def open(self) -> None:
        """Listen, unless it does; OSError if the port is taken."""
        if self._socket is None:
            address = (self.node.host, self.plan.ssh_port)
            self._socket = socket.create_server(address, backlog=128)
            threading.Thread(target=self._accept_connections, args=[self._socket], daemon=True).start()

    def close(self) -> None:
        """Accept no further connection."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._socket.close()
            self._socket = None

    def _accept_connections(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                if listener.fileno() < 0 or listener is not self._socket:
                    return
                time.sleep(0.05)  # no descriptors left, for example
                continue
            if not self._unauthenticated.acquire(blocking=False):
                peer.close()
                continue
            threading.Thread(target=self._serve_connection, args=[peer], daemon=True).start()

    def _serve_connection(self, peer: socket.socket) -> None:
        """Serve one client from login until it disconnects."""
        try:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = LabTransport(peer)
            connection = SshConnection(self, transport, peer)
        except (OSError, paramiko.SSHException):
            peer.close()
            self._unauthenticated.release()
            return
        try:
            transport.add_server_key(self.host_key)
            transport.start_server(threading.Event(), connection)
            _await_login(transport)
        finally:
            self._unauthenticated.release()
        transport.join()  # until it disconnects
        transport.close()


def _await_login(transport: paramiko.Transport) -> None:
    deadline = time.monotonic() + LOGIN_SECONDS
    while transport.is_active() and not transport.is_authenticated():
        if time.monotonic() > deadline:
            transport.close()
        time.sleep(0.02)


class LabTransport(paramiko.Transport):
    """paramiko's, but it records when a request was answered: no command may end before its client knows it began."""

    def __init__(self, peer: socket.socket) -> None:
        super().__init__(peer)
        self.replied = threading.Event()

    def _send_user_message(self, data: paramiko.Message) -> None:
        super()._send_user_message(data)  # type: ignore[misc]  # the stubs leave out what is private
        if data.asbytes()[:1] == cMSG_CHANNEL_SUCCESS:
            self.replied.set()


class SshConnection(paramiko.ServerInterface):
    """One connection: what it may do."""

    def __init__(self, server: SshServer, transport: LabTransport, peer: socket.socket) -> None:
        self.server = server
        self.transport = transport
        self.addresses = " ".join(f"{host} {port}" for host, port in (peer.getpeername(), peer.getsockname()))
        self._channels: dict[int, paramiko.Channel | None] = {}
        self._terminals: dict[int, Terminal] = {}
        self._environments: dict[int, dict[str, str]] = {}

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002  (paramiko's signature)
        """Keys, and nothing else."""
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        """The lab's own key and user are let in."""
        is_authorized = (
            username == self.server.plan.account.name and key.get_base64() == self.server.authorized_key
        )
        return AUTH_SUCCESSFUL if is_authorized else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        """Sessions, as many at a time as OpenSSH allows."""
        if kind != "session":
            return OPEN_FAILED_UNKNOWN_CHANNEL_TYPE
        while (channel := self.transport.accept(0)) is not None:
            self._channels[channel.get_id()] = channel
        for channel_id in [
            channel_id for channel_id, channel in self._channels.items() if channel and channel.closed
        ]:
            del self._channels[channel_id]
            self._terminals.pop(channel_id, None)
            self._environments.pop(channel_id, None)
        if len(self._channels) >= MAX_SESSIONS:
            return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        self._channels[chanid] = None
        return OPEN_SUCCEEDED

    def check_channel_env_request(self, channel: paramiko.Channel, name: bytes, value: bytes) -> bool:
        """The language of the caller, as Debian's sshd takes it."""
        key = os.fsdecode(name)
        if key != "LANG" and not key.startswith("LC_"):
            return False
        self._environments.setdefault(channel.get_id(), {})[key] = os.fsdecode(value)
        return True

    def check_channel_pty_request(
        self,
        channel: paramiko.Channel,
        term: bytes,
        width: int,
        height: int,
        *_: object,  # pixels, modes
    ) -> bool:
        """A terminal for the session that follows."""
        self._terminals[channel.get_id()] = Terminal(os.fsdecode(term), width, height)
        return True

    def check_channel_window_change_request(
        self, channel: paramiko.Channel, width: int, height: int, *_: object
    ) -> bool:
        """The caller's window has another size."""
        terminal = self._terminals.get(channel.get_id())
        if terminal is not None:
            terminal.resize(width, height)
        return terminal is not None

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        """Run a command by the user's shell."""
        return self._start_session(channel, ["-c", os.fsdecode(command)])

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        """Run a login shell."""
        return self._start_session(channel, ["-l"])

    def _start_session(self, channel: paramiko.Channel, shell_options: list[str]) -> bool:
        plan, node = self.server.plan, self.server.node
        shell = plan.account.shell
        host, port, _, own_port = self.addresses.split()
        env = {
            **session_environment(plan, node),
            **self._environments.get(channel.get_id(), {}),
            "SSH_CLIENT": f"{host} {port} {own_port}",
            "SSH_CONNECTION": self.addresses,
        }
        terminal = self._terminals.get(channel.get_id())
        session = CommandSession(
            channel, self.server.children, [shell, *shell_options], plan.home_directory(node), env, terminal
        )
        self.transport.replied.clear()
        return session.start(self.transport.replied)


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
        path = os.path.join(self.plan.directory, "nodes", self.node.name, "sshd.log")  # noqa: PTH118  (a path as text)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        self.channel.send(json.dumps({"pid": os.getpid(), "host_pid": os.getpid()}).encode())
        return wake_on(signal.SIGCHLD)

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
