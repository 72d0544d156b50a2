"""Our private keys: files, ssh-agent, and what is wrong with them."""

from __future__ import annotations

import base64
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from agents import accept, add_to_agent
from servers import Client, Server, make_client, make_key, run_keygen

from clusterctl.client.rpc.cluster import fan_out
from clusterctl.client.ssh import identities
from clusterctl.client.ssh.timeouts import Timeouts
from clusterctl.errors import AuthenticationFailed, ConnectTimeout
from clusterctl.specs.inventory.model import Node


def refusal(client: Client, node: Node) -> AuthenticationFailed:
    """Return the error of a key that cannot be used; it comes before anything is connected."""
    with pytest.raises(AuthenticationFailed) as caught:
        client.connect(node)
    assert caught.value.code == "CC-SSH-008"
    assert caught.value.node == node.name
    return caught.value


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
@pytest.mark.parametrize("form", ["openssh", "PEM"])
def test_kinds_of_keys(server: Server, client: Client, tmp_path: Path, kind: str, form: str) -> None:
    """What ssh-keygen makes lets us in."""
    key = make_key(tmp_path / "key", kind)
    if form == "PEM" and kind != "ed25519":
        run_keygen("-q", "-p", "-m", "PEM", "-N", "", "-f", str(key))
        assert "OPENSSH" not in key.read_text()
    accept(server, key)
    assert client.connect(server.node(key=str(key))).is_connected


def test_tilde_is_our_home(server: Server, client: Client, tmp_path: Path) -> None:
    """A key is named as ssh names it."""
    (tmp_path / "home/.ssh").mkdir()
    accept(server, make_key(tmp_path / "home/.ssh/lab"))
    assert client.connect(server.node(key="~/.ssh/lab")).is_connected


def test_usual_files_are_tried(server: Server, client: Client, tmp_path: Path) -> None:
    """Without `key` the usual names are tried in turn; one with a passphrase is passed over."""
    home = tmp_path / "home/.ssh"
    home.mkdir()
    make_key(home / "id_ed25519", passphrase="secret")
    make_key(home / "id_ecdsa", "ecdsa")
    accept(server, make_key(home / "id_rsa", "rsa"))
    assert client.connect(server.node(key=None)).is_connected


def test_passed_over_files_are_named(server: Server, client: Client, tmp_path: Path) -> None:
    """A key with a passphrase that would have been tried is mentioned when nothing else helps."""
    (tmp_path / "home/.ssh").mkdir()
    make_key(tmp_path / "home/.ssh/id_ed25519", passphrase="secret")
    with pytest.raises(AuthenticationFailed) as caught:
        client.connect(server.node(key=None))
    assert "not tried: ~/.ssh/id_ed25519: it has a passphrase" in caught.value.evidence


def test_missing_key_file(server: Server, client: Client, tmp_path: Path) -> None:
    """The file is named."""
    error = refusal(client, server.node(key=str(tmp_path / "nowhere")))
    assert str(tmp_path / "nowhere") in error.message
    assert "No such file" in error.message


def test_key_is_a_folder(server: Server, client: Client, tmp_path: Path) -> None:
    """A folder is not a key."""
    assert "directory" in refusal(client, server.node(key=str(tmp_path))).message


@pytest.mark.parametrize(
    ("kind", "form"), [("ed25519", ""), ("rsa", ""), ("rsa", "RFC4716"), ("rsa", "PKCS8")]
)
def test_the_public_half_is_no_key(
    server: Server, client: Client, tmp_path: Path, kind: str, form: str
) -> None:
    """It is named as such, in every form that ssh-keygen writes, with the file to name instead."""
    public = make_key(tmp_path / "key", kind).with_suffix(".pub")
    if form:
        public.write_text(run_keygen("-e", "-m", form, "-f", str(public)))
    error = refusal(client, server.node(key=str(public)))
    assert error.message.endswith("cannot be used: it is the public key; set the private key")
    assert f"`key: {tmp_path / 'key'}`" in error.fix


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_key_file(server: Server, client: Client, tmp_path: Path) -> None:
    """A file that we may not read."""
    key = make_key(tmp_path / "key")
    key.chmod(0)
    assert "chmod 600" in refusal(client, server.node(key=str(key))).fix


@pytest.mark.parametrize(
    "content", [b"", b"hello\n", b"\0\xff" * 500, b"-----BEGIN OPENSSH PRIVATE KEY-----\nAA\n"]
)
def test_not_a_key(server: Server, client: Client, tmp_path: Path, content: bytes) -> None:
    """A file that is no private key."""
    (tmp_path / "key").write_bytes(content)
    assert "not a usable private key" in refusal(client, server.node(key=str(tmp_path / "key"))).message


