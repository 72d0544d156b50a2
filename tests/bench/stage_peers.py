"""What the bench `stage` needs besides `cp`: a hub, processor time of nodes, a node that dies, a second look."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from measuring import Sample, Way, tell

from clusterctl.lab.labs import Lab, LabNode

COMMAND = (sys.executable, "-m", "clusterctl")
HUB = Path(__file__).parents[1] / "support/hub.py"
HUB_ONE, HUB_ALL = "stage hf://, to one", "stage hf://, to all"
HF_EACH, ARIA_EACH = "hf download, on each", "aria2c, on each"
SPARSE_FILES, SPARSE_MB = 10_000, 2
TICK = os.sysconf("SC_CLK_TCK")


@contextmanager
def serving_model(lab: Lab, parts: int, size: int) -> Iterator[str]:
    """Serve a model of so many files from the first node; gives the address."""
    sizes = json.dumps({f"model-{part}.safetensors": size for part in range(parts)})
    command = lab.ssh_command(lab.nodes[0].name, [sys.executable, str(HUB), f"'{sizes}'"])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]  # keywords
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip().replace("0.0.0.0", lab.plan.nodes[0].ip)
        finally:
            process.stdin.close()
            process.wait()


def ways_from_hub(lab: Lab, folder: Path, url: str, parts: int) -> list[Way]:
    """Return how all nodes but the first get the model of a hub; what is not installed is left out."""
    others = lab.nodes[1:]
    stage = [{"from": "hf://org/name", "to": "~/target"}]
    job = write_job(folder / "hub", len(others), stage, {"HF_ENDPOINT": url})
    one = write_job(folder / "hub-one", 1, stage, {"HF_ENDPOINT": url})
    ways = [
        Way(HUB_ONE, lambda: time_stage(lab, one, others[:1])),
        Way(HUB_ALL, lambda: time_stage(lab, job, others)),
    ]
    if importlib.util.find_spec("huggingface_hub") is None:
        tell("huggingface_hub is not installed and left out: pip install huggingface_hub")
    else:
        hf = f"HF_ENDPOINT={url} HF_HUB_DISABLE_XET=1 {sys.executable} -m huggingface_hub.cli.hf"
        download = f"{hf} download org/name --local-dir target >/dev/null 2>&1"
        ways.append(Way(HF_EACH, lambda: time_on_each(lab, others, download)))
    if shutil.which("aria2c") is None:
        tell("aria2c is not installed and left out: apt install aria2")
    else:
        urls = " ".join(f"{url}/org/name/resolve/main/model-{part}.safetensors" for part in range(parts))
        aria = f"aria2c -q -Z -x4 -s4 --file-allocation=none -d target {urls}"
        ways.append(Way(ARIA_EACH, lambda: time_on_each(lab, others, aria)))
    return ways


def time_on_each(lab: Lab, nodes: Sequence[LabNode], command: str) -> Sample:
    """Run a command on nodes at the same moment."""
    began = time.monotonic()
    running = [
        subprocess.Popen(lab.ssh_command(node.name, [command]), stdin=subprocess.DEVNULL) for node in nodes
    ]
    codes = [process.wait() for process in running]
    seconds = time.monotonic() - began
    if any(codes):
        raise SystemExit(f"{command} failed: {codes}")
    remove(nodes, "target")
    return Sample(seconds)


def time_stage(lab: Lab, job: Path, nodes: Sequence[LabNode]) -> Sample:
    """Stage what a job names, and remove it."""
    seconds = stage_on(lab, job, nodes)
    remove(nodes, "target", ".clusterctl/staged")
    return Sample(seconds)


def stage_on(lab: Lab, job: Path, nodes: Sequence[LabNode]) -> float:
    """Stage what a job names; gives the seconds."""
    seconds, code, said = run_clusterctl(
        lab, "stage", str(job), "--nodes", ",".join(node.name for node in nodes)
    )
    if code:
        raise SystemExit(said)
    return seconds


def run_clusterctl(lab: Lab, *arguments: str) -> tuple[float, int, str]:
    """Run a command; gives its seconds, its exit code, and what it printed as an error."""
    began = time.monotonic()
    done = subprocess.run(
        [*COMMAND, "-i", str(lab.inventory), *arguments], check=False, capture_output=True, text=True
    )
    return time.monotonic() - began, done.returncode, done.stderr


def write_job(folder: Path, nodes: int, stage: object, env: dict[str, str]) -> Path:
    """Write a job that only stages."""
    folder.mkdir()
    (folder / "train.py").write_text("")
    job = {
        "name": "bench",
        "script": "train.py",
        "nodes": nodes,
        "nproc_per_node": 1,
        "env": env,
        "stage": stage,
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    return folder / "job.yaml"


def time_second_look(lab: Lab, folder: Path) -> float:
    """Return the seconds that 20 GB which are there already cost beyond one small file."""
    pair = lab.nodes[:2]
    make = (
        f"mkdir sparse one && cd sparse && for i in $(seq {SPARSE_FILES}); do"
        f" echo $i > f$i; done && truncate -s {SPARSE_MB}M * && echo 1 > ../one/f"
    )
    for node in pair:
        node.run(["sh", "-c", f"cd && {make}"], timeout=600)
    seconds = {}
    for name in ("sparse", "one"):
        stage = [{"from": f"{pair[0].name}:{name}", "to": "~/"}]
        job = write_job(folder / name, 1, stage, {})
        looks = [stage_on(lab, job, pair[1:]) for _ in range(4)]
        tell(f"stage of {name}: " + " ".join(f"{look:.2f}" for look in looks))
        seconds[name] = min(looks[1:])
    remove(pair, "sparse", "one")
    return seconds["sparse"] - seconds["one"]


def kill_receiver(node: LabNode) -> None:
    """Kill what receives files on a node, and sends them on."""
    for process in node.list_processes():
        if "clusterctl-boot" in process.command:
            node.run(["kill", "-9", str(process.pid)], check=False)


def measure_cpu(nodes: Sequence[LabNode]) -> list[float]:
    """Return the processor seconds of all sessions that each node has served so far, and that have ended."""
    return [_ended_cpu(node) for node in nodes]


def _ended_cpu(node: LabNode) -> float:
    state = node.read_state()
    processes = Path(f"/proc/{state.pid}/root/proc")
    used = 0
    for pid in (1, state.sshd):  # what outlives its session is the init's
        fields = (processes / str(pid) / "stat").read_text().rpartition(")")[2].split()
        used += sum(map(int, fields[11:15]))  # its own and that of the children that it waited for
    return used / TICK


def remove(nodes: Sequence[LabNode], *names: str) -> None:
    """Remove directories of the homes."""
    for node in nodes:
        node.run(["sh", "-c", "cd && rm -rf " + " ".join(names)])
