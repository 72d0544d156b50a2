"""Faults injected for real: what is noticed, which node is named, and that nothing is left."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from driving import (
    HELLO,
    LINKED,
    STUBBED,
    cctl,
    kill_leftovers,
    leftovers,
    make_project,
    read_until,
    run_id,
    running_processes,
    said,
    start_cctl,
    tagged,
)
from variants import VARIANT, first
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab, LabNode, NodeProcess, break_node

# The worst guests: workers that ignore TERM, with children that left their session.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
subprocess.Popen(["setsid", "sh", "-c", "trap '' TERM; sleep 600 & wait"])
print("settled", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def clean_nodes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep one test's leftovers out of the next; a test that must leave nothing asserts it itself."""
    yield
    if "cluster" in request.fixturenames:
        cluster: Lab = request.getfixturevalue("cluster")
        kill_leftovers(cluster)


def find(node: LabNode, word: str) -> NodeProcess:
    """Find the run's first process whose command holds a word."""
    return next(process for process in node.list_processes() if word in process.command)


VICTIMS: dict[str, Callable[[LabNode], NodeProcess]] = {
    "guardian": lambda node: find(node, ".zip guardian"),
    "agent": lambda node: child(node, "guardian"),
    "torchrun": lambda node: find(node, ".zip gate"),
}


def child(node: LabNode, parent: str) -> NodeProcess:
    """Find the agent: the child of the guardian, whose command line it shares."""
    guardian = find(node, f".zip {parent}")
    pids = node.run(["cat", f"/proc/{guardian.pid}/task/{guardian.pid}/children"]).stdout.split()
    return next(process for process in node.list_processes() if str(process.pid) in pids)


def torch_for(victim: str) -> dict[str, str]:
    """Give real torch to the tests of what torchrun does; tests/payload kills the others below it as well."""
    return {} if victim == "torchrun" else STUBBED


@pytest.mark.parametrize("victim", first(1, ["guardian", "agent", "torchrun"]))
def test_a_detached_node_cleans_up_by_itself(cluster: Lab, tmp_path: Path, victim: str) -> None:
    """Nobody watches: the killed one's own node becomes empty all the same."""
    node = cluster.nodes[2]
    more = {"nodes": node.name, "env": torch_for(victim)}
    job = make_project(tmp_path, STUBBORN, nproc_per_node=2, grace="1h", **more)
    launched = cctl(cluster, "launch", "-d", job)
    assert launched.code == 0, launched.err
    wait_until(
        lambda: len([p for p in node.list_processes() if "sleep 600" in p.command]) >= 2, "grandchildren"
    )

    node.run(["kill", "-9", str(VICTIMS[victim](node).pid)])

    wait_until(lambda: node.name not in running_processes(cluster), f"{node.name} empty")
    stopped = cctl(cluster, "stop", launched.out.strip(), "--grace", "0")
    assert stopped.code == 0, stopped.err
    assert leftovers(cluster) == {}


def settled(lab: Lab, run: str) -> list[str]:
    """Name the nodes on which a run of STUBBORN has all its processes."""
    return [name for name, found in tagged(lab, run).items() if any(p.command == "sleep 600" for p in found)]


def test_stop_touches_no_other_run(cluster: Lab, tmp_path: Path) -> None:
    """Two runs side by side: stopping one leaves every process of the other."""
    job = make_project(tmp_path, STUBBORN, grace="0s", nodes=2, env=STUBBED)
    first = cctl(cluster, "launch", "-d", job).out.strip()
    second = cctl(cluster, "launch", "-d", job).out.strip()
    wait_until(lambda: len(settled(cluster, second)) == 2, "the second run's grandchildren everywhere")
    before = tagged(cluster, second)

    ambiguous = cctl(cluster, "stop")
    stopped = cctl(cluster, "stop", first)

    assert ambiguous.code == 2
    assert first in ambiguous.err
    assert second in ambiguous.err
    assert stopped.code == 0, stopped.err
    assert tagged(cluster, first) == {}
    after = tagged(cluster, second)
    for name, processes in before.items():
        assert {process.pid for process in processes} <= {process.pid for process in after[name]}
    assert cctl(cluster, "stop", "-y").code == 0
    assert leftovers(cluster) == {}


