"""The transport `openssh`: nodes reached by the user's own ssh program, and what it prints as errors.

There is one ControlMaster for each node, and one for each bastion, over which the nodes behind it are reached. A master
of the user's own is used where there is one, and never ended. Otherwise one of ours is made per command, in a directory
that only we can enter; a small process ends them when we end, however we do.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from invoke import Config, Context

from clusterctl.client.rpc import errors as endings
from clusterctl.client.rpc.channels import SSH_FAILED, OpensshChannel
from clusterctl.client.ssh.bastion import SharedConnections, bastion_error
from clusterctl.client.ssh.route import loop_error, split_route
from clusterctl.client.ssh.timeouts import WATCHDOG, Timeouts
from clusterctl.errors import AuthenticationFailed, ConnectError, ConnectTimeout, HostKeyError, Unreachable
from clusterctl.plans.ssh import (
    ConnectionSharing,
    control_argv,
    master_argv,
    name_lab,
    parse_new_host_keys,
    parse_sharing,
    render_bastion_options,
    render_forward_command,
    render_lab_command,
    render_options,
    session_argv,
    settings_argv,
    with_english_messages,
)
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.text import command_line, quote_word
from clusterctl.specs.values import MAX_CHAIN, Bastion
from clusterctl.translation import tr

MAX_EVIDENCE = 2048
LOGIN_REFUSED_CODE, CLOSED_CODE, PROXY_CODE = "CC-SSH-007", "CC-SSH-006", "CC-SSH-013"
UNKNOWN_KEY_CODE = "CC-SSH-009"
NO_GREETING = "kex_exchange_identification: "  # the node itself has sent nothing

# Messages of ssh (OpenSSH 7 to 10), kind, code, case; the first match counts.
_ERRORS: tuple[tuple[str, type[ConnectError], str, str], ...] = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED|host key for .* has changed",
        HostKeyError,
        "CC-SSH-010",
        "openssh",
    ),
    (
        "REVOKED HOST KEY|marked as revoked|revoked by file|in revoked keys file",
        HostKeyError,
        "CC-SSH-011",
        "openssh",
    ),
    (
        "Certificate invalid: ",
        HostKeyError,
        "CC-SSH-021",
        "",
    ),
    (
        "[Nn]o .*host key is known for|Host key verification failed",
        HostKeyError,
        UNKNOWN_KEY_CODE,
        "openssh",
    ),
    (
        "Could not resolve hostname",
        Unreachable,
        "CC-SSH-001",
        "openssh",
    ),
    (
        "Connection refused",
        Unreachable,
        "CC-SSH-002",
        "openssh",
    ),
    (
        "No route to host|Network is unreachable|Host is down|Permission denied.*port",
        Unreachable,
        "CC-SSH-003",
        "openssh",
    ),
    (
        "timed out|[Tt]imeout",
        ConnectTimeout,
        "CC-SSH-004",
        "openssh-silent",
    ),
    (
        r"Permission denied \(|Permission denied, please try again|Too many authentication failures"
        "|authentication methods|Authentication failed",
        AuthenticationFailed,
        LOGIN_REFUSED_CODE,
        "openssh",
    ),
    (
        "banner line|Invalid SSH identification|protocol version",
        Unreachable,
        "CC-SSH-005",
        "openssh",
    ),
    (
        "Unable to negotiate|[Cc]onnection closed by|Connection reset by|kex_exchange|banner exchange: "
        "|disconnect from",
        Unreachable,
        CLOSED_CODE,
        "openssh",
    ),
    (
        "UNKNOWN port|[Cc]onnection closed|[Cc]onnection reset|[Bb]roken pipe|stdio forward|kex_exchange"
        "|banner exchange: ",
        Unreachable,
        PROXY_CODE,
        "openssh",
    ),
    (
        "[Bb]ad configuration option|bad configuration|Can't open user config|Bad owner or permissions"
        "|unknown option|illegal option|garbage at end of line|missing argument|keyword .* extra arguments",
        Unreachable,
        "CC-SSH-030",
        "settings",
    ),
)


def explain_failure(
    node: Node, stderr: str, status: int, *, interactive: bool, via: str | None = None
) -> ConnectError:
    """Describe why ssh did not get in.

    `interactive`: it could ask the user for a password; `via` names what is in between. A
    bastion's own messages are not in `stderr`: ssh discards them where it starts a master.
    """
    values = {
        "host": node.host,
        "place": _render_address(node),
        "known": _known_name(node),
        "command": render_ssh_command(node),
    }
    values["via"] = via or tr("a proxy command or bastion")
    evidence = stderr.strip()[-MAX_EVIDENCE:]
    for pattern, kind, code, case in _ERRORS:
        if re.search(pattern, stderr):
            if via and (code == CLOSED_CODE or (code != PROXY_CODE and NO_GREETING in stderr)):
                continue  # who ended it stands in between
            no_terminal = code == LOGIN_REFUSED_CODE and not interactive
            chosen = "no-terminal" if no_terminal else case
            return kind(code, chosen, node=node.name, evidence=evidence, **values)
    # what is in between may end before ssh can report it
    if (via or node.ssh.proxy_command) and not evidence and status > 0:
        return Unreachable(PROXY_CODE, "openssh", node=node.name, **values)
    case = "" if status >= 0 else "signal"
    return Unreachable(
        "CC-SSH-031", case, node=node.name, evidence=evidence, status=status, signal=-status, **values
    )


def login_timed_out(node: Node, limit: float, stderr: str) -> ConnectTimeout:
    """Report that ssh did not get in within its time."""
    return ConnectTimeout(
        "CC-SSH-004",
        "openssh-login",
        node=node.name,
        evidence=stderr.strip()[-MAX_EVIDENCE:],
        address=_render_address(node),
        limit=limit,
        command=render_ssh_command(node),
    )


def no_program(node: Node, error: OSError) -> Unreachable:
    """Report that there is no ssh program to run."""
    return Unreachable("CC-SSH-030", "program", node=node.name, evidence=str(error))


def render_ssh_command(node: Node) -> str:
    """Write the `ssh` that a user would type for a node."""
    if lab := name_lab(node.host, node.ssh.key, node.ssh.proxy_command):
        return render_lab_command(lab, "ssh", node.name)
    options = ["ssh", *(["-p", str(node.ssh.port)] if node.ssh.port not in (None, 22) else ())]
    options += ["-i", node.ssh.key] if node.ssh.key else []
    options += ["-J", node.ssh.jump] if node.ssh.jump else []
    options += ["-o", f"ProxyCommand={node.ssh.proxy_command}"] if node.ssh.proxy_command else []
    return command_line(*options, f"{node.ssh.user}@{node.host}" if node.ssh.user else node.host)


def _render_address(node: Node) -> str:
    return node.host if node.ssh.port in (None, 22) else f"{node.host} port {node.ssh.port}"


def _known_name(node: Node) -> str:
    return quote_word(node.host if node.ssh.port in (None, 22) else f"[{node.host}]:{node.ssh.port}")


MAX_OUTPUT = 1 << 20  # bytes, when it is looked at
CHECK_INTERVAL = 0.5  # seconds


class OutputGuard:
    """Watches growing files; `exceeded`: one grew far too large, and the program was stopped."""

    def __init__(self, files: Sequence[IO[bytes]], stop: Callable[[], None]) -> None:
        self.exceeded = False
        self._files, self._stop = files, stop
        self._ended = False
        self._alarm = WATCHDOG.set(CHECK_INTERVAL, self._check)

    def _check(self) -> None:
        with suppress(OSError, ValueError):  # they are just being closed
            if self._ended:
                return
            if any(os.fstat(file.fileno()).st_size > MAX_OUTPUT for file in self._files):
                self.exceeded = True
                self._stop()
            else:
                self._alarm = WATCHDOG.set(CHECK_INTERVAL, self._check)

    def close(self) -> None:
        """Look no more."""
        self._ended = True
        WATCHDOG.cancel(self._alarm)


@contextmanager
def limit_output(files: Sequence[IO[bytes]], stop: Callable[[], None]) -> Iterator[OutputGuard]:
    """Call `stop` if one of the files grows far too large within the block."""
    guard = OutputGuard(files, stop)
    try:
        yield guard
    finally:
        guard.close()


MAX_FOLDER = 60  # bytes; a socket's path has 108 at most, and ssh adds a suffix while it makes one
ASK_LIMIT = 180.0  # seconds that a person may take for a password and a code
FLOOD_EVIDENCE = 200  # characters of a flood are enough
DEFAULT_TIMEOUTS = Timeouts()

# Waits for the end of its stdin, which is ours to hold, and then ends every master in the directory.
CLOSER = (
    'read -r _; for s in "$1"/*; do [ -S "$s" ] && "$2" -F /dev/null -S "$s" -O exit -- master & done;'
    ' wait; rm -rf -- "$1"'
)
CLOSE_LIMIT = 3.0


class OpensshConnection(Context):  # type: ignore[misc]  # invoke ships no types
    """A way into a node through a master: what a task may be called with, and no more of Fabric's Connection."""

    node: Node
    path: str  # of the master's socket
    owned: bool
    program: str

    def __init__(self, program: str, node: Node, path: str, *, owned: bool) -> None:
        super().__init__(Config(lazy=True))
        # a Context takes attributes for settings
        self._set(program=program, node=node, path=path, owned=owned)

    @property
    def is_connected(self) -> bool:
        """Return whether the master listens."""
        return is_listening(self.path)

    def open_channel(self) -> OpensshChannel:
        """Run the constant remote command; ConnectionLost if the master is gone."""
        if not self.is_connected:
            raise endings.connection_lost(self.node.name, tr("its ControlMaster has ended"))
        argv = session_argv(self.program, self.node, self.path)
        return OpensshChannel(self.node.name, argv, lambda: self.is_connected)

    def terminal_argv(self, command: str) -> list[str]:
        """Return the words of an ssh that runs a command, or a login shell, in this terminal."""
        return session_argv(self.program, self.node, self.path, command, terminal=True)

    def close(self) -> None:
        """End the master if it is ours."""
        if self.owned and self.is_connected:
            _request(self.program, self.path, "exit")


