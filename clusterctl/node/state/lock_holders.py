"""The holders of the locks of this machine: abstract sockets whose holders say who they are to anybody who connects.

A name is free when nothing listens on it. The holder's words are its own; its account and pid are the kernel's.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Iterable, List, Optional, Tuple, cast

from ...protocol.untrusted import MalformedError, parse_object

if TYPE_CHECKING:
    from ...protocol.messages.verbs import Holder, HolderAnswer

PREFIX = "clusterctl/"
GPU = PREFIX + "gpu/"  # + the UUID: held alone
NODE = PREFIX + "node"  # held alone by a run that wants the whole node
SHARE = PREFIX + "run/"  # + a digest: each run that does not
ANSWER_TIMEOUT = 1.0  # seconds for all holders together
MAX_NAMES = 256  # names looked at
MAX_ANSWER = 4096  # bytes that a holder may say
MAX_TEXT = 300  # characters of a text in it
MAX_PID = 1 << 22


def socket_address(name: str) -> bytes:
    """Return the abstract address of a name; the kernel takes at most 107 bytes."""
    return b"\0" + os.fsencode(name)[:107]


def share_name(run_id: str, node: str) -> str:
    """Return the name that a run holds on a node which it shares."""
    return SHARE + sha256(("%s/%s" % (run_id, node)).encode("utf-8", "replace")).hexdigest()[:24]


def names_in_use(prefix: str = PREFIX) -> List[str]:
    """List the names that are taken in this network namespace."""
    prefix_bytes = ("@" + prefix).encode("ascii")
    names = set()
    with suppress(OSError), open("/proc/net/unix", "rb") as source:
        for line in source:
            fields = line.split(None, 7)  # Num RefCount Protocol Flags Type St Inode Path
            if len(fields) == 8 and fields[7].startswith(prefix_bytes) and fields[5] == b"01":
                names.add(os.fsdecode(fields[7].strip()[1:]))
    return sorted(names)[:MAX_NAMES]


def query_holders(names: Iterable[str], timeout: float = ANSWER_TIMEOUT) -> List[Holder]:
    """Ask at once who holds these names; free ones are left out, a silent holder is named by the kernel alone."""
    queries = [query for query in (_HolderQuery(name) for name in names) if query.held]
    poller = select.poll()
    pending = {query.socket.fileno(): query for query in queries if not query.done}
    for descriptor in pending:
        poller.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + timeout
    while pending and time.monotonic() < deadline:
        for descriptor, _ in poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if pending[descriptor].read():
                poller.unregister(descriptor)
                del pending[descriptor]
    return [query.finish() for query in queries if query.held]


class _HolderQuery:
    """One question under way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held = True
        self.done = False
        self._content = b""
        self._pid: Optional[int] = None
        self._uid: Optional[int] = None
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        try:
            self.socket.connect(socket_address(name))
        except OSError as error:
            self.done = True
            self.held = error.errno == errno.EAGAIN  # its queue is full: held, and nothing serves it
            self.socket.close()
        else:
            self._pid, self._uid = _peer_of(self.socket)

    def read(self) -> bool:
        """Take what has come; True at the end."""
        try:
            chunk = self.socket.recv(MAX_ANSWER)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        self._content += chunk
        self.done = not chunk or len(self._content) >= MAX_ANSWER
        if self.done and not self._content:
            self.held = False  # it let go while we asked
        return self.done

    def finish(self) -> Holder:
        """Close, and give what is known."""
        self.socket.close()
        holder: Holder = {**read_answer(self._content[:MAX_ANSWER])}  # type: ignore[typeddict-item]  # the rest follows
        holder["name"] = printable(self.name)
        holder["age"] = time.time() - holder["since"] if holder.get("since") is not None else None
        holder["user"] = _user(self._uid)
        holder["pid"], holder["uid"] = self._pid, self._uid
        return holder


def belongs_to(holder: Holder, run_id: str) -> bool:
    """Return whether a holder is of this run: by its answer, and by its account, which the kernel reports."""
    return bool(holder.get("run") == run_id and holder.get("uid") == os.geteuid())


def read_answer(content: bytes) -> HolderAnswer:
    """Read what a holder, which may be any process on this machine, sends about itself; empty if that is nothing."""
    try:
        answer = parse_object(content, MAX_ANSWER)
    except MalformedError:
        return {}
    texts = {name: printable(answer.text(name, MAX_TEXT)) for name in ("run", "job", "node", "by")}
    times = {name: answer.moment(name) for name in ("since", "submitted")}
    facts = {**texts, **times, "agent": answer.integer("agent", 1, MAX_PID)}
    known = cast("HolderAnswer", {name: value for name, value in facts.items() if value not in (None, "")})
    known["going"] = answer.flag("going")
    return known


def printable(text: str) -> str:
    """Replace what a terminal might take for an order."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _peer_of(sock: socket.socket) -> Tuple[Optional[int], Optional[int]]:
    """Return who called listen() there; the kernel remembers it."""
    try:
        pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except (OSError, AttributeError):
        return None, None
    return pid or None, uid


def _user(uid: Optional[int]) -> Optional[str]:
    if uid is None:
        return None
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid
