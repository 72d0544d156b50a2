"""How often the root cause that is named is the right one: real faults in real runs on a lab.

    python tests/bench/causes.py [-r ROUNDS] [--record FOLDER] [SCENARIO ...]

Each scenario breaks one rank of three in its own way, and reports which node, rank and words must be named. With
`--record`, what the nodes reported in the last round is written as a case for tests/plans/cases/causes.
Not part of `./test`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab, LabNode
from clusterctl.lab.layout import DEFAULT_NICS

COMMAND = (sys.executable, "-m", "clusterctl")
CGROUPS = Path("/sys/fs/cgroup/memory")

ENDS = ("rank", "exit", "signal")
TELLING = ("rank_exited", "stopping", "torchrun_exited")
MOST_LINES = 40

# Every script trains with its peers; `breaking` is what one rank does in its fourth step.
FRAME = """
import datetime, os, sys, time
import torch, torch.distributed as dist

{before}
rank = int(os.environ["RANK"])
{setup}
for step in range(100):
    if step == 3 and rank == {rank}:
        print("about to break", os.getpid(), flush=True)
{breaking}
    dist.all_reduce(torch.ones(1))
    time.sleep(0.05)
"""


class Impossible(Exception):
    """This machine cannot have the scenario; the text gives the reason."""


@dataclass(frozen=True)
class Scenario:
    """One fault: the script, and which rank and words must be named; `rank` is also the node's number."""

    rank: int
    said: str  # a regular expression that the exception, or the way it ended, must hold
    source: str
    code: str = ""
    prepare: Callable[[Lab], Callable[[], object]] | None = (
        None  # makes the fault ready; gives what undoes it
    )
    inventory: Callable[[str, Lab], str] | None = None
    meanwhile: Callable[[LabNode, int], object] | None = (
        None  # what is done to the rank that is about to break
    )
    nodes: int = 3


def script(
    rank: int, breaking: str, *, before: str = "", setup: str = 'dist.init_process_group("gloo")'
) -> str:
    """Give a script in which one rank breaks."""
    return FRAME.format(
        rank=rank, breaking=textwrap.indent(textwrap.dedent(breaking), " " * 8), before=before, setup=setup
    )


CLEANING = """
import atexit, os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
try:
    if dist.get_rank() == 1:
        atexit.register(time.sleep, 3)
        raise ValueError("bad batch 17")
    dist.all_reduce(torch.ones(1))
    time.sleep(60)
finally:
    dist.destroy_process_group()
"""
CHAINED = """
import datetime, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=3))
try:
    if dist.get_rank() == 1:
        raise KeyError("label 1001")
    dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(1))
finally:
    dist.barrier()
"""
THREE = """
import os, time
rank = int(os.environ["RANK"])
time.sleep(1.0 + 0.3 * ((rank + 1) % 3))
raise ValueError(f"shard {rank} is damaged")
"""
FORKED = """
import os, signal, torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        rank = int(os.environ["RANK"])
        if index == 17 and rank == 2:
            {fault}
        return torch.ones({size})

dist.init_process_group("gloo")
for batch in DataLoader(Images(), batch_size=8, num_workers=2, {options}):
    dist.all_reduce(torch.ones(1))
"""
EARLY = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(50):
    if step == 5 and dist.get_rank() == 1:
        os._exit(0)
    dist.all_reduce(torch.ones(1))
"""
LEFT = """
import atexit, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
try:
    for step in range(50):
        if step == 5 and dist.get_rank() == 2:
            {slow}
            sys.exit(0)
        dist.all_reduce(torch.ones(1))
finally:
    dist.destroy_process_group()
"""
STOPPED = """
import datetime, os, time, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
for step in range(1000):
    dist.all_reduce(torch.ones(1))
    if step == 3 and dist.get_rank() == 1:
        print("about to break", os.getpid(), flush=True)
    time.sleep(0.05)
