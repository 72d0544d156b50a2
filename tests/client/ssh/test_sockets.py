"""Nodes behind a command."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from servers import Client, Server, make_key, node_named
from waiting import HANG

from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.ssh.sockets import expand_proxy_command
from clusterctl.client.ssh.timeouts import Timeouts
from clusterctl.errors import ConnectTimeout, Unreachable

RELAY = """
import socket, sys, threading
line = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def back():
    while data := line.recv(65536):
        sys.stdout.buffer.write(data); sys.stdout.buffer.flush()
threading.Thread(target=back, daemon=True).start()
while data := sys.stdin.buffer.raw.read(65536):
    line.sendall(data)
"""


@pytest.fixture
def relay(tmp_path: Path) -> str:
    """A proxy command that works, by a script with an awkward name."""
    script = tmp_path / "my relay.py"
    script.write_text(RELAY)
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} %h %p"


def alive(pid: int) -> bool:
    """Return whether a process exists, also as a zombie."""
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("template", "expanded"),
    [
        ("nc %h %p", "nc host 2222"),
        ("ssh -W %h:%p -l %r jump", "ssh -W host:2222 -l 'a b' jump"),
        ("x %n 100%%", "x host 100%"),
        ("x %%h", "x %h"),
        ("plain", "plain"),
    ],
)
def test_expansion(template: str, expanded: str) -> None:
    """As OpenSSH expands, with values quoted."""
    assert expand_proxy_command(template, host="host", port=2222, user="a b") == expanded


@pytest.mark.parametrize("template", ["nc %x", "nc %", "%\n"])
def test_unknown_letter(template: str) -> None:
    """What cannot be expanded is refused, not passed on."""
    with pytest.raises(Unreachable) as caught:
        expand_proxy_command(template, host="h", port=1, user="u")
    assert caught.value.code == "CC-SSH-013"


def test_hostile_host_stays_a_word(tmp_path: Path) -> None:
    """Nothing in a host's name reaches the shell as code."""
    command = expand_proxy_command("printf %%s %h", host=f"$(touch {tmp_path}/pwned); '", port=1, user="u")
    assert os.popen(command).read() == f"$(touch {tmp_path}/pwned); '"
    assert not (tmp_path / "pwned").exists()


def test_works_and_ends(server: Server, client: Client, relay: str) -> None:
    """A verb runs through the command; closing the connection ends and collects the command."""
    connection = client.connect(server.node(proxy_command=relay))
    pid = connection.transport.sock._process.pid
    with Session(
        connection, "probe", {"peers": {}, "workdir": "/tmp"}, Interpreter(sys.executable)
    ) as session:
        frame = session.receive(HANG)
    assert frame is not None
    assert "facts" in frame[0]
    assert alive(pid)
    connection.close()
    assert not alive(pid)


def test_command_that_ends_at_once(server: Server, client: Client) -> None:
    """Its status and last words are the evidence, and no limit has to pass."""
    node = server.node(proxy_command="sh -c 'echo cannot find %h >&2; exit 3'")
    with pytest.raises(Unreachable) as caught:
        client.connect(node)
    assert caught.value.code == "CC-SSH-013"
    assert "status 3" in caught.value.message
    assert caught.value.evidence == "cannot find 127.0.0.1"
    assert caught.value.fix.startswith("check whether the node is up")
    assert caught.value.node == "n1"


def test_command_that_is_not_there(server: Server, client: Client) -> None:
    """The shell reports it."""
    with pytest.raises(Unreachable) as caught:
        client.connect(server.node(proxy_command="/nonexistent/nc %h %p"))
    assert "status 127" in caught.value.message
    assert "/nonexistent/nc" in caught.value.evidence


def test_command_that_hangs(server: Server, client: Client, tmp_path: Path) -> None:
    """It costs its limit, its last words are shown, and it is ended although it ignores being asked to."""
    command = f"sh -c 'trap \"\" TERM; echo $$ >{tmp_path}/pid; echo waiting >&2; while :; do sleep 1; done'"
    with pytest.raises(ConnectTimeout) as caught:
        client.connect(server.node(proxy_command=command), Timeouts(handshake=5.0))
    assert "no greeting" in caught.value.message
    assert caught.value.evidence == "waiting"
    assert "through the proxy command within 5 s: the node is off" in caught.value.message
    assert command in caught.value.fix
    assert not alive(int((tmp_path / "pid").read_text()))


def test_silence_behind_a_command_has_a_limit_of_its_own(client: Client) -> None:
    """A command that accepts us for a node that is off costs less than a whole handshake."""
    with pytest.raises(ConnectTimeout, match=r"no greeting from the node .* within 0\.5 s"):
        client.connect(node_named("n1", proxy_command="sleep 300"), Timeouts(greeting=0.5))


@pytest.mark.parametrize("command", ["sh -c 'exit 1'", "sleep 300;"])
def test_a_node_of_a_lab_is_healed(client: Client, command: str, tmp_path: Path) -> None:
    """Nothing of how a lab reaches its nodes is of use to anybody."""
    relay = f"{command} /x/clusterctl/lab/netns/relay.py %h %p"
    (tmp_path / "mine").mkdir()
    key = make_key(tmp_path / "mine" / "key")
    with pytest.raises((Unreachable, ConnectTimeout)) as caught:
        client.connect(node_named("n1", proxy_command=relay, key=str(key)), Timeouts(greeting=0.5))
    assert caught.value.fix.startswith("clusterctl lab heal --name mine n1")
    assert "relay" not in caught.value.fix + caught.value.message


def test_a_slow_key_exchange_behind_a_command(client: Client) -> None:
    """Once the node has greeted us, the limit of the handshake holds, and its sentence."""
    command = "sh -c 'echo SSH-2.0-tarpit; sleep 300'"
    with pytest.raises(ConnectTimeout, match=r"no key exchange from the server .* within 6 s"):
        client.connect(node_named("n1", proxy_command=command), Timeouts(greeting=3.0, handshake=6.0))


def test_command_that_dies_later_is_noticed(
    server: Server, client: Client, relay: str, tmp_path: Path
) -> None:
    """A connection through a command that is killed is lost, and no limit has to pass."""
    from clusterctl.errors import ConnectionLost

    connection = client.connect(server.node(proxy_command=relay))
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec cat >/dev/null\n")
    silent.chmod(0o755)
    session = Session(connection, "probe", {"peers": {}, "workdir": "/tmp"}, Interpreter(str(silent)))
    os.kill(connection.transport.sock._process.pid, 9)
    with pytest.raises(ConnectionLost):
        session.receive(HANG)


def test_talkative_command(server: Server, client: Client, tmp_path: Path, relay: str) -> None:
    """A command that floods stderr is drained."""
    chatty = tmp_path / "chatty.sh"
    chatty.write_text(
        f"head -c 1000000 /dev/zero | tr '\\0' x >&2\nexec {relay.replace('%h', '$1').replace('%p', '$2')}\n"
    )
    assert client.connect(server.node(proxy_command=f"sh {chatty} %h %p")).is_connected
