"""Exported scripts on real nodes, without clusterctl: bash over ssh, and sbatch on a real Slurm on the lab's nodes."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Bed
from driving import HELLO, cctl, make_project
from variants import VARIANT
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab
from clusterctl.lab.layout import DEFAULT_NICS, SLURM_INVENTORY

# Without torch: every node meets node 0 at the address that it got, and reports which interface it was given.
MEET = """
import json, os, socket, sys, time

rank, size = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(place) as server:
        connections = [server.accept()[0] for _ in range(size - 1)]
for _ in range(600 if rank else 0):
    try:
        socket.create_connection(place)
        break
    except OSError:
        time.sleep(0.05)
names = {"host": socket.gethostname(), "rank": rank, "nic": os.environ["NCCL_SOCKET_IFNAME"]}
print(json.dumps({**names, "argv": sys.argv[1:], "secret": os.environ.get("SECRET")}), flush=True)
if "fail" in sys.argv and rank == 1:
    sys.exit(3)
if len(sys.argv) > 1:
    time.sleep(600)
"""
NICS = {f"gpu0{place}": f"={nic}" for place, nic in enumerate(DEFAULT_NICS[:3], 1)}


def export(lab: Lab, target: str, job: Path, *more: str | Path) -> Path:
    """Write the script of a job beside it."""
    script = job.parent / f"job.{target}"
    result = cctl(lab, "export", target, job, "-o", script, *more)
    assert result.code == 0, result.err
    return script


def records(text: str) -> list[dict[str, object]]:
    """Read what the ranks printed, in the order of their ranks."""
    found = [json.loads(line[line.index("{") :]) for line in text.splitlines() if '{"host"' in line]
    return sorted(found, key=lambda record: str(record.get("rank", record.get("RANK"))))


def exported_processes(lab: Lab) -> list[str]:
    """List what runs on the nodes for an exported script."""
    commands = [process.command for node in lab.nodes for process in node.list_processes()]
    return [command for command in commands if "train.py" in command or "node.sh" in command]


def test_the_script_for_bash_trains_on_nodes_with_different_interfaces(cluster: Lab, tmp_path: Path) -> None:
    """Real torchrun on two nodes, over ssh and nothing else; the script's arguments follow the job's."""
    script = export(cluster, "bash", make_project(tmp_path, HELLO, nodes=2))

    done = subprocess.run(
        ["bash", str(script)], capture_output=True, text=True, timeout=5 * HANG, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = records(done.stdout)
    two = list(NICS.items())[:2]
    assert [(one["host"], one["sum"], one["NCCL_SOCKET_IFNAME"]) for one in found] == [
        (host, 3.0, nic) for host, nic in two
    ]
    assert {one["GLOO_IFACE"] for one in found} == {nic[1:] for _, nic in two}
    assert exported_processes(cluster) == []


def test_one_failed_node_or_the_death_of_the_script_ends_all_nodes(cluster: Lab, tmp_path: Path) -> None:
    """The exit code is the first failure's; after SIGKILL of the script no process is left on any node."""
    job = make_project(tmp_path, MEET, launcher="python", secrets=["SECRET"], args=["x y"])
    script = export(cluster, "bash", job)
    secret = "it's $ecret"
    env = {"SECRET": secret, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

    failed = subprocess.run(
        ["bash", str(script), "fail"], env=env, capture_output=True, text=True, timeout=5 * HANG, check=False
    )
    assert failed.returncode == 3, failed.stdout + failed.stderr
    assert "gpu02: exit 3" in failed.stderr
    shown = {one["rank"]: (one["argv"], one["secret"]) for one in records(failed.stdout)}
    # the failed one has written; whether the others had, when they were ended, is theirs
    assert 1 in shown and all(one == (["x y", "fail"], secret) for one in shown.values())
    assert exported_processes(cluster) == []

    log, temporary = tmp_path / "screen", tmp_path / "tmp"
    temporary.mkdir()
    env["TMPDIR"] = str(temporary)
    with log.open("w") as screen, subprocess.Popen(["bash", str(script)], env=env, stdout=screen) as process:
        wait_until(lambda: len(records(log.read_text())) == 3, "three ranks run")
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: exported_processes(cluster) == [], "every process has ended")
    wait_until(lambda: local_processes(script) == [], "every process here has ended")
    assert list(temporary.iterdir()) == []


