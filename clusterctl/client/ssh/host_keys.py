"""Whether a node shows the host key that is known: what changed is refused, what is new may be recorded."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterctl.client.ssh.known_hosts import (
    AUTHORITY,
    DEFAULT_PORT,
    REVOKED,
    Entry,
    KnownHosts,
    find_revocation,
    fingerprint,
    parse_certificate,
    parse_entries,
    render_name,
)
from clusterctl.client.ssh.route import Hop
from clusterctl.errors import HostKeyError
from clusterctl.specs.text import command_line

SYSTEM_FILE = Path("/etc/ssh/ssh_known_hosts")


@dataclass(frozen=True)
class Recorded:
    """A host key that was accepted because it was new, and where it was written down."""

    node: str
    name: str
    key_type: str
    fingerprint: str
    file: str


@dataclass
class _Book:
    """One known_hosts file as it was read; `trouble` says why it could not be."""

    path: Path
    known: KnownHosts
    trouble: str = ""


class HostKeys:
    """The known host keys of this process; files are read once. Safe to use from many threads."""

    def __init__(
        self,
        observe: Callable[[Recorded], None] = lambda _: None,
        *,
        home: Path | None = None,
        system_file: Path = SYSTEM_FILE,
    ) -> None:
        self._observe = observe
        self._home = home or Path.home()
        self._system_file = system_file
        self._books: dict[Path, _Book] = {}
        self._lock = threading.Lock()

    def key_types(self, hop: Hop) -> list[str]:
        """List the types of the keys that are known for a node, so that it is asked for one of them."""
        named, bare = self._entries(hop)
        return list(dict.fromkeys(entry.key_type for entry in _trusted(named) or _trusted(bare)))

    def trusts_authority(self, hop: Hop) -> bool:
        """Tell whether a certificate authority is trusted for a node, so that it is asked for its certificate."""
        return bool(self._authorities(hop))

    def verify(self, hop: Hop, key_type: str, key: bytes, certificate: bytes = b"") -> None:
        """Return if `key` is known for the node, certified, or just recorded; raise HostKeyError if not."""
        if hop.revoked_keys and (why := find_revocation(self._expand(hop.revoked_keys), key, certificate)):
            raise _refused(hop, key_type, key, why)
        named, bare = self._entries(hop)
        for entry in (*named, *bare):
            if entry.marker == REVOKED and entry.key == key:
                raise _revoked(hop, entry)
        if any(entry.key == key for entry in (*_trusted(named), *_trusted(bare))):
            return
        if self._is_certified(hop, certificate):
            return
        name = _name(hop)
        if _trusted(named):
            raise _changed(hop, name, _trusted(named), key_type, key)
        if hop.host_keys != "accept-new":
            raise _unknown(hop, key_type, key, self._notes(hop))
        self._accept(hop, name, key_type, key)

    def _entries(self, hop: Hop) -> tuple[list[Entry], list[Entry]]:
        """Return the lines that mean the node, and those that name it without its port.

        As OpenSSH does: a line without the port is asked only if none has it, and then counts only if it holds
        the very key.
        """
        named = self._match(hop, _name(hop))
        if _trusted(named) or hop.port == DEFAULT_PORT or hop.host_key_alias is not None:
            return named, []
        return named, self._match(hop, render_name(hop.host, DEFAULT_PORT))

    def _match(self, hop: Hop, name: str) -> list[Entry]:
        return [entry for book in self._open(hop) for entry in book.known.match(name)]

    def _authorities(self, hop: Hop) -> list[Entry]:
        return [entry for entry in self._all_entries(hop) if entry.marker == AUTHORITY]

    def _all_entries(self, hop: Hop) -> list[Entry]:
        names = dict.fromkeys((_name(hop), render_name(hop.host_key_alias or hop.host, DEFAULT_PORT)))
        return [entry for name in names for entry in self._match(hop, name)]

    def _is_certified(self, hop: Hop, blob: bytes) -> bool:
        """Tell whether a trusted authority vouches for the host; HostKeyError if its certificate does not hold."""
        certificate = parse_certificate(blob) if blob else None
        if certificate is None:
            return False
        signers = [entry for entry in self._all_entries(hop) if entry.key == certificate.authority]
        for entry in signers:
            if entry.marker == REVOKED:
                raise _revoked(hop, entry)
        if not any(entry.marker == AUTHORITY for entry in signers):
            return False
        flaw = certificate.find_flaw(hop.host_key_alias or hop.host)
        if flaw:
            raise _uncertified(hop, certificate.identity, flaw)
        return True

    def _notes(self, hop: Hop) -> list[str]:
        notes = [book.trouble for book in self._open(hop) if book.trouble]
        places = ", ".join(entry.place for entry in self._authorities(hop))
        if places:
            notes.append(
                f"{places} trusts a certificate authority for it, which has not signed what it shows"
            )
        return notes

    def _paths(self, hop: Hop) -> list[Path]:
        if hop.known_hosts:
            return [self._expand(path) for path in hop.known_hosts]
        folder = self._home / ".ssh"
        return [folder / "known_hosts", folder / "known_hosts2", self._system_file]

    def _expand(self, path: str) -> Path:
        return self._home / path[2:] if path.startswith("~/") else Path(path)

    def _open(self, hop: Hop) -> list[_Book]:
        with self._lock:
            return [self._read(path) for path in self._paths(hop)]

    def _read(self, path: Path) -> _Book:
        if path not in self._books:
            self._books[path] = _read_book(path)
        return self._books[path]

    def _accept(self, hop: Hop, name: str, key_type: str, key: bytes) -> None:
        with self._lock:
            book = self._read(self._paths(hop)[0])
            if any(entry.key == key and not entry.marker for entry in book.known.match(name)):
                return  # another thread has met the same server
            try:
                _append(book.path, f"{name} {key_type} {base64.b64encode(key).decode()}")
            except OSError as error:
                raise _unwritable(hop, book.path, error) from error
            book.known.add(Entry(str(book.path), 0, "", name, key_type, key))
        self._observe(Recorded(hop.name, name, key_type, fingerprint(key), str(book.path)))


def _name(hop: Hop) -> str:
    """Name a server as known_hosts does; an alias stands there without a port."""
    return hop.host_key_alias.lower() if hop.host_key_alias else render_name(hop.host, hop.port)


def _trusted(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if not entry.marker]


def _read_book(path: Path) -> _Book:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return _Book(path, KnownHosts())
    except OSError as error:
        return _Book(path, KnownHosts(), f"{path} cannot be read: {error.strerror}")
    return _Book(path, KnownHosts(parse_entries(text, str(path))))


def _append(path: Path, line: str) -> None:
    """Add a line in one write, closing a last line that was left open."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        open_end = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, ("\n" if open_end else "").encode() + line.encode() + b"\n")
    finally:
        os.close(descriptor)


