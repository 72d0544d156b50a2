"""Train a small residual network on CIFAR-10's binary files, which lie on every node."""

from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path

import torch
import torch.distributed as dist
from cifar import NAMES, TEST, TRAIN, load
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Block(nn.Module):
    """Two convolutions beside a short cut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        same = inputs == outputs and stride == 1
        self.short = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return what both ways give together."""
        y = relu(self.norms[0](self.first(x)))
        return relu(self.norms[1](self.second(y)) + self.short(x))


def build_model(width: int) -> nn.Sequential:
    """Return a residual network of three stages; real CIFAR-10 wants a width of 64."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        Block(width, width, 2), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, len(NAMES)),
    )  # fmt: skip


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a small residual network on CIFAR-10's files.")
    parser.add_argument("--data", type=Path, required=True, help="folder of data_batch_1.bin and the others")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32, help="pictures per step and process")
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--lr", type=float, default=3e-3)
    return parser.parse_args()


@torch.no_grad()
def measure_accuracy(model: nn.Module, pictures: Tensor, labels: Tensor, device: torch.device) -> float:
    """Return the accuracy on all pictures, of which each rank looks at its share."""
    model.eval()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    right = torch.zeros(1, device=device)
    for batch, target in zip(pictures[mine].split(200), labels[mine].split(200), strict=True):
        right += (model(batch.to(device)).argmax(1) == target.to(device)).sum()
    dist.all_reduce(right)
    return right.item() / len(pictures)


def train(
    options: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> None:
    """Train; rank 0 tells of every epoch."""
    folder = options.data.expanduser()
    data, (unseen, answers) = TensorDataset(*load(folder, TRAIN)), load(folder, TEST)
    parallel = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    sampler: DistributedSampler[TensorDataset] = DistributedSampler(data)
    for epoch in range(1, options.epochs + 1):
        started = time.perf_counter()
        sampler.set_epoch(epoch)
        parallel.train()
        for pictures, labels in DataLoader(data, options.batch_size, sampler=sampler):
            optimizer.zero_grad()
            cross_entropy(parallel(pictures.to(device)), labels.to(device)).backward()
            optimizer.step()
        accuracy = measure_accuracy(parallel.module, unseen, answers, device)
        if dist.get_rank() == 0:
            took = time.perf_counter() - started
            print(f"epoch {epoch}/{options.epochs}  test accuracy {accuracy:.2%}  {took:.1f} s", flush=True)


def main() -> None:
    """Say which NICs were given, meet, train, leave."""
    options, local_rank = parse_options(), int(os.environ["LOCAL_RANK"])
    gpu = torch.cuda.is_available() and dist.is_nccl_available()
    device = torch.device("cuda", local_rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "GLOO_IFACE")
    nics = ", ".join(f"{name}={os.environ.get(name)}" for name in names)
    print(f"{socket.gethostname()}: rank {os.environ['RANK']}, {device}, {nics}", flush=True)
    model = build_model(options.width).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    dist.init_process_group("nccl" if gpu else "gloo")
    try:
        train(options, model, optimizer, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
