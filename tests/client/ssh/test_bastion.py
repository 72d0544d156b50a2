"""Nodes behind bastions: one connection each, verified, shared, closed last; and who is blamed."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import paramiko
import pytest
from listening import listener
from paramiko.common import cMSG_CHANNEL_DATA
from servers import ME, PATIENT, Server, closed_port, make_key
from waiting import HANG, wait_until

from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.ssh.bastion import BastionPool
from clusterctl.client.ssh.connect import connect
from clusterctl.client.ssh.key_install import KeyInstaller
from clusterctl.client.ssh.route import Hop
from clusterctl.client.ssh.transport import Transport
from clusterctl.errors import AuthenticationFailed, ClusterctlError, HostKeyError, Unreachable
from clusterctl.specs.inventory.model import Node

Serve = Callable[..., Server]


@contextmanager
def opened() -> Iterator[Cluster]:
    """Connect as a command does, and leave nothing open."""
    with Cluster(lambda _: None) as cluster:
        yield cluster


def configure(path: Path, **hosts: Server) -> str:
    """Write an SSH configuration that knows some servers by name."""
    path.write_text(
        "".join(
            f"Host {name}\n  HostName 127.0.0.1\n  Port {server.port}\n  User {ME}\n"
            f"  IdentityFile {server.client_key}\n  UserKnownHostsFile {server.known_hosts}\n"
            for name, server in hosts.items()
        )
    )
    return str(path)


def probe(connection: object, _: Node) -> str:
    """Ask a node for its facts; returns what it says first."""
    with Session(
        connection, "probe", {"peers": {}, "workdir": "/tmp"}, Interpreter(sys.executable)
    ) as session:
        frame = session.receive(HANG)
    assert frame is not None
    return "facts" if frame[0].has_record("facts") else ""


def await_port(port: int) -> None:
    """Wait until a server listens."""

    def listens() -> bool:
        with closing(socket.socket()) as probing:
            return probing.connect_ex(("127.0.0.1", port)) == 0

    wait_until(listens, f"port {port}")


def failure(cluster: Cluster, node: Node) -> ClusterctlError:
    """Return the error of a node that must fail."""
    (outcome,) = cluster.each([node], probe)
    assert outcome.error is not None
    assert outcome.error.node == node.name
    assert outcome.error.exit_code == 4
    assert outcome.error.fix
    return outcome.error


def test_a_bastion_that_dies_before_its_first_use() -> None:
    """Between the look whether it is connected and the channel through it: it is named, and no bug is seen."""
    ours, theirs = socket.socketpair()

    class Dying:
        is_connected = True
        transport = Transport(ours)

    bastion = Hop(name="b", host="192.0.2.1", user="u", bastion="b")
    with closing(ours), closing(theirs), pytest.raises(Unreachable) as caught:
        BastionPool(lambda _: Dying()).open_tunnel(
            Hop(name="n1", host="192.0.2.2", user="u", jump=bastion), 1.0
        )
    assert (caught.value.code, caught.value.node) == ("CC-SSH-018", "n1")


def test_a_chain_and_the_configurations_own_way(serve: Serve, tmp_path: Path) -> None:
    """A bastion behind a bastion, by a chain in the inventory and by ProxyJump of a bastion of its own."""
    outer, inner, far = (serve(name=name) for name in ("outer", "inner", "far"))
    config = configure(tmp_path / "config", outer=outer, inner=inner)
    with Path(config).open("a") as file:
        file.write("Host inner\n  ProxyJump outer\n")
    nodes = [
        far.node("chain", jump="outer,inner", config=config),
        far.node("nested", jump=f"{ME}@inner", config=config),
    ]
    with opened() as cluster:
        assert [o.error for o in cluster.each(nodes, probe) if not o.ok] == []
    assert outer.log.count("Accepted publickey") == 1
    assert inner.log.count("Accepted publickey") == 2  # for each way in which it is written
    assert far.log.count("Accepted publickey") == 2


def test_a_bastion_that_no_configuration_knows(serve: Serve, tmp_path: Path) -> None:
    """user@host:port is enough: it is offered the inventory's key, and known by the inventory's file."""
    bastion, far = serve(name="bastion"), serve(name="far")
    known = tmp_path / "known"
    known.write_text(bastion.known_hosts.read_text() + far.known_hosts.read_text())
    with (bastion.folder / "authorized_keys").open("a") as file:
        file.write((far.folder / "client.pub").read_text())
    node = far.node(jump=f"{ME}@127.0.0.1:{bastion.port}", config="none", known_hosts=str(known))
    with opened() as cluster:
        assert [o.error for o in cluster.each([node], probe)] == [None]


def test_a_bastion_that_is_down_is_named_once_for_all(serve: Serve) -> None:
    """Every node's error says the same, names the bastion, and costs one try."""
    far = serve(name="far")
    port = closed_port()
    nodes = [far.node(f"n{place}", jump=f"{ME}@127.0.0.1:{port}", config="none") for place in range(8)]
    with opened() as cluster:
        errors = [outcome.error for outcome in cluster.each(nodes, probe)]
    assert {type(error) for error in errors} == {Unreachable}
    assert len({(e.code, e.message, e.evidence, e.fix) for e in errors if e}) == 1
    error = errors[0]
    assert error is not None
    assert error.code == "CC-SSH-018"
    assert f"{ME}@127.0.0.1:{port}" in error.message
    assert "CC-SSH-002" in error.evidence


