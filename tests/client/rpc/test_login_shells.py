"""Login shells of all kinds, and startup files that talk, read, and fail, behind a real sshd."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import PATIENT, Client, Server
from waiting import HANG

from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.ssh.timeouts import Timeouts
from clusterctl.errors import ClusterctlError, ConnectTimeout, NodeError

LOGIN_SHELL = Path(pwd.getpwuid(os.getuid()).pw_shell).name


def ask(connection: object, activate: str | None = None, timeouts: Timeouts = PATIENT) -> Session:
    """Ask a node for its facts."""
    request = {"peers": {}, "workdir": "/tmp"}
    return Session(connection, "probe", request, Interpreter(sys.executable, activate), timeouts=timeouts)


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "ksh", "fish", "tcsh", "csh"])
def test_login_shells(serve: Callable[..., Server], client: Client, shell: str) -> None:
    """The command is run by the user's shell; each leads to the interpreter, with and without `activate`."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    server = serve(f'ForceCommand exec {path} -c "$SSH_ORIGINAL_COMMAND"')
    connection = client.connect(server.node())
    for activate in (None, "export LANG='it'\"'\"'s'; echo active"):
        with ask(connection, activate) as session:
            frame = session.receive(HANG)
        assert frame is not None
        assert "facts" in frame[0]
        assert session.stderr == ("active\n" if activate else "")


@pytest.fixture
def startup(serve: Callable[..., Server], client: Client, tmp_path: Path) -> Callable[[str], object]:
    """Connect to a node whose ~/.bashrc is the given text."""
    if LOGIN_SHELL != "bash":
        pytest.skip(f"the login shell here is {LOGIN_SHELL}, whose startup files are others")
    server = serve(f"SetEnv HOME={tmp_path}")

    def connect(text: str) -> object:
        (tmp_path / ".bashrc").write_text(text)
        return client.connect(server.node())

    return connect


@pytest.mark.parametrize(
    "text",
    [
        "echo Welcome to the lab; echo 3 0; printf '{}'",
        "printf 'no newline at the end'",
        "head -c 900000 /dev/zero | tr '\\0' n",
        "head -c 3000000 /dev/zero >&2",
        "echo warning >&2; false",
        "read answer",
        "read -t 1 a; read -t 1 b; read -t 1 c; echo $a $b $c",
        "read -n 1 key; read rest",
        "set -u; alias exec=false; sh() { false; }",
        "cd /; umask 777; export IFS=/ c=x",
        "trap 'echo bye' EXIT",
    ],
)
def test_noisy_startup_files(startup: Callable[[str], object], text: str) -> None:
    """What startup files print or read in passing does no harm."""
    with ask(startup(f"touch ~/.ran\n{text}\n")) as session:
        frame = session.receive(HANG)
        assert frame is not None
        assert "facts" in frame[0]
        assert session.receive(HANG) is None


def test_startup_file_ran(startup: Callable[[str], object], tmp_path: Path) -> None:
    """The tests above mean something: the file is read."""
    with ask(startup("touch ~/.ran\n")) as session:
        session.receive(HANG)
    assert (tmp_path / ".ran").exists()


@pytest.mark.parametrize("text", ["cat >/dev/null", "exec cat >/dev/null"])
def test_startup_file_that_takes_everything(startup: Callable[[str], object], text: str) -> None:
    """A file that reads stdin to its end, or becomes a program that does, never lets Python begin."""
    session = ask(startup(text), timeouts=Timeouts(start=0.7))
    with session, pytest.raises(ConnectTimeout) as caught:
        session.receive(HANG)
    assert caught.value.code == "CC-SSH-004"
    assert "startup file" in caught.value.fix
    assert ".bashrc" in caught.value.fix
    assert "exec" in caught.value.fix


@pytest.mark.parametrize("text", ["exit 0", "exec true"])
def test_startup_file_that_ends_the_shell_without_a_word(startup: Callable[[str], object], text: str) -> None:
    """Status 0 before anything of ours ran: it is the file, and neither Python nor `activate`."""
    connection = startup(text)
    for activate in (None, "true"):
        with pytest.raises(NodeError) as caught, ask(connection, activate) as session:
            session.receive(HANG)
        assert caught.value.code == "CC-PY-003"
        assert "the login shell exited with status 0" in caught.value.message
        assert "`exit` and `exec`" in caught.value.fix
        assert ".bashrc" in caught.value.fix


def test_startup_file_that_takes_our_line(startup: Callable[[str], object]) -> None:
    """A file that reads more lines than we can spare is told apart."""
    taking = startup("for i in 1 2 3 4 5 6 7 8 9; do read line; done")
    with pytest.raises(NodeError) as caught, ask(taking) as session:  # it may say so before all is sent
        session.receive(HANG)
    assert caught.value.code == "CC-SSH-017"
    assert "stdin" in caught.value.fix


def test_startup_file_that_floods(startup: Callable[[str], object]) -> None:
    """More than a megabyte before the interpreter is refused, not read for ever."""
    with ask(startup("yes spam")) as session, pytest.raises(NodeError) as caught:
        session.receive(HANG)
    assert caught.value.code == "CC-SSH-017"
    assert "spam" in caught.value.evidence


def test_startup_file_that_leaves(startup: Callable[[str], object]) -> None:
    """A shell that ends is shown with its words: an account that is switched off, for one."""
    connection = startup("echo This account is currently not available.; exit 1")
    with pytest.raises(NodeError) as caught, ask(connection) as session:
        session.receive(HANG)
    assert caught.value.code == "CC-PY-003"
    assert caught.value.evidence == "This account is currently not available."
    assert ".bashrc" in caught.value.fix


def test_startup_file_that_becomes_another_shell(startup: Callable[[str], object]) -> None:
    """`exec fish` in .bashrc: an error within the limit, and nothing of ours is run as that shell's input."""
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    with ask(startup("exec fish"), timeouts=Timeouts(start=3.0)) as session, pytest.raises(ClusterctlError):
        session.receive(HANG)


def test_force_command_that_ignores_ours(serve: Callable[..., Server], client: Client) -> None:
    """A server that runs something else."""
    server = serve("ForceCommand echo no commands here")
    connection = client.connect(server.node())
    with (
        pytest.raises(NodeError) as caught,  # while asking, or while waiting for the answer
        ask(connection) as session,
    ):
        session.receive(HANG)
    assert caught.value.evidence == "no commands here"


def test_no_commands_at_all(serve: Callable[..., Server], client: Client) -> None:
    """A server for files only."""
    server = serve("ForceCommand internal-sftp")
    connection = client.connect(server.node())
    with (
        pytest.raises(ClusterctlError),  # while asking, or while waiting for the answer
        ask(connection, timeouts=Timeouts(start=2.0)) as session,
    ):
        session.receive(HANG)
