"""Classify the arms of a spiral: a complete DDP script, for one node or many, CPU or GPU.

`torchrun --standalone --nproc-per-node 2 train.py` runs it on one machine. In the order of their appearance:
DistributedSampler with set_epoch, SyncBatchNorm where it works, gradient accumulation with no_sync (and a proof
that it equals the large batch), barrier, a metric reduced to rank 0, a checkpoint that rank 0 loads before DDP is
built and saves once as the bare module, resuming.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

ARMS = 3


@dataclass(frozen=True)
class Place:
    """The numbers of this process."""

    rank: int
    local_rank: int
    world_size: int
    device: torch.device

    @property
    def backend(self) -> str:
        """NCCL for GPUs, else Gloo."""
        return "nccl" if self.device.type == "cuda" else "gloo"

    def say(self, text: str) -> None:
        """Print a line once, not once per rank."""
        if self.rank == 0:
            print(text, flush=True)


def find_place() -> Place:
    """Read torchrun's variables, and use the GPU of the local rank, or the CPU."""
    rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    gpu = torch.cuda.is_available() and dist.is_nccl_available()
    device = torch.device("cuda", local_rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    return Place(rank, local_rank, world_size, device)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Tell the arms of a spiral apart.")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32, help="points per micro-batch and rank")
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches per step of the optimizer")
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--points", type=int, default=6000)
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for data and checkpoint")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint if there is one")
    return parser.parse_args()


def draw_spiral(count: int) -> tuple[Tensor, Tensor]:
    """Draw points on `ARMS` arms, with some noise."""
    random = torch.Generator().manual_seed(5)
    labels = torch.randint(ARMS, (count,), generator=random)
    along = torch.rand(count, generator=random)
    angle = 7 * along + labels * (2 * torch.pi / ARMS) + 0.3 * torch.randn(count, generator=random)
    radius = 0.2 + along
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), labels


def prepare_data(place: Place, folder: Path, count: int) -> TensorDataset:
    """Let one rank per node write the data and the others wait: each node has a disk of its own."""
    file = folder / "spiral.pt"
    if place.local_rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        save_aside(file, draw_spiral(count))
    dist.barrier()  # no rank reads before all have written
    points, labels = torch.load(file, weights_only=True)
    return TensorDataset(points, labels)


def save_aside(file: Path, content: object) -> None:
    """Write a temporary file and rename it, so that the checkpoint is complete at any moment."""
    aside = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    torch.save(content, aside)
    aside.replace(file)


def build_model(place: Place) -> nn.Module:
    """Return the bare network; BatchNorm over all ranks where that exists, which is on GPUs."""
    torch.manual_seed(1)
    model: nn.Module = nn.Sequential(
        nn.Linear(2, 64), nn.BatchNorm1d(64), nn.ReLU(),
        nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(),
        nn.Linear(64, ARMS),
    )  # fmt: skip
    if place.device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return model.to(place.device)


def wrap(place: Place, model: nn.Module) -> DistributedDataParallel:
    """Build DDP, which sends rank 0's parameters and buffers to all."""
    return DistributedDataParallel(model, device_ids=[place.local_rank] if place.backend == "nccl" else None)


