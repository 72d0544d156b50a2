"""What both scripts train: a line through noisy points, y = 2x + 1, by DDP."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SLOPE, OFFSET = 2.0, 1.0


def draw_points(count: int = 4096) -> TensorDataset:
    """Draw the same noisy points on every rank."""
    random = torch.Generator().manual_seed(7)
    x = 4 * torch.rand(count, 1, generator=random) - 2
    return TensorDataset(x, SLOPE * x + OFFSET + 0.1 * torch.randn(count, 1, generator=random))


def fit(local_rank: int, steps: int) -> None:
    """Train on the GPU `local_rank`, or on the CPU where there is none; rank 0 prints the line that was found."""
    gpu = torch.cuda.is_available() and dist.is_nccl_available()
    device = torch.device("cuda", local_rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)  # before anything else touches the GPU
    line = nn.Linear(1, 1).to(device)
    optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
    dist.init_process_group("nccl" if gpu else "gloo", init_method="env://")
    try:
        _train(line, optimizer, device, steps)
        said = f"rank {dist.get_rank()} of {dist.get_world_size()}, local rank {local_rank}"
        print(f"{said}: y = {line.weight.item():.2f} x + {line.bias.item():.2f}", flush=True)
    finally:
        dist.destroy_process_group()


def _train(line: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, steps: int) -> None:
    # The wrapper ends with this function: one that outlives its process group can hang the process as it exits.
    model = DistributedDataParallel(line, device_ids=[device.index] if device.type == "cuda" else None)
    points = draw_points()
    sampler: DistributedSampler[TensorDataset] = DistributedSampler(points)
    batches = DataLoader(points, batch_size=64, sampler=sampler)
    step = epoch = 0
    while step < steps:
        sampler.set_epoch(epoch)
        for x, y in batches:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
            step += 1
            if step == steps:
                return
        epoch += 1
