"""`keys push` against a real sshd with passwords, for a throw-away account that exists in a namespace only."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from plain_machines import HASH, PASSWORD, UID
from terminal import converse
from waiting import HANG

from clusterctl.plans.ssh import parse_install_result, render_install

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
START = 'mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/shadow" /etc/shadow && exec "$2" -D -e -f "$1/config"'


@dataclass
class Site:
    """Two addresses of one sshd, the account there, and a home of the person here."""

    top: Path
    port: int

    @property
    def account(self) -> Path:
        """The home of the account on the nodes."""
        return self.top / "account"

    @property
    def authorized(self) -> Path:
        """Where the key must be."""
        return self.account / ".ssh" / "authorized_keys"

    @property
    def me(self) -> Path:
        """The home here."""
        return self.top / "me"

    def command(self, *words: str) -> list[str]:
        """Give the words of `keys push` with this inventory."""
        return [
            sys.executable,
            "-m",
            "clusterctl",
            "-i",
            str(self.top / "inventory.yaml"),
            "keys",
            "push",
            *words,
        ]

    def environment(self, **more: str) -> dict[str, str]:
        """Give what the command sees: this home, no agent."""
        kept = {key: value for key, value in os.environ.items() if key in ("PATH", "PYTHONPATH", "LANG")}
        return {**kept, "HOME": str(self.me), "XDG_STATE_HOME": str(self.me / "state"), **more}

    def push(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `keys push` without a terminal."""
        return subprocess.run(
            self.command(*words),
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )

    def converse(self, *words: str, answers: Sequence[tuple[str, str]]) -> tuple[int, str]:
        """Run `keys push` on a terminal; each answer waits for its question."""
        return converse(self.command(*words), self.environment(TERM="xterm"), answers)


@pytest.fixture
def site() -> Iterator[Site]:
    """A sshd whose account and password exist in a mount namespace of its own, and nowhere else."""
    if os.geteuid() != 0 or SSHD is None:
        pytest.skip("sshd can check passwords for root only")
    top = Path(tempfile.mkdtemp(prefix="cl-"))
    top.chmod(0o755)
    made = Site(top, free_port())
    made.me.mkdir()
    made.account.mkdir()
    os.chown(made.account, UID, UID)
    passwd = Path("/etc/passwd").read_text() + f"trainer:x:{UID}:{UID}::{made.account}:/bin/sh\n"
    (top / "passwd").write_text(passwd)
    (top / "shadow").write_text(f"{Path('/etc/shadow').read_text()}trainer:{HASH}:19000:0:99999:7:::\n")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", top / "host"], check=True)
    config = ["PasswordAuthentication yes", "UsePAM no", f"HostKey {top}/host", f"PidFile {top}/pid"]
    config += [f"ListenAddress 127.0.0.{n}:{made.port}" for n in (2, 3)]
    (top / "config").write_text("\n".join(config) + "\n")
    nodes = "".join(f"  - {{name: gpu0{n}, host: 127.0.0.{n}}}\n" for n in (2, 3))
    known = (
        made.me / ".ssh" / "known_hosts"
    )  # named: ssh itself looks in the account's home, whatever HOME reports
    ssh = f"{{user: trainer, port: {made.port}, config: /dev/null, known_hosts: {known}}}"
    (top / "inventory.yaml").write_text(f"cluster: pushed\nssh: {ssh}\nnodes:\n{nodes}")
    Path("/run/sshd").mkdir(exist_ok=True)
    words = ["unshare", "-m", "--propagation", "private", "sh", "-c", START, "sh", str(top), SSHD]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=(top / "log").open("wb"))
    try:
        wait_for_port(made.port, server)
        yield made
    finally:
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)
        server.wait()
        shutil.rmtree(top, ignore_errors=True)


def free_port() -> int:
    """Give a port that no one holds."""
    import socket

    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.2", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server listens."""
    import socket

    until = time.monotonic() + HANG
    while True:
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.3", port)) == 0:
                return
        assert server.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)


