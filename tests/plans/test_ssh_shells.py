"""What reaches a node's shells means what it should, whatever is in it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import HANG

from clusterctl.plans.ssh import (
    ACTIVATED,
    ACTIVATING,
    DECOYS,
    REMOTE_COMMAND,
    SHELL_ENDED,
    STOLEN_STDIN,
    render_bootstrap,
    render_terminal_command,
)

pytestmark = pytest.mark.process  # every case starts a shell

SHELLS = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "busybox", "fish", "tcsh", "csh"]
HOSTILE = [
    "plain",
    "two words",
    "it's",
    'say "hi"',
    "$(touch pwned) `touch pwned`",
    "a;touch pwned;b&c|d>e",
    "back\\slash\\n\\0101",
    "new\nline\n",
    "\n",
    "tab\there",
    "héllo 東京 \N{ROCKET}",
    "-rf",
    "*?[a]{b,c}~!#%",
    "%s%n%b",
    " lead and trail ",
]
PROGRAM = """
import json, os, sys
json.dump([sys.executable, os.environ.get("VALUE"), sys.stdin.buffer.read().decode()], sys.stdout)
"""


def run(shell: list[str], python: str, activate: str | None = None, **changes: str) -> tuple[int, str, str]:
    """Do what sshd does: run the command by a login shell, and send the rest on stdin."""
    program = PROGRAM.encode()
    first = f"{DECOYS}{render_bootstrap(python, activate)}\n".encode("ascii")
    done = subprocess.run(
        [*shell, "-c", REMOTE_COMMAND],
        input=first + b"%d\n" % len(program) + program + b"the rest\n$HOME",
        capture_output=True,
        env={"HOME": os.environ["HOME"], "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **changes},
        timeout=HANG,
        check=False,
    )
    out = done.stdout.decode().replace(f"{ACTIVATING}\n", "").replace(f"{ACTIVATED}\n", "")
    return done.returncode, out, done.stderr.decode()


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shells write into their home, fish for one."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    """Each shell that is installed here."""
    found = shutil.which(request.param)
    if found is None:
        pytest.skip(f"{request.param} is not installed")
    return [found, "sh"] if request.param == "busybox" else [found]


def answer(shell: list[str], python: str, activate: str | None = None, **changes: str) -> list[str]:
    """Run and return the program's answer: its interpreter, the variable VALUE, the rest of stdin."""
    import json

    status, out, err = run(shell, python, activate, **changes)
    assert (status, err) == (0, ""), err
    return list(json.loads(out))


def test_every_login_shell_hands_over_to_python(shell: list[str]) -> None:
    """The program runs, and what follows it on stdin is its own."""
    assert answer(shell, sys.executable)[2] == "the rest\n$HOME"


def test_every_login_shell_activates(shell: list[str]) -> None:
    """What `activate` exports reaches Python."""
    assert answer(shell, sys.executable, "export VALUE='a b'")[1] == "a b"


@pytest.mark.parametrize("name", HOSTILE)
def test_python_path_arrives_intact(name: str, tmp_path: Path) -> None:
    """An interpreter may be called anything."""
    python = tmp_path / name
    python.symlink_to(sys.executable)
    assert answer(["sh"], str(python))[0] == str(python)
    assert answer(["sh"], str(python), "true")[0] == str(python)
    assert not list(tmp_path.glob("**/pwned"))
    assert not Path("pwned").exists()


@pytest.mark.parametrize("value", HOSTILE)
def test_activate_arrives_intact(value: str) -> None:
    """What is quoted in `activate` stays as it is."""
    assert answer(["sh"], sys.executable, f"VALUE={shlex.quote(value)}\nexport VALUE")[1] == value
    assert not Path("pwned").exists()


@pytest.mark.parametrize("value", HOSTILE)
def test_bootstrap_is_one_line_of_ascii(value: str) -> None:
    """Nothing in a value can end the line or reach the first shell as anything but text."""
    line = render_bootstrap(value, value)
    assert line.isascii()
    assert "\n" not in line
    assert line.startswith(":")


def test_home_is_the_nodes(tmp_path: Path) -> None:
    """A leading ~/ is the home directory there, also one with blanks; a tilde elsewhere is a letter."""
    home = tmp_path / "my home"
    home.mkdir()
    (home / "py").symlink_to(sys.executable)
    assert answer(["sh"], "~/py", HOME=str(home))[0] == str(home / "py")
    (home / "~").symlink_to(sys.executable)
    assert answer(["sh"], "~/~", HOME=str(home))[0] == str(home / "~")


def test_python_is_looked_for_on_the_path(tmp_path: Path) -> None:
    """A bare name goes by PATH, the one that `activate` leaves."""
    (tmp_path / "mypy3").symlink_to(sys.executable)
    found = answer(["sh"], "mypy3", f"export PATH={shlex.quote(str(tmp_path))}:$PATH")[0]
    assert found == str(tmp_path / "mypy3")


def test_failing_activate_is_noted_and_passed_over() -> None:
    """Python starts all the same, and stderr has the status."""
    status, out, err = run(["sh"], sys.executable, "export VALUE=1; echo told; (exit 7)")
    assert status == 0
    assert '"1"' in out
    assert "told" not in out
    assert err == "told\nclusterctl: activate ended with status 7\n"


