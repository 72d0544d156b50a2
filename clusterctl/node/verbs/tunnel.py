"""The verb `tunnel`: bytes to and from something on this node, over the conversation: `forward`, `ssh` and `debug`.

request {"to": "port", "addresses": [...], "port": n}     each channel is a connection to an address that takes it
        {"to": "shell", "run": id or "", "argv": [...], "term": ..., "size": [rows, columns]}    channel 0 is a terminal
        {"to": "debug", "run": id, "rank": n}             channel 0 is the rank that waits at a breakpoint
client  {"open": n}, {"data": n} + bytes, {"close": n}, {"taken": n, "bytes": count}, {"size": [rows, columns]}
node    {"data": n} + bytes, {"close": n, "reason": ...}, {"taken": n, "bytes": count}, {"waits": rank}, {"beat": n},
        {"ended": {"exit": code or null, "signal": number or null}} of a shell
Neither side sends more than `window` bytes of a channel that the other has not taken, so that one slow reader does not
hold up the others.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import stat
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple, Union, cast

from ...protocol.run_paths import RunPaths
from ..diagnose.breakpoint import socket_name
from ..runtime.processes import PRIVATE_ENV, is_alive, reap
from ..runtime.stream import Stream, VerbError
from ..state.environments import activate_environment, find_run_environment
from ..state.run_record import find_run, parse_identity, read_spec, resolve_state

if TYPE_CHECKING:
    from ...protocol.messages.files import SentTemplate, Spec
    from ...protocol.messages.tunnel import TunnelFrame
    from ...protocol.messages.verbs import TunnelRequest

CHUNK = 1 << 15
MOST_CHANNELS = 256
CONNECT_LIMIT = 5.0
BEAT_INTERVAL = 2.0
POLL_INTERVAL = 0.25  # seconds between looks whether a rank has come to a breakpoint
# of a rank, or of clusterctl itself: a shell is no part of the run, and `stop` must not end it
OWN_VARIABLES = (
    *("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME"),
    *("ROLE_WORLD_SIZE", "CLUSTERCTL_RUN", "CLUSTERCTL_DIAGNOSE", "CLUSTERCTL_ATTEMPT", *PRIVATE_ENV),
)
OWN_PREFIXES = ("TORCHELASTIC_", "PET_")


def run(request: TunnelRequest, stream: Stream) -> None:
    """Carry bytes until the client leaves, or what it asked for has ended."""
    stream.send_timeout = 60.0
    if request["to"] == "port":
        PortTunnel(stream, request).serve()
    elif request["to"] == "shell":
        ShellTunnel(stream, request).serve()
    else:
        DebugTunnel(stream, request).serve()


class Channel:
    """One flow of bytes in both directions."""

    def __init__(self, descriptor: int, owner: Any, window: int) -> None:
        self.descriptor, self._owner = descriptor, owner
        os.set_blocking(descriptor, False)
        self.unsent = b""  # of the client, for here
        self.credit = window  # bytes that the client still takes
        self.finished = False  # the client sends no more

    def close(self) -> None:
        """Let go of it."""
        self._owner.close() if self._owner is not None else os.close(self.descriptor)


class Tunnel:
    """Channels by number, and the loop that serves them."""

    def __init__(self, stream: Stream, request: TunnelRequest) -> None:
        self._stream = stream
        self._window = request["window"]
        self._channels: Dict[int, Channel] = {}
        self._ended = False
        self._beats = 0
        self._last_beat = time.monotonic()

    def serve(self) -> None:
        """Serve until the client leaves or nothing is left."""
        try:
            while not self._stream.ended and not self._ended:
                for header, body in self._stream.read_available():
                    self._on_frame(cast("TunnelFrame", header), body)
                if self._stream.ended:
                    break
                for descriptor, _ in self._poller().poll(self._wait() * 1000):
                    self._serve_descriptor(descriptor)
                self._tick()
        finally:
            for channel in self._channels.values():
                channel.close()

    def _poller(self) -> Any:
        poller = select.poll()
        poller.register(self._stream.fileno(), select.POLLIN)
        for channel in self._channels.values():
            events = (select.POLLIN if channel.credit > 0 else 0) | (select.POLLOUT if channel.unsent else 0)
            if events:
                poller.register(channel.descriptor, events)
        return poller

    def _wait(self) -> float:
        return BEAT_INTERVAL

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._last_beat >= BEAT_INTERVAL:
            self._last_beat = now
            self._beats += 1
            self._stream.answer({"beat": self._beats})

    def _serve_descriptor(self, descriptor: int) -> None:
        for number, channel in list(self._channels.items()):
            if channel.descriptor == descriptor:
                self._write(number, channel)
                if number in self._channels and channel.credit > 0:
                    self._read(number, channel)

    def _read(self, number: int, channel: Channel) -> None:
        try:
            data = os.read(channel.descriptor, min(CHUNK, channel.credit))
        except BlockingIOError:
            return
        except OSError:  # a terminal whose last process is gone, or a connection that was reset
            data = b""
        if data:
            channel.credit -= len(data)
            self._stream.answer({"data": number}, data)
        else:
            self._close(number)

    def _write(self, number: int, channel: Channel) -> None:
        if not channel.unsent:
            return
        try:
            count = os.write(channel.descriptor, channel.unsent)
        except BlockingIOError:
            return
        except OSError:
            self._close(number)
            return
        channel.unsent = channel.unsent[count:]
        self._stream.answer({"taken": number, "bytes": count})
        self._finish(channel)

    def _close(self, number: int, reason: str = "") -> None:
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.close()
        self._stream.answer({"close": number, "reason": reason})

    def _on_frame(self, header: TunnelFrame, body: bytes) -> None:
        if "open" in header:
            self._open(int(header["open"]))
        elif "size" in header:
            self._resize(header["size"])
        elif "data" in header and header["data"] in self._channels:
            channel = self._channels[header["data"]]
            if len(channel.unsent) + len(body) > self._window:
                raise VerbError("CC-RUN-032", "the client sent more than was taken")
            channel.unsent += body
            self._write(header["data"], channel)
        elif "taken" in header and header["taken"] in self._channels:
            self._channels[header["taken"]].credit += int(header["bytes"])
        elif "close" in header and header["close"] in self._channels:
            self._channels[header["close"]].finished = True
            self._finish(self._channels[header["close"]])

    def _finish(self, channel: Channel) -> None:
        """Pass on the end of what the client sends; the other direction may go on."""

    def _open(self, number: int) -> None:
        """Begin a channel."""

    def _resize(self, size: List[int]) -> None:
        """Take the size of the client's terminal."""


