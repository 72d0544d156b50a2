"""Key files, ssh-agent, passphrases."""

from __future__ import annotations

import base64
import binascii
import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.pkey import UnknownKeyType

from clusterctl.client.ssh.route import Hop
from clusterctl.errors import AuthenticationFailed
from clusterctl.node_texts import describe_system_error
from clusterctl.specs.text import command_line
from clusterctl.translation import english_of, to_translate, tr

OPENSSH_MAGIC = b"openssh-key-v1\0"
ENCRYPTED = "encrypted"
PUBLIC_HALF = to_translate("this is the public key; use the private key")
PUBLIC_PREFIXES = (b"ssh-", b"ecdsa-", b"sk-", b"-----BEGIN PUBLIC", b"---- BEGIN SSH2 PUBLIC")


@dataclass(frozen=True)
class CandidateKey:
    """A key to try, and how to call it in a message."""

    label: str
    key: paramiko.PKey


@dataclass(frozen=True)
class KeyFile:
    """A key file as it was read: the key, or the problem with it and the public key if that is known."""

    key: paramiko.PKey | None = None
    problem: str = ""
    public: bytes = b""


def key_identity(key: paramiko.PKey) -> tuple[bytes, bytes]:
    """Identify a key: the same key with another certificate is another one."""
    blob = key.public_blob
    return key.asbytes(), blob.key_blob if blob else b""


def candidate_from_file(path: str, key: paramiko.PKey) -> CandidateKey:
    """Name a key after its file."""
    return CandidateKey(f"{path} ({key.fingerprint})", key)


def read_key(path: Path, passphrase: str | None = None) -> KeyFile:
    """Read a key file; nothing is raised."""
    try:
        secret = passphrase.encode() if passphrase is not None else None
        key = paramiko.PKey.from_path(path, password=secret)  # type: ignore[arg-type]  # bytes it must be
        key.public_blob = (
            None  # paramiko would show a certificate that lies beside it, and never the key alone
        )
        return KeyFile(key)
    except (TypeError, paramiko.PasswordRequiredException):  # cryptography's and paramiko's name for it
        return KeyFile(problem=ENCRYPTED, public=_read_public(path))
    except OSError as error:
        return KeyFile(problem=describe_system_error(error), public=_read_public(path))
    except (ValueError, paramiko.SSHException, UnknownKeyType, UnsupportedAlgorithm) as error:
        if passphrase is not None:
            return KeyFile(problem=ENCRYPTED, public=_read_public(path))
        return KeyFile(
            problem=tr(PUBLIC_HALF)
            if _is_public(path)
            else tr("not a usable private key: {reason}", reason=error)
        )


def explain_problem(problem: str) -> str:
    """Describe why a key is of no use."""
    return tr("it has a passphrase and is not in ssh-agent") if problem == ENCRYPTED else problem