def test_a_bastions_host_key_is_verified(serve: Serve, tmp_path: Path) -> None:
    """An unknown one is refused, and the bastion is named; no key of ours was shown."""
    bastion, far = serve(name="bastion"), serve(name="far")
    config = configure(tmp_path / "config", bastion=bastion)
    bastion.known_hosts.write_text("")
    with opened() as cluster:
        error = failure(cluster, far.node(jump="bastion", config=config))
    assert isinstance(error, HostKeyError)
    assert (error.code, "bastion" in error.message) == ("CC-SSH-018", True)
    assert "CC-SSH-009" in error.evidence
    assert "Accepted" not in bastion.log


# key of the bastion, the user's StrictHostKeyChecking, ssh.host_keys of the inventory, and whether it is entered
HOST_KEYS = [
    *(("known", own, wish, True) for own in ("ask", "no") for wish in (None, "strict")),
    *(("unknown", own, wish, False) for own in ("ask", "no", "off") for wish in (None, "strict")),
    ("unknown", "accept-new", None, True),
    ("unknown", "accept-new", "strict", False),
    ("unknown", "no", "accept-new", True),
    *(("changed", own, "accept-new", False) for own in ("no", "accept-new")),
    ("changed", "no", None, False),
]
CHAINED_HOST_KEYS = [("unknown", "no", None, False), ("unknown", "no", "accept-new", True)]


@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
@pytest.mark.parametrize("chain", ["bastion", "bastion,inner", "inner"])
def test_every_transport_judges_a_bastions_host_key_alike(
    serve: Serve, tmp_path: Path, transport: str, chain: str
) -> None:
    """Whatever the user's own files would accept, with one bastion and with one before another."""
    bastion, inner, far = (serve(name=name) for name in ("bastion", "inner", "far"))
    config = Path(configure(tmp_path / "config", bastion=bastion, inner=inner))
    hosts = config.read_text() + ("Host inner\n  ProxyJump bastion\n" if chain == "inner" else "")
    right, wrong = (
        bastion.known_hosts.read_text(),
        make_key(tmp_path / "wrong").with_suffix(".pub").read_text(),
    )
    keys = {"known": right, "unknown": "", "changed": f"[127.0.0.1]:{bastion.port} {wrong}"}
    of_node = far.known_hosts.read_text()
    for key, own, wish, entered in HOST_KEYS if chain == "bastion" else CHAINED_HOST_KEYS:
        bastion.known_hosts.write_text(keys[key])
        far.known_hosts.write_text(of_node)
        config.write_text(f"StrictHostKeyChecking {own}\n{hosts}")
        node = far.node(jump=chain, config=str(config), host_keys=wish, transport=transport)
        before = bastion.log.count("Accepted")
        with opened() as cluster:
            (outcome,) = cluster.each([node], probe)
        row = (key, own, wish)
        assert (*row, outcome.ok) == (*row, entered)
        assert (*row, bastion.log.count("Accepted") > before) == (*row, entered)
        recorded = (bastion.known_hosts.read_text(), far.known_hosts.read_text()) != (keys[key], of_node)
        assert (*row, recorded) == (*row, key == "unknown" and entered)


@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
def test_the_inventorys_known_hosts_verify_a_bastion_too(
    serve: Serve, tmp_path: Path, transport: str
) -> None:
    """A key that only this file has lets us in; another one there is a changed key."""
    bastion, far = serve(name="bastion"), serve(name="far")
    config = configure(tmp_path / "config", bastion=bastion)
    ours = bastion.known_hosts.read_text()
    bastion.known_hosts.write_text("")
    known, wrong = tmp_path / "known hosts", make_key(tmp_path / "wrong").with_suffix(".pub").read_text()
    node = far.node(jump="bastion", config=config, known_hosts=str(known), transport=transport)
    for text, entered in ((ours, True), (f"[127.0.0.1]:{bastion.port} {wrong}", False)):
        known.write_text(far.known_hosts.read_text() + text)
        with opened() as cluster:
            (outcome,) = cluster.each([node], probe)
        assert outcome.ok == entered


