"""Key files, ssh-agent, certificates, passphrases."""

from __future__ import annotations

import base64
import binascii
import copy
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.pkey import PublicBlob, UnknownKeyType

from clusterctl.client.ssh.route import Hop
from clusterctl.errors import AuthenticationFailed
from clusterctl.specs.text import command_line

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


AGENT_LIMIT = 30.0  # seconds; a key in the agent may want to be confirmed by a person


class _SharedAgent(paramiko.Agent):
    """One connection to ssh-agent for all threads."""

    def __init__(self, place: str) -> None:
        self._turn = threading.Lock()
        self._dead = False
        paramiko.agent.AgentSSH.__init__(self)  # paramiko.Agent's own asks the agent of SSH_AUTH_SOCK only
        conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        conn.settimeout(AGENT_LIMIT)
        conn.connect(place)
        self._connect(conn)  # type: ignore[attr-defined]  # paramiko's own, not in its type information

    def _send_message(self, msg):  # type: ignore[no-untyped-def]  # paramiko's own, not in its type information
        with self._turn:
            if self._dead:
                raise paramiko.SSHException("ssh-agent does not answer")
            try:
                return super()._send_message(msg)  # type: ignore[misc]  # the same
            except OSError as error:
                self._dead = True  # one wait is enough for all nodes
                raise paramiko.SSHException(f"ssh-agent does not answer: {error}") from error


def ask(place: str) -> list[Candidate]:
    """List the keys of the agent at a socket; none if it does not answer."""
    try:
        keys = _SharedAgent(place).get_keys()
    except (paramiko.SSHException, OSError):
        return []
    for key in keys:
        inner = getattr(key, "inner_key", None)
        key.public_blob = (
            inner and inner.public_blob
        )  # without it paramiko shows a certificate as a plain key
    return [Candidate(f"ssh-agent: {key.comment or key.get_name()}", key) for key in keys]


DEFAULT_NAMES = ("id_ed25519", "id_ecdsa", "id_rsa")
NO_AGENT = "none"
TRIES = 3  # for a passphrase, as ssh has it
Ask = Callable[[str], str | None]


@dataclass
class Keys:
    """The keys for one server in the order of trying; `skipped` says which were passed over, and why."""

    first: list[Candidate]
    others: Callable[[], list[Candidate]]
    usual: Callable[[list[str]], Iterator[Candidate]]
    skipped: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Candidate]:
        shown = {identify(candidate.key) for candidate in self.first}
        yield from self.first
        yield from (c for c in self.others() if identify(c.key) not in shown)
        yield from (c for c in self.usual(self.skipped) if identify(c.key) not in shown)