def test_somebody_elses_stop_is_not_called_a_failure(cluster: Lab, tmp_path: Path) -> None:
    """`stop` from another terminal: the attached launch says who stopped it, and blames no rank."""
    launching = start_cctl(cluster, "launch", make_project(tmp_path, LINKED, nodes=2, launcher="python"))
    for _ in range(2):
        read_until(launching, "linked")
    assert cctl(cluster, "stop", "-y").code == 0
    _, err = launching.communicate(timeout=HANG)

    assert launching.returncode == 1, err
    assert "STOPPED after" in err
    assert "✗" not in err
    assert "stopped by" in err


LAZY = 'import os, time\nwhile not os.path.exists("/tmp/lazy/awake"): time.sleep(0.05)'


def test_a_launch_that_fails_half_way_ends_what_had_started(cluster: Lab, tmp_path: Path) -> None:
    """The master and another node have their GO, the third falls silent and dies: nothing runs on unwatched."""
    slow, silent = cluster.nodes[1], cluster.nodes[2]
    slow.run(["sh", "-c", f"mkdir -p /tmp/lazy && echo '{LAZY}' > /tmp/lazy/sitecustomize.py"])
    job = make_project(tmp_path, STUBBORN, env={"PYTHONPATH": f"/tmp/lazy:{STUBBED['PYTHONPATH']}"})
    launching = start_cctl(cluster, "launch", job, "-v")
    assert launching.stderr is not None
    while f"{silent.name} ready" not in launching.stderr.readline():
        assert launching.poll() is None
    relays = [str(one.pid) for one in silent.list_processes() if "b=getattr(sys.stdin" in one.command]
    silent.run(["kill", "-STOP", *relays])
    slow.run(["touch", "/tmp/lazy/awake"])
    while "ready   3/3 nodes" not in launching.stderr.readline():
        assert launching.poll() is None
    wait_until(
        lambda: set(settled(cluster, "")) == {node.name for node in cluster.nodes[:2]},
        "GO is out to the two others",
    )

    silent.run(["kill", "-9", *relays])
    err = launching.stderr.read()

    assert launching.wait(HANG) != 0, err
    assert silent.name in err
    assert "the run was stopped on all nodes" in err
    wait_until(lambda: running_processes(cluster) == {}, "nothing left anywhere")


def test_a_run_that_disappears_under_the_watcher_is_lost_not_retried_for_ever(
    cluster: Lab, tmp_path: Path
) -> None:
    """The run directory of one node is removed and its connection cut: its agent ends the run, and names that."""
    launching = start_cctl(cluster, "launch", make_project(tmp_path, STUBBORN, env=STUBBED))
    for _ in range(3):
        read_until(launching, "settled")
    node = cluster.nodes[1]
    runs = f"{cluster.plan.account.home}/.clusterctl/runs"
    # this run's, and no other's; moved first, since `rm` fails where the agent writes a file meanwhile
    node.run(
        [
            "sh",
            "-c",
            f'cd {runs} && mv "$(ls -t | head -n 1)" ../gone && {{ rm -rf ../gone || rm -rf ../gone; }}',
        ]
    )
    sessions = [process for process in node.list_processes() if process.command.startswith("sshd: ")]
    node.run(
        ["kill", "-9", *(str(process.pid) for process in sessions)], check=False
    )  # one may end by another
    _, err = launching.communicate(timeout=HANG)

    assert launching.returncode == 1, err
    assert f"{node.name} is lost" in err
    assert err.count("reconnecting") <= 3
    assert f"{node.name}: the directory of the run was removed" in err
    wait_until(
        lambda: not any("train.py" in p.command for n in cluster.nodes for p in n.list_processes()),
        "all ended",
    )


