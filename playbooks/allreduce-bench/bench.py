"""Measure all_reduce for messages of many sizes, and show latency, algorithm bandwidth and bus bandwidth.

Algorithm bandwidth is size / time. Bus bandwidth multiplies it by 2 (n - 1) / n, the share of the message that each
of n ranks must send at least: it can be compared with what the network card promises, whatever n is. Both terms are
those of NVIDIA's nccl-tests.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from picture import draw_svg, plot

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Measured:
    """One size: bytes, the median and the longest time in seconds, bandwidths in bytes per second."""

    size: int
    median: float
    longest: float
    algorithm: float
    bus: float


def parse_size(text: str) -> int:
    """Read 4096, 64K, 8M or 1G."""
    unit = UNITS.get(text[-1:].upper())
    return int(text[:-1]) * unit if unit else int(text)


def show_size(size: int) -> str:
    """Write a size as it is read."""
    for unit, factor in reversed(UNITS.items()):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure all_reduce.")
    parser.add_argument("--smallest", type=parse_size, default=1 << 10)
    parser.add_argument("--largest", type=parse_size, default=64 << 20)
    parser.add_argument("--factor", type=int, default=4, help="each size is this many times the one before")
    parser.add_argument("--seconds", type=float, default=0.4, help="time for each size, at most 100 rounds")
    parser.add_argument("--output", type=Path, default=Path("output"))
    return parser.parse_args()


def find_device() -> torch.device:
    """Take the GPU of this rank's number, or the CPU."""
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def take_time(message: torch.Tensor) -> float:
    """Return the seconds of one all_reduce, until its result is there."""
    gpu = message.device.type == "cuda"
    if gpu:
        torch.cuda.synchronize()
    started = time.perf_counter()
    dist.all_reduce(message)
    if gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def is_right(size: int, device: torch.device) -> bool:
    """Check the sum of all ranks' messages, on every rank."""
    message = torch.full((size // 4,), dist.get_rank() + 1.0, device=device)
    dist.all_reduce(message)
    ranks = dist.get_world_size()
    wrong = (message != ranks * (ranks + 1) / 2).any().float()
    dist.all_reduce(wrong)
    return wrong.item() == 0


def measure(size: int, seconds: float, device: torch.device) -> Measured:
    """Time one size: some rounds to warm up, then as many as the time allows, the same number on every rank."""
    message = torch.ones(size // 4, device=device)
    warm = torch.tensor([min(take_time(message.zero_()) for _ in range(3))], device=device)
    dist.broadcast(warm, src=0)
    rounds = max(5, min(100, int(seconds / max(warm.item(), 1e-6))))
    times = torch.tensor([take_time(message) for _ in range(rounds)], device=device)
    dist.all_reduce(times, dist.ReduceOp.MAX)  # a round has ended when its slowest rank has
    median, ranks = times.median().item(), dist.get_world_size()
    return Measured(size, median, times.max().item(), size / median, size / median * 2 * (ranks - 1) / ranks)


def render(one: Measured) -> str:
    """Write a row of the table."""
    times = f"{one.median * 1e6:10.0f} {one.longest * 1e6:10.0f}"
    return f"{show_size(one.size):>8} {times} {one.algorithm / 1e9:9.3f} {one.bus / 1e9:9.3f}"


def run(options: argparse.Namespace, device: torch.device) -> list[Measured]:
    """Go through all sizes; rank 0 prints each as it comes."""
    first, found, size = dist.get_rank() == 0, [], options.smallest
    if first:
        print(f"{'size':>8} {'median us':>10} {'longest us':>10} {'alg GB/s':>9} {'bus GB/s':>9}", flush=True)
    while size <= options.largest:
        if not is_right(size, device):
            sys.exit(f"all_reduce of {show_size(size)} gave a wrong sum")
        found.append(measure(size, options.seconds, device))
        if first:
            print(render(found[-1]), flush=True)
        size *= options.factor
    return found


def report(options: argparse.Namespace, found: list[Measured], about: str) -> None:
    """Plot the bus bandwidth in the terminal, and write a picture and the numbers."""
    points = [(show_size(one.size), one.bus / 1e9) for one in found]
    print(plot(points, "bus bandwidth, GB/s"), flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    picture, numbers = options.output / "allreduce.svg", options.output / "allreduce.json"
    picture.write_text(draw_svg(points, f"all_reduce, {about}", "bus bandwidth, GB/s"), encoding="utf-8")
    numbers.write_text(json.dumps({"about": about, "sizes": [asdict(one) for one in found]}, indent=1))
    print(f"written: {picture}, {numbers}", flush=True)


def main() -> None:
    """Join the group, measure, leave the group."""
    options, device = parse_options(), find_device()
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend)
    try:
        nodes = dist.get_world_size() // int(os.environ["LOCAL_WORLD_SIZE"])
        about = f"{dist.get_world_size()} ranks on {nodes} nodes, {backend}"
        if dist.get_rank() == 0:
            print(f"all_reduce of float32, {about}", flush=True)
        found = run(options, device)
        if dist.get_rank() == 0:
            report(options, found, about)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
