"""The transport openssh: real ssh, real sshd, masters of ours and of the user's, and nothing left behind."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conversations import Conversations, start, verbs  # noqa: F401 - a fixture that every test here uses by itself
from servers import PATIENT, Client, Server, closed_port, make_key, run_keygen
from waiting import HANG, wait_until

from clusterctl.client import openssh
from clusterctl.client.openssh import Masters, is_listening
from clusterctl.client.ssh.timeouts import Timeouts
from clusterctl.errors import (
    AuthenticationFailed,
    ConnectError,
    ConnectionLost,
    ConnectTimeout,
    HostKeyError,
    NodeError,
    Unreachable,
)
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node, Ssh


class TestOverSsh(Conversations):
    """Over a master of the user's ssh, with the same outcome."""


# Logs in, says so, and waits to be killed.
HOLDER = """
import sys, time
from clusterctl.client.ssh.timeouts import Timeouts
from clusterctl.client.openssh import Masters
from clusterctl.specs.inventory.model import Node, Ssh
masters = Masters(lambda line: print(line, flush=True), ask_host_keys=True)
node = Node(name="n1", index=0, host="127.0.0.1", ssh=Ssh(**eval(sys.argv[1])))
try:
    connection = masters.connect(node)
    channel = connection.open_channel()
    print("in", connection.path, flush=True)
    time.sleep(60)
finally:
    masters.close()
"""


@pytest.fixture
def notices() -> list[str]:
    """Return what the masters gave notice of."""
    return []


@pytest.fixture
def masters(notices: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Masters]:
    """Return masters whose sockets lie where the test can look."""
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run") if len(str(tmp_path)) < 56 else "/nowhere")
    mine = Masters(notices.append)
    yield mine
    mine.close()


@pytest.fixture
def connection(server: Server, masters: Masters) -> Any:
    """Return an open connection over a master of ours."""
    return masters.connect(server.node(config="none"), PATIENT)


@pytest.fixture
def client(masters: Masters) -> Client:
    """Return what tests of conversations connect with."""

    class Shell:
        def connect(self, node: Any) -> Any:
            return masters.connect(node, PATIENT)

    return Shell()  # type: ignore[return-value]  # has what they use


def refusal(masters: Masters, node: Any, timeouts: Timeouts = PATIENT) -> ConnectError:
    """Give the error of a connection that cannot be made."""
    with pytest.raises(ConnectError) as caught:
        masters.connect(node, timeouts)
    assert caught.value.exit_code == 4
    assert caught.value.node == "n1"
    assert caught.value.fix
    return caught.value


def user_config(folder: Path, *lines: str) -> str:
    """Write an ssh_config for all hosts."""
    (folder / "config").write_text("\n".join(["Host *", *lines]) + "\n")
    return str(folder / "config")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a directory whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="cl-", ignore_cleanup_errors=True) as path:
        yield Path(path)


def test_one_login_carries_all_and_nothing_is_left(serve: Callable[..., Server]) -> None:
    """Many conversations, one authentication; at the end no master, no socket, no connection."""
    server, mine = serve(), Masters(print)
    way = mine.connect(server.node(config="none"), PATIENT)
    folder = Path(way.path).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    for number in range(5):
        with start(way, "echo", n=number) as session:
            assert session.receive(HANG) == (Untrusted({"request": {"n": number}}), b"")
    assert server.log.count("Accepted publickey") == 1
    mine.close()
    assert not folder.exists()
    assert not way.is_connected
    wait_until(lambda: not server.children(), "the master is gone")
    with pytest.raises(ConnectionLost):
        start(way, "echo")


def test_closing_one_connection_ends_its_master_only(serve: Callable[..., Server], masters: Masters) -> None:
    """A connection that is given up is made anew."""
    server = serve()
    first, second = (masters.connect(server.node(name, config="none"), PATIENT) for name in ("n1", "n2"))
    first.close()
    wait_until(lambda: not first.is_connected, "the master's end is seen")
    assert second.is_connected
    again = masters.connect(server.node(config="none"), PATIENT)
    assert again.is_connected
    assert server.log.count("Accepted publickey") == 3


