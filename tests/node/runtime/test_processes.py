"""Reading /proc, naming processes, judging ends: plain values and processes of our own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import HANG, wait_until

from clusterctl.node.runtime import ports, processes
from clusterctl.node.supervise import spawn
from clusterctl.node.supervise.ranks.workers import Workers, read_exit_status


@pytest.mark.parametrize("name", ["python", "a b", ")", "evil) Z 1 (", "x) R 7 (y)", ""])
def test_a_stat_line_is_read_from_its_last_parenthesis(name: str) -> None:
    """A process may be called anything."""
    fields = ["S", "41", *"567890123456789", "3", "21", "4711"]
    line = f"123 ({name}) {' '.join(fields)} {' '.join(['0'] * 29)} 256\n".encode()
    stat = processes.parse_stat(line)

    assert (stat.pid, stat.name, stat.state, stat.parent) == (123, name, "S", 41)
    assert (stat.threads, stat.starttime, stat.exit_code) == (3, 4711, 256)


def test_a_signal_reaches_only_the_process_meant() -> None:
    """The same pid with another start time is another process."""
    with subprocess.Popen(["sleep", "60"]) as child:
        identity = processes.identify(child.pid)
        stale = identity._replace(starttime=identity.starttime - 1)

        assert not processes.send_signal(stale, signal.SIGKILL)
        assert processes.is_alive(identity) and not processes.is_alive(stale)
        assert processes.send_signal(identity, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not processes.is_alive(identity), "a zombie is not alive"
        zombie = processes.find_process(identity)
        assert zombie is not None and zombie.exit_code == signal.SIGKILL
    assert not processes.send_signal(identity, signal.SIGKILL)


@pytest.mark.parametrize("listed", [True, False])
def test_descendants_of_every_thread_and_generation_are_found(
    monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    """Children of other threads, and grandchildren in sessions of their own, on kernels of both kinds."""
    monkeypatch.setattr(processes, "kernel_lists_children", lambda: listed)
    script = (
        "import subprocess, threading, time\n"
        "threading.Thread(target=lambda: subprocess.run(['sleep', '60'])).start()\n"
        "subprocess.Popen(['sh', '-c', 'sleep 60; :'], start_new_session=True)\n"
        "print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        wanted = ["sh", "sleep", "sleep"]
        wait_until(lambda: sorted(stat.name for stat in processes.descendants(child.pid)) == wanted, "three")
        found = processes.descendants(child.pid)
        spared = processes.descendants(child.pid, exclude=(found[0].pid,))
        for stat in found:
            os.kill(stat.pid, signal.SIGKILL)
        child.kill()

    assert len(spared) == 2
    assert found[0].pid not in [stat.pid for stat in spared]


def test_a_tag_is_compared_whole() -> None:
    """Another attempt, another run, and a text that only contains the tag are not meant."""
    others = ["t/gpu01/10", "at/gpu01/1", "t/gpu01/1 "]
    values = [*others, "t/gpu01/1"]
    children = [
        subprocess.Popen(["sleep", "60"], env={"A": "CLUSTERCTL_RUN=t/gpu01/1", "CLUSTERCTL_RUN": value})
        for value in values
    ]
    try:
        # A process in the middle of exec has no environment yet, although Popen has already returned.
        wait_until(lambda: all(Path(f"/proc/{child.pid}/environ").read_bytes() for child in children), "exec")
        found = [stat.pid for stat in processes.find_tagged("t/gpu01/1")]
    finally:
        for child in children:
            child.kill()
            child.wait()

    assert found == [children[-1].pid]


def test_the_kernel_tells_the_end_of_a_reaped_process() -> None:
    """From Linux 6.15 on; before that nobody is the wiser."""
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    pidfd = os.pidfd_open(child.pid)
    child.wait()
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])

    assert read_exit_status(pidfd) == (7 << 8 if release >= (6, 15) else None)
    os.close(pidfd)


def test_unseen_ends_are_taken_from_torchruns_table() -> None:
    """Format of torch 1.9 to 2.13; a rank that is not in it stays unknown."""
    workers = Workers("/run")
    for rank in ("0", "1", "2"):
        process = {"pid": 1 << 30, "starttime": 0}
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "3", "TORCHELASTIC_ERROR_FILE": None}
        workers.announce({**names, **process})
    table = (
        "[1]:\n  time      : 2026-11-20_11:00:00\n  host      : gpu01\n  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : -9 (pid: 4711)\n  error_file: <N/A>\n"
        "  rank      : 2 (local_rank: 2)\n  exitcode  : 3 (pid: 4712)\n"
    )
    failed = workers.fill_unseen_ends(1, table)

    assert [(worker.rank, worker.exit, worker.signal) for worker in failed] == [(1, None, 9), (2, 3, None)]
    assert not workers.by_rank[0].ended
    workers.fill_unseen_ends(0, "")
    assert workers.by_rank[0].exit == 0


def test_texts_are_filled_where_they_can_be() -> None:
    """Strings are taken as they are, segments joined, unknown holes left for later."""
    text: spawn.Template = ["tcp://", {"fill": "addr"}, ":", {"fill": "master_port"}]

    assert spawn.render_template("a ${b}", {}) == "a ${b}"
    assert not spawn.can_render(text, {"addr": "x"})
    assert spawn.render_template(text, {"addr": "x", "master_port": "7"}) == "tcp://x:7"


def test_ports_lie_outside_the_ephemeral_range() -> None:
    """Every allowed port is tried once, from a point within the range; torch's defaults are not."""
    tried = list(ports.candidates(None, (32768, 60999), 0.5))

    assert len(tried) == len(set(tried))
    assert not [port for port in tried if 32768 <= port <= 60999 or port in (29400, 29500)]
    assert list(ports.candidates([7, 9], (1, 65535), 0.5)) == [8, 9, 7]
    assert len(list(ports.candidates(None, (1024, 65535), 0.0))) > 40000