class PortTunnel(Tunnel):
    """Connections to a port of this node."""

    def __init__(self, stream: Stream, request: TunnelRequest) -> None:
        super().__init__(stream, request)
        rundir = find_run(request["workdir"], request["run"], request["node"])
        spec = read_spec(rundir)
        own = spec.get("address") if spec is not None else None
        self._addresses = [*request["addresses"], *([str(own)] if own else [])]
        self._port = request["port"]

    def _open(self, number: int) -> None:
        reason = "too many connections"
        for address in self._addresses if len(self._channels) < MOST_CHANNELS else ():
            try:
                connection = socket.create_connection((address, self._port), CONNECT_LIMIT)
            except OSError as error:
                reason = f"{address}:{self._port}: {error.strerror or error}"
                continue
            self._channels[number] = Channel(connection.fileno(), connection, self._window)
            return
        self._close(number, reason)

    def _finish(self, channel: Channel) -> None:
        if channel.finished and not channel.unsent:
            with suppress(OSError):
                channel._owner.shutdown(socket.SHUT_WR)


class DebugTunnel(Tunnel):
    """The connection to a rank that waits at a breakpoint, as soon as it does."""

    def __init__(self, stream: Stream, request: TunnelRequest) -> None:
        super().__init__(stream, request)
        self._rundir = find_run(request["workdir"], request["run"], request["node"])
        self._rank = request["rank"]
        self._reported = False
        self._socket = ""  # of the rank that waits

    def _wait(self) -> float:
        return BEAT_INTERVAL if self._channels else POLL_INTERVAL

    def _tick(self) -> None:
        super()._tick()
        if self._channels or self._ended:
            return
        state = resolve_state(self._rundir)
        entry = (state["ranks"].get(str(self._rank)) if state is not None else None) or None
        if state is None or entry is None or not is_alive(parse_identity(entry)):
            self._stream.answer({"close": 0, "reason": "ended"})
            self._ended = True
            return
        folder = RunPaths(self._rundir).diagnosis(state["attempt"])
        connection = connect_to_rank(folder, self._rank)
        if connection is not None:
            self._socket = os.path.join(folder, socket_name(self._rank))
            self._channels[0] = Channel(connection.fileno(), connection, self._window)
            self._stream.answer({"waits": self._rank})
        elif not self._reported:
            self._reported = True
            self._stream.answer({"waits": None})

    def _close(self, number: int, reason: str = "continued") -> None:
        channel = self._channels.get(number)
        if channel is not None and channel.finished:  # the client has left: does the rank still wait?
            reason = "left" if os.path.exists(self._socket) else reason
            self._ended = True
        super()._close(number, reason)
        self._reported = False

    def _finish(self, channel: Channel) -> None:
        """Send pdb the end of what was typed; it answers the last line first, and then closes."""
        if channel.finished and not channel.unsent:
            with suppress(OSError):
                channel._owner.shutdown(socket.SHUT_WR)


def connect_to_rank(folder: str, rank: int) -> Optional[socket.socket]:
    """Connect to the socket of a rank that waits; None if there is none, or if it is not this account's."""
    directory = -1
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        name = socket_name(rank)
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid():
            # a path of the run's directory may be longer than a socket's address can be
            connection.connect(f"/proc/self/fd/{directory}/{name}")
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("3i", credentials)[1] == os.geteuid():
                return connection
    except OSError:
        pass
    finally:
        if directory >= 0:
            os.close(directory)
    connection.close()
    return None


