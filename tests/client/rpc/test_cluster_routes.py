"""Which nodes paramiko enters and which the user's own ssh, over real servers, and what that ssh refuses."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers import ME, Server, make_key, run_keygen
from waiting import HANG, wait_until

from clusterctl.client.openssh import OpensshConnection
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.ssh.timeouts import Timeouts
from clusterctl.errors import ClusterctlError
from clusterctl.specs.inventory.model import Node

Serve = Callable[..., Server]

RELAY = """
import os, socket, sys, threading
line = socket.create_connection((sys.argv[1], int(sys.argv[2])))
open(sys.argv[3], "w").write(str(os.getpid()))
sys.stderr.write("x" * 1000000)
def back():
    while data := line.recv(65536):
        sys.stdout.buffer.write(data); sys.stdout.buffer.flush()
threading.Thread(target=back, daemon=True).start()
while data := sys.stdin.buffer.raw.read(65536):
    line.sendall(data)
"""


def enter(node: Node) -> str:
    """Log in, hold a conversation, and return what entered: `ssh` or `paramiko`."""
    with Cluster(lambda _: None) as cluster:
        connection = cluster.connection(node)
        request = {"peers": {}, "workdir": "/tmp"}
        with Session(connection, "probe", request, Interpreter(sys.executable)) as session:
            frame = session.receive(HANG)
        assert frame is not None
        assert frame[0].has_record("facts")
        return "ssh" if isinstance(connection, OpensshConnection) else "paramiko"


def refusal(node: Node) -> ClusterctlError:
    """Return the error of a node that must not be entered."""
    with pytest.raises(ClusterctlError) as caught:
        enter(node)
    assert caught.value.exit_code == 4
    assert caught.value.node == node.name
    assert caught.value.fix
    return caught.value


def configure(folder: Path, *lines: str) -> str:
    """Write an SSH configuration for all hosts."""
    (folder / "config").write_text("\n".join(("Host *", *lines)) + "\n")
    return str(folder / "config")


def trust(folder: Path, *lines: str) -> str:
    """Write a known_hosts file."""
    (folder / "known").write_text("".join(f"{line}\n" for line in lines))
    return str(folder / "known")


def read_public(private: Path) -> str:
    """Return the type and the base64 of a public key."""
    return " ".join(private.with_suffix(".pub").read_text().split()[:2])


def test_paramiko_enters_by_the_plain_route(serve: Serve, tmp_path: Path) -> None:
    """Directly and through one bastion, by a key file and a known host key."""
    bastion, server = serve(name="bastion"), serve(name="node")
    with (bastion.folder / "authorized_keys").open("a") as file:
        file.write((server.folder / "client.pub").read_text())
    known = trust(tmp_path, bastion.known_hosts.read_text(), server.known_hosts.read_text())
    jump = f"{ME}@127.0.0.1:{bastion.port}"
    assert enter(server.node(config="none")) == "paramiko"
    assert enter(server.node(config="none", jump=jump, known_hosts=known)) == "paramiko"
    # the same as a ProxyJump of the configuration, and with a marker that means another host
    config = configure(tmp_path, f"ProxyJump {jump}", f"IdentityFile {server.client_key}")
    config = str(Path(config).rename(tmp_path / "jump"))
    Path(config).write_text(Path(config).read_text().replace("Host *", "Host * !127.0.0.1"))
    others = trust(tmp_path, f"@cert-authority *.example {server.host_key}", server.known_hosts.read_text())
    assert enter(server.node(config=config, known_hosts=others)) == "paramiko"


def test_a_command_in_between_is_run_by_ssh(serve: Serve, tmp_path: Path) -> None:
    """By the inventory and by the configuration; what it writes is drained, and it ends with the command."""
    server, script = serve(), tmp_path / "my relay.py"
    script.write_text(RELAY)
    pid = tmp_path / "pid"
    command = shlex.join([sys.executable, str(script), "%h", "%p", str(pid)]).replace("'%h' '%p'", "%h %p")
    for ways in (
        {"proxy_command": command, "config": "none"},
        {"config": configure(tmp_path, f"ProxyCommand {command}")},
    ):
        assert enter(server.node(**ways)) == "ssh"
        wait_until(lambda: not Path(f"/proc/{pid.read_text()}").exists(), "the command has ended")


@pytest.mark.parametrize("command", ["sh -c 'exit 3'", "/nonexistent/nc %h %p"])
def test_a_command_that_ends(serve: Serve, command: str) -> None:
    """No limit has to pass."""
    error = refusal(serve().node(proxy_command=command, config="none"))
    assert (error.code, "through a proxy command" in error.message) == ("CC-SSH-013", True)


def test_a_command_that_hangs_has_a_limit(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended although it ignores being asked to."""
    monkeypatch.setattr("clusterctl.client.openssh.DEFAULT_TIMEOUTS", Timeouts(connect=1.0))
    command = f"sh -c 'trap \"\" TERM; echo $$ >{tmp_path}/pid; while :; do sleep 0.2; done'"
    error = refusal(serve().node(proxy_command=command, config="none"))
    assert error.code == "CC-SSH-004"
    pid = (tmp_path / "pid").read_text().strip()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the command has ended")


