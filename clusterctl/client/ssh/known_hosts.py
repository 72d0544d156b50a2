"""The known_hosts file, host certificates and revoked keys."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.pkey import UnknownKeyType

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


SUFFIX = "-cert-v01@openssh.com"
FOR_HOSTS = 2
FIELDS = {"ssh-ed25519": 1, "ssh-rsa": 2}  # fields of the certified key; those of ECDSA are two as well
BROKEN = (paramiko.SSHException, UnknownKeyType, ValueError, IndexError, UnicodeError)


@dataclass(frozen=True)
class HostCertificate:
    """What a certificate says; `signed` is all of it but the signature."""

    kind: int
    identity: str
    principals: tuple[str, ...]
    begins: int
    ends: int
    critical: bytes
    authority: bytes
    signed: bytes
    signature: bytes

    def find_flaw(self, host: str, now: float | None = None) -> str:
        """Say why the certificate does not vouch for `host`; empty if it does."""
        moment = time.time() if now is None else now
        if self.kind != FOR_HOSTS:
            return "it is a certificate for users"
        if moment < self.begins:
            return "it is not valid yet"
        if moment >= self.ends:
            return "it has expired"
        if self.principals and host.lower() not in self.principals:
            return f"it is for {', '.join(self.principals)}, not for {host}"
        if self.critical:
            return "it has a critical option, which means nothing here"
        return "" if self._is_signed() else "its signature is wrong"

    def _is_signed(self) -> bool:
        try:
            kind = paramiko.Message(self.authority).get_text()
            if paramiko.Message(self.signature).get_text() == "ssh-rsa":  # by SHA-1
                return False
            key = paramiko.PKey.from_type_string(kind, self.authority)
            return bool(key.verify_ssh_sig(self.signed, paramiko.Message(self.signature)))
        except BROKEN:
            return False


def parse_certificate(blob: bytes) -> HostCertificate | None:
    """Read a certificate; None if it is none, or is cut off."""
    message = paramiko.Message(blob)
    try:
        kind = message.get_text()
        if not kind.endswith(SUFFIX):
            return None
        for _ in range(1 + FIELDS.get(kind.removesuffix(SUFFIX), 2)):  # a nonce comes first
            message.get_string()
        message.get_int64()  # serial number
        purpose, identity = message.get_int(), message.get_text()
        principals = _read_texts(message.get_string())
        begins, ends = message.get_int64(), message.get_int64()
        critical, _, _ = message.get_string(), message.get_string(), message.get_string()
        authority = message.get_string()
        signed = message.get_so_far()
        signature = message.get_string()
    except BROKEN:
        return None
    if len(signed) + 4 + len(signature) != len(blob):  # paramiko fills up what is cut off
        return None
    return HostCertificate(
        purpose, identity, principals, begins, ends, critical, authority, signed, signature
    )


def _read_texts(packed: bytes) -> tuple[str, ...]:
    message, found = paramiko.Message(packed), []
    while message.get_remainder():
        found.append(message.get_text().lower())
    return tuple(found)


KRL = b"SSHKRL\n\0"
LIMIT = 10.0  # seconds for ssh-keygen


def find_revocation(file: Path, key: bytes, certificate: bytes = b"") -> str:
    """Say why a host key, or the certificate for it, is not to be believed; empty if it may be.

    A file that cannot be read allows nothing, as ssh has it.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}"
    if content.startswith(KRL):
        return _ask_keygen(file, certificate or key)
    signed = parse_certificate(certificate) if certificate else None
    shown = {key, signed.authority} if signed is not None else {key}
    for line in content.decode("utf-8", "replace").splitlines():
        words = line.split()
        if len(words) > 1 and decode_key(words[0], words[1]) in shown:
            return f"it stands in {file}"
    return ""


def _ask_keygen(file: Path, blob: bytes) -> str:
    """Ask ssh-keygen, which alone knows what a revocation list says of serial numbers and names."""
    with tempfile.NamedTemporaryFile(prefix="clusterctl-") as asked:
        asked.write(paramiko.Message(blob).get_string() + b" " + base64.b64encode(blob) + b"\n")
        asked.flush()
        try:
            done = subprocess.run(
                ["ssh-keygen", "-Q", "-f", str(file), asked.name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LIMIT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"ssh-keygen cannot say what {file} revokes: {error}"
    return "" if done.returncode == 0 else f"{file} revokes it"
