"""What a node shows of its living ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from noderun import NodeRun
from waiting import wait_until

from clusterctl.node.logs.activity import last_line, started_at
from clusterctl.node.runtime.processes import identify

Make = Callable[..., NodeRun]

SPEAKS = """
import sys, time
print("first", flush=True)
time.sleep(0.1)
sys.stderr.write("10%\\r20%\\r\\n\\n"); sys.stderr.flush()
time.sleep(3600)
"""


def test_a_living_rank_has_a_pulse(node: Make) -> None:
    """Its last words, when they were written, and since when its process is there; by ps and by follow."""
    began = time.time()
    run = node(SPEAKS).use_stub().go().running()
    wait_until(lambda: "20%" in run.output(0, "stderr"), "its words")
    ((silent, _), *_) = run.verb("ps")
    ((asked, _), *_) = run.verb("ps", activity=True)
    (pulse,) = asked["runs"][0]["activity"].values()
    ((followed, _), *_) = run.verb("follow", follow=False, events=None, logs=None, activity=5.0)
    run.verb("stop", grace=0, reason="done")
    ((ended, _), *_) = run.verb("ps", activity=True)

    assert "activity" not in silent["runs"][0]
    assert (pulse["line"], pulse["process"]) == ("20%", "S")
    assert began - 0.1 < pulse["started"] <= pulse["written"] < time.time()
    assert followed["state"]["activity"]["0"]["line"] == "20%"
    assert "activity" not in ended["runs"][0]


def test_the_last_line_of_any_file(tmp_path: Path) -> None:
    """Empty, huge without a newline, not text."""
    file = tmp_path / "log"
    found = []
    for content in (b"", b"\n \n", b"a\nb", b"a\nb\n\n", b"x" * 9000, b"ok\n\xff\xfe\n"):
        file.write_bytes(content)
        found.append(last_line(str(file)))

    assert found == ["", "", "b", "b", "x" * 300, "\ufffd\ufffd"]


def test_when_a_process_began() -> None:
    """Ticks since boot are turned into the time of day."""
    began = time.time()
    pid = os.fork()
    if pid == 0:
        time.sleep(3600)
        os._exit(0)
    moment, ended = started_at(identify(pid)), time.time()
    os.kill(pid, 9)
    os.waitpid(pid, 0)

    assert began - 0.1 < moment < ended + 0.1  # ticks are hundredths