def test_a_bastion_that_does_not_let_us_in(serve: Serve, tmp_path: Path) -> None:
    """Refused logins are not tried again."""
    bastion, far = serve(name="bastion"), serve(name="far")
    config = configure(tmp_path / "config", bastion=bastion)
    (bastion.folder / "authorized_keys").write_text("")
    with opened() as cluster:
        error = failure(cluster, far.node(jump="bastion", config=config))
    assert isinstance(error, AuthenticationFailed)
    assert "the bastion bastion rejected the login" in error.message
    wait_until(lambda: "authenticating user" in bastion.log, "the end of the connection")
    assert bastion.log.count("authenticating user") == 1


def test_a_node_that_is_down_behind_a_bastion(serve: Serve, tmp_path: Path) -> None:
    """The node is blamed, the bastion named, and the others are not disturbed."""
    bastion, far = serve(name="bastion"), serve(name="far")
    config = configure(tmp_path / "config", bastion=bastion)
    nodes = [far.node(f"n{place}", jump="bastion", config=config) for place in range(3)]
    down = far.node("down", jump="bastion", config=config, port=closed_port())
    with opened() as cluster:
        outcomes = {outcome.node.name: outcome.error for outcome in cluster.each([*nodes, down], probe)}
    error = outcomes.pop("down")
    assert set(outcomes.values()) == {None}
    assert error is not None
    assert error.code == "CC-SSH-002"
    assert "the bastion bastion cannot connect to 127.0.0.1 port" in error.message


def test_a_bastion_that_forbids_forwarding(serve: Serve, tmp_path: Path) -> None:
    """Its own code, for the way out is on the bastion."""
    bastion, far = serve("AllowTcpForwarding no", name="bastion"), serve(name="far")
    config = configure(tmp_path / "config", bastion=bastion)
    with opened() as cluster:
        assert failure(cluster, far.node(jump="bastion", config=config)).code == "CC-SSH-020"


def test_a_circle_of_bastions(serve: Serve, tmp_path: Path) -> None:
    """Each of two bastions is behind the other; ssh itself only sees a host that is behind itself."""
    far = serve(name="far")
    (tmp_path / "config").write_text("Host a\n  ProxyJump b\nHost *\n  ProxyJump a\n")
    with opened() as cluster:
        error = failure(cluster, far.node(config=str(tmp_path / "config")))
    assert error.code == "CC-SSH-019"
    assert error.evidence == "a -> b -> a"


def test_a_bastion_that_goes_away_is_told_and_entered_again(serve: Serve, tmp_path: Path) -> None:
    """The sessions behind it end with its name; the next use connects anew."""
    bastion, far = serve(name="bastion"), serve(name="far")
    config = configure(tmp_path / "config", bastion=bastion)
    node = far.node(jump="bastion", config=config)
    with opened() as cluster:
        connection = cluster.connection(node)
        request = {"peers": {}, "workdir": "/tmp"}
        with Session(connection, "probe", request, Interpreter("python3", "sleep 60")) as session:
            port = bastion.port
            bastion.stop()
            with pytest.raises(ClusterctlError) as caught:
                session.receive(HANG)
        assert (caught.value.code, "the bastion bastion ended" in caught.value.evidence) == (
            "CC-SSH-015",
            True,
        )
        await_port(serve(name="bastion", port=port).port)
        assert [o.error for o in cluster.each([node], probe)] == [None]


def test_a_late_message_for_a_closed_channel_hurts_nobody(serve: Serve, tmp_path: Path) -> None:
    """sshd ends a connection on which something arrives for a channel that is over; ours never sends it."""
    bastion, far = serve(name="bastion"), serve(name="far")
    config = configure(tmp_path / "config", bastion=bastion)
    leaving, staying = (far.node(name, jump="bastion", config=config) for name in ("leaving", "staying"))
    with opened() as cluster:
        assert [o.error for o in cluster.each([leaving, staying], probe)] == [None, None]
        channel = cluster.connection(leaving).transport.sock._channel
        trunk, kept = channel.get_transport(), cluster.connection(staying)
        channel.close()
        time.sleep(0.3)  # until the server has closed it as well
        late = paramiko.Message()
        late.add_byte(cMSG_CHANNEL_DATA)
        late.add_int(channel.remote_chanid)
        late.add_string(b"written while another thread closed it")
        trunk._send_user_message(late)
        assert probe(kept, staying)
        assert [o.error for o in cluster.each([leaving], probe)] == [None]
        assert cluster.connection(staying) is kept
        assert bastion.log.count("Accepted publickey") == 1


