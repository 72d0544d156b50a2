"""What moves on a terminal while a real node's sshd is halted, and what is left of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from driving import COMMAND, environment
from terminal import act_on, what_remains

from clusterctl.lab.labs import Lab

WAITING = "waiting for its sshd"


@pytest.fixture
def halted(cluster: Lab) -> Iterator[Callable[[str], None]]:
    """Halt the sshd of gpu02, or let it go on; it goes on in the end whatever happens."""
    node = cluster.find_node("gpu02")

    def send(signal: str) -> None:
        node.run(["kill", signal, str(node.read_state().sshd)])

    send("-STOP")
    yield send
    send("-CONT")


def below_inventory(left: list[str]) -> list[str]:
    """Give the lines below the note that names the inventory, which takes two where its path is long."""
    lines = [line for line in left if line]
    return lines[next(place for place, line in enumerate(lines) if line.endswith(", 3 nodes")) + 1 :]


def test_the_slow_node_is_named_and_nothing_of_it_stays(cluster: Lab, halted: Callable[[str], None]) -> None:
    """The display reports what gpu02 is at; when it is through, only results are on the screen."""
    words = [*COMMAND, "exec", "--", "echo", "here"]
    deeds = [("exec 2/3 nodes", lambda _: halted("-CONT"))]
    code, seen = act_on(words, environment(cluster, TERM="xterm"), deeds)
    assert code == 0, seen
    assert any("gpu02" in line and WAITING in line for line in seen.splitlines()), seen
    left = what_remains(seen)
    assert below_inventory(left) == ["gpu[01-03]: here"], left
    assert seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l")


@pytest.mark.usefixtures("halted")
def test_ctrl_c_leaves_the_terminal_whole(cluster: Lab) -> None:
    """Interrupted in the middle of a check: the display is gone, the cursor is there."""
    deeds = [(WAITING, lambda terminal: os.write(terminal, b"\x03"))]
    code, seen = act_on([*COMMAND, "check"], environment(cluster, TERM="xterm"), deeds)
    assert code == 130, seen
    left = [line.removeprefix("^C") for line in what_remains(seen)]
    assert below_inventory(left) == ["interrupted"], seen
    assert seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l")


def test_without_chatter_nothing_moves(cluster: Lab) -> None:
    """-q on a terminal shows the result, and no escape sequence but colours."""
    words = [*COMMAND, "-q", "exec", "--", "sleep 0.5; echo here"]
    code, seen = act_on(words, environment(cluster, TERM="xterm", NO_COLOR="1"), [])
    assert (code, seen) == (0, "gpu[01-03]: here\r\n")