def accumulate(parallel: DistributedDataParallel, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Add up the gradients of several micro-batches; the ranks exchange gradients in the last one only."""
    total = torch.zeros((), device=parts[0][0].device)
    for number, (points, labels) in enumerate(parts, start=1):
        last = number == len(parts)
        with contextlib.nullcontext() if last else parallel.no_sync():
            loss = cross_entropy(parallel(points), labels) / len(parts)  # forward belongs inside no_sync too
            loss.backward()
        total += loss.detach()
    return total


def prove_accumulation(place: Place, model: nn.Module, data: TensorDataset) -> float:
    """Return the largest difference between four micro-batches with no_sync and the one large batch they make.

    BatchNorm is set to its running values: with those of the batch, which it takes while it learns, the size of
    the batch does make a difference.
    """
    points, labels = (
        column[place.rank * 64 : place.rank * 64 + 64].to(place.device) for column in data.tensors
    )
    one, four = (wrap(place, copy.deepcopy(model).eval()) for _ in range(2))
    accumulate(one, [(points, labels)])
    accumulate(four, list(zip(points.chunk(4), labels.chunk(4), strict=True)))
    differences = [
        (a.grad - b.grad).abs().max()
        for a, b in zip(one.parameters(), four.parameters(), strict=True)
        if a.grad is not None and b.grad is not None
    ]
    largest = torch.stack(differences).max()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest.item()


def load_checkpoint(place: Place, file: Path) -> dict[str, Any] | None:
    """Read on rank 0, since only its disk has the file, and send it to all."""
    found: list[dict[str, Any] | None] = [None]
    if place.rank == 0 and file.exists():
        found = [torch.load(file, map_location="cpu", weights_only=True)]
    dist.broadcast_object_list(found, src=0, device=place.device)
    return found[0]


def train_epoch(
    parallel: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    batches: DataLoader[Any],
    device: torch.device,
    micro_batches: int,
) -> Tensor:
    """Go once over this rank's share; returns the sums of loss, right answers and steps."""
    parallel.train()
    sums, waiting = torch.zeros(2, device=device), []
    for number, (points, labels) in enumerate(batches, start=1):
        waiting.append((points.to(device), labels.to(device)))
        if len(waiting) < micro_batches and number < len(batches):
            continue
        optimizer.zero_grad()
        loss = accumulate(parallel, waiting)
        optimizer.step()
        sums += torch.stack([loss, torch.ones_like(loss)])
        waiting = []
    return sums


@torch.no_grad()
def count_right(place: Place, model: nn.Module, data: TensorDataset) -> Tensor:
    """Count the right answers in this rank's share; a stride, because a sampler would pad it."""
    model.eval()
    points, labels = (column[place.rank :: place.world_size].to(place.device) for column in data.tensors)
    return (model(points).argmax(1) == labels).sum().double()


def train(
    place: Place, options: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Train from where the checkpoint ends, and save after each epoch."""
    file, done = options.output / "checkpoint.pt", 0
    data = prepare_data(place, options.output, options.points)
    difference = prove_accumulation(place, model, data)
    place.say(f"4 micro-batches with no_sync against 1 large batch: largest difference {difference:.0e}")
    if options.resume and (state := load_checkpoint(place, file)):
        model.load_state_dict(state["model"])  # before DDP is built
        optimizer.load_state_dict(state["optimizer"])
        done = state["epoch"]
        place.say(f"resumed after epoch {done}")

    parallel = wrap(place, model)
    sampler: DistributedSampler[TensorDataset] = DistributedSampler(data)
    batches = DataLoader(data, options.batch_size, sampler=sampler)
    for epoch in range(done + 1, options.epochs + 1):
        sampler.set_epoch(epoch)  # else every epoch would have the same order and the same shares
        sums = train_epoch(parallel, optimizer, batches, place.device, options.accumulate)
        right = count_right(place, model, data)
        dist.reduce(sums, dst=0)  # the sum arrives at rank 0 only
        dist.reduce(right, dst=0)
        if place.rank == 0:
            loss, accuracy = sums[0] / sums[1], right / len(data)
            place.say(f"epoch {epoch}/{options.epochs}  loss {loss:.4f}  accuracy {accuracy:.2%}")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            save_aside(file, state)  # `model` is what DDP calls .module: no "module." in front of its names
    place.say(f"checkpoint: {file}")


@record
def main() -> None:
    """Join the group, train, leave the group."""
    options, place = parse_options(), find_place()
    # The optimizer comes before the process group: what it imports would keep a group alive beyond its end.
    model = build_model(place)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    dist.init_process_group(place.backend)
    try:
        place.say(f"{place.world_size} ranks, {place.backend}, {place.device.type}")
        train(place, options, model, optimizer)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