def test_much_data_and_new_keys_on_the_way(serve: Serve, tmp_path: Path) -> None:
    """Both ways at once, while the bastion changes its keys after each megabyte."""
    bastion, far = serve("RekeyLimit 1M", name="bastion"), serve(name="far")
    config = configure(tmp_path / "config", bastion=bastion)
    size = 3 << 20

    def echo(connection: Any, node: Node) -> int:
        channel = connection.transport.open_session()
        channel.exec_command("cat")
        writer = threading.Thread(target=lambda: (channel.sendall(b"x" * size), channel.shutdown_write()))
        writer.start()
        heard = sum(len(piece) for piece in iter(lambda: channel.recv(1 << 16), b""))
        writer.join(HANG)
        channel.close()
        cluster.forget(node)
        return heard

    nodes = [far.node(f"n{place}", jump="bastion", config=config) for place in range(4)]
    with opened() as cluster:
        assert [(o.error, o.value) for o in cluster.each(nodes, echo)] == [(None, size)] * 4
        assert bastion.log.count("Accepted publickey") == 1


def test_a_hundred_nodes_and_sshds_own_limits(serve: Serve, tmp_path: Path) -> None:
    """All behind one bastion, and all on one server that drops most of such a burst: nobody fails."""
    own = ("MaxStartups 10:30:100", "MaxSessions 10")
    bastion, far = serve(*own, name="bastion"), serve(*own, name="far", address="0.0.0.0")
    (tmp_path / "known").write_text(f"* {far.host_key}\n")
    config = configure(tmp_path / "config", bastion=bastion)
    known = str(tmp_path / "known")
    nodes = [
        far.node(f"n{n}", host=f"127.0.1.{n}", jump="bastion", config=config, known_hosts=known)
        for n in range(1, 101)
    ]
    with opened() as cluster:
        outcomes = list(cluster.each(nodes, lambda connection, _: connection.is_connected))
        assert [o.error for o in outcomes if not o.ok] == []
        assert bastion.log.count("Accepted publickey") == 1
        assert far.log.count("Accepted publickey") == 100
    assert "nonexistent channel" not in bastion.log


def test_a_bastion_that_falls_silent_is_given_up(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped bastion still acknowledges packets; a new connection through it finds that nothing comes back."""
    monkeypatch.setattr(
        "clusterctl.client.rpc.cluster.connect",
        partial(connect, timeouts=replace(PATIENT, connect=5.0, channel=5.0)),
    )
    monkeypatch.setattr("clusterctl.client.ssh.bastion.PING_LIMIT", 0.5)
    bastion, far = serve(name="bastion"), serve(name="far")
    config = configure(tmp_path / "config", bastion=bastion)
    first, second = (far.node(name, jump="bastion", config=config) for name in ("first", "second"))
    with opened() as cluster:
        assert [o.error for o in cluster.each([first], probe)] == [None]
        stopped = bastion.children()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        error = failure(cluster, second)
        assert (error.code, error.message) == ("CC-SSH-018", "the connection to the bastion bastion ended")
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not cluster._connections["first"].is_connected, "its thread is told")
        assert [o.error for o in cluster.each([first, second], probe)] == [None, None]


def test_a_bastion_without_room_is_tried_once_for_all(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes behind it wait for one series of tries, and tell how many they were."""
    monkeypatch.setattr("clusterctl.client.ssh.timeouts.RETRY_LIMIT", 1.0)
    far = serve(name="far")
    met = []

    def answer(connection: socket.socket) -> None:
        met.append(connection)
        connection.sendall(b"Exceeded MaxStartups\r\n")
        connection.close()

    with listener(answer) as port, opened() as cluster:
        nodes = [far.node(f"n{n}", jump=f"{ME}@127.0.0.1:{port}", config="none") for n in range(8)]
        errors = [outcome.error for outcome in cluster.each(nodes, probe)]
    told = {error.evidence for error in errors if error is not None}
    assert len(told) == 1
    assert f"tried {len(met)} times in" in told.pop()
    assert len(met) <= 8


def test_keys_push_meets_a_bastion_and_then_the_node_behind_it(serve: Serve, tmp_path: Path) -> None:
    """Host keys that were agreed to count at once; the node's own is asked for after the bastion's."""
    bastion, server = serve(name="bastion"), serve(name="node")
    with (bastion.folder / "authorized_keys").open("a") as file:
        file.write(server.client_key.with_suffix(".pub").read_text())
    known = tmp_path / "known_hosts"
    known.touch()
    node = server.node(jump=f"{ME}@127.0.0.1:{bastion.port}", known_hosts=str(known))
    public = server.client_key.with_suffix(".pub").read_text()
    codes: list[str] = []
    with KeyInstaller(server.client_key, public, lambda _: None, ask_passphrase=None) as doorway:
        for _ in range(3):
            (outcome,) = doorway.check_access([node])
            codes.append(outcome.error.code if outcome.error else "")
            doorway.hostkeys.accept_all()
            doorway.retry_bastions()
    assert codes == ["CC-SSH-018", "CC-SSH-009", ""]
    assert outcome.value is True
    assert len(known.read_text().splitlines()) == 2