@pytest.mark.parametrize("form", ["OpenSSH", "PEM"])
def test_passphrase(server: Server, client: Client, tmp_path: Path, form: str) -> None:
    """A key with a passphrase that no agent holds: the way out is ssh-add."""
    key = make_key(tmp_path / "key", "rsa", passphrase="secret")
    if form == "PEM":
        run_keygen("-q", "-p", "-m", "PEM", "-P", "secret", "-N", "secret", "-f", str(key))
    error = refusal(client, server.node(key=str(key)))
    assert "passphrase" in error.message
    assert f"ssh-add {key}" in error.fix


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("public", [True, False])
def test_passphrase_and_agent(server: Server, tmp_path: Path, public: bool) -> None:
    """A key with a passphrase that the agent holds works, also without its `.pub` file."""
    key = make_key(tmp_path / "key", passphrase="secret")
    accept(server, key)
    add_to_agent(key, "secret")
    if not public:
        key.with_suffix(".pub").unlink()
    client = make_client(tmp_path / "h", agent=True)
    assert client.connect(server.node(key=str(key))).is_connected
    client.close()


@pytest.mark.usefixtures("agent")
def test_agent_alone(server: Server, tmp_path: Path) -> None:
    """Without `key` the agent's keys are tried; many connections share one agent."""
    key = make_key(tmp_path / "key", "rsa")
    accept(server, key)
    add_to_agent(make_key(tmp_path / "other"))
    add_to_agent(key)
    client = make_client(tmp_path / "h", agent=True)
    for _ in range(3):
        assert client.connect(server.node(key=None)).is_connected
    client.close()


@pytest.mark.usefixtures("agent")
def test_agents_keys_are_named(server: Server, tmp_path: Path) -> None:
    """A refusal shows which keys of the agent were shown; the node's own key comes first."""
    add_to_agent(make_key(tmp_path / "held"))
    own = make_key(tmp_path / "own")
    with pytest.raises(AuthenticationFailed) as caught:
        make_client(tmp_path / "h", agent=True).connect(server.node(key=str(own)))
    lines = caught.value.evidence.splitlines()
    assert lines[0].startswith(f"tried {own} ")
    assert lines[1] == "tried ssh-agent: held"


@pytest.fixture
def sulking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """An agent that lists a key, and answers a wish for a signature with the given bytes; none: not at all."""
    blob = base64.b64decode(make_key(tmp_path / "held").with_suffix(".pub").read_text().split()[1])
    listed = b"\x0c\0\0\0\1" + len(blob).to_bytes(4, "big") + blob + b"\0\0\0\4held"
    answers = [listed]
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(tmp_path / "agent"))
        listening.listen()

        def serve() -> None:
            with suppress(OSError), closing(listening.accept()[0]) as wish:
                while wish.recv(1 << 16):
                    if answers:
                        answer = answers.pop(0)
                        wish.sendall(len(answer).to_bytes(4, "big") + answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        yield answers.append


def test_agent_that_refuses_to_sign(server: Server, tmp_path: Path, sulking: Callable[[bytes], None]) -> None:
    """The person answers no: the refusal is ours, not the node's."""
    sulking(b"\5")
    with pytest.raises(AuthenticationFailed) as caught:
        make_client(tmp_path / "h", agent=True).connect(server.node(key=None))
    assert "ssh-agent: held cannot be used" in caught.value.message


@pytest.mark.usefixtures("sulking")
def test_agent_that_hangs(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that never answers costs one wait, not one for each node; the limit of the login holds."""
    monkeypatch.setattr(identities, "AGENT_LIMIT", 2.0)
    client = make_client(tmp_path / "h", agent=True)
    nodes = [server.node(f"n{place}", key=None) for place in range(4)]
    limits = Timeouts(login=0.5)
    outcomes = list(fan_out(nodes, lambda node: client.connect(node, limits)))
    for outcome in outcomes:
        assert isinstance(outcome.error, ConnectTimeout)
        assert "tried ssh-agent: held" in outcome.error.evidence
    with pytest.raises(AuthenticationFailed):
        time.sleep(2.0)  # until the agent is given up
        client.connect(server.node(key=None))


def test_dead_agent_is_no_agent(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale SSH_AUTH_SOCK does no harm."""
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone"))
    client = make_client(tmp_path / "h", agent=True)
    assert client.connect(server.node()).is_connected
    client.close()
