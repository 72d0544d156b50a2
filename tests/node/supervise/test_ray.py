"""The program of `launcher: ray` and its files, with a package `ray` that only listens and waits."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from noderun import NodeRun
from programs import Make, go, program
from waiting import wait_until

from clusterctl.node.runtime.ports import bind_port
from clusterctl.node.runtime.stream import VerbError
from clusterctl.node.state import temp_dirs
from clusterctl.node.supervise import guardian
from clusterctl.node.supervise.launchers import ray, temp_files

# As `ray start --block`: it listens on the head's port until it is asked to end by a file.
SCRIPTS = """
import json, os, socket, sys, time
options = dict(word[2:].partition("=")[::2] for word in sys.argv[2:])
home = os.environ["RAY_STUB"]
path = os.environ["RAY_AUTH_TOKEN_PATH"]
token = {"token": open(path).read(), "token-mode": oct(os.stat(path).st_mode), "token-path": path}
with open(os.path.join(home, "options"), "w") as sink:
    json.dump({**options, **token, "RAY_ADDRESS": os.environ.get("RAY_ADDRESS")}, sink)
os.makedirs(options["temp-dir"] + "/session_2026/logs")
os.chmod(options["temp-dir"], 0o777)  # as Ray does
with open(options["temp-dir"] + "/session_2026/logs/raylet.out", "w") as sink:
    sink.write("started")
print("Ray runtime started.", flush=True)
door = socket.create_server(("127.0.0.1", int(options["port"])))
while not os.path.exists(os.path.join(home, "die")):
    time.sleep(0.02)
sys.exit("raylet exited with code -9")
"""
PACKAGE = """
def init(address, log_to_driver):
    assert not log_to_driver

def nodes():
    return [{"Alive": True, "NodeManagerAddress": "127.0.0.1", "Resources": {"CPU": 4.0, "GPU": 2.0}},
            {"Alive": False, "NodeManagerAddress": "127.0.0.9", "Resources": {}}]
"""
_RUN: Any = {"run": "j-20261123T100000-aaaa", "attempt": 1}
SPEC = {"gpus": 2, "all_gpus": 2, "ports": None, "own_ports": 10, "names": {"127.0.0.1": "gpu01"}}


def with_ray(node: Make, home: Path, script: str, **changes: Any) -> NodeRun:
    """Make a run of a script under Ray."""
    (home / "ray/scripts").mkdir(parents=True)
    (home / "ray/__init__.py").write_text(PACKAGE)
    (home / "ray/scripts/__init__.py").touch()
    (home / "ray/scripts/scripts.py").write_text(SCRIPTS)
    (home / "ray-2.60.0.dist-info").mkdir()
    (home / "ray-2.60.0.dist-info/METADATA").write_text("Name: ray\nVersion: 2.60.0\n")
    env = {"PYTHONPATH": str(home), "RAY_STUB": str(home)}
    settings = {"ray": SPEC, "ends_with": "node 0", "address": "127.0.0.1", "grace": 5.0, **changes}
    return program(node, [sys.executable, "train.py"], script, env=env, **settings)


def test_the_program_runs_beside_ray_and_ends_the_run(node: Make, tmp_path: Path) -> None:
    """It has Ray's address, Ray has not; Ray's logs are kept, and its directory and processes are gone.

    Both have the run's token. The names of thousands of nodes are longer than the kernel lets an argument be.
    """
    script = "import os, sys; print(os.environ['RAY_ADDRESS'], os.environ['VLLM_HOST_IP'], sys.stdin.read());"
    script += "print(os.environ['RAY_AUTH_TOKEN_PATH'], os.environ['RAY_AUTH_MODE']); sys.exit(3)"
    names = {f"10.0.{n // 256}.{n % 256}": f"gpu{n:05}" for n in range(8000)}
    run = with_ray(node, tmp_path, script, ray={**SPEC, "names": {**names, **SPEC["names"]}})
    state = go(run, port=23457).ended()
    options = json.loads((tmp_path / "options").read_text())
    attempt = Path(run.rundir) / "attempt-1"

    assert (state["state"], state["ranks"]["0"]["exit"]) == ("FAILED", 3)
    assert run.output(0).splitlines()[1:] == ["127.0.0.1:23457 127.0.0.1 ", f"{options['token-path']} token"]
    assert run.output(0).startswith("clusterctl: Ray has 1 nodes, 4 CPUs and 2 GPUs after ")
    assert options["RAY_ADDRESS"] is None
    assert (options["port"], options["node-ip-address"], options["num-gpus"]) == ("23457", "127.0.0.1", "2")
    assert (attempt / "ray/raylet.out").read_text() == "started"
    assert (attempt / ray.START_LOG).read_text().startswith("Ray runtime started.")
    assert not Path(options["temp-dir"]).parent.exists()
    assert (len(options["token"]), options["token-mode"][-3:]) == (64, "600")
    assert Path(options["token-path"]).parent == Path(options["temp-dir"]).parent
    kept = subprocess.run(["grep", "-rl", options["token"], run.rundir], capture_output=True, check=False)
    assert kept.stdout == b"", "the token is in no record and no log"


def test_a_ray_that_ends_first_is_the_failure(node: Make, tmp_path: Path) -> None:
    """The program is ended, and the message names the node and what Ray printed last."""
    run = with_ray(node, tmp_path, "import time; print('up', flush=True); time.sleep(600)")
    go(run, port=23458)
    wait_until(lambda: "0" in run.state()["ranks"] and "up" in run.output(0), "the program runs")
    (tmp_path / "die").touch()
    state = run.ended()

    assert (state["state"], state["ranks"]["0"]["exit"]) == ("FAILED", 1)
    said = run.output(0, "stderr")
    assert "raylet exited with code -9" in said
    assert "clusterctl: Ray ended before the program: exit code 1 on gpu01 (127.0.0.1)" in said


def test_the_program_has_ray_until_it_has_ended(node: Make, tmp_path: Path) -> None:
    """A stop is the program's first: it may still save something through Ray."""
    script = """
import os, signal, socket, sys, time
def save(*_):
    host, _, port = os.environ["RAY_ADDRESS"].partition(":")
    time.sleep(0.3)
    socket.create_connection((host, int(port))).close()
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
time.sleep(600)
"""
    run = with_ray(node, tmp_path, script)
    go(run, port=23459)
    wait_until(lambda: "0" in run.state()["ranks"] and "up" in run.output(0), "the program runs")
    os.kill(run.state()["guardian"]["pid"], signal.SIGTERM)

    assert run.ended()["state"] == "STOPPED"
    assert "saved" in run.output(0)


