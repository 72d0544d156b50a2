"""What a signal does: the main thread's waits end, what leaving means is written, and nothing can hold the process."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import HANG, wait_until

from clusterctl.interrupts import Interrupts, announce_interrupted

BEGIN = """
import select, selectors, signal, sys, threading, time
from concurrent.futures import Future
from queue import SimpleQueue
from clusterctl.interrupts import INTERRUPTS, announce_interrupted
INTERRUPTS.install()
lock = threading.Lock()
lock.acquire()
selector = selectors.DefaultSelector()

def say(text):
    return lambda: announce_interrupted(text)
"""


def start(body: str, **options: object) -> subprocess.Popen[str]:
    """Start a program whose body waits after it has written `ready`."""
    text = BEGIN + textwrap.dedent(body)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
    return subprocess.Popen([sys.executable, "-c", text], text=True, **pipes)  # type: ignore[call-overload, no-any-return]  # options of any kind


def until_ready(process: subprocess.Popen[str]) -> None:
    """Wait until the program is about to wait."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end of a program; gives its exit code and what it wrote."""
    out, err = process.communicate(timeout=HANG)
    return process.returncode, out, err


WAITS = {
    "get": "INTERRUPTS.get(SimpleQueue())",
    "result": "INTERRUPTS.result(Future())",
    "call": "INTERRUPTS.call(lock.acquire)",
    "sleep": "INTERRUPTS.sleep(3600)",
    "poll": "INTERRUPTS.poll(select.poll(), None)",
    "select": "INTERRUPTS.select(selector, None)",
}
WAITING = """
try:
    with INTERRUPTS.leaving(say("left")):
        print("ready", flush=True)
        WAIT
except KeyboardInterrupt:
    print("closed", flush=True)
    sys.exit(INTERRUPTS.finish(INTERRUPTS.exit_code))
"""


@pytest.mark.parametrize("wait", WAITS)
def test_a_signal_ends_every_wait_of_the_main_thread(wait: str) -> None:
    """What leaving means is written first, then the verb closes; the exit code is that of the signal."""
    process = start(WAITING.replace("WAIT", WAITS[wait]))
    until_ready(process)
    process.send_signal(signal.SIGTERM)
    assert end(process) == (143, "closed\n", "left\n")


def test_a_main_thread_that_is_stuck_holds_nothing() -> None:
    """In a library that waits for ever one signal is enough: the sentence, and the exit code."""
    process = start(WAITING.replace("WAIT", "lock.acquire()"))
    until_ready(process)
    process.send_signal(signal.SIGINT)
    assert end(process) == (130, "", "left\n")


CLOSING = """
try:
    with INTERRUPTS.leaving(say("left"), 3600):
        print("ready", flush=True)
        INTERRUPTS.sleep(3600)
except KeyboardInterrupt:
    CHANGE
    print("ready", flush=True)
    lock.acquire()
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("", "left\n"),
        ('INTERRUPTS.set_leaving(say("left while closing"), 3600)', "left\nleft while closing\n"),
    ],
)
def test_a_second_signal_ends_at_once_with_what_holds_then(change: str, said: str) -> None:
    """The same sentence is not written twice; one for the step of closing is."""
    process = start(CLOSING.replace("CHANGE", change or "pass"))
    until_ready(process)
    process.send_signal(signal.SIGINT)
    until_ready(process)
    while process.poll() is None:  # two within some milliseconds are one
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    assert end(process) == (130, "", said)


def test_closing_has_a_limit() -> None:
    """What does not close in time is left."""
    process = start(CLOSING.replace("3600):", "0.2):").replace("CHANGE", "pass"))
    until_ready(process)
    process.send_signal(signal.SIGINT)
    until_ready(process)
    assert end(process) == (130, "", "left\n")


BUSY = """
with INTERRUPTS.leaving(say("before")):
    print("ready", flush=True)
    while not INTERRUPTS._is_announced:
        pass
    try:
        INTERRUPTS.set_leaving(say("after"))
    except KeyboardInterrupt:
        print("not begun", flush=True)
        sys.exit(INTERRUPTS.finish(INTERRUPTS.exit_code))
