"""Fit a line with DDP, as a rank of a torchrun that another program has started."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def find_device() -> torch.device:
    """Use the GPU of the local rank, or the CPU."""
    if torch.cuda.is_available() and dist.is_nccl_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        return torch.device("cuda")
    return torch.device("cpu")


def train(device: torch.device, steps: int) -> None:
    """Each rank draws other points of the same line."""
    random = torch.Generator().manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(1, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(steps):
        x = 2 * torch.rand(64, 1, generator=random).to(device) - 1
        loss = nn.functional.mse_loss(model(x), 2 * x + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    slope, offset = model.module.weight.item(), model.module.bias.item()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: y = {slope:.2f} x + {offset:.2f}", flush=True)


def main() -> None:
    """Join the group, train, leave the group."""
    parser = argparse.ArgumentParser(description="Fit a line.")
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    device = find_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        train(device, steps)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
