"""Inside a run: pdb of a rank, a port of a node, a shell with the run's environment."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from driving import COMMAND, STUBBED, cctl, environment, leftovers, make_project, start_cctl
from routes import behind
from terminal import act_on
from variants import VARIANT, first
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab

WAITING = """
import os
secret = "value of rank " + os.environ["RANK"]
if os.environ["RANK"] == "1":
    breakpoint()
print("went on", secret)
"""


GREET = b"echo got $GREETING $(tty | cut -c1-5) ${RANK-none}\n"


def run_of(launched: subprocess.Popen[str]) -> str:
    """Read the short id of the run that a launch names first."""
    assert launched.stderr is not None
    line = next(line for line in launched.stderr if line.startswith("run "))
    return line.split()[1].rstrip(":")


@pytest.mark.parametrize("way", first(1, ["direct", "bastion"]))
def test_a_breakpoint_of_one_rank(cluster: Lab, tmp_path: Path, way: str) -> None:
    """Who leaves pdb leaves the rank waiting; `c` lets it go on, and the run succeeds."""
    given = ("-i", behind(cluster, tmp_path)) if way == "bastion" else ()
    job = make_project(tmp_path / "job", WAITING, nodes=2, env=STUBBED)
    launched = start_cctl(cluster, *given, "launch", "--debug", job)
    run = run_of(launched)
    wait_until(lambda: "RUNNING" in cctl(cluster, *given, "status", run).out, "it runs")

    def type_in(text: str) -> str:
        words = [*COMMAND, *map(str, given), "debug", run, "--rank", "1"]
        done = subprocess.run(
            words,
            input=text,
            env=environment(cluster),
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = type_in("p secret\n")
    second = type_in("p len(secret)\nc\n")
    out, err = launched.communicate(timeout=HANG)

    assert "'value of rank 1'" in first
    assert ") 15\n" in second
    assert launched.returncode == 0, err
    assert "went on value of rank 1" in out
    assert "rank 1 waits at" in out
    assert leftovers(cluster) == {}


@VARIANT
def test_a_port_and_a_shell_through_a_bastion(cluster: Lab, tmp_path: Path) -> None:
    """A server that listens on the node's loopback address only; a terminal with the run's variables."""
    inventory = behind(cluster, tmp_path)
    serving = """
        import os, socket
        if os.environ["RANK"] == "0":
            with socket.create_server(("127.0.0.1", 16006)) as door:
                for _ in range(2):
                    call = door.accept()[0]
                    call.sendall(call.recv(100)[::-1] + bytes(300_000))
                    call.close()
        else:
            import time
            while not os.path.exists("go-on"):
                time.sleep(0.1)
    """
    job = make_project(tmp_path / "job", serving, nodes=2, env={**STUBBED, "GREETING": "hello there"})
    given = ("-i", inventory)
    launched = start_cctl(cluster, *given, "launch", job)
    run = run_of(launched)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    forwarding = start_cctl(cluster, *given, "forward", run, f"16006:{port}")
    assert forwarding.stderr is not None
    assert f"127.0.0.1:{port} -> " in next(line for line in forwarding.stderr if "->" in line)

    def fetch() -> bytes:
        with socket.create_connection(("127.0.0.1", port), HANG) as call:
            call.sendall(b"abc")
            received = b""
            while chunk := call.recv(1 << 16):
                received += chunk
        return received

    wait_until(lambda: fetch() == b"cba" + bytes(300_000), "the server of rank 0 is reached")
    assert fetch() == b"cba" + bytes(300_000)
    forwarding.terminate()
    forwarding.communicate(timeout=HANG)

    node = cluster.nodes[2].name
    words = [*COMMAND, *map(str, given), "ssh", node, run]
    code, seen = act_on(
        words,
        environment(None, TERM="dumb"),
        [
            ("/code", lambda terminal: os.write(terminal, GREET)),
            ("got hello", lambda terminal: os.write(terminal, b"touch go-on; exit 7\n")),
        ],
    )
    assert "got hello there /dev/ none" in seen
    assert code == 7
    _, err = launched.communicate(timeout=HANG)
    assert launched.returncode == 0, err
    assert leftovers(cluster) == {}