def test_from_nothing_to_every_node(site: Site) -> None:
    """A key is made, host keys are shown and agreed to, the password is asked for once, and all is proven."""
    code, seen = site.converse(
        answers=[
            ("Create it? [Y/n]", ""),
            ("Are these the keys of the nodes", "y"),
            ("Password for all 2 nodes", PASSWORD),
        ],
    )

    assert code == 0, seen
    fingerprint = subprocess.run(
        ["ssh-keygen", "-lf", site.top / "host.pub"], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert seen.count(f"unknown host key ssh-ed25519 {fingerprint}") == 2
    assert PASSWORD not in seen
    for name in ("gpu02", "gpu03"):
        assert f"{name}: installed in {site.authorized}; login with the key works" in seen
    public = (site.me / ".ssh" / "id_ed25519.pub").read_text()
    assert site.authorized.read_text() == public  # once, though both nodes have this home
    assert (site.account / ".ssh").stat().st_mode & 0o777 == 0o700
    assert site.authorized.stat().st_mode & 0o777 == 0o600
    assert (site.me / ".ssh" / "id_ed25519").stat().st_mode & 0o077 == 0
    assert PASSWORD.encode() not in b"".join(
        path.read_bytes() for path in site.me.rglob("*") if path.is_file()
    )

    again = site.push()

    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines() == [f"gpu0{n}: accepts this key already" for n in (2, 3)]
    assert site.authorized.read_text() == public  # once, though both nodes have this home


def test_a_wrong_password_is_asked_for_again_and_the_other_node_is_done_meanwhile(site: Site) -> None:
    """Each node has its own question; who gives up on one keeps the other."""
    code, seen = site.converse(
        "-y",
        "--accept-new",
        answers=[
            ("Password for all 2 nodes (empty: one for each)", ""),
            ("trainer@127.0.0.2 (gpu02", "wrong"),
            ("trainer@127.0.0.3 (gpu03", ""),
            ("trainer@127.0.0.2 (gpu02", PASSWORD),
        ],
    )

    assert code == 5, seen
    assert "gpu02: wrong password" in seen
    assert f"gpu02: installed in {site.authorized}; login with the key works" in seen
    assert "CC-KEYS-011" in seen


def test_without_a_terminal_nothing_is_asked(site: Site) -> None:
    """Strangers get no password unless that is reported; a variable gives it; a wrong one is tried once."""
    refused = site.push()
    strange = site.push("-y", "--password-from", "SECRET", SECRET=PASSWORD)
    unasked = site.push("--accept-new")
    wrong = site.push("--password-from", "SECRET", SECRET="wrong")
    right = site.push("--password-from", "SECRET", SECRET=PASSWORD)

    assert refused.returncode == 2
    assert "CC-KEYS-007" in refused.stderr
    assert strange.returncode == 4
    assert "CC-SSH-009" in strange.stderr
    assert unasked.returncode == 2
    assert "CC-KEYS-010" in unasked.stderr
    assert wrong.returncode == 4
    assert wrong.stderr.count("CC-KEYS-001") == 1  # the same on both, reported once
    assert "gpu[02-03]" in wrong.stderr
    assert right.returncode == 0, right.stderr
    assert len(site.authorized.read_text().splitlines()) == 1


def test_a_home_that_cannot_be_written(site: Site) -> None:
    """The password is right, and the node reports what is in the way; nothing else is changed."""
    os.chown(site.account, 0, 0)
    done = site.push("-y", "--accept-new", "--password-from", "SECRET", SECRET=PASSWORD)

    assert done.returncode == 1
    assert "CC-KEYS-003" in done.stderr
    assert "Permission denied" in done.stderr
    assert list(site.account.iterdir()) == []


def test_a_home_that_others_may_write(site: Site) -> None:
    """The key is there, sshd does not believe it, and the way out is reported; the home's mode is left alone."""
    site.account.chmod(0o777)
    done = site.push("-y", "--accept-new", "--password-from", "SECRET", SECRET=PASSWORD)

    assert done.returncode == 1
    assert "CC-KEYS-004" in done.stderr
    assert "chmod go-w ~" in done.stderr
    assert site.account.stat().st_mode & 0o777 == 0o777


def test_a_key_that_changed_meanwhile_is_not_let_in(site: Site) -> None:
    """A host key that is known and another one now is refused, whatever is agreed to."""
    assert site.push("-y", "--accept-new", "--password-from", "SECRET", SECRET=PASSWORD).returncode == 0
    known = site.me / ".ssh" / "known_hosts"
    lines = known.read_text().splitlines()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", site.me / "other"], check=True)
    other = (site.me / "other.pub").read_text().split()[1]
    known.write_text("".join(f"{line.rpartition(' ')[0]} {other}\n" for line in lines))

    done = site.push("-y", "--accept-new", "--password-from", "SECRET", SECRET=PASSWORD)

    assert done.returncode == 4
    assert "CC-SSH-010" in done.stderr


@pytest.mark.parametrize(
    "before", ["", "ssh-rsa AAAA other", "ssh-rsa AAAA other\n", "# ssh-ed25519 BBBB me\n"]
)
def test_the_script_adds_one_line_and_spoils_none(tmp_path: Path, before: str) -> None:
    """In files without an end of line, with comments, twice in a row; a quotation mark in the comment does no harm."""
    (tmp_path / ".ssh").mkdir()
    file = tmp_path / ".ssh" / "authorized_keys"
    file.write_text(before)
    script = render_install("ssh-ed25519 BBBB it's me `id` $HOME")

    said = [run_script(script, tmp_path) for _ in range(2)]

    assert [parse_install_result(text).state for text in said] == ["added", "present"]
    assert [path.name for path in (tmp_path / ".ssh").iterdir()] == ["authorized_keys"]
    added = "ssh-ed25519 BBBB it's me `id` $HOME\n"
    assert file.read_text() == (before if not before or before.endswith("\n") else f"{before}\n") + added


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_the_script_touches_nothing_but_a_file(tmp_path: Path, kind: str) -> None:
    """In the place of authorized_keys: a pipe that nothing writes to, a device without an end, a folder."""
    (tmp_path / ".ssh").mkdir(mode=0o755)
    file = tmp_path / ".ssh" / "authorized_keys"
    makers: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(file),
        "device": lambda: file.symlink_to("/dev/zero"),
        "folder": file.mkdir,
    }
    makers[kind]()
    before = file.lstat()

    result = parse_install_result(run_script(render_install("ssh-ed25519 BBBB me"), tmp_path))

    assert (result.state, result.detail) == ("failed", f"{file} is not a regular file")
    assert file.lstat().st_mode == before.st_mode