def test_master_of_the_user_is_used_and_left(
    serve: Callable[..., Server], masters: Masters, folder: Path
) -> None:
    """Where the user has logged in already nobody logs in again, not even where nobody could."""
    server = serve()
    config = user_config(folder, f"ControlPath {folder}/cm-%C", f"UserKnownHostsFile {server.known_hosts}")
    place = ["-F", config, "-p", str(server.port), "-l", server.node().ssh.user or ""]
    login = ["ssh", *place, "-i", str(server.client_key), "-M", "-N", "-f", "127.0.0.1"]
    subprocess.run(login, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    way = masters.connect(server.node(config=config, key=None, known_hosts=None), PATIENT)
    assert not way.owned
    with start(way, "echo", n=1) as session:
        assert session.receive(HANG) == (Untrusted({"request": {"n": 1}}), b"")
    way.close()
    masters.close()
    assert way.is_connected
    assert server.log.count("Accepted publickey") == 1
    subprocess.run(["ssh", *place, "-O", "exit", "127.0.0.1"], check=True, stderr=subprocess.DEVNULL)
    wait_until(lambda: not server.children(), "the master is gone")


def test_users_files_may_ask_for_a_lasting_master(
    serve: Callable[..., Server], masters: Masters, folder: Path
) -> None:
    """With ControlPersist it is made where an ordinary ssh would make it, and stays after us: until the user's time."""
    server = serve()
    path = f"{folder}/cm"
    config = user_config(folder, f"ControlPath {path}", "ControlMaster auto", "ControlPersist 600")
    way = masters.connect(server.node(config=config), PATIENT)
    masters.close()
    assert (way.path, way.owned, way.is_connected) == (path, False, True)
    destination = ["-F", config, "-p", str(server.port), "127.0.0.1"]
    subprocess.run(["ssh", *destination, "-O", "exit"], check=True, stderr=subprocess.DEVNULL)
    wait_until(lambda: not way.is_connected, "the master's end is seen")


def test_login_refused(server: Server, masters: Masters, tmp_path: Path) -> None:
    """Nobody is asked where nobody is; the error says how to log in first."""
    node = server.node(key=str(make_key(tmp_path / "other")), config="none")
    failed = refusal(masters, node)
    assert isinstance(failed, AuthenticationFailed)
    assert failed.code == "CC-SSH-007"
    assert "Permission denied (publickey" in failed.evidence
    assert "ControlMaster auto" in failed.fix
    assert f"ssh -p {server.port}" in failed.fix


def test_host_keys_are_judged_by_ssh(
    server: Server, masters: Masters, notices: list[str], tmp_path: Path
) -> None:
    """Unknown and changed keys are refused; a new one is recorded where that is wished; a user's `no` is overruled."""
    known = tmp_path / "known"
    lax = user_config(tmp_path, "StrictHostKeyChecking no", f"UserKnownHostsFile {known}")
    for config, file in (("none", str(known)), (lax, None)):
        failed = refusal(masters, server.node(known_hosts=file, config=config))
        assert (type(failed), failed.code) == (HostKeyError, "CC-SSH-009")
    node = server.node(known_hosts=str(known), host_keys="accept-new", config="none")
    assert masters.connect(node, PATIENT).is_connected
    assert server.host_key in known.read_text()
    assert notices == [f"n1: ssh recorded the new host key of '[127.0.0.1]:{server.port}' (ED25519)"]
    other = (make_key(tmp_path / "other").with_suffix(".pub")).read_text()
    known.write_text(f"[127.0.0.1]:{server.port} {other}")
    changed = refusal(masters, node)
    assert (type(changed), changed.code) == (HostKeyError, "CC-SSH-010")
    assert "ssh-keygen -R" in changed.fix


@pytest.mark.parametrize(
    ("proxy", "via", "code"),
    [
        ("exit 1", None, "CC-SSH-013"),
        (None, "the bastion gate", "CC-SSH-013"),
        (None, None, "CC-SSH-031"),
    ],
)
def test_an_ssh_that_fails_without_a_message(proxy: str | None, via: str | None, code: str) -> None:
    """Of a node behind a proxy command or a bastion that is to be looked at; of others only the status is known."""
    node = Node(name="n1", index=0, host="gate", ssh=Ssh(proxy_command=proxy))
    failed = openssh.explain_failure(node, "\n", 255, interactive=False, via=via)
    assert (failed.code, failed.node) == (code, "n1")
    assert failed.fix


def test_ways_not_to_arrive(masters: Masters, server: Server, tmp_path: Path) -> None:
    """Each trouble has the code that it has over paramiko."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        quick = Timeouts(connect=1.0, handshake=0.2, login=0.3)
        failed = refusal(masters, server.node(port=silent.getsockname()[1], config="none"), quick)
        assert (type(failed), failed.code) == (ConnectTimeout, "CC-SSH-004")
    cases = [
        ({"port": closed_port()}, "CC-SSH-002"),
        ({"host": "no-such-host.invalid"}, "CC-SSH-001"),
        ({"proxy_command": "exit 1"}, "CC-SSH-013"),
        ({"config": user_config(tmp_path, "Nonsense yes")}, "CC-SSH-030"),
        ({"config": str(tmp_path / "none")}, "CC-SSH-030"),
    ]
    for changes, code in cases:
        failed = refusal(masters, server.node(**{"config": "none", **changes}))
        assert (type(failed), failed.code) == (Unreachable, code), failed.evidence
    assert refusal(Masters(print, program="/no/ssh"), server.node(config="none")).code == "CC-SSH-030"


def test_a_bastion_of_the_users_own_file_is_named(masters: Masters, server: Server, tmp_path: Path) -> None:
    """With what ssh reports of it."""
    config = tmp_path / "bastion"
    config.write_text(
        f"Host gate\n HostName 127.0.0.1\n Port {closed_port()}\nHost 127.0.0.1\n ProxyJump gate\n"
    )
    failed = refusal(masters, server.node(config=str(config)))
    assert (type(failed), failed.code) == (Unreachable, "CC-SSH-018"), failed.evidence
    assert "the bastion gate cannot be used" in failed.message
    assert "Connection refused" in failed.evidence


def test_nobody_is_asked_for_nodes_behind_a_dead_bastion(
    masters: Masters, server: Server, notices: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a terminal the bastion is tried once for all of them, and not once more for each."""
    monkeypatch.setattr(openssh, "can_prompt", lambda: True)
    port = closed_port()
    config = user_config(tmp_path, "UserKnownHostsFile none")
    node = server.node(config=config, jump=f"127.0.0.1:{port}")
    errors = [refusal(masters, replace(node, host=f"127.0.0.{number}")) for number in range(1, 9)]
    assert [str(error) for error in errors if error.code != "CC-SSH-018"] == []
    assert f"{port} cannot be used" in errors[7].message
    assert "Connection refused" in errors[7].evidence
    assert notices == []
    assert len({id(error.__cause__) for error in errors}) == 1


def test_too_many_sessions_have_an_error_of_their_own(serve: Callable[..., Server], masters: Masters) -> None:
    """ssh does not make a connection of its own past the master's limit."""
    server = serve("MaxSessions 1")
    way = masters.connect(server.node(config="none"), PATIENT)
    with start(way, "echo") as first, pytest.raises(Unreachable) as caught:
        first.receive(HANG)
        with start(way, "echo") as second:
            second.receive(HANG)
    assert caught.value.code == "CC-SSH-014"
    assert server.log.count("Accepted publickey") == 1


@pytest.mark.parametrize("victim", ["master", "client"])
def test_ssh_that_is_killed_is_noticed(connection: Any, victim: str) -> None:
    """As a lost connection, and not by a limit; only the master's end takes the other sessions with it."""
    with start(connection, "echo") as session:
        session.receive(HANG)
        if victim == "master":
            check = ["ssh", "-S", connection.path, "-O", "check", "x"]
            answer = subprocess.run(check, capture_output=True, text=True, check=True).stderr
            pid = int(answer.split("pid=")[1].split(")")[0])
        else:
            pid = session._channel._process.pid  # type: ignore[attr-defined]  # openssh's
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ConnectionLost) as caught:
            session.receive(HANG)
    assert caught.value.code == "CC-SSH-015"
    if victim == "master":
        wait_until(lambda: not connection.is_connected, "the master's end is seen")
    else:
        assert connection.is_connected


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_however_we_end(serve: Callable[..., Server], number: signal.Signals) -> None:
    """The masters end with us, by a process that outlives us for that."""
    server = serve()
    settings = repr(vars_of(server))
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, settings], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    path = Path(holder.stdout.readline().split()[1])
    assert is_listening(str(path))
    holder.send_signal(number)
    holder.wait()
    holder.stdout.close()
    wait_until(lambda: not path.parent.exists(), "the socket's folder is gone")
    wait_until(lambda: not server.children(), "the master is gone")


