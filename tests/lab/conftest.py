"""Labs for tests: real nodes that die with the test process, also of an ordinary user."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from noderun import leave_payload_in_lab
from waiting import HANG

from clusterctl.codes.lookup import REPORTED
from clusterctl.errors import LabError
from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab
from clusterctl.lab.layout import DEFAULT_NICS
from clusterctl.lab.linux import find_program, visible_paths

ROOT = str(Path(__file__).parents[2])

# Shows an ordinary user the interpreter also where it lies in a directory closed to him, such as /root.
_WORLD = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from clusterctl.lab import linux as syscalls
closed, needed = json.loads(sys.argv[2])
syscalls.unshare(syscalls.NEWNS)
syscalls.keep_mounts_private()
opened = {path: os.open(path, os.O_PATH) for path in needed}
for path in closed:
    syscalls.mount_new("tmpfs", path, "mode=0755")
for path, descriptor in opened.items():
    Path(path).mkdir(parents=True, exist_ok=True)
    syscalls.bind(descriptor, path)
print("ready", flush=True)
sys.stdin.read()
"""

# Holds a lab on behalf of its user until standard input ends.
_KEEPER = """
import json, sys
from pathlib import Path
from clusterctl.errors import LabError
from clusterctl.lab.build import LabOptions, up
try:
    lab = up(Path(sys.argv[1]), LabOptions(bound=True, **json.loads(sys.argv[2])))
    print("up", flush=True)
except LabError as error:
    print(json.dumps([error.message, error.code, error.fix, error.evidence]), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, kw_only=True)
class Bed(Lab):
    """A running lab, with the means to run commands on this machine as the user who owns it."""

    home: Path
    prefix: tuple[str, ...] = ()

    @property
    def state_dir(self) -> Path:
        """Where the lab's directory is."""
        return self.directory.parent

    def command(
        self, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> list[str]:
        """The words that run a command here as the lab's owner, with a home of his own, for subprocess."""
        values = {
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.state_dir.parents[1]),
            "USER": self.plan.account.name,
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "PYTHONDONTWRITEBYTECODE": "1",
            **(env or {}),
        }
        words = [f"{key}={value}" for key, value in values.items()]
        return [*self.prefix, "env", "-C", str(cwd or self.home), *words, *argv]

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002  (named as in subprocess.run)
        timeout: float = HANG,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command here as the lab's owner; output is captured."""
        words = self.command(argv, cwd=cwd, env=env)
        stdin = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        done = subprocess.run(words, timeout=timeout, capture_output=True, text=True, check=False, **stdin)
        assert done.returncode == 0 or not check, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def ssh(self, node: str, *command: str, check: bool = True) -> str:
        """What a command on a node prints, reached by ordinary OpenSSH."""
        return self.run(self.ssh_command(node, command), check=check).stdout


@pytest.fixture(scope="session")
def ordinary_user() -> str:
    """A user who is not root: this one, or on root's side CLUSTERCTL_TEST_USER, else nobody."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    return os.environ.get("CLUSTERCTL_TEST_USER", "nobody")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Bed]:
    """Three nodes with three NIC names, shared by all tests; leave it as you found it."""
    with ExitStack() as stack:
        made = _make(stack, None, {"name": "lab", "count": 3})
        leave_payload_in_lab(made)
        yield made


@pytest.fixture(scope="module")
def rented() -> Iterator[Bed]:
    """Two nodes like rented ones: SSH on one NIC, the private network on another, every name another one."""
    with ExitStack() as stack:
        made = _make(stack, None, {"count": 2, "nics": ["mgmt0+meth919", "mgmt1+meth917"]})
        leave_payload_in_lab(made)
        yield made


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip, aloud, where there can be no lab of namespaces."""
    with ExitStack() as stack:
        _make(stack, None, {"count": 1})


