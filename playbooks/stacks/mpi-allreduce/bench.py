"""Measure all_reduce over MPI, as nccl-tests does: sizes that double, time, algorithm and bus bandwidth, wrong sums.

`mpirun -np 2 python bench.py` runs it on one machine. Algorithm bandwidth is size / time. Bus bandwidth multiplies it
by 2 (n - 1) / n, the share of the message that each of n ranks must send at least.
"""

from __future__ import annotations

import argparse
import sys
from types import TracebackType

import numpy as np
from mpi4py import MPI

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
WARM_UP = 5  # rounds
HEAD = """\
#{:>11} {:>12} {:>8} {:>6} {:>11} {:>8} {:>8} {:>6}
#{:>11} {:>12} {:>8} {:>6} {:>11} {:>8} {:>8}"""
NAMES = ("size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong")
UNITS_SHOWN = ("(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)")


def parse_size(text: str) -> int:
    """Read 8, 64K, 8M or 1G."""
    unit = UNITS.get(text[-1:].upper())
    return int(text[:-1]) * unit if unit else int(text)


def parse_options() -> argparse.Namespace:
    """Read the command line; the options are those of nccl-tests."""
    parser = argparse.ArgumentParser(description="Measure all_reduce over MPI.")
    parser.add_argument("-b", "--minbytes", type=parse_size, default=8)
    parser.add_argument("-e", "--maxbytes", type=parse_size, default=4 << 20)
    parser.add_argument(
        "-f", "--stepfactor", type=int, default=2, help="each size is so many times the one before"
    )
    parser.add_argument("-n", "--iters", type=int, default=20, help="rounds of each size")
    options = parser.parse_args()
    if options.minbytes < 1 or options.stepfactor < 2:
        parser.error("-b takes at least 1, and -f at least 2: otherwise the sizes never grow")
    return options


def abort(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    """End all ranks after an exception of one: else that one waits at its end for the others, and they for it."""
    sys.__excepthook__(kind, value, trace)
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(1)


def measure(world: MPI.Intracomm, count: int, rounds: int) -> tuple[float, int]:
    """Give the seconds of one round, those of the slowest rank, and how many numbers of all ranks were wrong."""
    own = np.full(count, world.rank + 1, dtype=np.float32)
    total = np.empty_like(own)
    for _ in range(WARM_UP):
        world.Allreduce(own, total)
    world.Barrier()
    started = MPI.Wtime()
    for _ in range(rounds):
        world.Allreduce(own, total)
    seconds = (MPI.Wtime() - started) / rounds
    wrong = int(np.count_nonzero(total != world.size * (world.size + 1) / 2))
    return world.allreduce(seconds, op=MPI.MAX), world.allreduce(wrong)


def render(count: int, seconds: float, wrong: int, ranks: int) -> tuple[str, float]:
    """Give the row of one size, and its bus bandwidth."""
    algorithm = 4 * count / seconds / 1e9
    bus = algorithm * 2 * (ranks - 1) / ranks
    what = f"{4 * count:12} {count:12} {'float':>8} {'sum':>6}"
    return f"{what} {seconds * 1e6:11.1f} {algorithm:8.3f} {bus:8.3f} {wrong:6}", bus


def main() -> None:
    """Go through all sizes; rank 0 prints each."""
    sys.excepthook = abort
    options, world = parse_options(), MPI.COMM_WORLD
    nodes = world.allreduce(int(world.Split_type(MPI.COMM_TYPE_SHARED).rank == 0))
    print(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}", flush=True)
    world.Barrier()
    if world.rank == 0:
        library = MPI.Get_library_version().split(",")[0]
        print(f"# all_reduce, {world.size} ranks on {nodes} nodes, {library}", flush=True)
        print(HEAD.format(*NAMES, *UNITS_SHOWN), flush=True)
    size, found, failed = options.minbytes, [], 0
    while size <= options.maxbytes:
        count = max(1, size // 4)
        seconds, wrong = measure(world, count, options.iters)
        row, bus = render(count, seconds, wrong, world.size)
        found.append(bus)
        failed += wrong
        if world.rank == 0:
            print(row, flush=True)
        size *= options.stepfactor
    if world.rank == 0:
        print(f"# Out of bounds values : {failed} {'FAILED' if failed else 'OK'}", flush=True)
        print(f"# Avg bus bandwidth    : {np.mean(found):.4f}", flush=True)
    if failed:
        sys.exit("all_reduce gave wrong sums")


if __name__ == "__main__":
    main()