"""


def test_what_was_announced_is_what_happens() -> None:
    """A step that would make it wrong does not begin."""
    process = start(BUSY)
    until_ready(process)
    process.send_signal(signal.SIGINT)
    assert end(process) == (130, "not begun\n", "before\n")


def test_a_signal_after_the_last_wait_is_not_lost() -> None:
    """The exit code shows it, and so does a word."""
    process = start(
        """
        print("ready", flush=True)
        signal.raise_signal(signal.SIGINT)
        sys.exit(INTERRUPTS.finish(0))
        """
    )
    until_ready(process)
    assert end(process) == (130, "", "interrupted\n")


def test_what_the_parent_ignores_stays_ignored() -> None:
    """`nohup` protects from SIGHUP, and a shell's `&` from Ctrl-C."""
    process = start(
        """
        print("ready", flush=True)
        signal.raise_signal(signal.SIGHUP)
        INTERRUPTS.sleep(0)
        sys.exit(INTERRUPTS.finish(7))
        """,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    until_ready(process)
    assert end(process) == (7, "", "")


def test_a_full_pipe_does_not_hold_the_process() -> None:
    """Nobody reads what is written: neither the sentence nor the verb can be waited for."""
    process = start(
        """
        INTERRUPTS.set_leaving(lambda: sys.stderr.write("x" * (1 << 20)))
        print("ready", flush=True)
        while True:
            sys.stdout.write("x" * 8192)
        """
    )
    until_ready(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(HANG) == 130
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()


def on_terminal(body: str) -> tuple[int, int]:
    """Start a program on a terminal of its own; gives its pid and the terminal's other end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", BEGIN + textwrap.dedent(body)])
    return pid, terminal


def read_until(terminal: int, text: str) -> str:
    """Read what a terminal shows up to a text."""
    seen = ""

    def read() -> bool:
        nonlocal seen
        seen += os.read(terminal, 4096).decode()
        return text in seen

    wait_until(read, text)
    return seen


SECRET = """
from clusterctl.cli.context.nodes import prompt_secret
try:
    prompt_secret("secret: ")
except KeyboardInterrupt:
    INTERRUPTS.finish(INTERRUPTS.exit_code)
"""


def test_ctrl_c_at_a_prompt_leaves_the_terminal_as_it_was() -> None:
    """A password is being asked for; what is typed afterwards is shown again."""
    import termios

    pid, terminal = on_terminal(SECRET)
    before = termios.tcgetattr(terminal)
    read_until(terminal, "secret: ")
    assert termios.tcgetattr(terminal)[3] & termios.ECHO == 0
    os.write(terminal, b"\x03")
    assert "interrupted" in read_until(terminal, "interrupted")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    with suppress(termios.error):  # the other end is closed on some systems
        assert termios.tcgetattr(terminal) == before
    os.close(terminal)


HUNG_UP = """
log = open(PATH, "w")
try:
    print("ready", flush=True)
    INTERRUPTS.sleep(3600)
except KeyboardInterrupt:
    print("to nobody", flush=True)
    log.write("closed")
    log.close()
    INTERRUPTS.finish(INTERRUPTS.exit_code)
"""


def test_a_terminal_that_hangs_up_is_no_error(tmp_path: Path) -> None:
    """What is written afterwards goes nowhere, and the verb closes as after any signal."""
    log = tmp_path / "log"
    pid, terminal = on_terminal(HUNG_UP.replace("PATH", repr(str(log))))
    read_until(terminal, "ready")
    os.close(terminal)
    assert (os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), log.read_text()) == (129, "closed")


AT_CLICK = """
import os, sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), NUMBER)
sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_modules_load_is_an_exit(tmp_path: Path, number: int) -> None:
    """Not a death by the signal, which a program that starts us would see."""
    (tmp_path / "sitecustomize.py").write_text(AT_CLICK.replace("NUMBER", str(int(number))))
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[1]}"}
    words = [sys.executable, "-m", "clusterctl", "ps"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "interrupted\n")


@pytest.fixture
def written() -> list[str]:
    """Collect what is announced."""
    return []


def raising(error: BaseException) -> Callable[[], None]:
    """Make a step that raises."""

    def step() -> None:
        raise error

    return step


def test_the_innermost_meaning_is_announced_once(written: list[str]) -> None:
    """Blocks in blocks: what is left is the step that was at work."""
    interrupts = Interrupts()
    with (
        pytest.raises(KeyboardInterrupt),
        interrupts.leaving(lambda: written.append("outer")),
        interrupts.leaving(lambda: written.append("inner")),
    ):
        raising(KeyboardInterrupt())()
    assert written == ["inner"]


def test_after_a_block_the_meaning_before_it_holds(written: list[str]) -> None:
    """An error, or its end, gives it back."""
    interrupts = Interrupts()
    with (
        pytest.raises(KeyboardInterrupt),
        interrupts.leaving(lambda: written.append("outer")),
    ):
        with suppress(ValueError), interrupts.leaving(lambda: written.append("inner")):
            raising(ValueError())()
        raising(KeyboardInterrupt())()
    assert written == ["outer"]


def test_the_words_are_translated(capsys: pytest.CaptureFixture[str]) -> None:
    """Without others: that it was interrupted."""
    announce_interrupted()
    assert capsys.readouterr().err == "interrupted\n"