def local_processes(script: Path) -> list[str]:
    """List the processes of a script on the machine where it was started."""
    lines = (read_command(folder) for folder in Path("/proc").glob("[0-9]*"))
    return [line for line in lines if line.startswith("bash") and str(script) in line]


def read_command(folder: Path) -> str:
    """Read the command line of a process; empty if it has ended."""
    try:
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def wait_for_job(bed: Bed, number: str) -> str:
    """Wait until Slurm has ended a job; gives the state and the exit code."""

    def ended() -> str:
        shown = bed.ssh("gpu01", f"scontrol show job -o {number}")
        words = [word for word in shown.split() if word.startswith(("JobState=", "ExitCode="))]
        running = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
        return "" if any(word.endswith(running) for word in words) else " ".join(words)

    state: str = wait_until(ended, "Slurm has ended the job", every=0.2)
    return state


def submit(bed: Bed, script: Path, *words: str) -> str:
    """Copy the script and the code to the home that all nodes share, and submit it; gives the job's number."""
    files = {name: (script.parent / name).read_text() for name in (script.name, "train.py")}
    for name, text in files.items():
        bed.run(bed.ssh_command("gpu01", [f"mkdir -p p && cat >p/{name}"]), input=text)
    line = " ".join(["sbatch", "--parsable", script.name, *words])
    return bed.ssh("gpu01", f"cd p && SECRET=s {line}").strip()


def make_slurm(make_lab: Callable[..., Bed], user: str | None = None) -> Bed:
    """Make three nodes with a real Slurm; skips the test, with a reason, where there is none."""
    if shutil.which("slurmctld", path="/usr/sbin:/sbin") is None:
        pytest.skip("slurmctld is not installed: apt-get install --no-install-recommends slurm-wlm")
    return make_lab(n=3, slurm=True, user=user)


def test_slurm_runs_the_script_on_nodes_with_different_interfaces(
    make_lab: Callable[..., Bed], tmp_path: Path
) -> None:
    """Each task finds its own interface; a failed one ends all; a file per task; no secret in what Slurm shows."""
    slurm = make_slurm(make_lab)
    job = make_project(tmp_path, MEET, launcher="python", secrets=["SECRET"], args=[])
    bare = tmp_path / "inventory.yaml"  # reports nothing of the nodes' networks: the route decides
    bare.write_text(re.sub(r", ip: .*", "}", slurm.inventory.read_text()))
    script = export(slurm, "slurm", job, "-i", bare)

    number = submit(slurm, script)
    assert wait_for_job(slurm, number) == "JobState=COMPLETED ExitCode=0:0"
    found = records(slurm.ssh("gpu01", f"cat p/t-{number}/*.out"))
    assert {one["host"]: one["nic"] for one in found} == NICS
    assert {one["secret"] for one in found} == {"s"}

    # the cluster's own inventory lists no node: a number of nodes is enough
    script = export(
        slurm, "slurm", job, "-i", slurm.directory / SLURM_INVENTORY, "--set", "nodes=3", "--force"
    )
    number = submit(slurm, script, "fail")
    assert wait_for_job(slurm, number) == "JobState=FAILED ExitCode=3:0"
    assert "gpu02: exit 3;" in slurm.ssh("gpu01", f"cat p/t-{number}.out")
    assert slurm.ssh("gpu01", f"cd p/t-{number}; ls *.out").split() == [
        f"{number}.{task}.out" for task in range(3)
    ]


@VARIANT
def test_slurm_runs_torchrun_also_for_an_ordinary_user(
    make_lab: Callable[..., Bed], ordinary_user: str, tmp_path: Path
) -> None:
    """The same with torch, on a lab that needs no root: all ranks reach each other over Gloo."""
    slurm = make_slurm(make_lab, ordinary_user)
    number = submit(slurm, export(slurm, "slurm", make_project(tmp_path, HELLO)))

    assert wait_for_job(slurm, number) == "JobState=COMPLETED ExitCode=0:0"
    found = records(slurm.ssh("gpu01", f"cat p/t-{number}/*.out"))
    assert [(one["host"], one["sum"], one["NCCL_SOCKET_IFNAME"]) for one in found] == [
        (host, 6.0, nic) for host, nic in NICS.items()
    ]
