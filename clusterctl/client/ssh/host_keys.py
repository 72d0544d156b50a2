"""Return whether a node shows the host key that is known: what changed is refused, what is new may be recorded."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterctl.client.ssh.known_hosts import (
    DEFAULT_PORT,
    KnownHosts,
    KnownHostsEntry,
    fingerprint,
    hash_name,
    parse_entries,
    render_name,
)
from clusterctl.client.ssh.route import Hop
from clusterctl.errors import HostKeyError
from clusterctl.node_texts import describe_system_error
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

SYSTEM_FILE = Path("/etc/ssh/ssh_known_hosts")
SALT_SIZE = 20  # bytes, as OpenSSH


@dataclass
class _KnownHostsFile:
    """One known_hosts file as it was read; `problem`: why it could not be."""

    path: Path
    known: KnownHosts
    problem: str = ""


class HostKeys:
    """The known host keys of this process; files are read once. Safe to use from many threads.

    `notice` receives that a key was accepted because it was new, and where it was written down.
    """

    def __init__(
        self,
        notice: Callable[[str], None] = lambda _: None,
        *,
        home: Path | None = None,
        system_file: Path = SYSTEM_FILE,
    ) -> None:
        self._notice = notice
        self._home = home or Path.home()
        self._system_file = system_file
        self._files: dict[Path, _KnownHostsFile] = {}
        self._lock = threading.Lock()

    def key_types(self, hop: Hop) -> list[str]:
        """List the types of the keys that are known for a node, so that one of them is requested."""
        entries, portless = self._entries(hop)
        return list(dict.fromkeys(entry.key_type for entry in _trusted(entries) or _trusted(portless)))

    def has_markers(self, hop: Hop) -> bool:
        """Return whether lines that mean the node trust an authority or revoke a key, which only ssh itself judges."""
        names = (_known_hosts_name(hop), render_name(hop.host_key_alias or hop.host, DEFAULT_PORT))
        return any(entry.marker for name in names for entry in self._match(hop, name))

    def verify(self, hop: Hop, key_type: str, key: bytes) -> None:
        """Return if `key` is known for the node, or was just recorded; raise HostKeyError if not."""
        entries, portless = self._entries(hop)
        if any(entry.key == key for entry in (*_trusted(entries), *_trusted(portless))):
            return
        name = _known_hosts_name(hop)
        if _trusted(entries):
            raise _changed_key(hop, name, _trusted(entries), key_type, key)
        if hop.host_keys != "accept-new":
            problems = [file.problem for file in self._read_files(hop) if file.problem]
            raise _unknown_key(hop, key_type, key, problems)
        self._accept(hop, name, key_type, key)

    def _entries(self, hop: Hop) -> tuple[list[KnownHostsEntry], list[KnownHostsEntry]]:
        """Return the lines that mean the node, and those that name it without its port.

        As OpenSSH does: a line without the port is used only if none has it, and then counts only if it holds
        the very key.
        """
        entries = self._match(hop, _known_hosts_name(hop))
        if _trusted(entries) or hop.port == DEFAULT_PORT or hop.host_key_alias is not None:
            return entries, []
        return entries, self._match(hop, render_name(hop.host, DEFAULT_PORT))

    def _match(self, hop: Hop, name: str) -> list[KnownHostsEntry]:
        return [entry for file in self._read_files(hop) for entry in file.known.match(name)]

    def _paths(self, hop: Hop) -> list[Path]:
        if hop.known_hosts:
            return [self._expand(path) for path in hop.known_hosts]
        folder = self._home / ".ssh"
        return [folder / "known_hosts", folder / "known_hosts2", self._system_file]

    def _expand(self, path: str) -> Path:
        return self._home / path[2:] if path.startswith("~/") else Path(path)

    def _read_files(self, hop: Hop) -> list[_KnownHostsFile]:
        with self._lock:
            return [self._read_file(path) for path in self._paths(hop)]

    def _read_file(self, path: Path) -> _KnownHostsFile:
        if path not in self._files:
            self._files[path] = _load_file(path)
        return self._files[path]

    def _accept(self, hop: Hop, name: str, key_type: str, key: bytes) -> None:
        with self._lock:
            files = [self._read_file(path) for path in self._paths(hop)]
            known = _trusted([entry for file in files for entry in file.known.match(name)])
            if any(entry.key == key for entry in known):
                return  # another thread has met the same server
            if known:  # another thread has met a server with another key at this address
                raise _changed_key(hop, name, known, key_type, key)
            file = files[0]
            written = hash_name(name, os.urandom(SALT_SIZE)) if hop.hashes_names else name
            try:
                _append(file.path, f"{written} {key_type} {base64.b64encode(key).decode()}")
            except OSError as error:
                raise _unwritable(hop, file.path, error) from error
            file.known.add(KnownHostsEntry(str(file.path), 0, "", written, key_type, key))
        self._notice(
            tr(
                "{node}: new host key {fingerprint} recorded in {file}",
                node=hop.name,
                fingerprint=fingerprint(key),
                file=file.path,
            )
        )


def _known_hosts_name(hop: Hop) -> str:
    """Name a server as known_hosts does; an alias stands there without a port."""
    return hop.host_key_alias.lower() if hop.host_key_alias else render_name(hop.host, hop.port)


def _trusted(entries: Sequence[KnownHostsEntry]) -> list[KnownHostsEntry]:
    return [entry for entry in entries if not entry.marker]


def _load_file(path: Path) -> _KnownHostsFile:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return _KnownHostsFile(path, KnownHosts())
    except OSError as error:
        return _KnownHostsFile(
            path,
            KnownHosts(),
            tr("{path} cannot be read: {reason}", path=path, reason=describe_system_error(error)),
        )
    return _KnownHostsFile(path, KnownHosts(parse_entries(text, str(path))))


def _append(path: Path, line: str) -> None:
    """Add a line in one write, closing a last line that was left open."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        unterminated = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, ("\n" if unterminated else "").encode() + line.encode() + b"\n")
    finally:
        os.close(descriptor)