@pytest.mark.parametrize(
    ("ephemeral", "lowest", "highest"),
    [
        ((32768, 60999), 20000, 65535),
        ((16000, 65000), 65001, 65535),
        ((20000, 65535), 15000, 19999),  # outside the kernel's range matters more than who else may want it
        ((1024, 65535), 20000, 65535),
    ],
)
def test_ports_keep_clear_of_rays_workers(ephemeral: tuple[int, int], lowest: int, highest: int) -> None:
    """These take 10002 to 19999; they are avoided wherever the kernel leaves anything else."""
    tried = set(ports.candidates(None, ephemeral, 0.3))
    assert (min(tried), max(tried)) == (lowest, highest)


def test_a_held_port_is_held_once_and_can_be_listened_on() -> None:
    """Two agents never hold the same port; torchrun's store binds over it; only its owner owns it."""
    import socket

    holder = ports.hold_port(None)
    port = ports.port_of(holder)
    try:
        with pytest.raises(Exception, match="no free port"):
            ports.hold_port([port, port])
        with socket.socket() as store:
            store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            store.bind(("", port))
            assert not ports.owns_listener(os.getpid(), port)
            store.listen()
            assert ports.owns_listener(os.getpid(), port)
            assert not ports.owns_listener(os.getppid(), port)
    finally:
        holder.close()


# Says how often it was asked to end, when it may.
COUNTS = """
import signal, sys
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
print("ready", flush=True)
sys.stdin.read()
print(len(asked), flush=True)
"""


def test_a_process_is_asked_to_end_once() -> None:
    """torchrun takes a second SIGTERM for impatience, and a script's clean-up may, too."""
    child = subprocess.Popen(
        [sys.executable, "-c", COUNTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    stat = processes.find_process(processes.identify(child.pid))
    assert stat is not None
    sweep = processes.ProcessTree("none/")
    for _ in range(3):
        sweep.terminate([stat])
        time.sleep(0.1)  # signals that wait to be taken are one
    out, _ = child.communicate("", timeout=HANG)

    assert out == "1\n"
    assert sweep.signalled() == [{"pid": child.pid, "name": stat.name}]
