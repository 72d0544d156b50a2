"""The private keys that we can show a node: files, read once, and those of ssh-agent."""

from __future__ import annotations

import base64
import binascii
import os
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.pkey import UnknownKeyType

from clusterctl.errors import AuthenticationFailed
from clusterctl.specs.inventory import Node

DEFAULT_NAMES = ("id_ed25519", "id_ecdsa", "id_rsa")
AGENT_LIMIT = 30.0  # seconds; a key in the agent may want to be confirmed by a person
OPENSSH_MAGIC = b"openssh-key-v1\0"
ENCRYPTED = "encrypted"
PUBLIC = "that is the public half; give the private key"
PUBLIC_STARTS = (b"ssh-", b"ecdsa-", b"sk-", b"-----BEGIN PUBLIC", b"---- BEGIN SSH2 PUBLIC")


@dataclass(frozen=True)
class Candidate:
    """A key to try, and how to call it in a message."""

    label: str
    key: paramiko.PKey


@dataclass
class Keys:
    """The keys for one node in the order of trying; `skipped` says which were passed over, and why."""

    first: list[Candidate]
    keyring: Keyring
    search: bool  # also the usual files of ~/.ssh
    skipped: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Candidate]:
        shown = {candidate.key.asbytes() for candidate in self.first}
        yield from self.first
        yield from (c for c in self.keyring.agent_keys() if c.key.asbytes() not in shown)
        if self.search:
            yield from self.keyring.usual_keys(self.skipped)


@dataclass(frozen=True)
class _KeyFile:
    """A key file as it was read: the key, or the trouble with it and the public half if that is known."""

    key: paramiko.PKey | None = None
    trouble: str = ""
    public: bytes = b""


class _SharedAgent(paramiko.Agent):
    """One connection to ssh-agent for all threads."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._dead = False
        super().__init__()

    def _connect(self, conn):  # type: ignore[no-untyped-def]  # paramiko's own, not in its type information
        conn.settimeout(AGENT_LIMIT)
        super()._connect(conn)  # type: ignore[misc]  # the same

    def _send_message(self, msg):  # type: ignore[no-untyped-def]  # paramiko's own, not in its type information
        with self._turn:
            if self._dead:
                raise paramiko.SSHException("ssh-agent does not answer")
            try:
                return super()._send_message(msg)  # type: ignore[misc]  # the same
            except OSError as error:
                self._dead = True  # one wait is enough for all nodes
                raise paramiko.SSHException(f"ssh-agent does not answer: {error}") from error


class Keyring:
    """The keys of this process. Safe to use from many threads."""

    def __init__(self, *, home: Path | None = None, agent: bool = True) -> None:
        self._home = home or Path.home()
        self._use_agent = agent
        self._files: dict[Path, _KeyFile] = {}
        self._agent: list[Candidate] | None = None
        self._lock = threading.Lock()

    def keys(self, node: Node) -> Keys:
        """Return the keys to try; AuthenticationFailed if the node's `ssh.key` cannot be used at all."""
        if node.ssh.key is None:
            return Keys([], self, search=True)
        path = self._expand(node.ssh.key)
        found = self._load(path)
        if found.key is not None:
            return Keys([_label_file(node.ssh.key, found.key)], self, search=False)
        held = [candidate for candidate in self.agent_keys() if candidate.key.asbytes() == found.public]
        if not held:
            raise _unusable(node, node.ssh.key, found.trouble)
        return Keys(held, self, search=False)

    def agent_keys(self) -> list[Candidate]:
        """List the keys of ssh-agent; none if there is no agent, or it does not answer."""
        with self._lock:
            if self._agent is None:
                self._agent = _ask_agent() if self._use_agent else []
            return self._agent

    def usual_keys(self, skipped: list[str]) -> Iterator[Candidate]:
        """Yield the usual keys of ~/.ssh that are there and can be used; say in `skipped` which cannot."""
        for name in DEFAULT_NAMES:
            path = self._home / ".ssh" / name
            if not path.is_file():
                continue
            found = self._load(path)
            if found.key is not None:
                yield _label_file(f"~/.ssh/{name}", found.key)
            else:
                skipped.append(f"~/.ssh/{name}: {_explain_trouble(found.trouble)}")

    def _expand(self, path: str) -> Path:
        return self._home / path[2:] if path.startswith("~/") else Path(path)

    def _load(self, path: Path) -> _KeyFile:
        with self._lock:
            if path not in self._files:
                self._files[path] = _read_key(path)
            return self._files[path]


def _ask_agent() -> list[Candidate]:
    try:
        keys = _SharedAgent().get_keys()
    except (paramiko.SSHException, OSError):
        return []
    return [Candidate(f"ssh-agent: {key.comment or key.get_name()}", key) for key in keys]


def _label_file(path: str, key: paramiko.PKey) -> Candidate:
    return Candidate(f"{path} ({key.fingerprint})", key)


def _read_key(path: Path) -> _KeyFile:
    try:
        return _KeyFile(paramiko.PKey.from_path(path))
    except (TypeError, paramiko.PasswordRequiredException):  # cryptography's and paramiko's word for it
        return _KeyFile(trouble=ENCRYPTED, public=_read_public(path))
    except OSError as error:
        return _KeyFile(trouble=f"{error.strerror}", public=_read_public(path))
    except (ValueError, paramiko.SSHException, UnknownKeyType, UnsupportedAlgorithm) as error:
        return _KeyFile(trouble=PUBLIC if _is_public(path) else f"not a private key that can be used: {error}")


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


def _explain_trouble(trouble: str) -> str:
    return "it has a passphrase, and ssh-agent does not hold it" if trouble == ENCRYPTED else trouble


def _unusable(node: Node, path: str, trouble: str) -> AuthenticationFailed:
    fix = "correct `key` under `ssh:` in the inventory"
    if trouble == ENCRYPTED:
        fix = f"run `ssh-add {path}`, so that ssh-agent holds it; or use a key without a passphrase for now"
    elif trouble == PUBLIC and path.endswith(".pub"):
        fix = f"write `key: {path[: -len('.pub')]}` under `ssh:` in the inventory"
    elif trouble == os.strerror(13):
        fix = f"make it readable for you alone: chmod 600 {path}"
    text = f"the key {path} cannot be used: {_explain_trouble(trouble)}"
    return AuthenticationFailed(text, code="CC-SSH-008", node=node.name, fix=fix)
