"""The node's side of `exec`: data in, data out, and nothing left when the client leaves."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from session import Session
from waiting import wait_until


def answer(*argv: str, keep: int | None = None) -> tuple[bytes, bytes, dict[str, Any]]:
    """Run a command to its end; gives stdout, stderr and how it ended."""
    with Session("exec", {"argv": list(argv), "keep": keep}) as session:
        frames = session.frames()
    said = {"stdout": b"", "stderr": b""}
    for header, body in frames[:-2]:
        said[header["stream"]] += body
    return said["stdout"], said["stderr"], frames[-2][0]["ended"]


def test_arguments_arrive_as_they_are() -> None:
    """No shell reads them; both streams and the exit code come back."""
    words = ["a b", "$(id)", "", "*", "it's", "\u540d"]
    script = "import sys; print(sys.argv[1:]); print('oops', file=sys.stderr); sys.exit(3)"
    out, err, ended = answer(sys.executable, "-X", "utf8", "-c", script, *words)
    assert (out.decode(), err) == (f"{words}\n", b"oops\n")
    assert ended == {"exit": 3, "signal": None, "cut": [], "left": []}


def test_a_signal_is_told() -> None:
    """A command that was killed has no exit code."""
    assert answer("/bin/sh", "-c", "kill -9 $$")[2] == {"exit": None, "signal": 9, "cut": [], "left": []}


@pytest.mark.parametrize(
    ("program", "code", "reason"),
    [
        ("/no/such/program", 127, "No such file or directory"),
        ("nosuchcmd", 127, "command not found"),
        ("/etc/passwd", 126, "Permission denied"),
    ],
)
def test_what_cannot_be_run_ends_as_in_a_shell(program: str, code: int, reason: str) -> None:
    """127 and 126, with the shell's reason on stderr."""
    _, err, ended = answer(program)
    assert (err.decode(), ended["exit"]) == (f"{program}: {reason}\n", code)


def test_more_than_is_kept_is_not_sent() -> None:
    """The beginning is sent, the rest is read and dropped, and that is reported."""
    out, _, ended = answer("/bin/sh", "-c", "head -c 300000 /dev/zero", keep=1000)
    assert (out, ended) == (b"\0" * 1000, {"exit": 0, "signal": None, "cut": ["stdout"], "left": []})


def test_what_stays_in_the_background_is_named(tmp_path: Path) -> None:
    """It may have been started for that; what is just ending, also as an orphan, is not meant."""
    out, err = f"{tmp_path}/out", f"{tmp_path}/pid"
    script = f"sleep 0.05 >/dev/null 2>&1 & setsid sleep 66 >{out} 2>&1 & echo $! > {err}"

    def only_one_is_named() -> bool:
        """What has had no processor to end, or to become `sleep`, is named too: then it is tried again."""
        ended = answer("/bin/sh", "-c", script)[2]
        pid = int(Path(err).read_text())
        os.kill(pid, 0)
        os.kill(pid, signal.SIGKILL)
        return bool(ended == {"exit": 0, "signal": None, "cut": [], "left": ["sleep"]})

    wait_until(only_one_is_named, "only what stays is named")


def test_nothing_to_read_and_no_traces_of_ours() -> None:
    """Standard input is empty, and the descriptors of the conversation are not inherited."""
    out, _, _ = answer("/bin/sh", "-c", "cat; ls /proc/$$/fd | tr '\\n' ' '")
    assert {int(word) for word in out.split()} <= {0, 1, 2, 3, 10, 255}


def test_a_client_that_leaves_ends_all_of_it(tmp_path: Path) -> None:
    """A command that ignores TERM ends too, and so does its child in another session."""
    script = f"trap '' TERM; setsid sleep 77 & echo $! $$ > {tmp_path}/pids; while :; do sleep 0.1; done"
    session = Session("exec", {"argv": ["/bin/sh", "-c", script], "keep": None})
    pids = tmp_path / "pids"
    wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"), "both processes")
    session.close()
    for pid in map(int, pids.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
