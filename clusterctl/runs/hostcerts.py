"""Host certificates as PROTOCOL.certkeys describes them: whether one vouches for a host, and why not if not."""

from __future__ import annotations

import time
from dataclasses import dataclass

import paramiko
from paramiko.pkey import UnknownKeyType

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
