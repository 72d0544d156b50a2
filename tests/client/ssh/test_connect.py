"""The way into a node, and every way in which it can be barred."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from listening import listener
from servers import ME, PATIENT, Client, Server, closed_port, make_key, node_named, plain_hop
from waiting import HANG, wait_until

from clusterctl.client.rpc.cluster import fan_out
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.ssh.connect import connect, login_refused
from clusterctl.client.ssh.route import Hop, login_name
from clusterctl.client.ssh.timeouts import Timeouts
from clusterctl.errors import AuthenticationFailed, ClusterctlError, ConnectTimeout, HostKeyError, Unreachable
from clusterctl.specs.inventory.model import Node

SHORT = replace(PATIENT, connect=0.5, handshake=0.5)


def refusal(client: Client, node: Node, timeouts: Timeouts = PATIENT) -> ClusterctlError:
    """Return the error of a connection that must fail; it is short, coded, and has a way out."""
    with pytest.raises(ClusterctlError) as caught:
        client.connect(node, timeouts)
    error = caught.value
    assert error.node == node.name
    assert error.exit_code == 4
    assert error.fix
    assert "\n" not in error.message
    return error


def test_connection_is_fabrics_and_ready(server: Server, client: Client) -> None:
    """The connection is open, without delay for small packets, and forwards no agent."""
    connection = client.connect(server.node())
    assert connection.is_connected
    assert connection.forward_agent is False
    assert connection.user == ME
    line = connection.transport.sock
    assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_default_user_is_ours(server: Server, client: Client) -> None:
    """Without a user in the inventory it is the one who runs this."""
    assert login_name() == ME
    assert client.connect(server.node(user=None)).user == ME


def test_closing_is_complete(server: Server, client: Client) -> None:
    """A closed connection leaves no thread and no descriptor."""
    client.connect(server.node()).close()
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count
    connections = [client.connect(server.node(f"n{place}")) for place in range(8)]
    for connection in connections:
        connection.close()
    for connection in connections:
        connection.client = None
    wait_until(lambda: threading.active_count() <= threads, "the end of the threads")
    assert len(os.listdir("/proc/self/fd")) <= descriptors  # noqa: PTH208 - a count


def test_users_own_settings_are_not_read(
    server: Server, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither ~/.ssh/config nor fabric.yml nor FABRIC_ variables change what the inventory has."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir()
    (home / ".ssh/config").write_text(
        "Host *\n  Port 1\n  User nobody\n  ProxyCommand false\n  ForwardAgent yes\n"
    )
    (home / ".fabric.yaml").write_text("user: nobody\nport: 1\ngateway: nowhere\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("FABRIC_PORT", "1")
    monkeypatch.setenv("FABRIC_FORWARD_AGENT", "1")
    connection = client.connect(server.node(user=None))
    assert (connection.user, connection.port, connection.forward_agent) == (ME, server.port, False)


def test_refused(client: Client) -> None:
    """No one listens."""
    error = refusal(client, node_named("n1", port=closed_port()))
    assert isinstance(error, Unreachable)
    assert error.code == "CC-SSH-002"


def test_name_does_not_resolve(client: Client) -> None:
    """A name that is none; `.invalid` is promised never to be one."""
    node = Node(name="n1", index=0, host="no-such-host.invalid", ssh=node_named("n1").ssh)
    error = refusal(client, node, Timeouts(connect=10.0))
    assert error.code in {
        "CC-SSH-001",
        "CC-SSH-004",
    }  # a machine without a working resolver may only time out
    assert "no-such-host.invalid" in error.message


def test_name_resolves(server: Server, client: Client, tmp_path: Path) -> None:
    """A name is looked up, and each of its addresses tried: sshd listens on one of two."""
    known = tmp_path / "known"
    known.write_text(f"[localhost]:{server.port} {server.host_key}\n")
    assert client.connect(server.node(host="localhost", known_hosts=str(known))).is_connected


def test_no_way(client: Client) -> None:
    """An address that cannot be reached from here at all."""
    node = Node(name="n1", index=0, host="255.255.255.255", ssh=node_named("n1").ssh)
    assert refusal(client, node).code == "CC-SSH-003"


def test_connecting_has_a_limit(client: Client) -> None:
    """A full backlog drops our packets, as a firewall would."""
    with listener(None, backlog=0) as port:
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        error = refusal(client, node_named("n1", port=port), SHORT)
        for filler in fillers:
            filler.close()
    assert isinstance(error, ConnectTimeout)
    assert error.code == "CC-SSH-004"
    assert "within 0.5 s" in error.message


def test_greeting_has_a_limit(client: Client) -> None:
    """A listener that never reports a word costs its own limit; the step is named."""
    with listener(lambda _: None) as port:
        error = refusal(client, node_named("n1", port=port), SHORT)
    assert isinstance(error, ConnectTimeout)
    assert "no greeting" in error.message


def test_key_exchange_has_a_limit(client: Client) -> None:
    """A server that greets and then reports nothing."""
    with listener(lambda s: s.sendall(b"SSH-2.0-tarpit\r\n")) as port:
        error = refusal(client, node_named("n1", port=port), replace(PATIENT, handshake=3.0))
    assert isinstance(error, ConnectTimeout)
    assert "no key exchange" in error.message


def test_login_has_a_limit(serve: Callable[..., Server], client: Client) -> None:
    """A server that hangs while it looks up our key."""
    server = serve(
        "AuthorizedKeysCommand /usr/bin/sleep 300",
        f"AuthorizedKeysCommandUser {ME}",
        "AuthorizedKeysFile none",
    )
    error = refusal(client, server.node(), replace(PATIENT, login=0.5))
    assert isinstance(error, ConnectTimeout)
    assert "no login" in error.message


def test_stopped_server(serve: Callable[..., Server], client: Client) -> None:
    """A stopped sshd accepts, by its kernel, and reports nothing."""
    server = serve()
    os.kill(server.process.pid, signal.SIGSTOP)
    error = refusal(client, server.node(), SHORT)
    assert isinstance(error, ConnectTimeout)


def test_closing_at_once(client: Client) -> None:
    """A server that hangs up before it greets."""
    with listener(lambda s: s.close()) as port:
        error = refusal(client, node_named("n1", port=port))
    assert error.code == "CC-SSH-006"
    assert "before its SSH greeting" in error.message


def test_closing_in_the_key_exchange(client: Client) -> None:
    """A server that greets and hangs up."""

    def greet(s: socket.socket) -> None:
        s.sendall(b"SSH-2.0-grumpy\r\n")
        s.recv(10)
        s.close()

    with listener(greet) as port:
        error = refusal(client, node_named("n1", port=port))
    assert error.code == "CC-SSH-006"
    assert "during the key exchange" in error.message


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"<html>\n" * 200, "<html>"),
        (b"\0\xff\xfe\n", "\0\\xff\\xfe"),
        (b"x" * 100_000, "x" * 256),
    ],
)
def test_garbage(client: Client, garbage: bytes, said: str) -> None:
    """Something else answers there, and what it reports is shown."""

    def answer(s: socket.socket) -> None:
        s.sendall(garbage)
        s.close()

    with listener(answer) as port:
        error = refusal(client, node_named("n1", port=port))
    assert error.code == "CC-SSH-005"
    assert error.evidence == f"its first line: {said!r}"


def test_no_shared_algorithm(serve: Callable[..., Server], client: Client) -> None:
    """A server that only offers what we refuse."""
    server = serve("Ciphers aes256-cbc")
    error = refusal(client, server.node())
    assert error.code == "CC-SSH-006"
    assert "no algorithm" in error.message


def test_sha1_signatures_are_refused(serve: Callable[..., Server], client: Client, tmp_path: Path) -> None:
    """An RSA host key signed with SHA-1 is not accepted, even if it is the known one."""
    key = make_key(tmp_path / "host_rsa", "rsa")
    server = serve(f"HostKey {key}", "HostKeyAlgorithms ssh-rsa")
    (tmp_path / "known").write_text(f"[127.0.0.1]:{server.port} {key.with_suffix('.pub').read_text()}")
    assert refusal(client, server.node(known_hosts=str(tmp_path / "known"))).code == "CC-SSH-006"


def test_wrong_key(server: Server, client: Client, tmp_path: Path) -> None:
    """The key that was tried is named, and how to install it."""
    key = make_key(tmp_path / "other")
    error = refusal(client, server.node(key=str(key)))
    assert isinstance(error, AuthenticationFailed)
    assert error.code == "CC-SSH-007"
    assert f"tried {key} (SHA256:" in error.evidence
    assert f"ssh-copy-id -i {key} -p {server.port} {ME}@127.0.0.1" in error.fix


def test_the_usual_port_is_not_reported() -> None:
    """A command to paste holds no option that reports nothing."""
    hop = Hop(name="n", host="10.0.0.1", user="me")
    assert "try `ssh me@10.0.0.1`" in login_refused(hop, "no key", ()).fix
    bastion = Hop(name="n", host="c", user="me", bastion="me@inner:23")
    assert "try `ssh -J me@inner:23 me@10.0.0.1`" in login_refused(replace(hop, jump=bastion), "", ()).fix


def test_no_key_at_all(server: Server, client: Client) -> None:
    """An empty home and no agent."""
    error = refusal(client, server.node(key=None))
    assert error.code == "CC-SSH-007"
    assert "no key to try" in error.evidence


def test_keys_are_not_wanted(serve: Callable[..., Server], client: Client) -> None:
    """A server that takes other proofs than keys reports which."""
    server = serve("PubkeyAuthentication no", "PasswordAuthentication yes")
    error = refusal(client, server.node())
    assert error.code == "CC-SSH-007"
    assert "does not accept keys" in error.message


def test_more_than_a_key_is_wanted(serve: Callable[..., Server], client: Client) -> None:
    """A second factor cannot be given without a person."""
    server = serve("PasswordAuthentication yes", "AuthenticationMethods publickey,password")
    error = refusal(client, server.node())
    assert error.code == "CC-SSH-007"
    assert "password" in error.evidence


def test_server_counts_our_keys(serve: Callable[..., Server], client: Client, tmp_path: Path) -> None:
    """The server hangs up after too many keys; its last words are shown."""
    for name in ("id_ed25519", "id_ecdsa", "id_rsa"):
        (tmp_path / "home/.ssh").mkdir(exist_ok=True)
        make_key(tmp_path / "home/.ssh" / name, name[3:])
    server = serve("MaxAuthTries 2")
    error = refusal(client, server.node(key=None))
    assert error.code == "CC-SSH-007"
    assert "Too many authentication failures" in error.evidence
    assert "tried ~/.ssh/id_ed25519" in error.evidence


def test_unknown_host_key_shows_no_key_of_ours(server: Server, client: Client, tmp_path: Path) -> None:
    """The server is judged before we show who we are."""
    before = server.log.count("Accepted")
    with pytest.raises(HostKeyError):
        client.connect(server.node(known_hosts=str(tmp_path / "none")))
    assert server.log.count("Accepted") == before


def test_nothing_is_printed(
    server: Server, client: Client, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """paramiko's own complaints do not reach the screen."""
    logging.getLogger("paramiko").propagate = True
    with listener(lambda s: s.close()) as port:
        refusal(client, node_named("n1", port=port))
    refusal(client, server.node(known_hosts=str(tmp_path / "none")))
    assert capfd.readouterr() == ("", "")


