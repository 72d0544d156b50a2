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

from clusterctl.node_texts import describe_system_error, translate_node_text
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


CERTIFICATE_SUFFIX = "-cert-v01@openssh.com"
HOST_CERTIFICATE = 2
KEY_FIELDS = {"ssh-ed25519": 1, "ssh-rsa": 2}  # fields of the certified key; those of ECDSA are two as well
PARSE_ERRORS = (paramiko.SSHException, UnknownKeyType, ValueError, IndexError, UnicodeError)


@dataclass(frozen=True)
class HostCertificate:
    """The content of a certificate; `signed_data` is all of it but the signature."""

    cert_type: int
    key_id: str
    principals: tuple[str, ...]
    valid_after: int
    valid_before: int
    critical_options: bytes
    ca_key: bytes
    signed_data: bytes
    signature: bytes

    def find_flaw(self, host: str, now: float | None = None) -> str:
        """Describe why the certificate is not valid for `host`; empty if it is."""
        moment = time.time() if now is None else now
        if self.cert_type != HOST_CERTIFICATE:
            return tr("it is a user certificate")
        if moment < self.valid_after:
            return tr("it is not valid yet")
        if moment >= self.valid_before:
            return tr("it has expired")
        if self.principals and host.lower() not in self.principals:
            return tr("it is for {names}, not for {host}", names=", ".join(self.principals), host=host)
        if self.critical_options:
            return tr("it has an unknown critical option")
        return "" if self._has_valid_signature() else tr("its signature is invalid")

    def _has_valid_signature(self) -> bool:
        try:
            key_type = paramiko.Message(self.ca_key).get_text()
            if paramiko.Message(self.signature).get_text() == "ssh-rsa":  # by SHA-1
                return False
            key = paramiko.PKey.from_type_string(key_type, self.ca_key)
            return bool(key.verify_ssh_sig(self.signed_data, paramiko.Message(self.signature)))
        except PARSE_ERRORS:
            return False


def parse_certificate(blob: bytes) -> HostCertificate | None:
    """Read a certificate; None if it is none, or is cut off."""
    message = paramiko.Message(blob)
    try:
        key_type = message.get_text()
        if not key_type.endswith(CERTIFICATE_SUFFIX):
            return None
        # a nonce comes first
        for _ in range(1 + KEY_FIELDS.get(key_type.removesuffix(CERTIFICATE_SUFFIX), 2)):
            message.get_string()
        message.get_int64()  # serial number
        cert_type, key_id = message.get_int(), message.get_text()
        principals = _read_texts(message.get_string())
        valid_after, valid_before = message.get_int64(), message.get_int64()
        critical_options, _, _ = message.get_string(), message.get_string(), message.get_string()
        ca_key = message.get_string()
        signed_data = message.get_so_far()
        signature = message.get_string()
    except PARSE_ERRORS:
        return None
    if len(signed_data) + 4 + len(signature) != len(blob):  # paramiko fills up what is cut off
        return None
    return HostCertificate(
        cert_type=cert_type,
        key_id=key_id,
        principals=principals,
        valid_after=valid_after,
        valid_before=valid_before,
        critical_options=critical_options,
        ca_key=ca_key,
        signed_data=signed_data,
        signature=signature,
    )


def _read_texts(packed: bytes) -> tuple[str, ...]:
    message, texts = paramiko.Message(packed), []
    while message.get_remainder():
        texts.append(message.get_text().lower())
    return tuple(texts)


KRL_MAGIC = b"SSHKRL\n\0"
KEYGEN_LIMIT = 10.0  # seconds for ssh-keygen


def find_revocation(file: Path, key: bytes, certificate: bytes = b"") -> str:
    """Describe why a host key, or the certificate for it, is not to be believed; empty if it may be.

    A file that cannot be read allows nothing, as ssh has it.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        return tr("{path} cannot be read: {reason}", path=file, reason=describe_system_error(error))
    if content.startswith(KRL_MAGIC):
        return _query_revocation_list(file, certificate or key)
    parsed = parse_certificate(certificate) if certificate else None
    keys = {key, parsed.ca_key} if parsed is not None else {key}
    for line in content.decode("utf-8", "replace").splitlines():
        fields = line.split()
        if len(fields) > 1 and decode_key(fields[0], fields[1]) in keys:
            return tr("it is listed in {file}", file=file)
    return ""


def _query_revocation_list(file: Path, blob: bytes) -> str:
    """Use ssh-keygen, which alone can read serial numbers and names in a revocation list."""
    with tempfile.NamedTemporaryFile(prefix="clusterctl-") as key_file:
        key_file.write(paramiko.Message(blob).get_string() + b" " + base64.b64encode(blob) + b"\n")
        key_file.flush()
        try:
            completed = subprocess.run(
                ["ssh-keygen", "-Q", "-f", str(file), key_file.name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=KEYGEN_LIMIT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return tr(
                "ssh-keygen cannot read {file}: {reason}", file=file, reason=translate_node_text(str(error))
            )
    return "" if completed.returncode == 0 else tr("it is revoked by {file}", file=file)