def test_the_guardian_removes_what_the_agent_cannot(node: Make, tmp_path: Path) -> None:
    """Ray's processes and its directory, when the agent was killed."""
    run = with_ray(node, tmp_path, "import time; print('up', flush=True); time.sleep(600)")
    go(run, port=23460)
    wait_until(lambda: "0" in run.state()["ranks"] and "up" in run.output(0), "the program runs")
    folder = Path(json.loads((tmp_path / "options").read_text())["temp-dir"]).parent
    assert folder.exists()
    os.kill(run.state()["agent"]["pid"], signal.SIGKILL)

    assert run.ended()["state"] == "FAILED"
    wait_until(lambda: not folder.exists(), "the directory is removed")


def make_order(**changes: Any) -> Any:
    """Make the order of a program that is not started."""
    order = {
        **SPEC,
        "address": "127.0.0.1",
        "head": "127.0.0.1:29999",
        "nodes": 1,
        "temp_dir": "/tmp/x",
        "argv": [],
    }
    return {**order, "attempt": "/tmp", "node_rank": 0, **changes}


@pytest.mark.parametrize(
    ("version", "own", "mode", "with_path"),
    [
        ("2.52.0", {}, "token", True),
        ("3.0.0.dev0", {}, "token", True),
        ("2.51.2", {}, None, False),
        ("2.60.0", {"RAY_AUTH_MODE": "disabled"}, "disabled", False),
        ("2.60.0", {"RAY_AUTH_TOKEN": "mine"}, "token", False),
    ],
)
def test_which_ray_gets_a_token(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    version: str,
    own: dict[str, str],
    mode: str | None,
    with_path: bool,
) -> None:
    """One that knows tokens, and not against the job's own setting."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # put back afterwards
        monkeypatch.delenv(name)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ray.metadata, "version", lambda _: version)
    for _ in range(2):  # two nodes of the run on one machine
        ray.require_token(make_order(temp_dir=str(tmp_path / "r"), token="secret"))

    assert os.environ.get("RAY_AUTH_MODE") == mode
    assert ("RAY_AUTH_TOKEN_PATH" in os.environ) is with_path is (tmp_path / "token").exists()


def test_nodes_with_processes_of_the_same_number_write_the_token_side_by_side(tmp_path: Path) -> None:
    """As containers that share /tmp."""
    (tmp_path / f"token.{os.getpid()}").touch()

    assert Path(ray.write_token(str(tmp_path / "r"), "secret")).read_text() == "secret"


def test_two_runs_on_a_node_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one range each takes a block, leaves out what is in use, and the third finds none."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    order = make_order(ports=[30000, 30149], head="127.0.0.1:30003")
    used = bind_port(30001) or bind_port(30002)
    assert used is not None
    first, second = ray.reserve_ports(order), ray.reserve_ports(order)

    own = {*first.free, first.holder.getsockname()[1]}
    assert not own & {*second.free, second.holder.getsockname()[1]}
    assert not {30003, used.getsockname()[1]} & {*first.free, *second.free}
    with pytest.raises(SystemExit, match=r"no 18 free ports of `ports: 30000-30149` for Ray"):
        ray.reserve_ports(order)
    for one in (used, first.holder, second.holder):
        one.close()


def test_a_port_is_given_once() -> None:
    """Ray refuses a port that two of its options name."""
    words = ray.start_command(make_order(gpus=None), range(21000, 21030), head=True)
    named = [word.partition("=") for word in words if word.startswith("--")]
    ports = [port for name, _, value in named if "port" in name for port in value.split(",")]

    assert len(ports) == len(set(ports)) == 31, "those of the block, and the held one"
    assert "--num-gpus" not in {name for name, _, _ in named}


def test_the_directory_is_removed_by_the_last_that_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed to others, and one that another account has made is refused."""
    monkeypatch.setattr(temp_dirs, "TEMPORARY", str(tmp_path))
    spec: Any = {"run": "j-20261123T100000-aaaa", "attempt": 1}
    first, second = (temp_files.TemporaryFiles(str(tmp_path / name), spec, "t") for name in ("0-a", "1-b"))
    folder = Path(temp_files.temp_dir(spec["run"], 1, "t"))
    first.hold()
    second.hold()

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    first.remove()
    assert folder.exists()
    temp_dirs.remove_all(temp_dirs.own_prefix(spec["run"]))
    assert folder.exists(), "still in use"
    second.remove()
    assert not folder.exists()
    folder.mkdir(mode=0o755)
    with pytest.raises(VerbError, match="belongs to another account"):
        first.hold()


