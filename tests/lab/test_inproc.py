"""A lab without namespaces: what it shows is real, what it cannot show it refuses, and it leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from driving import (
    HELLO,
    STUBBED,
    cctl,
    leftovers,
    make_project,
    run_id,
    said,
    tagged,
)
from waiting import wait_until

from clusterctl.errors import LabError
from clusterctl.lab import build, labs
from clusterctl.lab.build import LabOptions, plan_inproc_lab, up
from clusterctl.lab.labs import Lab
from clusterctl.lab.layout import LabPlan

ROOT = str(Path(__file__).parents[2])
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("settled", flush=True)
time.sleep(600)
"""


@pytest.fixture
def lab(place: Path) -> Iterator[Lab]:
    """Two nodes without namespaces; nothing of them is left."""
    built = up(place, LabOptions(count=2, bound=True, backend="inproc"))
    yield built
    labs.down(place)
    assert bearing(built.directory) == []
    assert list(place.iterdir()) == []


def bearing(directory: Path) -> list[str]:
    """The commands of all processes here that bear a lab's tag."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if f"CLUSTERCTL_LAB={directory}\0".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def client(lab: Lab, name: str) -> paramiko.SSHClient:
    """An open connection by paramiko alone."""
    opened = paramiko.SSHClient()
    opened.load_host_keys(str(lab.directory / "known_hosts"))
    opened.connect(
        lab.find_node(name).plan.host,
        lab.plan.ssh_port,
        lab.plan.account.name,
        key_filename=str(lab.directory / "id_ed25519"),
        allow_agent=False,
        look_for_keys=False,
    )
    return opened


def test_a_job_from_check_to_stop(lab: Lab, tmp_path: Path) -> None:
    """check finds nothing, launch trains over both nodes, logs, ps and status tell of it."""
    job = make_project(tmp_path, HELLO, start="fork")

    check = cctl(lab, "check", job, "--json")
    launch = cctl(lab, "launch", job, "--json")

    assert check.code == 0, check.out + check.err
    assert json.loads(check.out)["findings"] == []
    assert launch.code == 0, launch.err
    words = sorted((json.loads(line) for line in said(launch.json_lines())), key=lambda word: word["RANK"])
    assert [(word["RANK"], word["WORLD_SIZE"], word["sum"]) for word in words] == [
        ("0", "2", 3.0),
        ("1", "2", 3.0),
    ]
    assert {word["MASTER_ADDR"] for word in words} == {lab.nodes[0].plan.ip}
    assert {word["GLOO_SOCKET_IFNAME"] for word in words} == {"lo"}
    assert words[0]["CLUSTERCTL_OUTPUT_DIR"] != words[1]["CLUSTERCTL_OUTPUT_DIR"]
    run = run_id(launch.err)
    assert run in cctl(lab, "ps", "-v").out
    assert "SUCCEEDED" in cctl(lab, "status", run).out
    assert '"RANK": "1"' in cctl(lab, "logs", run, "--node", "1").out
    assert leftovers(lab) == {}


def test_a_power_cut_ends_all_on_the_node_and_heal_starts_it_again(lab: Lab, tmp_path: Path) -> None:
    """The simulated cut kills all that lived there, the gang ends the rest of the run, the home is kept."""
    run = cctl(lab, "launch", "-d", make_project(tmp_path, STUBBORN, grace="0s", env=STUBBED)).out.strip()
    wait_until(lambda: len(tagged(lab, run)) == 2, "workers on both nodes")
    lab.find_node("gpu02").run(["touch", "kept"])

    state = labs.break_node(lab, "gpu02", "power")
    check = cctl(lab, "check", "--json")

    assert not state.is_on
    assert "gpu02" not in tagged(lab, run)
    wait_until(lambda: not tagged(lab, run), "an end on gpu01 too")
    assert check.code == 4
    (finding,) = json.loads(check.out)["findings"]
    assert finding["nodes"] == ["gpu02"]
    assert f"clusterctl lab heal --name {lab.name} gpu02" in finding["fix"]
    assert labs.heal_node(lab, "gpu02").is_on
    assert lab.find_node("gpu02").run(["ls"]).stdout.split() == ["kept"]
    assert cctl(lab, "stop", run).code == 0
    assert leftovers(lab) == {}


def test_sessions_are_like_those_of_sshd(lab: Lab) -> None:
    """Own home, exit codes, both streams, input to its end, a terminal; stdout stays open for the background."""
    with client(lab, "gpu02") as opened:
        stdin, stdout, stderr = opened.exec_command(
            'read line; echo "$line $HOME $SSH_CONNECTION"; echo no >&2; exit 7'
        )
        stdin.write("hello\n")
        words = stdout.read().decode().split()
        assert words[:2] == ["hello", lab.plan.home_directory(lab.find_node("gpu02").plan)]
        assert words[4:] == [lab.find_node("gpu02").plan.host, str(lab.plan.ssh_port)]
        assert stderr.read() == b"no\n"
        assert stdout.channel.recv_exit_status() == 7
        stdin, stdout, _ = opened.exec_command("wc -c; kill -9 $$")
        stdin.write("x" * 3_000_000)
        stdin.channel.shutdown_write()
        assert stdout.read() == b"3000000\n"
        assert stdout.channel.recv_exit_status() == 137
        _, stdout, _ = opened.exec_command("tty; stty size", get_pty=True)
        assert stdout.read().decode().startswith("/dev/pts/")
        _, stdout, _ = opened.exec_command("(sleep 0.3; echo late) & echo early")
        assert stdout.read() == b"early\nlate\n"


def test_no_other_account_gets_in(lab: Lab) -> None:
    """Another key, another user, no key at all: refused."""
    stranger = paramiko.ECDSAKey.generate()
    for user, key in ((lab.plan.account.name, stranger), ("somebody", stranger)):
        opened = paramiko.SSHClient()
        opened.load_host_keys(str(lab.directory / "known_hosts"))
        with pytest.raises(paramiko.AuthenticationException):
            opened.connect(
                lab.nodes[0].plan.host,
                lab.plan.ssh_port,
                user,
                pkey=key,
                allow_agent=False,
                look_for_keys=False,
            )
        opened.close()


def test_a_flood_of_channels_is_refused_and_the_node_lives(lab: Lab) -> None:
    """An eleventh session is refused as by OpenSSH; strangers that say nothing do not keep others out."""
    node = lab.nodes[0].plan
    silent = [socket.create_connection((node.host, lab.plan.ssh_port)) for _ in range(60)]
    with client(lab, "gpu01") as opened:
        transport = opened.get_transport()
        assert transport is not None
        sessions = [transport.open_session() for _ in range(10)]
        for _ in range(200):
            with pytest.raises(paramiko.ChannelException):
                transport.open_session()
        for session in sessions:
            session.close()
        for _ in range(30):
            _, stdout, _ = opened.exec_command("echo alive")
            assert stdout.read() == b"alive\n"
            stdout.channel.close()
    for connection in silent:
        connection.close()


@pytest.mark.parametrize("goodbye", ["close", "cut"])
def test_a_client_that_leaves_takes_its_command_along_and_no_daemon(lab: Lab, goodbye: str) -> None:
    """Its process group is hung up and then killed; what has left the session lives on."""
    node = lab.find_node("gpu01")
    opened = client(lab, "gpu01")
    script = "setsid sleep 601 >/dev/null 2>&1 </dev/null & trap '' HUP; sleep 602; sleep 603"
    _, stdout, _ = opened.exec_command(script)
    wait_until(
        lambda: {"sleep 601", "sleep 602"} <= {p.command for p in node.list_processes()}, "all is running"
    )

    if goodbye == "close":
        stdout.channel.close()
    else:
        transport = opened.get_transport()
        assert transport is not None
        transport.sock.close()

    wait_until(lambda: [p.command for p in node.list_processes()] == ["sleep 601"], "only the daemon is left")
    opened.close()


def test_what_it_cannot_show_is_refused(lab: Lab, place: Path) -> None:
    """It has no NIC that could go down, and no names for NICs."""
    with pytest.raises(LabError, match="no NIC of its own") as refused:
        labs.break_node(lab, "gpu01", "nic-down")
    with pytest.raises(LabError, match="no NICs of their own"):
        up(place, LabOptions(name="other", nics=["eth0"], backend="inproc"))

    assert refused.value.code == "CC-LAB-010"


def test_a_broken_sshd_accepts_no_login_while_open_sessions_live(lab: Lab) -> None:
    """Only the listener goes; heal starts it again at the same port."""
    with client(lab, "gpu01") as opened:
        assert labs.break_node(lab, "gpu01", "sshd").sshd == 0
        _, stdout, _ = opened.exec_command("echo two")
        assert stdout.read() == b"two\n"
        with pytest.raises(OSError, match="Unable to connect"):
            client(lab, "gpu01")
    assert labs.heal_node(lab, "gpu01").sshd > 0
    client(lab, "gpu01").close()


def test_labs_side_by_side(lab: Lab, place: Path) -> None:
    """A second lab gets other addresses; one going leaves the other."""
    second = up(place, LabOptions(name="two", count=2, backend="inproc", shared_home=True))
    second.find_node("gpu01").run(["touch", "mark"])

    assert {node.plan.host for node in second.nodes}.isdisjoint(node.plan.host for node in lab.nodes)
    assert second.find_node("gpu02").run(["ls"]).stdout == "mark\n"
    assert [each.name for each, _ in labs.status(place)] == ["lab", "two"]
    assert labs.down(place, ["two"]) == ["two"]
    assert cctl(lab, "check").code == 0


def test_an_address_that_was_taken_after_it_was_chosen_costs_another_try(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labs with other state directories are started at the same time and find the same addresses free."""
    taken: list[socket.socket] = []

    def plan(state_dir: Path, options: LabOptions) -> LabPlan:
        planned = plan_inproc_lab(state_dir, options)
        if not taken:
            taken.append(socket.create_server((planned.nodes[0].host, planned.ssh_port)))
        return planned

    monkeypatch.setattr(build, "plan_inproc_lab", plan)
    built = up(place, LabOptions(count=1, bound=True, backend="inproc"))
    try:
        assert (built.plan.nodes[0].host, built.plan.ssh_port) != taken[0].getsockname()
        assert built.nodes[0].run(["true"]).returncode == 0
    finally:
        taken[0].close()
        labs.down(place)