@pytest.mark.parametrize("connect", [1.0, 300.0])
def test_ssh_that_is_ended_takes_its_command_along(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connect: float
) -> None:
    """Our own limit ends it, so it ends nothing itself; also a command that lets no signal but one end it."""
    limits = Timeouts(connect=connect, handshake=1.5 - connect, login=0.0)
    monkeypatch.setattr("clusterctl.client.openssh.DEFAULT_TIMEOUTS", limits)
    command = f"sh -c 'trap \"\" TERM HUP; echo $$ >{tmp_path}/pid; while :; do sleep 0.2; done'"
    error = refusal(serve().node(proxy_command=command, config="none"))
    assert error.code == "CC-SSH-004"
    pid = (tmp_path / "pid").read_text().strip()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the command has ended")


def certified(serve: Serve, folder: Path, kind: str, *words: str, authority: str = "ed25519") -> Server:
    """Start a server whose host key is certified by `folder / "authority"`."""
    signer, key = make_key(folder / "authority", authority), make_key(folder / "host", kind)
    run_keygen("-q", "-s", str(signer), "-I", "a host", *(words or ("-h", "-n", "127.0.0.1")), f"{key}.pub")
    return serve(f"HostKey {key}", f"HostCertificate {key}-cert.pub")


@pytest.mark.parametrize(("kind", "authority"), [("ed25519", "rsa"), ("rsa", "ecdsa"), ("ecdsa", "ed25519")])
def test_an_authority_vouches_for_a_host(serve: Serve, tmp_path: Path, kind: str, authority: str) -> None:
    """With and without the port in the line; nothing is recorded."""
    server = certified(serve, tmp_path, kind, authority=authority)
    for name in ("127.0.0.*", f"[127.0.0.1]:{server.port}"):
        line = f"@cert-authority {name} {read_public(tmp_path / 'authority')}"
        known = trust(tmp_path, line)
        assert enter(server.node(known_hosts=known, config="none")) == "ssh"
        assert Path(known).read_text() == f"{line}\n"


@pytest.mark.parametrize(
    ("words", "flaw"),
    [
        (("-h", "-n", "gpu01,gpu02"), "name is not a listed principal"),
        (("-h", "-n", "127.0.0.1", "-V", "20200101:20200201"), "expired"),
        (("-h", "-n", "127.0.0.1", "-V", "20900101:20900201"), "not yet valid"),
        (("-n", "127.0.0.1"), "not a host certificate"),
    ],
)
def test_a_certificate_that_does_not_hold(
    serve: Serve, tmp_path: Path, words: tuple[str, ...], flaw: str
) -> None:
    """It is refused, with what is wrong with it."""
    server = certified(serve, tmp_path, "ed25519", *words)
    known = trust(tmp_path, f"@cert-authority * {read_public(tmp_path / 'authority')}")
    error = refusal(server.node(known_hosts=known, config="none"))
    assert (error.code, flaw in error.evidence) == ("CC-SSH-021", True), error.evidence
    assert "Accepted" not in server.log


