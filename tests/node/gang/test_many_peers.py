"""A gang of hundreds: its hub may open enough files, or says why not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from counting import SLOPE
from waiting import HANG

PLAY = Path(__file__).parents[2] / "support" / "many_peers.py"
REFUSED = """
import resource
from clusterctl.node.gang.endpoints import Listener
from clusterctl.node.runtime.event_loop import Loop
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 600))
Listener(Loop(), {"run": "j-1", "nnodes": 400, "master_addr": "127.0.0.1"}, b"")
"""


def test_a_hub_with_few_open_files_takes_hundreds_in() -> None:
    """The soft limit is 100, the peers are 200: all join, all hear of a failure, all get the record."""
    few, many = play(20), play(200)
    assert many["open_files"] > 200, many
    assert many["beat_calls"] <= SLOPE * few["beat_calls"], (few, many)


def play(count: int) -> dict[str, Any]:
    """Play a hub and its peers."""
    words = [sys.executable, str(PLAY), str(count), "100"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=5 * HANG, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_node_that_allows_too_few_files_says_so() -> None:
    """The hard limit cannot be raised by us: the error names it and what would be needed."""
    done = subprocess.run(
        [sys.executable, "-c", REFUSED], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert "this node allows 600 open files, and 664 are needed" in done.stderr


STARVED = """
import resource, socket, sys
sys.path.insert(0, sys.argv[1]); from counting import count_calls
from clusterctl.node.gang.endpoints import Listener
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
    done = subprocess.run(
        [sys.executable, "-c", STARVED, str(PLAY.parent)],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.stdout.splitlines() == ["calm 0", "calm 1"], done.stdout + done.stderr