def test_a_killed_holder_and_a_killed_init_leave_nothing_to_find(
    place: Path, request: pytest.FixtureRequest
) -> None:
    """The nodes end with their holder; an init killed besides leaves orphans, which the next `lab` ends."""
    lab = up(place, LabOptions(count=2, backend="inproc"))
    request.addfinalizer(lambda: labs.down(place))  # also when this test fails half way
    with client(lab, "gpu01") as opened:
        opened.exec_command("setsid sleep 604 >/dev/null 2>&1 </dev/null &")
        wait_until(
            lambda: [p.command for p in lab.find_node("gpu01").list_processes()] == ["sleep 604"], "a daemon"
        )
    init = lab.find_node("gpu01").read_state().pid
    os.kill(lab.holder.pid, signal.SIGSTOP)
    os.kill(init, signal.SIGKILL)
    os.kill(lab.holder.pid, signal.SIGKILL)

    wait_until(lambda: "sleep 604 " in bearing(lab.directory), "the orphan")
    wait_until(lambda: labs.list_running(place) == [], "the holder's end")
    assert labs.status(place) == []
    assert bearing(lab.directory) == []
    assert list(place.iterdir()) == []


def test_without_sshd_the_lab_reports_it_in_one_line_and_goes_on(place: Path) -> None:
    """`--backend auto` takes what the machine can have; `netns` insists, and reports what is missing."""
    env = {"PATH": str(place / "bin"), "XDG_STATE_HOME": str(place / "state"), "HOME": str(place)}
    hide = """
import sys
from clusterctl.lab import linux
linux._SBIN = ""
from clusterctl.cli.main import main
sys.exit(main())
"""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", hide, "lab", *words]
        return subprocess.run(
            argv, env={**env, "PYTHONPATH": ROOT}, capture_output=True, text=True, check=False
        )

    insisted = run("up", "--backend", "netns")
    went_on = run("up", "-n", "1")
    status = run("status")
    ended = run("down", "-y")

    assert insisted.returncode == 2
    assert "CC-LAB-001" in insisted.stderr
    assert went_on.returncode == 0, went_on.stderr
    lines = went_on.stderr.splitlines()
    assert [line for line in lines if "sshd" in line and "not isolated" in line]
    assert len(lines) == 5  # that one, that the lab is up, its inventory, and the two next commands
    assert lines[2] == went_on.stdout.strip()
    assert "(inproc: without namespaces)" in status.stdout
    assert ended.returncode == 0, ended.stderr