def vars_of(server: Server, **changes: Any) -> dict[str, Any]:
    """Give the `ssh` of a server's node as keywords."""
    return {**vars(server.node(config="none", **changes).ssh)}


def test_ssh_asks_at_the_terminal(serve: Callable[..., Server], tmp_path: Path) -> None:
    """With a terminal ssh may ask; the node is named before, and what the site has to say is shown."""
    (tmp_path / "banner").write_text("Touch your token now.\n")
    server = serve(f"Banner {tmp_path}/banner")
    locked = make_key(tmp_path / "locked", passphrase="open sesame")
    with (server.folder / "authorized_keys").open("a") as file:
        file.write(locked.with_suffix(".pub").read_text())
    settings = repr(vars_of(server, key=str(locked)))
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.pop("SSH_AUTH_SOCK", None)
        os.execv(sys.executable, [sys.executable, "-c", HOLDER, settings])
    said = read_until(
        terminal, b"passphrase for key", b"Touch your token now."
    )  # ssh and we write them, in any order
    assert b"n1: ssh may prompt" in said
    os.write(terminal, b"open sesame\n")
    assert b"in " in read_until(terminal, b"in /")
    os.write(terminal, b"\x03")  # Ctrl-C
    read_until(terminal, b"KeyboardInterrupt")
    os.close(terminal)
    os.waitpid(pid, 0)
    assert server.log.count("Accepted publickey") == 1
    wait_until(lambda: not server.children(), "the master is gone")