def test_one_bad_node_never_delays_the_others(server: Server, client: Client) -> None:
    """One hangs, one refuses, one is garbage; the others answer at once."""

    def work(node: Node) -> str:
        with (
            closing(connect(plain_hop(node), client.hostkeys, client.keyring, PATIENT)) as connection,
            Session(
                connection, "probe", {"peers": {}, "workdir": "/tmp"}, Interpreter(sys.executable)
            ) as session,
        ):
            frame = session.receive(HANG)
        assert frame is not None
        return "facts" if frame[0].has_record("facts") else ""

    let_go = threading.Event()

    def hang(connection: socket.socket) -> None:
        let_go.wait(HANG)
        connection.close()

    with listener(hang) as silent, listener(lambda s: s.close()) as rude:
        bad = [
            node_named("silent", port=silent),
            node_named("rude", port=rude),
            node_named("off", port=closed_port()),
        ]
        nodes = [*bad, *(server.node(f"n{place}") for place in range(6))]
        outcomes = []
        for outcome in fan_out(nodes, work):
            outcomes.append(outcome)
            if len(outcomes) == len(nodes) - 1:
                let_go.set()
    assert {outcome.node.name for outcome in outcomes if not outcome.ok} == {"off", "rude", "silent"}
    assert outcomes[-1].node.name == "silent"


def test_connections_share_no_settings(server: Server, client: Client) -> None:
    """What Fabric writes into one connection's settings reaches no other, also when many open at once."""
    outcomes = list(fan_out([server.node(f"n{place}") for place in range(32)], client.connect))
    assert [outcome.error for outcome in outcomes if not outcome.ok] == []
    assert len({id(connection.config) for connection in client.opened}) == 32