def _unknown(hop: Hop, key_type: str, key: bytes, notes: Sequence[str]) -> HostKeyError:
    through = ["ssh", f"ssh://{hop.jump.bastion}"] if hop.jump is not None else []
    port = ["-p", str(hop.port)] if hop.port != 22 else []
    scan = command_line(*through, "ssh-keyscan", "-t", _keyscan_type(key_type), *port, hop.host)
    look = f"{scan} | ssh-keygen -lf -"
    return HostKeyError(
        f"{hop.called}'s host key is not known here",
        code="CC-SSH-009",
        node=hop.name,
        evidence="\n".join([f"it shows {key_type} {fingerprint(key)}", *notes]),
        fix=f"compare it with `{look}` asked from a network that you trust; then connect once with ssh, "
        "or set `host_keys: accept-new` under `ssh:` in the inventory to have new keys recorded",
    )


def _changed(hop: Hop, name: str, known: Sequence[Entry], key_type: str, key: bytes) -> HostKeyError:
    same = [entry for entry in known if entry.key_type == key_type] or known
    lines = [f"{entry.place} knows {entry.key_type} {entry.fingerprint}" for entry in same]
    return HostKeyError(
        f"{hop.called}'s host key is not the one in {same[0].place}",
        code="CC-SSH-010",
        node=hop.name,
        evidence="\n".join([*lines, f"it shows {key_type} {fingerprint(key)}"]),
        fix="if the node was installed anew, and only then: "
        + command_line("ssh-keygen", "-R", name, "-f", str(same[0].file))
        + "; otherwise something else answers in its place",
    )


def _uncertified(hop: Hop, identity: str, flaw: str) -> HostKeyError:
    return HostKeyError(
        f"{hop.called}'s host certificate does not hold",
        code="CC-SSH-021",
        node=hop.name,
        evidence=f"certificate {identity!r}: {flaw}",
        fix="have the certificate authority sign its host key anew, for the name that is in the inventory or "
        "behind HostName (`ssh-keygen -s CA -h -n NAME -I ID`); or set HostKeyAlias in ~/.ssh/config",
    )


def _revoked(hop: Hop, entry: Entry) -> HostKeyError:
    return HostKeyError(
        f"{hop.called}'s host key is revoked by {entry.place}",
        code="CC-SSH-011",
        node=hop.name,
        evidence=f"it shows {entry.key_type} {entry.fingerprint}",
        fix="give the node a new host key; do not remove the line",
    )


def _refused(hop: Hop, key_type: str, key: bytes, why: str) -> HostKeyError:
    return HostKeyError(
        f"{hop.called}'s host key is refused by RevokedHostKeys of the SSH configuration: {why}",
        code="CC-SSH-011",
        node=hop.name,
        evidence=f"it shows {key_type} {fingerprint(key)}",
        fix="give it a new host key; where the file is missing, ask who keeps it",
    )


def _unwritable(hop: Hop, path: Path, error: OSError) -> HostKeyError:
    return HostKeyError(
        f"{hop.called}'s new host key cannot be recorded in {path}",
        code="CC-SSH-012",
        node=hop.name,
        evidence=str(error.strerror or error),
        fix="make the file writable, or name another one as `known_hosts` under `ssh:` in the inventory",
    )


def _keyscan_type(key_type: str) -> str:
    return "ecdsa" if key_type.startswith("ecdsa-") else key_type.rpartition("-")[2]
