"""known_hosts files as sshd(8) describes them: names plain and hashed, wildcards, negation, markers."""

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
HASHED = "|1|"
DEFAULT_PORT = 22
WILD = frozenset("*?!")


@dataclass(frozen=True)
class Entry:
    """One line that could be read; `names` is its first field as written."""

    file: str
    line: int
    marker: str
    names: str
    key_type: str
    key: bytes

    @property
    def place(self) -> str:
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


def parse_entries(text: str, file: str) -> Iterator[Entry]:
    """Yield the lines that mean something; malformed ones are passed over, as OpenSSH does."""
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0) if words[0].startswith("@") else ""
        if marker not in {"", REVOKED, AUTHORITY} or len(words) < 3:
            continue
        key = decode_key(words[1], words[2])
        if key is not None:
            yield Entry(file, number, marker, words[0], words[1], key)


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

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._plain: dict[str, list[Entry]] = defaultdict(list)
        self._hashed: list[tuple[bytes, bytes, Entry]] = []
        self._answers: dict[str, list[Entry]] = {}  # a hashed line costs a hash each time it is asked
        self._wild: list[tuple[list[re.Pattern[str]], list[re.Pattern[str]], Entry]] = []
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Take one more entry; safe while other threads ask."""
        names = entry.names.lower().split(",")
        if entry.names.startswith(HASHED):
            parts = _decode_hashed(entry.names)
            if parts is not None:
                self._hashed.append((*parts, entry))
        elif WILD & set(entry.names):
            wanted = [_compile(name) for name in names if name and not name.startswith("!")]
            refused = [_compile(name[1:]) for name in names if name.startswith("!")]
            self._wild.append((wanted, refused, entry))
        else:
            for name in dict.fromkeys(names):
                self._plain[name].append(entry)
        self._answers = {}  # a new one: an answer that is being looked up goes into the old

    def match(self, name: str) -> list[Entry]:
        """Return the entries for a name as `render_name` writes it."""
        answers = self._answers
        found = answers.get(name)
        if found is None:
            found = answers[name] = self._find(name)
        return found

    def _find(self, name: str) -> list[Entry]:
        found = list(self._plain.get(name, ()))
        raw = name.encode()
        found += [e for salt, digest, e in self._hashed if hmac.digest(salt, raw, "sha1") == digest]
        found += [e for wanted, refused, e in self._wild if _is_meant(name, wanted, refused)]
        return found


def _is_meant(name: str, wanted: list[re.Pattern[str]], refused: list[re.Pattern[str]]) -> bool:
    return any(p.fullmatch(name) for p in wanted) and not any(p.fullmatch(name) for p in refused)


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of known_hosts: only `*` and `?` are special, brackets are not."""
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(letter) or re.escape(letter) for letter in pattern), re.DOTALL)


def _decode_hashed(names: str) -> tuple[bytes, bytes] | None:
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in names[len(HASHED) :].split("|"))
    except (binascii.Error, ValueError):
        return None
    return salt, digest
