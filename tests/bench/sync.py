"""600 files, 8 MB, to 16 nodes: `clusterctl sync` against `rsync`, cold, unchanged, and with one file changed.

    python -m tests.bench sync [-n NODES] [-r ROUNDS] [--folder /dev/shm]

The nodes are addresses of one sshd on this machine, each with a directory of its own. rsync runs eight at a time, as
`xargs -P8` does it. Both begin with nothing on the nodes in the cold state; clusterctl has forgotten its hashes then.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from loopback import Nodes, loopback_nodes
from measuring import (
    Bar,
    Sample,
    Table,
    Way,
    alternate,
    compare,
    cpu_of,
    find_peers,
    options_for,
    report,
    time_commands,
    wall_of,
)

JOB = "{name: bench, script: train.py, nproc_per_node: 1, backend: gloo, sync: {source: tree}}\n"
WORDS = (
    "return",
    "self",
    "batch",
    "model",
    "loss",
    "optimizer",
    "import",
    "torch",
    "def",
    "step",
    "rank",
    "=",
)


def main() -> None:
    """Run the three states and print what was measured."""
    options = options_for(__doc__, rounds=5)
    options.add_argument("-n", "--nodes", type=int, default=16)
    options.add_argument("--files", type=int, default=600)
    options.add_argument("--megabytes", type=float, default=8.0)
    options.add_argument("--via", choices=["auto", "direct", "tree"], default="auto", help="sync.via: auto")
    options.add_argument(
        "--folder", type=Path, help="where all is kept, such as /dev/shm to leave the disk out"
    )
    asked = options.parse_args()
    if "rsync" not in find_peers("rsync"):
        raise SystemExit("without rsync there is nothing to compare with")
    with tempfile.TemporaryDirectory(prefix="cb-", dir=asked.folder) as scratch:
        folder = Path(scratch)
        make_tree(folder / "project" / "tree", asked.files, int(asked.megabytes * 1e6))
        (folder / "project" / "job.yaml").write_text(JOB)
        with loopback_nodes(folder, asked.nodes) as nodes:
            tables, bars = measure(Bench(nodes, folder / "project", asked.via), asked.rounds)
    raise SystemExit(report("sync", tables, bars, asked))


class Bench:
    """The nodes and the project, and the two ways between them.

    Each cold start has directories of its own: a file system is slow to give inodes again that were freed a moment ago.
    """

    def __init__(self, nodes: Nodes, project: Path, via: str) -> None:
        self.nodes, self.project, self.via = nodes, project, via
        self.random = random.Random(1)
        self.turn = 0

    def ours(self) -> Sample:
        """Sync with clusterctl."""
        words = ("-q", "sync", "--set", f"sync.via={self.via}", self.project / "job.yaml")
        return time_commands([self.nodes.command(*words)], env=self.nodes.environment)

    def rsync(self) -> Sample:
        """Sync with rsync, eight at a time."""
        source, shell = f"{self.project / 'tree'}/", f"ssh -F {self.nodes.ssh_config}"
        target = f"{{}}:{self.nodes.folder}/nodes/{{}}/rsync{self.turn}/"
        each = f"rsync -a --delete -e '{shell}' {source} {target}"
        line = f"printf '%s\\n' {' '.join(self.nodes.addresses)} | xargs -P8 -I{{}} {each}"
        return time_commands([["sh", "-c", line]])

    def cold(self, way: Callable[[], Sample]) -> Sample:
        """Begin with nothing, there and in our own memory."""
        self.turn += 1
        self.nodes.write_inventory(f"work{self.turn}")
        shutil.rmtree(self.nodes.folder / "state" / "clusterctl" / "trees", ignore_errors=True)
        return way()

    def changed(self, way: Callable[[], Sample]) -> Sample:
        """Change one file first."""
        (self.project / "tree" / "train.py").write_text(text_of(self.random, 20_000))
        return way()


def measure(bench: Bench, rounds: int) -> tuple[list[Table], list[Bar]]:
    """Let the two take turns in each state."""
    states: dict[str, Callable[[Callable[[], Sample]], Sample]] = {
        "cold": bench.cold,
        "unchanged": lambda way: way(),
        "one file changed": bench.changed,
    }
    tables, bars = [], []
    for state, run in states.items():
        ways = [
            Way("clusterctl", lambda run=run: run(bench.ours)),  # type: ignore[misc]  # bound now, not at the end
            Way("rsync -P8", lambda run=run: run(bench.rsync)),  # type: ignore[misc]  # the same
        ]
        seen = alternate(ways, rounds)
        tables.append(compare(f"sync, {state}", seen, against="rsync -P8"))
        ours, theirs = seen["clusterctl"], seen["rsync -P8"]
        wall = wall_of(ours) / wall_of(theirs)
        if state == "cold":
            bars.append(Bar("cold: wall", wall, 1.0, "x rsync -P8"))
            bars.append(Bar("cold: client CPU", cpu_of(ours) / cpu_of(theirs), 0.3, "x rsync -P8"))
        if state == "unchanged":
            bars.append(Bar("unchanged: wall", wall, 0.3, "x rsync -P8"))
    return tables, bars


def make_tree(root: Path, files: int, size: int) -> None:
    """Write a project of modules, with sizes as they are in projects: many small, a few large."""
    chance = random.Random(0)
    weights = [chance.paretovariate(1.2) for _ in range(files)]
    for place, weight in enumerate(weights):
        path = root / f"pkg{place % 23}" / f"sub{place % 7}" / f"module{place}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(chance, max(40, int(size * weight / sum(weights)))))
    (root / "train.py").write_text("print('trained')\n")


def text_of(chance: random.Random, size: int) -> str:
    """Write so many bytes of something that compresses as source does."""
    words: list[str] = []
    length = 0
    while length < size:
        words.append(
            f"{chance.choice(WORDS)}{chance.randrange(10_000)}"
            if chance.random() < 0.3
            else chance.choice(WORDS)
        )
        length += len(words[-1]) + 1
    return " ".join(words)[:size]


if __name__ == "__main__":
    main()