def test_a_wrong_nic_name_is_caught_by_check(cluster: Lab, tmp_path: Path) -> None:
    """check names node, NIC and what there is; --ignore-checks lets it through, and Gloo's own error is the cause."""
    inventory = tmp_path / "inventory.yaml"
    nic = cluster.nodes[1].plan.nics[-1].name
    text = cluster.inventory.read_text(encoding="utf-8")
    assert text.count(f'"{nic}"') == 1
    inventory.write_text(text.replace(f'"{nic}"', '"eth7"'), encoding="utf-8")
    job = make_project(tmp_path / "p", HELLO, nodes=2, start="fork")

    check = cctl(None, "-i", inventory, "check", job)
    refused = cctl(None, "-i", inventory, "launch", job)
    forced = cctl(None, "-i", inventory, "launch", job, "--ignore-checks")

    assert check.code == 3
    assert "eth7" in check.out
    assert nic in check.out
    assert refused.code == 3
    assert "nothing was started" in refused.err
    assert forced.code == 1
    assert f"rank 1 on {cluster.nodes[1].name}" in forced.err
    assert "Unable to find address for: eth7" in forced.err
    assert leftovers(cluster) == {}


@VARIANT
def test_a_nic_that_is_down_is_caught_by_check(make_lab: Callable[..., Lab]) -> None:
    """SSH goes over another NIC, so check can see that the training NIC is down."""
    lab = make_lab(n=2, nics=["mgmt0+ib0", "mgmt1+ib1"], name="two")
    down = lab.nodes[1]
    assert cctl(lab, "check").code == 0
    break_node(lab, down.name, "nic-down")

    check = cctl(lab, "check", "--json")

    assert check.code == 3, check.out + check.err
    named = [finding for finding in json.loads(check.out)["findings"] if finding["severity"] == "error"]
    assert {name for finding in named for name in finding["nodes"]} >= {down.name}
    assert any("ib1" in finding["evidence"] for finding in named)


