"""A launch as someone on the node would see it: keys, secrets, modes, forged answers; real sshd, real torch."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from servers import ME, Client, Server, run_keygen
from waiting import HANG

from clusterctl.client.rpc.session import Interpreter, Session
from inventories import inventory

SECRET = "s3cr3t-value-nobody-else-has"
SPY = """
import glob, os
def holds(path):
    try:
        return os.environb[b"API_KEY"] in open(path, "rb").read()
    except OSError:
        return False
print("argv", sum(map(holds, glob.glob("/proc/[0-9]*/cmdline"))))
print("agent", os.environ.get("SSH_AUTH_SOCK"))
print("length", len(os.environ["API_KEY"]))
"""


@dataclass(frozen=True)
class Launched:
    """What one launch over a real sshd left behind, and what its script saw."""

    server: Server
    home: Path
    saw: dict[str, str]
    screen: str


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An SSH agent of ours, with a key in it that the node must not get at."""
    folder = tmp_path_factory.mktemp("agent")
    run_keygen("-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
    said = subprocess.run(
        ["ssh-agent", "-s", "-a", str(folder / "s")], capture_output=True, text=True, check=True
    ).stdout
    env = {"SSH_AUTH_SOCK": str(folder / "s")}
    subprocess.run(["ssh-add", "-q", str(folder / "key")], env={**os.environ, **env}, check=True)
    yield env
    os.kill(int(re.findall(r"SSH_AGENT_PID=(\d+)", said)[0]), signal.SIGTERM)


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory, agent: dict[str, str]) -> Iterator[Launched]:
    """Launch a job that needs a secret, under a loose umask, with an agent whose owner forwards it everywhere."""
    from servers import start_server

    folder = tmp_path_factory.mktemp("launch")
    server = start_server(folder / "sshd", "AllowAgentForwarding yes")
    (folder / "train.py").write_text(SPY)
    (folder / "job.yaml").write_text(
        "name: spy\nscript: train.py\nnproc_per_node: 1\nbackend: gloo\nsecrets: [API_KEY]\n"
    )
    (folder / "inventory.yaml").write_text(inventory(server, "paramiko"))
    (folder / "openssh.yaml").write_text(inventory(server, "openssh"))
    home = folder / "mine"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text("Host *\n  ForwardAgent yes\n")
    env = {**os.environ, **agent, "HOME": str(home), "XDG_STATE_HOME": str(home), "API_KEY": SECRET}
    done = subprocess.run(
        [sys.executable, "-m", "clusterctl", "launch", "job.yaml", "--set", "sync.exclude=[sshd, mine]"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=HANG,
        umask=0o002,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    saw = dict(re.findall(r"\| (argv|agent|length) (.*)", done.stdout))
    yield Launched(server, server.folder / "home", saw, done.stdout + done.stderr)
    server.stop()


def test_one_login_serves_the_whole_launch(launched: Launched) -> None:
    """Check, code, start and following speak to the machine whose host key was verified once."""
    assert launched.server.log.count("Accepted publickey") == 1


def test_the_agent_stays_at_home(launched: Launched, agent: dict[str, str]) -> None:
    """Although the owner's SSH configuration forwards it and the server takes it, as ssh itself shows."""
    folder = launched.server.folder.parent
    where = "echo agent=$SSH_AUTH_SOCK"
    way = [
        "-F",
        f"{folder}/mine/.ssh/config",
        "-i",
        str(launched.server.client_key),
        "-p",
        str(launched.server.port),
    ]
    way += ["-o", f"UserKnownHostsFile={launched.server.known_hosts}", "-l", ME, "127.0.0.1"]
    ours = [
        sys.executable,
        "-m",
        "clusterctl",
        "-q",
        "-i",
        str(folder / "openssh.yaml"),
        "exec",
        "--",
        "sh",
        "-c",
    ]

    by_ssh = subprocess.run(
        ["ssh", *way, where], env={**os.environ, **agent}, capture_output=True, text=True, check=True
    )
    by_us = subprocess.run(
        [*ours, where], env={**os.environ, **agent}, capture_output=True, text=True, check=True
    )

    assert "agent=/" in by_ssh.stdout
    assert "agent=\n" in by_us.stdout
    assert launched.saw["agent"] == "None"


def test_secrets_are_in_no_command_line_and_on_no_screen(launched: Launched) -> None:
    """The script has the value; `ps` on the node and our own output do not."""
    assert (launched.saw["argv"], launched.saw["length"]) == ("0", str(len(SECRET)))
    assert SECRET not in launched.screen


def test_secrets_and_private_keys_are_in_no_file_of_the_node(launched: Launched) -> None:
    """Everything below the node's home is read."""
    private = launched.server.client_key.read_bytes().splitlines()[1]
    contents = [path.read_bytes() for path in launched.home.rglob("*") if path.is_file()]

    assert len(contents) > 5
    assert not [
        text for text in contents if SECRET.encode() in text or private in text or b"PRIVATE KEY" in text
    ]


def test_nothing_on_the_node_is_readable_by_others(launched: Launched) -> None:
    """Logs, state and code lie below directories that only the account may enter."""
    top = launched.home / ".clusterctl"
    open_ones = [
        path for path in top.rglob("*") if path.is_dir() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]

    assert stat.S_IMODE(top.stat().st_mode) == 0o700
    assert [path for path in open_ones if "code" not in path.parts and "attempt_0" not in str(path)] == []


def test_the_handshake_is_strict(client: Client, server: Server) -> None:
    """Messages cannot be cut out of it (Terrapin), where the server knows how to prevent it."""
    transport = client.connect(server.node()).transport

    assert transport.advertise_strict_kex
    assert transport.agreed_on_strict_kex


FORGER = r"""
printf '\n%s\n' 00000000000000000000000000000000
printf '{"lengths": [0]}\n{"forged": true}'
cat /proc/self/environ | tr '\0' '\n' >/dev/null
"""


def test_a_node_cannot_answer_before_it_was_asked(serve: Callable[..., Server], client: Client) -> None:
    """The mark before our frames is chosen at random for each conversation: a start-up file cannot know it."""
    server = serve()
    (server.folder / "home" / ".bashrc").write_text(FORGER)
    marks = set()
    for _ in range(2):
        session = Session(client.connect(server.node()), "probe", {}, Interpreter(sys.executable))
        marks.add(session._reader._marker)
        frame = session.receive()
        assert frame is not None
        assert "forged" not in frame[0]
        session.close()

    assert len(marks) == 2