def test_an_unknown_host_key_is_asked_about_at_the_terminal(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    """Where the command wants it: ssh shows the fingerprint, and records the key after a `yes`."""
    server, known = serve(), tmp_path / "known"
    settings = repr(vars_of(server, known_hosts=str(known), host_keys=None))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", HOLDER, settings])
    said = read_until(terminal, b"continue connecting (yes/no")
    fingerprint = run_keygen("-lf", str(server.folder / "host_ed25519.pub")).split()[1]
    assert fingerprint.encode() in said
    os.write(terminal, b"yes\n")
    read_until(terminal, b"in /")
    os.write(terminal, b"\x03")  # Ctrl-C
    read_until(terminal, b"KeyboardInterrupt")
    os.close(terminal)
    os.waitpid(pid, 0)
    assert server.host_key in known.read_text()
    wait_until(lambda: not server.children(), "the master is gone")


def test_a_bastion_asks_at_the_terminal_too(serve: Callable[..., Server], tmp_path: Path) -> None:
    """It is named before."""
    server = serve()
    locked = make_key(tmp_path / "locked", passphrase="open sesame")
    with (server.folder / "authorized_keys").open("a") as file:
        file.write(locked.with_suffix(".pub").read_text())
    config = tmp_path / "bastion"
    config.write_text(
        f"Host gate\n HostName 127.0.0.1\n Port {server.port}\n IdentityFile {locked}\n IdentitiesOnly yes\n"
        f" UserKnownHostsFile {server.known_hosts}\nHost 127.0.0.1\n ProxyJump gate\n"
    )
    settings = repr({**vars(server.node(config=str(config)).ssh)})
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.pop("SSH_AUTH_SOCK", None)
        os.execv(sys.executable, [sys.executable, "-c", HOLDER, settings])
    assert b"gate: ssh may prompt" in read_until(terminal, b"passphrase for key")
    os.write(terminal, b"open sesame\n")
    read_until(terminal, b"in /")
    os.write(terminal, b"\x03")  # Ctrl-C
    read_until(terminal, b"KeyboardInterrupt")
    os.close(terminal)
    os.waitpid(pid, 0)
    wait_until(lambda: not server.children(), "the master is gone")


# Far more than is read, then a little without end: were this test cut off, what it leaves could not fill the disk.
NEVER_STOPS = "yes | head -c 16777216; while echo y; do sleep 0.1; done"


@pytest.mark.parametrize("command", [NEVER_STOPS, f"exec >&2; {NEVER_STOPS}"], ids=["stdout", "stderr"])
def test_a_login_shell_that_never_stops_does_not_fill_the_disk(
    serve: Callable[..., Server], masters: Masters, command: str
) -> None:
    """What ssh prints goes into files of ours: the login is given up long before its limit."""
    server = serve(f"ForceCommand exec sh -c '{command}'")
    with pytest.raises(NodeError) as caught:
        masters.connect(server.node(config="none"), PATIENT)
    assert (caught.value.code, caught.value.evidence.startswith("y\ny")) == ("CC-SSH-017", True)
    masters.close()
    wait_until(lambda: not server.children(), "the master is gone")


SPEAKS_ON = """
import os, sys, tempfile
from clusterctl.client import openssh
with tempfile.TemporaryFile() as said, openssh._tee_to_terminal(said) as errors:
    kept_by_a_master = os.dup(errors)
    os.write(errors, b"at first")
another = open(sys.argv[1], "wb")
os.write(kept_by_a_master, b"and later")
sys.stdin.readline()
"""


def test_what_a_master_says_later_goes_into_no_other_file(tmp_path: Path) -> None:
    """A master of an old ssh keeps its stderr: a descriptor's number may mean another file by then."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", SPEAKS_ON, str(tmp_path / "another")])
    read_until(terminal, b"and later")
    os.write(terminal, b"\n")
    os.waitpid(pid, 0)
    os.close(terminal)
    assert (tmp_path / "another").read_bytes() == b""


def read_until(terminal: int, *texts: bytes) -> bytes:
    """Read a terminal until it shows some texts."""
    said, deadline = b"", time.monotonic() + HANG
    while not all(text in said for text in texts) and time.monotonic() < deadline:
        try:
            said += os.read(terminal, 4096)
        except OSError:  # its other side is closed
            break
    assert all(text in said for text in texts), said
    return said


def test_what_ssh_says_is_read_whatever_the_users_language_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that has the user's language is started with English messages, and its failure is named."""
    program = tmp_path / "ssh"
    program.write_text(
        '#!/bin/sh\ncase ${LC_ALL:-$LC_MESSAGES} in zh*) echo "连接被拒绝" >&2;;'
        ' *) echo "ssh: connect to host x port 22: Connection refused" >&2;; esac\nexit 255\n'
    )
    program.chmod(0o700)
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    masters = Masters(lambda _: None, str(program))
    with closing(masters), pytest.raises(Unreachable) as refused:
        masters.connect(Node(name="n1", index=0, host="127.0.0.1", ssh=Ssh(transport="openssh")))
    assert refused.value.code == "CC-SSH-002"
