"""Record the pictures of the READMEs from a real run: `python tools/record.py` writes `docs/pictures/failure*.svg`.

On a practice cluster a training is launched, a node loses its power, and the result is shown. The commands run
in a terminal of 80 columns; what is on its screen at the end becomes an SVG without script, whose lines appear in their
order. Needs Linux, `sshd`, and a torch in this Python.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from screen import Screen  # noqa: E402 - beside this file
from svg import render_svg  # noqa: E402 - beside this file

COLUMNS, LINES = 80, 50
COMMAND = (sys.executable, "-m", "clusterctl")
PICTURES = {"en": "failure.svg", "zh": "failure.zh-CN.svg"}
START = ("lab", "up", "--nics", "eth0")  # a short name: it stands in the first line of every rank
TRAINING = ("launch", "job.yaml", "--", "--epochs", "50")
FIRST_EPOCH = "epoch 1/50"
BREAK = ("lab", "break", "gpu02", "power")
ELSEWHERE = {"en": "# in another terminal", "zh": "# 在另一个终端里执行"}


def main() -> int:
    """Record the picture of each language."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "pictures", help="folder of the pictures")
    folder: Path = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    for language, name in PICTURES.items():
        screen = record_failure(language)
        (folder / name).write_text(render_svg(screen), encoding="utf-8")
        print(f"{folder / name}: {len(screen.rows)} lines")
    return 0


def record_failure(language: str) -> Screen:
    """Start a lab, launch, cut the power of a node, wait for the result."""
    state = new_folder()
    environment = {
        **os.environ,
        "XDG_STATE_HOME": state,
        "CLUSTERCTL_LANG": language,
        "PYTHONPATH": str(ROOT),
    }
    environment |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    for name in ("NO_COLOR", "CLUSTERCTL_INVENTORY"):
        environment.pop(name, None)
    screen = Screen(COLUMNS)
    try:
        subprocess.run([*COMMAND, *START], env=environment, check=True, capture_output=True)
        type_command(screen, TRAINING)
        follow(screen, TRAINING, environment, language)
    finally:
        subprocess.run(
            [*COMMAND, "lab", "down", "--all", "-y"], env=environment, check=False, capture_output=True
        )
        shutil.rmtree(state, ignore_errors=True)
    return screen


def new_folder() -> str:
    """Make a folder with a short name, which stands in lines of 80 columns: `tempfile` makes long ones."""
    for number in count():
        folder = f"{tempfile.gettempdir()}/c{number}"
        with contextlib.suppress(FileExistsError):
            Path(folder).mkdir(0o700)
            return folder
    raise AssertionError("count() has no end")


def type_command(screen: Screen, words: tuple[str, ...], comment: str = "") -> None:
    """Write a command as if it were typed at a prompt."""
    text = f"\x1b[1mclusterctl {' '.join(words)}\x1b[0m"
    screen.feed(f"\x1b[2m$\x1b[0m {text}  \x1b[2m{comment}\x1b[0m".rstrip() + "\r\n", time.monotonic())


def follow(screen: Screen, words: tuple[str, ...], environment: Mapping[str, str], language: str) -> None:
    """Run a command in a terminal and show its output; cut the power after the first epoch."""
    is_cut = False
    for text in output_of([*COMMAND, *words], environment):
        screen.feed(text, time.monotonic())
        if FIRST_EPOCH in screen.text() and not is_cut:
            is_cut = True
            type_command(screen, BREAK, ELSEWHERE[language])
            subprocess.run([*COMMAND, *BREAK], env=environment, check=True, capture_output=True)


def output_of(command: list[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Run a command in a pseudo-terminal and give its output as it comes."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(ROOT / "playbooks" / "digits-ddp")
        os.execve(command[0], command, dict(environment))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    pending = b""
    while True:
        select.select([terminal], [], [])
        try:
            data = os.read(terminal, 65536)
        except OSError:  # Linux reports the end of a terminal as an error
            data = b""
        if not data:
            break
        pending += data
        whole, _, pending = pending.rpartition(b"\n") if b"\n" in pending else (b"", b"", pending)
        yield (whole + b"\n" if whole else b"").decode("utf-8", "replace")
    yield pending.decode("utf-8", "replace")
    os.close(terminal)
    os.waitpid(process, 0)


if __name__ == "__main__":
    sys.exit(main())
