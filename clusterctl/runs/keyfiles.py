"""Private key files and certificates: what can be read of them, and what is wrong if they cannot be used."""

from __future__ import annotations

import base64
import binascii
import copy
import struct
from dataclasses import dataclass
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.pkey import PublicBlob, UnknownKeyType

OPENSSH_MAGIC = b"openssh-key-v1\0"
CERTIFICATE = "-cert-v01@openssh.com"
ENCRYPTED = "encrypted"
PUBLIC = "that is the public half; give the private key"
PUBLIC_STARTS = (b"ssh-", b"ecdsa-", b"sk-", b"-----BEGIN PUBLIC", b"---- BEGIN SSH2 PUBLIC")


@dataclass(frozen=True)
class Candidate:
    """A key to try, and how to call it in a message."""

    label: str
    key: paramiko.PKey


@dataclass(frozen=True)
class KeyFile:
    """A key file as it was read: the key, or the trouble with it and the public half if that is known."""

    key: paramiko.PKey | None = None
    trouble: str = ""
    public: bytes = b""


def identify(key: paramiko.PKey) -> tuple[bytes, bytes]:
    """Tell keys apart: the same key with another certificate is another one."""
    blob = key.public_blob
    return key.asbytes(), blob.key_blob if blob else b""


def label_file(path: str, key: paramiko.PKey) -> Candidate:
    """Name a key after its file."""
    return Candidate(f"{path} ({key.fingerprint})", key)


def certify(candidate: Candidate, place: str, path: Path) -> Candidate | None:
    """Give a key with a certificate; None if the file is none, or was made for another key."""
    try:
        blob = PublicBlob.from_file(path)
        subject = paramiko.PKey.from_type_string(blob.key_type.removesuffix(CERTIFICATE), blob.key_blob)
    except (OSError, ValueError, UnicodeError, paramiko.SSHException, UnknownKeyType, IndexError):
        return None
    if candidate.key.public_blob or not blob.key_type.endswith(CERTIFICATE):
        return None
    if subject.asbytes() != candidate.key.asbytes():
        return None
    key = _copy(candidate.key)
    key.public_blob = blob
    return Candidate(f"{candidate.label} with {place}", key)


def _copy(key: paramiko.PKey) -> paramiko.PKey:
    if isinstance(key, paramiko.AgentKey):  # passes unknown attributes on, which copying does not survive
        return paramiko.AgentKey(key.agent, key.blob, key.comment)
    return copy.copy(key)


def read_key(path: Path, passphrase: str | None = None) -> KeyFile:
    """Read a key file; nothing is raised."""
    try:
        secret = passphrase.encode() if passphrase is not None else None
        key = paramiko.PKey.from_path(path, password=secret)  # type: ignore[arg-type]  # bytes it must be
        key.public_blob = None  # a certificate beside it is one more way to try, see `certify`
        return KeyFile(key)
    except (TypeError, paramiko.PasswordRequiredException):  # cryptography's and paramiko's word for it
        return KeyFile(trouble=ENCRYPTED, public=_read_public(path))
    except OSError as error:
        return KeyFile(trouble=f"{error.strerror}", public=_read_public(path))
    except (ValueError, paramiko.SSHException, UnknownKeyType, UnsupportedAlgorithm) as error:
        if passphrase is not None:
            return KeyFile(trouble=ENCRYPTED, public=_read_public(path))
        return KeyFile(trouble=PUBLIC if _is_public(path) else f"not a private key that can be used: {error}")


def explain_trouble(trouble: str) -> str:
    """Say why a key is of no use."""
    return "it has a passphrase, and ssh-agent does not hold it" if trouble == ENCRYPTED else trouble


def _is_public(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(64).startswith(PUBLIC_STARTS)
    except OSError:
        return False


def _read_public(path: Path) -> bytes:
    """Return the public half, from the `.pub` file or the key file: even an encrypted one has it."""
    try:
        return base64.b64decode(Path(f"{path}.pub").read_bytes().split()[1])
    except (OSError, IndexError, binascii.Error):
        pass
    try:
        body = b"".join(line for line in path.read_bytes().splitlines() if not line.startswith(b"-----"))
        return _unpack_public(base64.b64decode(body))
    except (OSError, binascii.Error, struct.error):
        return b""


def _unpack_public(raw: bytes) -> bytes:
    if not raw.startswith(OPENSSH_MAGIC):
        return b""
    place = len(OPENSSH_MAGIC)
    for _ in ("cipher", "kdf", "kdf options"):
        place += 4 + struct.unpack_from(">I", raw, place)[0]
    size = struct.unpack_from(">I", raw, place + 4)[0]  # after the number of keys, which is one
    return raw[place + 8 : place + 8 + size]
