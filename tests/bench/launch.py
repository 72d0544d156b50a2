"""From the command to the first collective: `clusterctl launch` against torchrun by hand, torchrunx and DeepSpeed.

    python -m tests.bench launch [-n NODES] [-r ROUNDS] [--peers PYTHON]

Builds a lab of its own and lets the ways take turns. By hand means: the same torchrun lines, the code is on the nodes
already, nothing is checked, and one `ssh` per node starts at the same moment. torchrunx and DeepSpeed (over pdsh) are
started on one more node, where torch is warm too, with their code in place; PYTHON has them and stands outside of /tmp,
which every node has of its own. clusterctl's time includes connecting, checks and code transfer.
Warm nodes: the launch after one with `--keep-warm`, which is not timed; between the two are the seconds in which a
person edits a line. All other launches repeat the whole check (`--recheck`).
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

from bare import FOLDER, NODES, Peer, peers_here, prepare
from faulting import put
from measuring import Bar, Sample, Way, alternate, compare, options_for, report, wall_of

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab
from clusterctl.lab.layout import DEFAULT_NICS

SCRIPT = """
def work():
    import torch, torch.distributed as dist
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print("FIRST COLLECTIVE", int(total.item()), flush=True)
    dist.destroy_process_group()

work()
"""
JOB = "{name: bench, script: train.py, nproc_per_node: 1, backend: gloo, grace: 2s}\n"
COMMAND = (sys.executable, "-m", "clusterctl")
OURS, FORKED, BY_HAND = "clusterctl", "clusterctl, start: fork", "by hand"
WARM = "clusterctl, warm nodes"
MAX_MORE = 0.5  # seconds more than by hand
MAX_FORKED, MAX_WARM = 0.8, 0.25  # of the time by hand
EDITING = 3.0  # seconds
PORTS = itertools.count(29600)


def main() -> None:
    """Run the rounds and print what was measured."""
    options = options_for(__doc__, rounds=5)
    options.add_argument("-n", "--nodes", type=int, default=3)
    options.add_argument("--peers", metavar="PYTHON", help="the Python that has torchrunx or DeepSpeed")
    asked = options.parse_args()
    peers = [peer for peer in peers_here(asked.peers) if not peer.name.startswith("torchrun,")]
    if asked.nodes != NODES - 1:
        peers = []  # they are written for three
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        place = Path(folder) / "clusterctl" / "lab"
        lab = up(
            place, LabOptions(name="bench", count=asked.nodes + bool(peers), nics=DEFAULT_NICS, bound=True)
        )
        try:
            ways = ways_of(lab, Path(folder), asked.nodes, peers)
            seen = alternate(ways, asked.rounds)
        finally:
            labs.down(place)
    more = wall_of(seen[OURS]) - wall_of(seen[BY_HAND])
    table = compare(f"From the command to the first collective, {asked.nodes} nodes", seen, against=BY_HAND)
    forked = wall_of(seen[FORKED]) / wall_of(seen[BY_HAND])
    bars = [
        Bar("more than by hand", more, MAX_MORE, "s"),
        Bar("start: fork", forked, MAX_FORKED, "x by hand"),
        Bar("warm nodes", wall_of(seen[WARM]) / wall_of(seen[BY_HAND]), MAX_WARM, "x by hand"),
    ]
    raise SystemExit(report("launch", [table], bars, asked))


def ways_of(lab: Lab, folder: Path, count: int, peers: Sequence[Peer]) -> list[Way]:
    """Put everything in place for all ways."""
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    (project / "job.yaml").write_text(JOB.replace("{name", f"{{nodes: {count}, name"))
    lines = by_hand_lines(lab, project, count)
    ways = [
        Way(OURS, lambda: Sample(time_clusterctl(lab, project, "--recheck"))),
        Way(FORKED, lambda: Sample(time_clusterctl(lab, project, "--recheck", "--set", "start=fork"))),
        Way(WARM, lambda: Sample(time_warm(lab, project))),
        Way(BY_HAND, lambda: Sample(time_by_hand(lab, lines))),
    ]
    if peers:
        prepare(lab, lab.nodes, (lab.directory / "id_ed25519").read_text(encoding="ascii"))
        for node in lab.nodes:
            put(node, f"{FOLDER}/train.py", SCRIPT)
    return [*ways, *(Way(peer.name, lambda peer=peer: Sample(time_peer(lab, peer))) for peer in peers)]  # type: ignore[misc]  # a default binds the loop's value


def time_peer(lab: Lab, peer: Peer) -> float:
    """Start a peer on the node that is left over."""
    commands = [lab.ssh_command(lab.nodes[rank].name, [line]) for rank, line in peer.lines(lab.nodes)]
    return _until_collective(commands)


def time_clusterctl(lab: Lab, project: Path, *options: str) -> float:
    """Launch and wait for the first collective; gives seconds since the command was started."""
    command = [*COMMAND, "-i", str(lab.inventory), "launch", str(project / "job.yaml"), *options]
    return _until_collective([command])


def time_warm(lab: Lab, project: Path) -> float:
    """Launch twice and give the time of the second; then the nodes are cold again, for the other ways."""
    time_clusterctl(lab, project, "--recheck", "--keep-warm", "10m")
    time.sleep(EDITING)
    seconds = time_clusterctl(lab, project, "--keep-warm", "10m")
    subprocess.run([*COMMAND, "-i", str(lab.inventory), "stop", "--warm"], check=True, capture_output=True)
    return seconds


def time_by_hand(lab: Lab, lines: Sequence[str]) -> float:
    """Start the torchrun lines over ssh at the same moment; a new port each time, as one would by hand."""
    port = str(next(PORTS))
    commands = [
        lab.ssh_command(node.name, [line.replace("<port@node0>", port)])
        for node, line in zip(lab.nodes, lines, strict=False)
    ]
    return _until_collective(commands)


def _until_collective(commands: Sequence[Sequence[str]]) -> float:
    """Start commands into one pipe, read it until rank 0 has what all gave, and wait for the commands to end.

    Only rank 0 reports it: it is the only one that torchrunx shows.
    """
    read, write = os.pipe()
    began = time.monotonic()
    running = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    os.close(write)
    seconds = 0.0
    with os.fdopen(read, encoding="utf-8", errors="replace") as pipe:
        for line in pipe:
            if "FIRST COLLECTIVE" in line and not seconds:
                seconds = time.monotonic() - began
    codes = [process.wait() for process in running]
    if not seconds or any(codes):
        raise SystemExit(f"failed: {commands[0]}, exit codes {codes}")
    return seconds


def by_hand_lines(lab: Lab, project: Path, count: int) -> list[str]:
    """Put the code on the nodes and give each node's shell line, as `--dry-run` shows it."""
    for node in lab.nodes[:count]:
        script = (project / "train.py").read_text()
        subprocess.run(
            lab.ssh_command(node.name, ["mkdir -p byhand && cat > byhand/train.py"]),
            input=script,
            text=True,
            check=True,
        )
    shown = subprocess.run(
        [*COMMAND, "-i", str(lab.inventory), "launch", "--dry-run", "--json", str(project / "job.yaml")],
        capture_output=True,
        text=True,
        check=True,
    )
    plan: dict[str, Any] = json.loads(shown.stdout)["plan"]
    return [_line(node) for node in plan["nodes"]]


def _line(node: dict[str, Any]) -> str:
    exports = [f"export {key}='{value}'" for key, value in node["env"].items()]
    words = [
        word.replace("<run_dir>/attempt-1", "logs").replace("<run_id>", "by-hand") for word in node["argv"]
    ]
    words = [word if flag != "--redirects" else "0" for flag, word in zip(["", *words], words, strict=False)]
    return "; ".join(["cd byhand", *exports, " ".join(words)])


if __name__ == "__main__":
    main()
