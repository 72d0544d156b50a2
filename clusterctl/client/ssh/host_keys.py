"""Host keys: the files of known_hosts, and the judgement of the key that a node shows.

What changed is refused, what is new may be recorded. Certificates and revoked keys are found here and left to ssh.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterctl.client.ssh.route import Hop
from clusterctl.errors import HostKeyError
from clusterctl.node_texts import describe_system_error
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

REVOKED = "@revoked"
AUTHORITY = "@cert-authority"
HASHED_PREFIX = "|1|"
DEFAULT_PORT = 22
WILDCARDS = frozenset("*?!")


@dataclass(frozen=True)
class KnownHostsEntry:
    """One line that could be read; `names` is its first field as written."""

    file: str
    line: int
    marker: str
    names: str
    key_type: str
    key: bytes

    @property
    def location(self) -> str:
        """Name the line as `file:line`; one that was added by this process only by its file."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def fingerprint(self) -> str:
        """Return the key's fingerprint as ssh-keygen prints it."""
        return fingerprint(self.key)


def fingerprint(key: bytes) -> str:
    """Return a public key's SHA256 fingerprint as ssh-keygen prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def render_name(host: str, port: int) -> str:
    """Write a host and port as known_hosts names them."""
    return host.lower() if port == DEFAULT_PORT else f"[{host.lower()}]:{port}"


def hash_name(name: str, salt: bytes) -> str:
    """Write a name of `render_name` as `HashKnownHosts` has it."""
    parts = (salt, hmac.digest(salt, name.encode(), "sha1"))
    return HASHED_PREFIX + "|".join(base64.b64encode(part).decode() for part in parts)


def parse_entries(text: str, file: str) -> Iterator[KnownHostsEntry]:
    """Yield the lines that mean something; malformed ones are passed over, as OpenSSH does."""
    for number, line in enumerate(text.split("\n"), 1):
        fields = re.split("[ \t]+", line.strip(" \t\r"))  # as ssh, to which no other space separates
        if not fields[0] or fields[0].startswith("#"):
            continue
        marker = fields.pop(0) if fields[0].startswith("@") else ""
        if marker not in {"", REVOKED, AUTHORITY} or len(fields) < 3:
            continue
        key = decode_key(fields[1], fields[2])
        if key is not None:
            yield KnownHostsEntry(file, number, marker, fields[0], fields[1], key)


def decode_key(key_type: str, text: str) -> bytes | None:
    """Read a public key as it stands in a file; None if it is not of that type."""
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    name = key_type.encode()
    return key if key.startswith(len(name).to_bytes(4, "big") + name) else None


class KnownHosts:
    """The entries of some files, found by name."""

    def __init__(self, entries: Iterable[KnownHostsEntry] = ()) -> None:
        self._plain: dict[str, list[KnownHostsEntry]] = defaultdict(list)
        self._hashed: list[tuple[bytes, bytes, KnownHostsEntry]] = []
        self._cache: dict[
            str, list[KnownHostsEntry]
        ] = {}  # a hashed line costs a hash each time it is compared
        self._wildcards: list[tuple[list[re.Pattern[str]], list[re.Pattern[str]], KnownHostsEntry]] = []
        for entry in entries:
            self.add(entry)

    def add(self, entry: KnownHostsEntry) -> None:
        """Add an entry; safe while other threads read."""
        names = entry.names.lower().split(",")
        if entry.names.startswith(HASHED_PREFIX):
            parts = _decode_hashed(entry.names)
            if parts is not None:
                self._hashed.append((*parts, entry))
        elif WILDCARDS & set(entry.names):
            patterns = [_compile_pattern(name) for name in names if name and not name.startswith("!")]
            negated = [_compile_pattern(name[1:]) for name in names if name.startswith("!")]
            self._wildcards.append((patterns, negated, entry))
        else:
            for name in dict.fromkeys(names):
                self._plain[name].append(entry)
        self._cache = {}  # a new one: an answer that is being looked up goes into the old

    def match(self, name: str) -> list[KnownHostsEntry]:
        """Return the entries for a name as `render_name` writes it."""
        cache = self._cache
        entries = cache.get(name)
        if entries is None:
            entries = cache[name] = self._find(name)
        return entries

    def _find(self, name: str) -> list[KnownHostsEntry]:
        entries = list(self._plain.get(name, ()))
        raw = name.encode()
        entries += [e for salt, digest, e in self._hashed if hmac.digest(salt, raw, "sha1") == digest]
        entries += [e for patterns, negated, e in self._wildcards if _matches(name, patterns, negated)]
        return entries


def _matches(name: str, patterns: list[re.Pattern[str]], negated: list[re.Pattern[str]]) -> bool:
    return any(p.fullmatch(name) for p in patterns) and not any(p.fullmatch(name) for p in negated)


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of known_hosts: only `*` and `?` are special, brackets are not."""
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(letter) or re.escape(letter) for letter in pattern), re.DOTALL)


def _decode_hashed(names: str) -> tuple[bytes, bytes] | None:
    try:
        salt, digest = (
            base64.b64decode(part, validate=True) for part in names[len(HASHED_PREFIX) :].split("|")
        )
    except (binascii.Error, ValueError):
        return None
    return salt, digest


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
