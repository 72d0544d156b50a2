"""A gang of hundreds: its hub may open enough files, or says why not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PLAY = Path(__file__).parent / "many_peers.py"
REFUSED = """
import resource
from clusterctl.payload.door import Door
from clusterctl.payload.loop import Loop
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 600))
Door(Loop(), {"run": "j-1", "nnodes": 400, "master_addr": "127.0.0.1"}, b"")
"""


def test_a_hub_with_few_open_files_takes_hundreds_in() -> None:
    """The soft limit is 100, the peers are 200: all join, all hear of a failure, all get the record."""
    done = subprocess.run(
        [sys.executable, str(PLAY), "200", "100"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["open_files"] > 200, told
    assert told["beat_cpu"] < 0.5, told


def test_a_node_that_allows_too_few_files_says_so() -> None:
    """The hard limit cannot be raised by us: the error names it and what would be needed."""
    done = subprocess.run(
        [sys.executable, "-c", REFUSED], capture_output=True, text=True, timeout=30, check=False
    )
    assert "this node allows 600 open files, and 664 are needed" in done.stderr
