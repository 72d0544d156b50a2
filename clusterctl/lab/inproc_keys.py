"""Keys for a lab without namespaces, where no ssh-keygen may be installed."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


def make_key(path: Path, comment: str) -> None:
    """Write an Ed25519 key pair as ssh-keygen does."""
    key = Ed25519PrivateKey.generate()
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode("ascii")
    path.with_name(path.name + ".pub").write_text(f"{public} {comment}\n", encoding="ascii")