class Keyring:
    """The keys of this process. Safe to use from many threads.

    `ask` asks a person for the passphrase of a key file, None if there is nobody to ask; it is used once per
    file, and only by `unlock`.
    """

    def __init__(self, *, home: Path | None = None, agent: bool = True, ask: Ask | None = None) -> None:
        self._home = home or Path.home()
        self._use_agent = agent
        self._ask = ask
        self._files: dict[Path, KeyFile] = {}
        self._agents: dict[str | None, list[Candidate]] = {}
        self._refused: set[Path] = set()
        self._lock = threading.Lock()

    def keys(self, hop: Hop) -> Keys:
        """Return the keys to try; AuthenticationFailed if the inventory's key cannot be used at all."""
        skipped: list[str] = []
        paths = self._named(hop)
        offered = (hop.offered,) if hop.offered else ()
        first = [c for path in (*offered, *(paths or ())) for c in self._candidates(hop, path, skipped)]
        if hop.key is not None and not first:
            raise _unusable(hop, hop.key, self._load(self._expand(hop.key)).trouble)

        def others() -> list[Candidate]:
            return [] if hop.identities_only else self.agent_keys(hop.agent)

        def usual(skipped: list[str]) -> Iterator[Candidate]:
            return self.usual_keys(hop, skipped) if paths is None else iter(())

        return Keys(first, others, usual, skipped)

    def unlock(self, hops: Iterable[Hop]) -> None:
        """Ask for the passphrases without which there is no key to try; each is asked for once."""
        if self._ask is None:
            return
        for path in dict.fromkeys(path for hop in hops for path in self._locked(hop)):
            if path not in self._refused:
                self._refused.add(path)
                self._unlock(path, self._ask)

    def agent_keys(self, place: str | None = None) -> list[Candidate]:
        """List the keys of an ssh-agent; none if there is no agent, or it does not answer."""
        if not self._use_agent or place == NO_AGENT:
            return []
        with self._lock:
            if place not in self._agents:
                socket = str(self._expand(place)) if place else os.environ.get("SSH_AUTH_SOCK")
                self._agents[place] = ask(socket) if socket else []
            return self._agents[place]

    def usual_keys(self, hop: Hop, skipped: list[str]) -> Iterator[Candidate]:
        """Yield the usual keys of ~/.ssh that are there and can be used; say in `skipped` which cannot."""
        for path in self._usual_paths():
            found = self._load(self._expand(path))
            if found.key is not None:
                yield from self._with_certificates(hop, path, label_file(path, found.key))
            else:
                skipped.append(f"{path}: {explain_trouble(found.trouble)}")

    def _named(self, hop: Hop) -> tuple[str, ...] | None:
        """Give the files that are named for a server; None if the usual ones may be searched for."""
        if hop.key is not None:
            return (hop.key,)
        if hop.identities is None and hop.identities_only:
            return tuple(self._usual_paths())
        return hop.identities

    def _usual_paths(self) -> list[str]:
        return [f"~/.ssh/{name}" for name in DEFAULT_NAMES if (self._home / ".ssh" / name).is_file()]

    def _candidates(self, hop: Hop, path: str, skipped: list[str]) -> Iterator[Candidate]:
        found = self._load(self._expand(path))
        if found.key is not None:
            yield from self._with_certificates(hop, path, label_file(path, found.key))
            return
        held = self._held(hop, found)
        for candidate in held:
            yield from self._with_certificates(hop, path, candidate)
        if not held and hop.key is None:
            skipped.append(f"{path}: {explain_trouble(found.trouble)}")

    def _held(self, hop: Hop, found: KeyFile) -> list[Candidate]:
        if not found.public:
            return []
        return [c for c in self.agent_keys(hop.agent) if c.key.asbytes() == found.public]

    def _with_certificates(self, hop: Hop, path: str, candidate: Candidate) -> Iterator[Candidate]:
        """Yield a key with each certificate made for it, then the key alone."""
        for place in (*hop.certificates, f"{path.removesuffix('.pub')}-cert.pub"):
            certified = certify(candidate, place, self._expand(place))
            if certified is not None:
                yield certified
        yield candidate

    def _locked(self, hop: Hop) -> Iterator[Path]:
        """Yield the key files that only a passphrase opens, if there is nothing else to try."""
        paths, offered = self._named(hop), (hop.offered,) if hop.offered else ()
        if any(True for path in offered for _ in self._candidates(hop, path, [])):
            return
        if paths is None and (self.agent_keys(hop.agent) or next(self.usual_keys(hop, []), None) is not None):
            return
        if paths and any(True for path in paths for _ in self._candidates(hop, path, [])):
            return
        for path in map(self._expand, (*offered, *(self._usual_paths() if paths is None else paths))):
            if self._load(path).trouble == ENCRYPTED:
                yield path

    def _unlock(self, path: Path, ask: Ask) -> None:
        for _ in range(TRIES):
            passphrase = ask(str(path))
            if not passphrase:
                return
            found = read_key(path, passphrase)
            if found.key is not None:
                with self._lock:
                    self._files[path] = found
                return

    def _expand(self, path: str) -> Path:
        return self._home / path[2:] if path.startswith("~/") else Path(path)

    def _load(self, path: Path) -> KeyFile:
        with self._lock:
            if path not in self._files:
                self._files[path] = read_key(path)
            return self._files[path]


def _unusable(hop: Hop, path: str, trouble: str) -> AuthenticationFailed:
    fix = "correct `key` under `ssh:` in the inventory"
    if trouble == ENCRYPTED:
        add = command_line("ssh-add", path)
        fix = f"run `{add}`, so that ssh-agent holds it; on a terminal you are asked for the passphrase"
    elif trouble == PUBLIC and path.endswith(".pub"):
        fix = f"write `key: {path[: -len('.pub')]}` under `ssh:` in the inventory"
    elif trouble == os.strerror(13):
        fix = f"make it readable for you alone: {command_line('chmod', '600', path)}"
    text = f"the key {path} cannot be used: {explain_trouble(trouble)}"
    return AuthenticationFailed(text, code="CC-SSH-008", node=hop.name, fix=fix)