@pytest.fixture
def make_lab() -> Iterator[Callable[..., Bed]]:
    """Build labs of one's own: make_lab(n=3, nics=[...], user="name", name="lab", shared_home=True, slurm=True)."""
    with ExitStack() as stack:

        def make(
            n: int = 3,
            nics: Sequence[str] = DEFAULT_NICS,
            user: str | None = None,
            name: str = "lab",
            *,
            shared_home: bool = False,
            slurm: bool = False,
        ) -> Bed:
            wish = {"count": n, "nics": list(nics), "name": name, "shared_home": shared_home, "slurm": slurm}
            return _make(stack, user, wish)

        yield make


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory with a short path."""
    with ExitStack() as stack:
        yield _temporary(stack)


def _temporary(stack: ExitStack) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="cl-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _make(stack: ExitStack, user: str | None, wish: dict[str, Any]) -> Bed:
    """A lab of a user (None: this one); `wish` holds the words for `up`."""
    top = _temporary(stack)
    state_dir, home = top / "s" / "clusterctl" / "lab", top / "h"
    home.mkdir()
    account = pwd.getpwnam(user) if user else None
    prefix: tuple[str, ...] = ()
    try:
        if account is None or account.pw_uid == os.geteuid():
            lab = up(state_dir, LabOptions(**wish, bound=True))
        else:
            for folder in (top, home):
                os.chown(folder, account.pw_uid, account.pw_gid)
            prefix = _become(stack, account)
            _keep(stack, prefix, top, wish)
            lab = labs.load(state_dir)
    except LabError as error:
        _skip_or_fail(error)
    stack.callback(labs.down, state_dir)
    values = {each.name: getattr(lab, each.name) for each in fields(lab)}
    return Bed(**values, home=home, prefix=prefix)


def _skip_or_fail(error: LabError) -> None:
    """A machine that cannot have a lab skips its tests, aloud; every other failure is one."""
    impossible = error.code in ("CC-LAB-001", "CC-LAB-002")
    if impossible and not os.environ.get("CLUSTERCTL_REQUIRE_LAB"):
        pytest.skip(f"{error.message} ({error.fix})")
    pytest.fail(f"{error.code} {error.message}\n{error.evidence}")


def _become(stack: ExitStack, account: pwd.struct_passwd) -> tuple[str, ...]:
    """The words before a command that make it run as another user who can reach the interpreter."""
    needed = visible_paths()
    closed = sorted({place for path in needed if (place := _first_closed(Path(path), account))})
    where: list[str] = []
    if closed:
        words = [sys.executable, "-c", _WORLD, ROOT, json.dumps([closed, needed])]
        world = _start(stack, words)
        assert world.stdout is not None
        assert world.stdout.readline() == "ready\n"
        where = [find_program("nsenter"), "-t", str(world.pid), "-m"]
    ids = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    return (*where, find_program("setpriv"), *ids, "--inh-caps=-all")


def _first_closed(path: Path, account: pwd.struct_passwd) -> str | None:
    """The uppermost directory on the way to `path` that the user may not pass."""
    for place in (*reversed(path.parents), path):
        found = place.stat()
        mine = found.st_uid == account.pw_uid
        ours = account.pw_gid == found.st_gid or account.pw_name in grp.getgrgid(found.st_gid).gr_mem
        if not found.st_mode & (0o100 if mine else 0o010 if ours else 0o001):
            return str(place)
    return None


def _keep(stack: ExitStack, prefix: tuple[str, ...], top: Path, wish: dict[str, object]) -> None:
    state_dir = top / "s" / "clusterctl" / "lab"
    environment = ["env", "-C", str(top), f"HOME={top}", f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1"]
    words = [*prefix, *environment, sys.executable, "-c", _KEEPER, str(state_dir), json.dumps(wish)]
    keeper = _start(stack, words)
    assert keeper.stdout is not None
    line = keeper.stdout.readline()
    if line != "up\n":
        message, code, fix, evidence = json.loads(line)
        error = LabError(code, REPORTED, evidence=evidence, message=message)
        error.fix = fix
        raise error


def _start(stack: ExitStack, words: Sequence[str]) -> subprocess.Popen[str]:
    """A helper process that ends when its standard input does: with this process at the latest."""
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end() -> None:
        process.communicate()

    stack.callback(end)
    return process