def _unknown_key(hop: Hop, key_type: str, key: bytes, notes: Sequence[str]) -> HostKeyError:
    jump = ["ssh", f"ssh://{hop.jump.bastion}"] if hop.jump is not None else []
    port = ["-p", str(hop.port)] if hop.port != 22 else []
    scan = command_line(*jump, "ssh-keyscan", "-t", _keyscan_type(key_type), *port, hop.host)
    show_fingerprint = f"{scan} | ssh-keygen -lf -"
    return HostKeyError(
        "CC-SSH-009",
        node=hop.name,
        evidence="\n".join([_describe_shown(key_type, fingerprint(key)), *notes]),
        server=hop.description,
        command=show_fingerprint,
    )


def _changed_key(
    hop: Hop, name: str, known: Sequence[KnownHostsEntry], key_type: str, key: bytes
) -> HostKeyError:
    same = [entry for entry in known if entry.key_type == key_type] or known
    lines = [
        tr(
            "{location} holds {key_type} {fingerprint}",
            location=entry.location,
            key_type=entry.key_type,
            fingerprint=entry.fingerprint,
        )
        for entry in same
    ]
    return HostKeyError(
        "CC-SSH-010",
        node=hop.name,
        evidence="\n".join([*lines, _describe_shown(key_type, fingerprint(key))]),
        server=hop.description,
        location=same[0].location,
        command=command_line("ssh-keygen", "-R", name, "-f", str(same[0].file)),
    )


def _unwritable(hop: Hop, path: Path, error: OSError) -> HostKeyError:
    return HostKeyError(
        "CC-SSH-012", node=hop.name, evidence=describe_system_error(error), server=hop.description, path=path
    )


def _describe_shown(key_type: str, key_fingerprint: str) -> str:
    return tr("its host key: {key_type} {fingerprint}", key_type=key_type, fingerprint=key_fingerprint)


def _keyscan_type(key_type: str) -> str:
    return "ecdsa" if key_type.startswith("ecdsa-") else key_type.rpartition("-")[2]