"""
OOM_TEXT = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.02 GiB is "
    "free. Including non-PyTorch memory, this process has 78.11 GiB memory in use."
)


def run_on(command: str, undo: str, place: int = 1) -> Callable[[Lab], Callable[[], object]]:
    """Prepare by a shell command on one node."""

    def prepare(lab: Lab) -> Callable[[], object]:
        lab.nodes[place].run(["sh", "-c", command])
        return lambda: lab.nodes[place].run(["sh", "-c", undo], check=False)

    return prepare


def module_elsewhere(lab: Lab) -> Callable[[], object]:
    """Have a module on all nodes but the second."""
    for place in (0, 2):
        lab.nodes[place].run(["sh", "-c", "mkdir -p /tmp/extra && echo 'ok = 1' > /tmp/extra/fancy_optim.py"])
    return lambda: None


def wrong_nic(text: str, lab: Lab) -> str:
    """Name a NIC that the second node does not have."""
    return text.replace(f'"{lab.nodes[1].plan.nics[-1].name}"', '"eth7"')


def memory_cgroup(_: Lab) -> Callable[[], object]:
    """Make a memory cgroup whose limit the kernel enforces by killing."""
    group = CGROUPS / "clusterctl-bench"
    try:
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text("600M")
    except OSError as error:
        raise Impossible(f"no memory cgroup can be made: {error}") from None
    return group.rmdir


def confine(node: LabNode, pid: int) -> None:
    """Put a rank into the memory cgroup."""
    host = next(process.pid for process in node.list_processes() if process.pid == pid)
    outside = host_pid(node, host)
    (CGROUPS / "clusterctl-bench" / "cgroup.procs").write_text(str(outside))


def host_pid(node: LabNode, pid: int) -> int:
    """Find the number by which this machine knows a process of a node."""
    wanted = node.run(["readlink", f"/proc/{pid}/ns/pid"]).stdout.strip()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str((entry / "ns/pid").readlink()) == wanted:
                status = (entry / "status").read_text()
                numbers = re.search(r"^NSpid:\s+(.*)$", status, re.MULTILINE)
                if numbers and int(numbers[1].split()[-1]) == pid:
                    return int(entry.name)
        except OSError:
            continue
    raise Impossible(f"pid {pid} of {node.name} is not seen from here")


def freeze(node: LabNode, pid: int) -> None:
    """Stop a rank as a debugger or a careless `kill` does."""
    node.run(["kill", "-STOP", str(pid)])


SCENARIOS: Mapping[str, Scenario] = {
    "raise-and-clean-up": Scenario(1, r"ValueError: bad batch 17", CLEANING),
    "chained-with-barrier": Scenario(1, r"KeyError: 'label 1001'", CHAINED),
    "sigkill": Scenario(2, r"SIGKILL", script(2, "os.kill(os.getpid(), 9)"), "CC-JOB-041"),
    "segfault": Scenario(1, r"SIGSEGV", script(1, "import ctypes; ctypes.string_at(0)"), "CC-JOB-042"),
    "abort": Scenario(0, r"SIGABRT", script(0, "os.abort()"), "CC-JOB-044"),
    "three-at-once": Scenario(2, r"ValueError: shard 2 is damaged", THREE),
    "cuda-oom": Scenario(
        1, r"CUDA out of memory", script(1, f"raise torch.OutOfMemoryError({OOM_TEXT!r})"), "CC-JOB-001"
    ),
    "kernel-oom": Scenario(
        2,
        r"SIGKILL",
        script(2, "time.sleep(1.5)\nheap = []\nwhile True:\n    heap.append(bytearray(b'x' * 20_000_000))"),
        "CC-JOB-040",
        memory_cgroup,
        meanwhile=confine,
    ),
    "wrong-nic": Scenario(
        1, r"Unable to find address for: eth7", script(1, "pass"), "CC-JOB-030", inventory=wrong_nic
    ),
    "port-taken": Scenario(
        0,
        r"EADDRINUSE",
        script(
            0,
            'import socket\nkept = socket.create_server(("", 29777))\n'
            'dist.TCPStore("127.0.0.1", 29777, is_master=True, wait_for_workers=False)',
        ),
        "CC-JOB-024",
    ),
    "socket-taken": Scenario(
        0,
        r"OSError: \[Errno 98\] Address already in use",
        script(0, 'import socket\nsocket.create_server(("0.0.0.0", int(os.environ["MASTER_PORT"])))'),
        "CC-JOB-024",
    ),
    "module-missing": Scenario(
        1,
        r"ModuleNotFoundError: No module named 'fancy_optim'",
        script(1, "pass", before='sys.path.insert(0, "/tmp/extra"); import fancy_optim'),
        "CC-JOB-010",
        module_elsewhere,
    ),
    "disk-full": Scenario(
        1,
        r"file write failed|No space left|unexpected pos",
        script(1, 'torch.save(torch.ones(4_000_000), "/tmp/small/model.pt")'),
        "CC-JOB-021",
        run_on(
            "mkdir -p /tmp/small && mount -t tmpfs -o size=2m,mode=1777 tmpfs /tmp/small", "umount /tmp/small"
        ),
    ),
    "plain-disk-full": Scenario(
        1,
        r"No space left on device",
        script(1, 'open("/tmp/small/log", "wb").write(bytes(4_000_000))'),
        "CC-JOB-021",
        run_on(
            "mkdir -p /tmp/small && mount -t tmpfs -o size=2m,mode=1777 tmpfs /tmp/small", "umount /tmp/small"
        ),
    ),
    "shm-full": Scenario(
        2,
        r"bus error|shared memory|SIGBUS",
        FORKED.format(fault="pass", size="512, 1024", options=""),
        "CC-JOB-020",
        run_on("mount -t tmpfs -o size=4m,mode=1777 tmpfs /dev/shm", "umount /dev/shm", 2),
    ),
    "loader-killed": Scenario(
        2,
        r"DataLoader worker \(pid.*exited unexpectedly|killed by signal|ConnectionResetError",
        FORKED.format(fault="os.kill(os.getpid(), 9)", size="4", options=""),
        "CC-JOB-013|CC-JOB-019",  # torch does not always notice first
    ),
    "loader-raised": Scenario(
        2,
        r"OSError: image 17 is truncated",
        FORKED.format(fault='raise OSError("image 17 is truncated")', size="4", options=""),
    ),
    "open-files": Scenario(
        1,
        r"Too many open files",
        script(
            1,
            "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
            "kept = [open('/dev/null') for _ in range(64)]",
        ),
        "CC-JOB-023",
    ),
    "silent-exit": Scenario(1, r"exit code 3", script(1, "os._exit(3)")),
    "early-exit": Scenario(1, r"exit code 0", EARLY, "CC-JOB-053"),
    "early-return": Scenario(2, r"exit code 0", LEFT.format(slow="pass"), "CC-JOB-053"),
    "early-and-asleep": Scenario(
        2, r"SIGTERM", LEFT.format(slow="atexit.register(time.sleep, 60)"), "CC-JOB-053"
    ),
    "sigterm": Scenario(1, r"SIGTERM", script(1, "os.kill(os.getpid(), 15)"), "CC-JOB-045"),
    "stopped": Scenario(1, r"", STOPPED, "CC-JOB-050", meanwhile=freeze),
}


def main() -> None:
    """Run the scenarios and print how often the cause was right."""
    options = argparse.ArgumentParser(description="is the right cause named?")
    options.add_argument("-r", "--rounds", type=int, default=5)
    options.add_argument("--record", type=Path)
    options.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []])
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        state = Path(folder) / "clusterctl" / "lab"
        lab = up(state, LabOptions(name="bench", count=3, nics=DEFAULT_NICS, bound=True))
        try:
            wrong = [
                name for name in asked.scenarios or SCENARIOS if not measure(lab, Path(folder), name, asked)
            ]
        finally:
            labs.down(state)
    raise SystemExit(f"not always right: {', '.join(wrong)}" if wrong else 0)


def measure(lab: Lab, folder: Path, name: str, asked: argparse.Namespace) -> bool:
    """Run one scenario some times; true if it was right each time."""
    scenario, began, right = SCENARIOS[name], time.monotonic(), 0
    for _ in range(asked.rounds):
        try:
            with fault(scenario, lab):
                entries = launch(lab, folder, scenario)
        except Impossible as reason:
            print(f"{name:22} skipped: {reason}", flush=True)
            return True
        wrong = judge(entries[-1]["verdict"], scenario, lab)
        right += not wrong
        if wrong:
            print(f"{name:22} {wrong}", flush=True)
        if asked.record:
            record(asked.record / f"{name}.json", lab, entries, scenario)
    took = (time.monotonic() - began) / asked.rounds
    print(f"{name:22} {right} of {asked.rounds} right, {took:.1f} s each", flush=True)
    return bool(right == asked.rounds)


@contextmanager
def fault(scenario: Scenario, lab: Lab) -> Iterator[None]:
    """Make the fault ready, and undo it."""
    undo = scenario.prepare(lab) if scenario.prepare else lambda: None
    try:
        yield
    finally:
        undo()


def launch(lab: Lab, folder: Path, scenario: Scenario) -> list[dict[str, Any]]:
    """Launch the script and give what was printed, the verdict last."""
    project, inventory = folder / "project", folder / "inventory.yaml"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    (project / "train.py").write_text(scenario.source)
    (project / "job.yaml").write_text(
        "{name: bench, script: train.py, nproc_per_node: 1, backend: gloo, grace: 2s}\n"
    )
    text = lab.inventory.read_text()
    inventory.write_text(scenario.inventory(text, lab) if scenario.inventory else text)
    command = [
        *COMMAND,
        "-i",
        str(inventory),
        "launch",
        "--json",
        "--ignore-checks",
        str(project / "job.yaml"),
    ]
    entries = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            entries.append(json.loads(line))
            said = str(entries[-1].get("line", ""))
            if scenario.meanwhile and said.startswith("about to break"):
                scenario.meanwhile(lab.nodes[scenario.rank], int(said.rpartition(" ")[2]))
    if not entries or "verdict" not in entries[-1]:
        raise SystemExit(f"launch gave no verdict: {entries[-1:]}")
    return entries


def judge(verdict: Mapping[str, Any], scenario: Scenario, lab: Lab) -> str:
    """Say what is wrong with a verdict; nothing if it is right."""
    cause = verdict.get("cause")
    if cause is None:
        return f"no cause: {verdict['state']} {verdict.get('error') or ''}"
    place = (cause["node"], cause["rank"])
    wanted = (lab.nodes[scenario.rank].name, scenario.rank)
    words = f"{cause['exception']} {cause['ending']}"
    if place != wanted:
        return f"named {place}, {words!r}"
    if not re.search(scenario.said, words):
        return f"the right rank, but {words!r}"
    code = cause["code"] or ""
    return "" if re.fullmatch(scenario.code, code) else f"the right rank, but code {code!r}: {words!r}"


def record(path: Path, lab: Lab, entries: list[dict[str, Any]], scenario: Scenario) -> None:
    """Write what the nodes reported: ends, stops, and each rank's last lines of stderr, in seconds since the first."""
    run = entries[-1]["run"]
    events, lines = [], []
    for node in lab.nodes:
        texts = node.run(["sh", "-c", f"cat ~/.clusterctl/runs/{run}/*-{node.name}/events.jsonl"]).stdout
        told = [json.loads(line) for line in texts.splitlines()]
        events += [
            [each["time"], node.name, each["event"], *map(each.get, ENDS)]
            for each in told
            if each["event"] in TELLING
        ]
    for rank in range(len(lab.nodes)):
        said = [each for each in entries if each.get("rank") == rank and each.get("stream") == "stderr"]
        lines += [[each["time"], each["node"], rank, plain(each["line"])] for each in said[-MOST_LINES:]]
    began = min(each[0] for each in [*events, *lines])
    heard = [[round(each[0] - began, 3), *each[1:]] for each in [*events, *lines]]
    case = {"rank": scenario.rank, "said": scenario.said, "code": scenario.code}
    rows = ",\n".join(
        json.dumps(each, ensure_ascii=False) for each in sorted(heard, key=lambda each: each[0])
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"expected": {json.dumps(case)},\n"heard": [\n{rows}\n]}}\n', encoding="utf-8")


def plain(line: str) -> str:
    """Take this machine's own paths out of a line."""
    return line.replace(sys.prefix, "/opt/venv").replace(str(Path.home()), "/home/ann")


if __name__ == "__main__":
    main()
