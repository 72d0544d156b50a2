"""Sort points into clusters with workers that this script starts itself, by torch.multiprocessing.spawn.

One process per node runs this file; rank = node_rank x workers per node + local rank. A checkpoint is loaded by
rank 0 alone, before DDP is built, which gives its parameters to all; it is saved once, as the bare module.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CLASSES = 5


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Sort points into clusters, on workers of its own.")
    parser.add_argument("--init-method", default="tcp://127.0.0.1:23456", help="where rank 0 listens")
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--nproc-per-node", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for model.pt")
    return parser.parse_args()


def draw_clusters(count: int = 4000) -> TensorDataset:
    """Draw points around `CLASSES` centres on a circle; the same on every rank."""
    random = torch.Generator().manual_seed(11)
    labels = torch.randint(CLASSES, (count,), generator=random)
    angle = labels * (2 * torch.pi / CLASSES)
    centres = 3 * torch.stack([angle.cos(), angle.sin()], dim=1)
    return TensorDataset(centres + 0.6 * torch.randn(count, 2, generator=random), labels)


def work(local_rank: int, options: argparse.Namespace) -> None:
    """Run one worker."""
    rank = options.node_rank * options.nproc_per_node + local_rank
    world_size = options.nnodes * options.nproc_per_node
    gpu = torch.cuda.is_available() and dist.is_nccl_available()
    device = torch.device("cuda", local_rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    torch.manual_seed(rank)  # each rank begins with other parameters; DDP makes them equal
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, CLASSES)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    method = options.init_method
    dist.init_process_group("nccl" if gpu else "gloo", init_method=method, rank=rank, world_size=world_size)
    try:
        # The line's end within the text: the workers share one stream, and an end of its own may come too late.
        print(
            f"rank {rank} of {world_size}: node {options.node_rank}, worker {local_rank}\n",
            end="",
            flush=True,
        )
        train(model, optimizer, device, options)
    finally:
        dist.destroy_process_group()


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, options: argparse.Namespace
) -> None:
    """Train, measure, and let rank 0 save."""
    rank, file = dist.get_rank(), options.output / "model.pt"
    if rank == 0 and file.exists():
        model.load_state_dict(torch.load(file, map_location=device, weights_only=True))
        print(f"rank 0 continues from {file}", flush=True)
    parallel = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    points = draw_clusters()
    sampler: DistributedSampler[TensorDataset] = DistributedSampler(points)
    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)  # without it every epoch would have the same order
        right = seen = 0
        for batch, labels in DataLoader(points, batch_size=50, sampler=sampler):
            output, target = parallel(batch.to(device)), labels.to(device)
            optimizer.zero_grad()
            nn.functional.cross_entropy(output, target).backward()
            optimizer.step()
            right, seen = right + int((output.argmax(1) == target).sum()), seen + len(labels)
        counts = torch.tensor([right, seen], device=device)
        dist.all_reduce(counts)
        if rank == 0:
            print(f"epoch {epoch}/{options.epochs}  accuracy {counts[0] / counts[1]:.2%}", flush=True)
    if rank == 0:
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(parallel.module.state_dict(), file)
        print(f"saved {file}", flush=True)


if __name__ == "__main__":
    chosen = parse_options()
    mp.spawn(work, args=(chosen,), nprocs=chosen.nproc_per_node, join=True)