class ShellTunnel(Tunnel):
    """A shell in a terminal, at home or in a run's directory with its environment."""

    def __init__(self, stream: Stream, request: TunnelRequest) -> None:
        super().__init__(stream, request)
        folder, env = shell_context(request)
        env["TERM"] = request["term"] or "dumb"
        argv = request["argv"] or [login_shell(), "-i"]
        import pty

        self._pid, terminal = pty.fork()
        if self._pid == 0:
            exec_shell(folder, argv, env)
        self._channels[0] = Channel(terminal, None, self._window)
        self._resize(request["size"])

    def _resize(self, size: List[int]) -> None:
        import fcntl
        import termios

        rows, columns = (max(1, min(int(number), 1000)) for number in size)
        if 0 in self._channels:
            descriptor = self._channels[0].descriptor
            fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def _finish(self, channel: Channel) -> None:
        if channel.finished and not channel.unsent:
            channel.finished = False
            with suppress(OSError):
                os.write(channel.descriptor, b"\x04")  # what Ctrl-D writes

    def _wait(self) -> float:
        return POLL_INTERVAL

    def _tick(self) -> None:
        super()._tick()
        for pid, status in reap():
            if pid == self._pid:
                while 0 in self._channels and self._channels[0].credit > 0 and self._drain():
                    continue
                signalled = os.WIFSIGNALED(status)
                code, number = (None, os.WTERMSIG(status)) if signalled else (os.WEXITSTATUS(status), None)
                self._stream.answer({"ended": {"exit": code, "signal": number, "cut": [], "left": []}})
                self._ended = True

    def _drain(self) -> bool:
        """Send what the shell has written last; returns whether there was something."""
        try:
            data = os.read(self._channels[0].descriptor, CHUNK)
        except OSError:
            return False
        if data:
            self._stream.answer({"data": 0}, data)
        return bool(data)


def exec_shell(folder: str, argv: List[str], env: Dict[str, str]) -> None:
    """Become the shell."""
    try:
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(folder)
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(126 if error.errno == errno.EACCES else 127)


def login_shell() -> str:
    """Name the account's shell."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_shell or "/bin/sh"
    except KeyError:
        return "/bin/sh"


def shell_context(request: TunnelRequest) -> Tuple[str, Dict[str, str]]:
    """Give the folder and the environment of a shell: home, or those of a run."""
    own = {key: value for key, value in os.environ.items() if key not in PRIVATE_ENV}
    home = os.path.expanduser("~")
    if not request["run"]:
        return (home if os.path.isdir(home) else "/"), own
    rundir = find_run(request["workdir"], request["run"], request["node"])
    code = RunPaths(rundir).code
    return (code if os.path.isdir(code) else rundir), run_environment(rundir) or own


def run_environment(rundir: str) -> Dict[str, str]:
    """Give the environment of a live process of the run, or what its job has set, without what is a rank's own."""
    state = resolve_state(rundir)
    entries = [*state["ranks"].values(), state["torchrun"]] if state is not None else []
    identities = [parse_identity(entry) for entry in entries if entry]
    live = [identity for identity in identities if identity is not None and is_alive(identity)]
    env = read_environ(live[0].pid) if live else {}
    if not env:
        spec = read_spec(rundir)
        output = os.path.expanduser(spec["output_dir"]) if spec is not None else ""
        env = dict(os.environ)
        if spec is not None:
            env.update(render_known(spec["env"], {"run_dir": rundir, "output_dir": output}))
            enter_environment(env, rundir, spec)
        env["CLUSTERCTL_OUTPUT_DIR"] = output
    return {
        key: value
        for key, value in env.items()
        if key not in OWN_VARIABLES and not key.startswith(OWN_PREFIXES)
    }


def enter_environment(env: Dict[str, str], rundir: str, spec: Spec) -> None:
    """Set the interpreter of the job, and what its `setup` has created."""
    made = find_run_environment(rundir, spec)
    if made is not None and made.prefix:
        activate_environment(env, made.prefix, spec["setup"]["kind"] or "")
    env["CLUSTERCTL_PYTHON"] = made.python if made is not None and made.prefix else spec["python"]


def render_known(templates: Mapping[str, SentTemplate], values: Dict[str, str]) -> Dict[str, str]:
    """Render the variables of a spec whose holes have a value."""
    rendered: Dict[str, str] = {}
    for key, template in templates.items():
        parts: List[Union[str, None]] = [
            part if isinstance(part, str) else values.get(part.get("fill", ""))
            for part in ([template] if isinstance(template, str) else template)
        ]
        if None not in parts:
            rendered[key] = "".join(part or "" for part in parts)
    return rendered


def read_environ(pid: int) -> Dict[str, str]:
    """Read the variables that a process was started with."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as source:
            entries = source.read(1 << 20).decode("utf-8", "surrogateescape").split("\0")
    except OSError:
        return {}
    return dict(entry.partition("=")[::2] for entry in entries if "=" in entry)