def test_others_cannot_know_the_name_of_the_directory() -> None:
    """It takes the run's token, which no other account can read."""
    run = "j-20261123T100000-aaaa"

    assert temp_files.temp_dir(run, 2, "one") != temp_files.temp_dir(run, 2, "another")
    assert temp_files.temp_dir(run, 2, "one") == temp_files.temp_dir(run, 2, "one")


def test_what_killed_supervisors_left_is_removed_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what a run uses: its agent has locked it."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "shm").mkdir()
    monkeypatch.setattr(temp_dirs, "TEMPORARY", str(tmp_path / "tmp"))
    monkeypatch.setattr(temp_dirs, "SHARED_MEMORY", str(tmp_path / "shm"))
    specs: list[Any] = [{"run": f"j-20261123T100000-{name}", "attempt": 1, "mpi": {}} for name in "abc"]
    killed, other, own = (temp_files.TemporaryFiles(str(tmp_path / "run"), spec, "t") for spec in specs)
    for each in (killed, other, own):
        each.hold()
    used = sorted(other._folders)
    for descriptor in killed._held.values():
        os.close(descriptor)
    own.collect()

    assert sorted(str(path) for path in (*tmp_path.glob("tmp/*"), *tmp_path.glob("shm/*"))) == sorted(used)
    other.remove()


def test_a_directory_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another run that found it without a lock."""
    monkeypatch.setattr(temp_dirs, "TEMPORARY", str(tmp_path))
    files = temp_files.TemporaryFiles(str(tmp_path / "run"), _RUN, "t")
    folder = Path(temp_files.temp_dir(_RUN["run"], 1, "t"))
    lock = fcntl.flock
    removed: list[Path] = []

    def remove_first(descriptor: int, operation: int) -> None:
        if not removed:
            folder.rmdir()
            removed.append(folder)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    files.hold()

    assert removed == [folder]
    assert folder.exists()
    files.remove()
    assert not folder.exists()


def test_the_guardian_removes_it_after_an_end_in_order_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network disk that hangs makes the agent leave before it has copied Ray's logs."""
    monkeypatch.setattr(temp_dirs, "TEMPORARY", str(tmp_path))
    monkeypatch.setattr(guardian, "ProcessTree", lambda *_: SimpleNamespace(kill_all=list))
    spec: Any = {**_RUN, "node": "gpu01", "ray": {}}
    folder = Path(temp_files.temp_dir(spec["run"], 1, "t"))
    folder.mkdir(mode=0o700)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    guardian.guard(str(tmp_path), spec, pid, None)

    assert not folder.exists()


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What `ray start` has printed may be as large as the disk."""
    (tmp_path / ray.START_LOG).write_text("x" * (ray.TAIL_BYTES + 1) + "\nraylet exited\n")
    program = object.__new__(ray.Head)
    program._order = make_order(attempt=str(tmp_path))

    assert not program._report_lost_ray("did not start")
    said = capfd.readouterr().err
    assert said.endswith("\nraylet exited\nclusterctl: Ray did not start on gpu01 (127.0.0.1)\n")
    assert said.count("x") < ray.TAIL_BYTES


def test_a_socket_of_ray_has_a_path_that_the_kernel_takes() -> None:
    """107 characters, of which Ray takes 65."""
    longest = temp_files.temp_dir("j" * 64 + "-20261123T100000-0123456789abcdef", 999, "t")

    assert len(longest) + len("/r") + 65 <= 107