def test_a_changed_host_key_is_refused(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """A node whose host key is not the known one gets nothing; file and line of the known one are named."""
    lab = make_lab(n=2, name="keys")
    known = lab.directory / "known_hosts"
    lines = known.read_text(encoding="utf-8").splitlines()
    first, second = (
        next(index for index, line in enumerate(lines) if node.plan.host in line) for node in lab.nodes
    )
    hosts, _, _ = lines[first].partition(" ")
    _, _, key = lines[second].partition(" ")
    lines[first] = f"{hosts} {key}"
    known.write_text("\n".join(lines) + "\n", encoding="utf-8")

    result = cctl(lab, "launch", make_project(tmp_path, HELLO))

    assert result.code == 4
    assert f"{known}:{first + 1}" in result.err
    assert "CC-SSH-010" in result.err
    assert leftovers(lab) == {}


def test_a_full_disk_is_a_clear_error_and_starts_nothing(cluster: Lab, tmp_path: Path) -> None:
    """The work directory's disk is full on one node: named with its path, all other nodes are cancelled."""
    node = cluster.nodes[1]
    node.run(["mkdir", "-p", "/tmp/small"])
    node.run(["mount", "-t", "tmpfs", "-o", "size=200k,mode=1777", "tmpfs", "/tmp/small"])
    inventory = tmp_path / "inventory.yaml"
    text = cluster.inventory.read_text(encoding="utf-8").replace(
        f"{{name: {node.name},", f"{{name: {node.name}, workdir: /tmp/small/work,"
    )
    inventory.write_text(text, encoding="utf-8")
    job = make_project(tmp_path / "p", HELLO, env=STUBBED)
    (tmp_path / "p" / "weights.bin").write_bytes(bytes(range(256)) * 4096)
    try:
        result = cctl(None, "-i", inventory, "launch", job, "--ignore-checks")
    finally:
        node.run(["umount", "/tmp/small"], check=False)

    assert result.code == 1, result.err
    assert "CC-DISK-001" in result.err
    assert node.name in result.err
    assert "/tmp/small/work" in result.err
    wait_until(lambda: running_processes(cluster) == {}, "nothing left")
    started = re.search(r"run (t-[\w-]+):", result.err)
    assert started is not None
    listed = {run["run"]: run["state"] for run in json.loads(cctl(cluster, "ps", "--json").out)["runs"]}
    # where no other node had begun when this one failed, none has a part of it
    assert listed.get(started.group(1), "STOPPED") == "STOPPED"


def test_a_missing_interpreter_is_named(cluster: Lab, tmp_path: Path) -> None:
    """A wrong `python:` is found by check, with the node and the path."""
    job = make_project(tmp_path, HELLO, python="/no/such/python 3")

    result = cctl(cluster, "check", job, "--json")

    assert result.code == 3
    findings = json.loads(result.out)["findings"]
    assert [finding["code"] for finding in findings] == ["CC-PY-001"]
    assert "/no/such/python 3" in json.dumps(findings)


def test_a_gate_that_cannot_import_torch_stops_the_launch(cluster: Lab, tmp_path: Path) -> None:
    """A broken torch on one node shows its own error; the others are cancelled before the launch ends, also one whose
    import hangs."""
    _, hangs, broken = cluster.nodes
    for node, text in (
        (hangs, "import time; time.sleep(600)"),
        (broken, 'raise OSError("libcudart.so.12: gone")'),
    ):
        node.run(["mkdir", "-p", "/tmp/bad/torch"])
        node.run(["sh", "-c", "cat > /tmp/bad/torch/__init__.py"], input=text)
    job = make_project(tmp_path, HELLO, env={"PYTHONPATH": f"/tmp/bad:{STUBBED['PYTHONPATH']}"})

    result = cctl(cluster, "launch", job)
    left = running_processes(cluster)
    gates = [name for name, commands in left.items() if any(".zip gate" in command for command in commands)]

    assert result.code == 1
    assert "libcudart.so.12: gone" in result.err
    assert f"{broken.name}: torchrun cannot be imported" in result.err
    assert "nothing was started" in result.err
    assert gates == [], left
    wait_until(lambda: running_processes(cluster) == {}, "nothing left")


def test_noise_in_bashrc_does_no_harm(cluster: Lab, tmp_path: Path) -> None:
    """A .bashrc that prints and reads is skipped by the sentinel."""
    node = cluster.nodes[0]
    bashrc = f"{cluster.plan.account.home}/.bashrc"
    node.run(
        [
            "sh",
            "-c",
            f"cp -p {bashrc} {bashrc}.kept 2>/dev/null; printf 'echo noise; echo more >&2\\n' > {bashrc}",
        ]
    )
    try:
        job = make_project(tmp_path, "print('here')", nodes=2, env=STUBBED)
        result = cctl(cluster, "launch", job, "--json")
    finally:
        node.run(["sh", "-c", f"rm -f {bashrc}; mv {bashrc}.kept {bashrc} 2>/dev/null"], check=False)

    assert result.code == 0, result.err
    assert said(result.json_lines()) == ["here", "here"]


# What HELLO prints, without torch and Gloo.
BRIEF_HELLO = """
import json, os
print(json.dumps({"sum": float(sum(range(1, int(os.environ["WORLD_SIZE"]) + 1))), "RANK": os.environ["RANK"]}))
"""


@pytest.mark.parametrize("torch", [False, pytest.param(True, marks=VARIANT)], ids=["stub", "torch"])
def test_an_ordinary_user_does_it_all(make_lab: Callable[..., Lab], ordinary_user: str, torch: bool) -> None:
    """Lab, check, launch, logs and stop as a user who is not root, from a home of his own."""
    lab = make_lab(n=2, user=ordinary_user, name="user")
    folder = lab.home / "p"  # type: ignore[attr-defined]  # the fixture's labs have a home
    job = {
        "name": "u",
        "script": "train.py",
        "nproc_per_node": 1,
        "backend": "gloo",
        "env": {} if torch else STUBBED,
    }
    files = {"train.py": HELLO if torch else BRIEF_HELLO, "job.yaml": json.dumps(job)}
    lab.run(["mkdir", str(folder)])  # type: ignore[attr-defined]  # the same
    for name, text in files.items():
        lab.run(["tee", str(folder / name)], input=text)  # type: ignore[attr-defined]  # the same

    def user(*args: str) -> str:
        command = ["python", "-m", "clusterctl", *args]
        done = lab.run(command, cwd=folder, timeout=5 * HANG)  # type: ignore[attr-defined]  # the same
        return str(done.stdout) + str(done.stderr)

    assert "are ready" in user("check", "job.yaml")
    launched = user("launch", "job.yaml")
    assert "SUCCEEDED" in launched
    assert '"sum": 3.0' in launched
    assert run_id(launched) in user("ps", "-v")
    assert '"RANK": "1"' in user("logs", "--rank", "1")
    assert leftovers(lab) == {}