STATUS = "CLUSTERCTL_ACTIVATE_STATUS"


@pytest.mark.parametrize(("activate", "status"), [("(exit 7)", "7"), ("source /nope.sh", "1"), ("true", "0")])
def test_the_status_of_activate_reaches_python(activate: str, status: str) -> None:
    """Failure or success is in the environment, never what an outer shell had there."""
    printing = "import os, sys; print(os.environ.get('VALUE'), os.environ.get('" + STATUS + "'))"
    first = render_bootstrap(sys.executable, "export VALUE=kept; " + activate)
    done = subprocess.run(
        ["sh", "-c", REMOTE_COMMAND],
        input=f"{DECOYS}{first}\n{len(printing)}\n{printing}".encode(),
        capture_output=True,
        env={**os.environ, STATUS: "99"},
        check=False,
    )
    assert done.stdout.decode() == f"{ACTIVATING}\n{ACTIVATED}\nkept {status}\n"
    assert ("activate: " in done.stderr.decode()) == activate.startswith("source"), "bash names it, not us"


@pytest.mark.parametrize("shell_of_node", ["bash", "sh"])
@pytest.mark.parametrize(
    ("activate", "ended"),
    [("exit 3", True), ("set -u; : $nothing", True), ("exit 0", True), ("false", False)],
)
def test_an_activate_that_ends_the_shell_is_reported(
    activate: str, ended: bool, shell_of_node: str, tmp_path: Path
) -> None:
    """stderr holds our sentence only if no Python was started because of it."""
    (tmp_path / shell_of_node).symlink_to(shutil.which(shell_of_node) or "/bin/sh")
    out, err = run(["/bin/sh"], sys.executable, activate, PATH=str(tmp_path))[1:]
    assert (SHELL_ENDED in err, out == "") == (ended, ended)


def test_activate_cannot_read_our_stdin() -> None:
    """Its stdin is empty."""
    assert answer(["sh"], sys.executable, "read VALUE || VALUE=none; export VALUE")[1:] == [
        "none",
        "the rest\n$HOME",
    ]


@pytest.mark.parametrize("trick", ["set -eu", "set --", "set -e; false; true", "shift 2", "IFS=/", "set -f"])
def test_activate_may_change_the_shell(trick: str) -> None:
    """Options, positional parameters and IFS of the user's text do not break what follows."""
    assert answer(["sh"], sys.executable, f"{trick}\nexport VALUE=kept")[1] == "kept"


def test_activate_without_bash(tmp_path: Path) -> None:
    """A node without bash uses its sh."""
    (tmp_path / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    assert answer(["/bin/sh"], sys.executable, "export VALUE=1", PATH=str(tmp_path))[1] == "1"


@pytest.mark.parametrize(("python", "status"), [("/nonexistent/python", 127), ("/etc/passwd", 126)])
@pytest.mark.parametrize("activate", [None, "true"])
def test_missing_python_ends_the_shell(python: str, status: int, activate: str | None) -> None:
    """The shell's exit status shows why, and nothing of what follows is evaluated."""
    assert run(["sh"], python, activate)[0] == status


@pytest.mark.parametrize(("stolen", "noticed"), [(3, False), (8, False), (9, True), (10, True)])
def test_lines_stolen_by_startup_files(stolen: int, noticed: bool, tmp_path: Path) -> None:
    """Reading a few lines of stdin does no harm; reading the one that matters is noticed."""
    program = f"#\ntouch {tmp_path}/pwned\nprint('here')\n"
    text = f"{DECOYS}{render_bootstrap(sys.executable, None)}\n{len(program)}\n{program}"
    command = "; ".join([*["read x"] * stolen, REMOTE_COMMAND])
    done = subprocess.run(["sh", "-c", command], input=text.encode(), capture_output=True, check=False)
    assert (done.returncode == STOLEN_STDIN) == noticed
    assert not (tmp_path / "pwned").exists()


def test_nul_is_refused() -> None:
    """A NUL byte cannot be in an argument, and must not shorten it silently."""
    with pytest.raises(ValueError, match="NUL"):
        render_bootstrap("a\0b", None)


def test_plain_values_stay_readable() -> None:
    """What needs no disguise is shown as it is."""
    assert "p='/opt/conda/bin/python'" in render_bootstrap("/opt/conda/bin/python", None)


def test_every_login_shell_starts_the_program_in_a_terminal(shell: list[str]) -> None:
    """Its words and what `activate` exports arrive intact, and its exit code comes back."""
    code = "import os, sys; print(sys.argv[1:] + [os.environ['VALUE']]); sys.exit(7)"
    words = [sys.executable, "-c", code, *(text for text in HOSTILE if text != "\n")]
    for step in ((), ("env", "STEP=1")):
        command = render_terminal_command(words, "export VALUE='a b'", step)
        done = subprocess.run(
            [*shell, "-c", command], capture_output=True, text=True, timeout=HANG, check=False
        )
        assert (done.returncode, done.stderr) == (7, "")
        assert done.stdout == f"{[*words[3:], 'a b']}\n"
    assert not Path("pwned").exists()
