"""Which keys are shown: what the SSH configuration names, certificates, and passphrases asked for once."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from agents import accept, add_to_agent
from servers import ME, Server, make_client, make_key, plain_hop, run_keygen
from waiting import HANG, wait_until

from clusterctl.client.ssh.connect import connect
from clusterctl.client.ssh.identities import Identities
from clusterctl.client.ssh.route import Hop
from clusterctl.errors import AuthenticationFailed

Serve = Callable[..., Server]


def without_key(server: Server, **changes: object) -> Hop:
    """Give the way to a server as a configuration would, which names other keys."""
    return replace(plain_hop(server.node(key=None)), **changes)


def labels(keyring: Identities, hop: Hop) -> list[str]:
    """List what would be tried, shortened to the names."""
    return [candidate.label.split(" (")[0].rpartition("/")[2] for candidate in keyring.keys_for(hop)]


def test_identities_only(server: Server, tmp_path: Path, agent: Path) -> None:
    """Of the agent's keys only those whose files are named are shown."""
    named, other = make_key(tmp_path / "named", passphrase="x"), make_key(tmp_path / "other")
    add_to_agent(named, "x")
    add_to_agent(other)
    keyring = Identities(home=tmp_path / "h")
    hop = without_key(server, identities=(str(named), str(tmp_path / "missing")))
    assert labels(keyring, hop) == ["ssh-agent: named", "ssh-agent: other"]
    assert labels(keyring, replace(hop, identities_only=True)) == ["ssh-agent: named"]
    assert labels(keyring, replace(hop, agent="none")) == []
    assert agent.exists()


@pytest.mark.usefixtures("agent")
def test_identity_agent(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration may name another agent than the environment does."""
    add_to_agent(make_key(tmp_path / "key"))
    place = os.environ["SSH_AUTH_SOCK"]
    monkeypatch.delenv("SSH_AUTH_SOCK")
    keyring = Identities(home=tmp_path / "h")
    assert labels(keyring, without_key(server)) == []
    assert labels(keyring, without_key(server, agent=place)) == ["ssh-agent: key"]


def certify(authority: Path, public: Path, *words: str) -> None:
    """Sign a public key."""
    run_keygen("-q", "-s", str(authority), "-I", "test", *words, str(public))


@pytest.mark.usefixtures("agent")
def test_certificate_in_the_agent(serve: Serve, tmp_path: Path) -> None:
    """ssh-add adds the certificate beside a key; it is shown as one."""
    authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "key")
    certify(authority, tmp_path / "key.pub", "-n", ME)
    add_to_agent(key)
    server = serve(f"TrustedUserCAKeys {authority}.pub")
    client = make_client(tmp_path / "h")
    connect(without_key(server), client.hostkeys, Identities(home=tmp_path / "h")).close()


def test_one_question_for_each_key_file(server: Server, tmp_path: Path) -> None:
    """Many nodes, one question; a wrong answer may be mended twice, no answer is no more questions."""
    key = make_key(tmp_path / "key", passphrase="secret")
    accept(server, key)
    asked: list[str] = []
    answers = iter(["wrong", "secret"])

    def ask(path: str) -> str | None:
        asked.append(path)
        return next(answers)

    keyring = Identities(home=tmp_path / "h", agent=False, ask_passphrase=ask)
    hops = [plain_hop(server.node(f"n{place}", key=str(key))) for place in range(5)]
    keyring.unlock(hops)
    keyring.unlock(hops)
    assert asked == [str(key)] * 2
    client = make_client(tmp_path / "h")
    connect(hops[0], client.hostkeys, keyring).close()

    silent = Identities(home=tmp_path / "h", agent=False, ask_passphrase=asked.append)
    silent.unlock(hops)
    silent.unlock(hops)
    assert len(asked) == 3
    with pytest.raises(AuthenticationFailed, match="passphrase"):
        silent.keys_for(hops[0])


def test_no_question_is_asked_while_another_key_may_do(server: Server, tmp_path: Path) -> None:
    """The usual keys: one without a passphrase is tried first; alone, the locked one is asked for."""
    folder = tmp_path / "h/.ssh"
    folder.mkdir(parents=True)
    make_key(folder / "id_ecdsa", "ecdsa", passphrase="secret")
    asked: list[str] = []
    hop = without_key(server)
    Identities(home=tmp_path / "h", agent=False, ask_passphrase=asked.append).unlock([hop])
    assert asked == [str(folder / "id_ecdsa")]
    make_key(folder / "id_ed25519")
    Identities(home=tmp_path / "h", agent=False, ask_passphrase=asked.append).unlock([hop])
    assert len(asked) == 1


def test_the_question_on_a_real_terminal(server: Server, tmp_path: Path) -> None:
    """`check` asks once for two nodes, without echo; and never without a terminal."""
    key = make_key(tmp_path / "key", passphrase="secret")
    accept(server, key)
    known = tmp_path / "known"
    known.write_text(f"* {server.host_key}\n")
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(
        f"cluster: t\npython: {sys.executable}\nworkdir: {tmp_path}/w\n"
        f"ssh: {{user: {ME}, port: {server.port}, key: {key}, known_hosts: {known}, config: none}}\n"
        "nodes: [{host: 127.0.0.1}, {host: 127.0.0.1, name: b, ssh: {port: 1}}]\n"
    )
    command = [sys.executable, "-m", "clusterctl", "-i", str(inventory), "ps"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    environment.pop("SSH_AUTH_SOCK", None)
    alone = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment
    )
    assert "CC-SSH-008" in alone.stderr
    assert "Passphrase" not in alone.stderr

    said = converse(command, environment, b"Passphrase for", b"secret\n")
    assert said.count(b"Passphrase for") == 1
    assert b"secret" not in said
    assert b"CC-SSH-008" not in said
    assert b"CC-SSH-002" in said  # the second node, whose port is closed, was tried with the key


def converse(command: list[str], environment: dict[str, str], question: bytes, answer: bytes) -> bytes:
    """Run a program on a terminal, answer one question, and return all that it wrote."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    said, deadline = b"", time.monotonic() + HANG
    while time.monotonic() < deadline:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the terminal is gone with its last program
            break
        said += piece
        if answer and question in said and said.rstrip().endswith(b":"):
            wait_until(lambda: not termios.tcgetattr(ours)[3] & termios.ECHO, "echo is off")
            os.write(ours, answer)
            answer = b""
    process.wait(HANG)
    os.close(ours)
    return said


def test_a_key_that_is_offered_comes_before_the_usual_ones(server: Server, tmp_path: Path) -> None:
    """Each is shown once, also if it is a usual one itself; one that is not there is passed over."""
    folder = tmp_path / "h" / ".ssh"
    folder.mkdir(parents=True)
    usual, cluster = make_key(folder / "id_ed25519"), make_key(tmp_path / "cluster")
    keyring, hop = Identities(home=tmp_path / "h", agent=False), without_key(server)
    assert labels(keyring, replace(hop, offered=str(cluster))) == ["cluster", "id_ed25519"]
    assert labels(keyring, replace(hop, offered=str(usual))) == ["id_ed25519"]
    assert labels(keyring, replace(hop, offered="/none")) == ["id_ed25519"]
    assert labels(keyring, replace(hop, offered=str(cluster), identities_only=True)) == [
        "cluster",
        "id_ed25519",
    ]