@dataclass(frozen=True)
class Login:
    """A login to make: `socket` is where a master of ours is to listen; None: where the user's files say."""

    node: Node
    sharing: ConnectionSharing
    options: Sequence[str]
    socket: str | None


class Masters:
    """The masters of one command, made when they are first needed."""

    def __init__(
        self, notice: Callable[[str], None], program: str = "ssh", *, ask_host_keys: bool = False
    ) -> None:
        """Start nothing yet; with `ask_host_keys` ssh asks at a terminal whether an unknown host key is right."""
        self._notice = notice
        self._ask_host_keys = ask_host_keys
        self._program = shutil.which(program) or program
        self._lock, self._prompt_lock = threading.Lock(), threading.Lock()
        self._numbers = itertools.count()
        self._starting: set[subprocess.Popen[bytes]] = set()
        self._bastions: SharedConnections[Node, OpensshConnection] = SharedConnections()
        self._folder: Path | None = None
        self._closer: subprocess.Popen[bytes] | None = None
        self._closed = False

    def connect(self, node: Node, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> OpensshConnection:
        """Find or make the master of a node; raises a ConnectError with the reason why ssh failed."""
        return self._connect(_with_expanded_paths(node), timeouts, ())

    def _connect(self, node: Node, timeouts: Timeouts, passed: tuple[Bastion, ...]) -> OpensshConnection:
        """Find or make the master of a node, or of the last of the bastions in `passed`."""
        options = render_bastion_options(node) if passed else render_options(node)
        argv = settings_argv(self._program, node.host, options)
        sharing = parse_sharing(self._run(node, argv, timeouts.connect))
        if sharing.control_path is not None and is_listening(sharing.control_path):
            return OpensshConnection(self._program, node, sharing.control_path, owned=False)
        if passed:
            options = render_bastion_options(node, sharing.usual_keys)
        bastions = split_route(node, sharing.jump)
        if bastions:
            bastion = self._reach_bastion(node, bastions, timeouts, passed)
            command = render_forward_command(self._program, bastion.path, bastion.node.host)
            options = ["-o", f"ProxyCommand={command}", *options]
            # a master that outlived this command would not outlive ours before it
            sharing = replace(sharing, persists=sharing.persists and not bastion.owned)
        own_socket = None if sharing.persists else str(self._open_folder() / str(next(self._numbers)))
        login = Login(node, sharing, options, own_socket)
        try:
            self._log_in(login, timeouts, batch=True)
        except ConnectError as error:
            asks_for_key = self._ask_host_keys and error.code == UNKNOWN_KEY_CODE
            if not ((_needs_user(error) or asks_for_key) and can_prompt()):
                raise
            if asks_for_key:
                login = replace(login, sharing=replace(sharing, unknown_keys="ask"))
            with self._prompt_lock:  # at the terminal, for one node at a time
                self._check_open(node)
                self._notice(tr("{node}: ssh may prompt for a password or a code now", node=node.name))
                self._log_in(login, timeouts, batch=False)
        path = own_socket or str(sharing.control_path)
        return OpensshConnection(self._program, node, path, owned=own_socket is not None)

    def _reach_bastion(
        self, node: Node, bastions: Sequence[Bastion], timeouts: Timeouts, passed: tuple[Bastion, ...]
    ) -> OpensshConnection:
        """Find or make the master of the last bastion before a node, which all nodes behind it share."""
        *before, last = bastions
        if last in passed or len(passed) >= MAX_CHAIN:
            raise loop_error(node.name, (*passed, last))
        ssh = replace(
            node.ssh,
            user=last.user,
            port=last.port,
            jump=",".join(map(str, before)) or None,
            proxy_command=None,
        )
        bastion = Node(name=str(last), index=0, host=last.host, ssh=ssh)
        try:
            return self._bastions.find(bastion, lambda: self._connect(bastion, timeouts, (*passed, last)))
        except ConnectError as error:
            raise bastion_error(str(last), _render_address(bastion), node.name, error) from error

    def close(self) -> None:
        """End what is being started, and every master of ours."""
        with self._lock:
            self._closed = True
            starting, closer, folder = list(self._starting), self._closer, self._folder
        for process in starting:
            process.terminate()
        if closer is None or closer.stdin is None:
            return
        closer.stdin.close()
        try:
            closer.wait(CLOSE_LIMIT)
        except subprocess.TimeoutExpired:
            closer.kill()
            closer.wait()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _log_in(self, login: Login, timeouts: Timeouts, *, batch: bool) -> None:
        node = login.node
        argv = master_argv(
            self._program,
            node.host,
            login.options,
            login.sharing,
            socket=login.socket,
            batch=batch,
            timeout=timeouts.connect,
        )
        limit = timeouts.connect + timeouts.handshake + timeouts.login if batch else ASK_LIMIT
        self._run(node, argv, limit, interactive=not batch, via=login.sharing.via_text)

    def _run(
        self,
        node: Node,
        argv: Sequence[str],
        limit: float,
        *,
        interactive: bool = False,
        via: str | None = None,
    ) -> str:
        """Run ssh to its end and return what it printed; its failure is raised as what it means."""
        # Files, not pipes: a master that keeps running may keep the descriptors of ssh open.
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            with (
                _tee_to_terminal(stderr) if interactive else nullcontext(stderr.fileno()) as stderr_descriptor
            ):
                process = self._start(node, argv, stdout.fileno(), stderr_descriptor, interactive=interactive)
                with (
                    WATCHDOG.limit(limit, process.terminate) as alarm,
                    limit_output((stdout, stderr), process.terminate) as guard,
                ):
                    status = _wait_for_end(process, has_session=not interactive)
            with self._lock:
                self._starting.discard(process)
                # Ctrl-C at a prompt: no further one is to come
                self._closed = self._closed or (interactive and status == -signal.SIGINT)
            message = _text(stderr)
            if guard.exceeded:
                raise endings.output_flood(node.name, (message or _text(stdout))[:FLOOD_EVIDENCE])
            if alarm.expired:
                raise login_timed_out(node, limit, message)
            if status == SSH_FAILED or status < 0:
                raise explain_failure(node, message, status, interactive=interactive, via=via)
            for key in parse_new_host_keys(message):
                self._notice(tr("{node}: ssh recorded the new host key of {host}", node=node.name, host=key))
            return _text(stdout)

    def _start(
        self, node: Node, argv: Sequence[str], stdout: int, stderr: int, *, interactive: bool
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            self._check_open(node)
            try:
                # One that may prompt must stay with the terminal, where Ctrl-C ends it; the others must not be there.
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env=with_english_messages(os.environ),
                    start_new_session=not interactive,
                )
            except OSError as error:
                raise no_program(node, error) from error
            self._starting.add(process)
            return process

    def _check_open(self, node: Node) -> None:
        if self._closed:
            raise explain_failure(node, tr("the command is ending"), 0, interactive=True)

    def _open_folder(self) -> Path:
        """Make the directory for our sockets, and the process that ends their masters after us."""
        with self._lock:
            if self._folder is None:
                runtime_dir = os.environ.get("XDG_RUNTIME_DIR", "")
                # mkdtemp makes a name of its own, mode 0700
                parent = runtime_dir if _is_usable_parent(runtime_dir) else "/tmp"
                self._folder = Path(tempfile.mkdtemp(prefix="clusterctl-", dir=parent))
                self._closer = subprocess.Popen(
                    ["/bin/sh", "-c", CLOSER, "clusterctl", str(self._folder), self._program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            return self._folder


def _wait_for_end(process: subprocess.Popen[bytes], *, has_session: bool) -> int:
    """Wait for ssh; with one that fails ends what it has started, such as a ProxyCommand that waits for something."""
    ended = os.waitid(
        os.P_PID, process.pid, os.WEXITED | os.WNOWAIT
    )  # its number stays taken until it is waited for
    if has_session and ended is not None and (ended.si_code, ended.si_status) != (os.CLD_EXITED, 0):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _needs_user(error: ConnectError) -> bool:
    """Return whether a password or a code may help: the node requires one, or perhaps what is in between."""
    return isinstance(error, AuthenticationFailed) or error.code == PROXY_CODE


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MAX_OUTPUT).decode("utf-8", "replace")


@contextmanager
def _tee_to_terminal(log: IO[bytes]) -> Iterator[int]:
    """Return a descriptor for what a person must see now: it goes to the terminal, and into a file as well."""
    read_end, write_end = os.pipe()
    # a master of an old ssh keeps writing, and the number may be another file's by then
    log_copy = os.dup(log.fileno())
    copier = threading.Thread(
        target=_copy_to_terminal, args=(read_end, log_copy), name="what ssh says", daemon=True
    )
    copier.start()
    try:
        yield write_end
    finally:
        os.close(write_end)
        copier.join(0.5)


def _copy_to_terminal(source: int, log: int) -> None:
    with (
        open(source, "rb", buffering=0) as pipe,
        open(log, "wb", buffering=0) as sink,
        Path("/dev/tty").open("wb", buffering=0) as terminal,
    ):
        while chunk := pipe.read(4096):
            terminal.write(chunk)
            sink.write(chunk)


def _is_usable_parent(folder: str) -> bool:
    return folder.startswith("/") and len(os.fsencode(folder)) <= MAX_FOLDER and os.access(folder, os.W_OK)


def is_listening(path: str) -> bool:
    """Return whether a process listens on a Unix socket."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe, suppress(OSError):
        probe.settimeout(1.0)
        probe.connect(path)
        return True
    return False


def can_prompt() -> bool:
    """Return whether a person can answer ssh: we are in the foreground of a terminal."""
    try:
        if not sys.stdin.isatty():
            return False
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except (OSError, ValueError):
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _with_expanded_paths(node: Node) -> Node:
    """Fill in what ssh leaves to the shell: `~` in the names of its configuration and of a system's known_hosts."""
    ssh = node.ssh
    config, known_hosts = (path and os.path.expanduser(path) for path in (ssh.config, ssh.known_hosts))  # noqa: PTH111, RUF100 - also where there is no home
    return replace(node, ssh=replace(ssh, config=config, known_hosts=known_hosts))


def _request(program: str, path: str, request: str) -> None:
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            control_argv(program, path, request),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=2.0,
            check=False,
        )