def _is_public(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(64).startswith(PUBLIC_PREFIXES)
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
    offset = len(OPENSSH_MAGIC)
    for _ in ("cipher", "kdf", "kdf options"):
        offset += 4 + struct.unpack_from(">I", raw, offset)[0]
    size = struct.unpack_from(">I", raw, offset + 4)[0]  # after the number of keys, which is one
    return raw[offset + 8 : offset + 8 + size]


AGENT_LIMIT = 30.0  # seconds; a key in the agent may want to be confirmed by a person


class _SharedAgent(paramiko.Agent):
    """One connection to ssh-agent for all threads."""

    def __init__(self, socket_path: str) -> None:
        self._request_lock = threading.Lock()
        self._dead = False
        paramiko.agent.AgentSSH.__init__(self)  # paramiko.Agent's own uses the agent of SSH_AUTH_SOCK only
        conn = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        conn.settimeout(AGENT_LIMIT)
        conn.connect(socket_path)
        self._connect(conn)  # type: ignore[attr-defined]  # paramiko's own, not in its type information

    def _send_message(self, msg):  # type: ignore[no-untyped-def]  # paramiko's own, not in its type information
        with self._request_lock:
            if self._dead:
                raise paramiko.SSHException(tr("ssh-agent does not answer"))
            try:
                return super()._send_message(msg)  # type: ignore[misc]  # the same
            except OSError as error:
                self._dead = True  # one wait is enough for all nodes
                raise paramiko.SSHException(
                    tr("ssh-agent does not answer: {reason}", reason=describe_system_error(error))
                ) from error


def list_agent_keys(socket_path: str) -> list[CandidateKey]:
    """List the keys of the agent at a socket; none if it does not answer."""
    try:
        keys = _SharedAgent(socket_path).get_keys()
    except (paramiko.SSHException, OSError):
        return []
    for key in keys:
        inner = getattr(key, "inner_key", None)
        # without it paramiko shows a certificate as a plain key
        key.public_blob = inner and inner.public_blob
    return [CandidateKey(f"ssh-agent: {key.comment or key.get_name()}", key) for key in keys]


DEFAULT_NAMES = ("id_ed25519", "id_ecdsa", "id_rsa")
NO_AGENT = "none"
PASSPHRASE_TRIES = 3  # for a passphrase, as ssh has it
AskPassphrase = Callable[[str], str | None]


@dataclass
class KeyCandidates:
    """The keys for one server in the order of trying; `skipped`: which were not tried, and why."""

    first: list[CandidateKey]
    from_agent: Callable[[], list[CandidateKey]]
    defaults: Callable[[list[str]], Iterator[CandidateKey]]
    skipped: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[CandidateKey]:
        tried = {key_identity(candidate.key) for candidate in self.first}
        yield from self.first
        yield from (c for c in self.from_agent() if key_identity(c.key) not in tried)
        yield from (c for c in self.defaults(self.skipped) if key_identity(c.key) not in tried)


class Identities:
    """The keys of this process. Safe to use from many threads.

    `ask_passphrase` prompts for the passphrase of a key file, None without a terminal; it is used once per
    file, and only by `unlock`.
    """

    def __init__(
        self, *, home: Path | None = None, agent: bool = True, ask_passphrase: AskPassphrase | None = None
    ) -> None:
        self._home = home or Path.home()
        self._use_agent = agent
        self._ask_passphrase = ask_passphrase
        self._files: dict[Path, KeyFile] = {}
        self._agents: dict[str | None, list[CandidateKey]] = {}
        self._prompted: set[Path] = set()
        self._lock = threading.Lock()

    def keys_for(self, hop: Hop) -> KeyCandidates:
        """Return the keys to try; AuthenticationFailed if the inventory's key cannot be used at all."""
        skipped: list[str] = []
        paths = self._configured_paths(hop)
        preferred = (hop.offered,) if hop.offered else ()
        first = [c for path in (*preferred, *(paths or ())) for c in self._candidates(hop, path, skipped)]
        if hop.key is not None and not first:
            raise _unusable_key(hop, hop.key, self._load(self._expand(hop.key)).problem)

        def from_agent() -> list[CandidateKey]:
            return [] if hop.identities_only else self.agent_keys(hop.agent)

        def defaults(skipped: list[str]) -> Iterator[CandidateKey]:
            return self.default_keys(skipped) if paths is None else iter(())

        return KeyCandidates(first, from_agent, defaults, skipped)

    def unlock(self, hops: Iterable[Hop]) -> None:
        """Prompt for the passphrases without which there is no key to try; each once."""
        if self._ask_passphrase is None:
            return
        for path in dict.fromkeys(path for hop in hops for path in self._encrypted_paths(hop)):
            if path not in self._prompted:
                self._prompted.add(path)
                self._unlock(path, self._ask_passphrase)

    def agent_keys(self, socket_path: str | None = None) -> list[CandidateKey]:
        """List the keys of an ssh-agent; none if there is no agent, or it does not answer."""
        if not self._use_agent or socket_path == NO_AGENT:
            return []
        with self._lock:
            if socket_path not in self._agents:
                agent_socket = (
                    str(self._expand(socket_path)) if socket_path else os.environ.get("SSH_AUTH_SOCK")
                )
                self._agents[socket_path] = list_agent_keys(agent_socket) if agent_socket else []
            return self._agents[socket_path]

    def default_keys(self, skipped: list[str]) -> Iterator[CandidateKey]:
        """Yield the usual keys of ~/.ssh that are there and can be used; add the others to `skipped`."""
        for path in self._default_paths():
            key_file = self._load(self._expand(path))
            if key_file.key is not None:
                yield candidate_from_file(path, key_file.key)
            else:
                skipped.append(tr("{subject}: {text}", subject=path, text=explain_problem(key_file.problem)))

    def _configured_paths(self, hop: Hop) -> tuple[str, ...] | None:
        """Return the files that are named for a server; None if the usual ones may be searched for."""
        if hop.key is not None:
            return (hop.key,)
        if hop.identities is None and hop.identities_only:
            return tuple(self._default_paths())
        return hop.identities

    def _default_paths(self) -> list[str]:
        return [f"~/.ssh/{name}" for name in DEFAULT_NAMES if (self._home / ".ssh" / name).is_file()]

    def _candidates(self, hop: Hop, path: str, skipped: list[str]) -> Iterator[CandidateKey]:
        key_file = self._load(self._expand(path))
        if key_file.key is not None:
            yield candidate_from_file(path, key_file.key)
            return
        agent_candidates = self._in_agent(hop, key_file)
        yield from agent_candidates
        if not agent_candidates and hop.key is None:
            skipped.append(tr("{subject}: {text}", subject=path, text=explain_problem(key_file.problem)))

    def _in_agent(self, hop: Hop, key_file: KeyFile) -> list[CandidateKey]:
        if not key_file.public:
            return []
        return [c for c in self.agent_keys(hop.agent) if c.key.asbytes() == key_file.public]

    def have_certificate(self, hop: Hop) -> bool:
        """Return whether a certificate lies beside a key to try, which only ssh itself shows."""
        paths = self._configured_paths(hop)
        preferred = (hop.offered,) if hop.offered else ()
        tried = (*preferred, *(self._default_paths() if paths is None else paths))
        return any(self._expand(f"{path.removesuffix('.pub')}-cert.pub").is_file() for path in tried)

    def _encrypted_paths(self, hop: Hop) -> Iterator[Path]:
        """Yield the key files that only a passphrase opens, if there is nothing else to try."""
        paths, preferred = self._configured_paths(hop), (hop.offered,) if hop.offered else ()
        if any(True for path in preferred for _ in self._candidates(hop, path, [])):
            return
        if paths is None and (self.agent_keys(hop.agent) or next(self.default_keys([]), None) is not None):
            return
        if paths and any(True for path in paths for _ in self._candidates(hop, path, [])):
            return
        for path in map(self._expand, (*preferred, *(self._default_paths() if paths is None else paths))):
            if self._load(path).problem == ENCRYPTED:
                yield path

    def _unlock(self, path: Path, ask_passphrase: AskPassphrase) -> None:
        for _ in range(PASSPHRASE_TRIES):
            passphrase = ask_passphrase(str(path))
            if not passphrase:
                return
            key_file = read_key(path, passphrase)
            if key_file.key is not None:
                with self._lock:
                    self._files[path] = key_file
                return

    def _expand(self, path: str) -> Path:
        return self._home / path[2:] if path.startswith("~/") else Path(path)

    def _load(self, path: Path) -> KeyFile:
        with self._lock:
            if path not in self._files:
                self._files[path] = read_key(path)
            return self._files[path]


def _unusable_key(hop: Hop, path: str, problem: str) -> AuthenticationFailed:
    case, command = "", ""
    if problem == ENCRYPTED:
        case, command = "passphrase", command_line("ssh-add", path)
    elif problem == PUBLIC_HALF and path.endswith(".pub"):
        case = "public"
    elif english_of(problem) == os.strerror(errno.EACCES):
        case, command = "mode", command_line("chmod", "600", path)
    return AuthenticationFailed(
        "CC-SSH-008",
        case,
        node=hop.name,
        path=path,
        problem=problem,
        private=path.removesuffix(".pub"),
        command=command,
    )
