"""A gang of hundreds: its hub may open enough files, or says why not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from waiting import HANG

SUPPORT = Path(__file__).parents[2] / "support"
LISTENS = """
import resource, sys
from clusterctl.node.gang.channel import Listener
from clusterctl.node.runtime.event_loop import Loop
resource.setrlimit(resource.RLIMIT_NOFILE, (100, int(sys.argv[1])))
Listener(Loop(), {"run": "j-1", "nnodes": 400, "master_addr": "127.0.0.1"}, b"")
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("hard", "seen"),
    [(1000, "(664, 1000)"), (600, "this node allows 600 open files, and 664 are needed")],
)
def test_a_hub_may_open_a_file_for_each_peer(hard: int, seen: str) -> None:
    """The soft limit of 100 is raised; where the hard one forbids it, the error names both numbers."""
    done = run(LISTENS, str(hard))
    assert seen in done.stdout + done.stderr


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that changes its own limits."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)


STARVED = """
import resource, socket, sys
sys.path.insert(0, sys.argv[1]); from counting import count_calls
from clusterctl.node.gang.channel import Listener
from clusterctl.node.runtime.event_loop import Loop
loop = Loop()
door = Listener(loop, {"run": "j-1", "nnodes": 2, "master_addr": "127.0.0.1"}, b"")
door.open(lambda _: False)
knocking, spare = socket.create_connection(("127.0.0.1", door.port)), open("/dev/null")
resource.setrlimit(resource.RLIMIT_NOFILE, (spare.fileno() + 1, spare.fileno() + 1))

def serve(seconds):
    loop.stopped = False
    loop.after(seconds, "over", loop.stop)
    return "busy" if count_calls(loop.run) > 1000 else "calm", len(door._listener._pending)

print(*serve(0.8))
spare.close()
print(*serve(0.8))
"""


def test_a_door_without_a_file_for_its_guest_does_not_spin() -> None:
    """It waits, and lets in who still knocks when a file is free."""
    done = run(STARVED, str(SUPPORT))
    assert done.stdout.splitlines() == ["calm 0", "calm 1"], done.stdout + done.stderr
