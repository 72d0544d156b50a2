"""The known_hosts file."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