def test_an_unknown_or_revoked_authority(serve: Serve, tmp_path: Path) -> None:
    """Another's signature counts for nothing, a revoked key is refused; the key itself may be known."""
    server = certified(serve, tmp_path, "ed25519")
    key, host = read_public(tmp_path / "authority"), read_public(tmp_path / "host")
    other = read_public(make_key(tmp_path / "other"))
    for lines, code in (
        ((f"@cert-authority * {other}",), "CC-SSH-009"),
        ((f"@cert-authority * {key}", f"@revoked * {key}"), "CC-SSH-011"),
        ((f"@revoked * {host}", f"[127.0.0.1]:{server.port} {host}"), "CC-SSH-011"),
    ):
        error = refusal(server.node(known_hosts=trust(tmp_path, *lines), config="none"))
        assert (lines, error.code) == (lines, code)
    known = trust(tmp_path, f"@cert-authority * {other}", f"[127.0.0.1]:{server.port} {host}")
    assert enter(server.node(known_hosts=known, config="none")) == "ssh"


@pytest.mark.parametrize("form", ["text", "krl", "missing", "krl cut off"])
def test_what_the_configuration_revokes_is_refused(serve: Serve, tmp_path: Path, form: str) -> None:
    """Though known_hosts knows the key; a file that is not there allows nothing. Another's key is let in."""
    server, file = serve(), tmp_path / "revoked"
    public = server.folder / "host_ed25519.pub"
    if form == "text":
        file.write_text(f"# keys that were stolen\n\n{public.read_text()}")
    elif form != "missing":
        run_keygen("-q", "-k", "-f", str(file), str(public))
    if form == "krl cut off":
        file.write_bytes(file.read_bytes()[:-8])
    node = server.node(config=configure(tmp_path, f"RevokedHostKeys {file}"))
    assert refusal(node).code == "CC-SSH-011"
    file.write_bytes(make_key(tmp_path / "other").with_suffix(".pub").read_bytes())
    assert enter(node) == "ssh"


@pytest.mark.parametrize("place", ["beside the key", "elsewhere"])
def test_a_certificate_of_the_user(serve: Serve, tmp_path: Path, place: str) -> None:
    """ssh finds the one beside the key, and takes the CertificateFile of the configuration."""
    authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "key")
    run_keygen("-q", "-s", str(authority), "-I", "me", "-n", ME, f"{key}.pub")
    server, config = serve(f"TrustedUserCAKeys {authority}.pub"), "none"
    if place == "elsewhere":
        (tmp_path / "key-cert.pub").rename(tmp_path / "mine.pub")
        config = configure(tmp_path, f"CertificateFile {tmp_path}/mine.pub")
    assert enter(server.node(key=str(key), config=config)) == "ssh"


def test_one_login_at_each_bastion_of_a_chain(serve: Serve, tmp_path: Path) -> None:
    """Six nodes at once behind two bastions that no configuration knows; the inventory's key and file are enough."""
    outer, inner, far = (serve(name=name) for name in ("outer", "inner", "far"))
    known = trust(tmp_path, *(one.known_hosts.read_text() for one in (outer, inner, far)))
    for one in (outer, inner):
        with (one.folder / "authorized_keys").open("a") as file:
            file.write((far.folder / "client.pub").read_text())
    jump = f"{ME}@127.0.0.1:{outer.port},{ME}@127.0.0.1:{inner.port}"
    nodes = [far.node(f"n{n}", jump=jump, config="none", known_hosts=known) for n in range(6)]
    with Cluster(lambda _: None) as cluster:
        outcomes: list[Any] = list(cluster.each(nodes, lambda connection, _: connection.is_connected))
        assert [(outcome.error, outcome.value) for outcome in outcomes] == [(None, True)] * 6
        assert [one.log.count("Accepted publickey") for one in (outer, inner, far)] == [1, 1, 6]
    wait_until(lambda: not any(one.children() for one in (outer, inner, far)), "all masters are gone")