def test_what_a_node_reports_is_bounded() -> None:
    """Notes and details of megabytes, and what a terminal would act on."""
    evil = "\x1b]0;x\x07" + "x" * 100_000
    many = "".join(f"clusterctl-key: note {evil}\n" for _ in range(100))

    for text in (f"{many}clusterctl-key: added {evil}\n", many, evil):
        result = parse_install_result(text)
        assert len(result.detail) < 1100
        assert len("".join(result.notes)) < 3300
        assert "\x1b" not in result.detail + "".join(result.notes)


def run_script(script: str, home: Path) -> str:
    """Let a sh read it, as the node's does."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    return subprocess.run(
        ["/bin/sh"],
        input=script,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG,
    ).stdout


def test_start_up_files_may_print_what_they_like() -> None:
    """Only the marks count, and a shell that reports nothing has failed."""
    note, added = (
        "clusterctl-key: note others may write",
        "clusterctl-key: added /home/me/.ssh/authorized_keys",
    )
    noisy = f"Welcome!\n{note}\n\n{added}\nbye"

    assert parse_install_result(noisy).state == "added"
    assert parse_install_result(noisy).notes == ("others may write",)
    assert parse_install_result("This account is currently not available.\n").state == "failed"
    assert parse_install_result("This account is currently not available.\n").detail.startswith(
        "This account"
    )
