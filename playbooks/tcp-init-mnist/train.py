"""Train a CNN on files in MNIST's format; --tcp and --rank give every process the master's address and its number.

By hand, on two machines:

    python train.py --tcp tcp://192.168.10.235:23456 --world-size 2 --rank 0
    python train.py --tcp tcp://192.168.10.235:23456 --world-size 2 --rank 1
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from digits import find, load, make_files
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a CNN on files in MNIST's format.")
    parser.add_argument("--tcp", default="tcp://127.0.0.1:23456", help="where rank 0 listens")
    parser.add_argument("--rank", type=int, default=0, help="which process this is")
    parser.add_argument("--world-size", type=int, default=1, help="how many there are")
    parser.add_argument("--data", type=Path, default=Path("idx"), help="folder of the four files")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and process")
    parser.add_argument("--lr", type=float, default=2e-3)
    return parser.parse_args()


def build_model() -> nn.Sequential:
    """Return two layers of convolution and two that are fully connected."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10),
    )  # fmt: skip


@torch.no_grad()
def measure_accuracy(model: nn.Module, images: Tensor, labels: Tensor, device: torch.device) -> float:
    """Return the accuracy on all images, of which each process looks at its share."""
    model.eval()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    right = torch.zeros(1, device=device)
    for batch, target in zip(images[mine].split(500), labels[mine].split(500), strict=True):
        right += (model(batch.to(device)).argmax(1) == target.to(device)).sum()
    dist.all_reduce(right)
    return right.item() / len(images)


def train(
    options: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> None:
    """Train; rank 0 tells the time and the test accuracy of every epoch."""
    data, (unseen, answers) = TensorDataset(*load(options.data, "train")), load(options.data, "test")
    parallel = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    sampler: DistributedSampler[TensorDataset] = DistributedSampler(data)
    batches = DataLoader(data, options.batch_size, sampler=sampler)
    began = time.perf_counter()
    for epoch in range(1, options.epochs + 1):
        started = time.perf_counter()
        sampler.set_epoch(epoch)
        parallel.train()
        for images, labels in batches:
            optimizer.zero_grad()
            cross_entropy(parallel(images.to(device)), labels.to(device)).backward()
            optimizer.step()
        took = time.perf_counter() - started
        accuracy = measure_accuracy(model, unseen, answers, device)
        if options.rank == 0:
            print(
                f"epoch {epoch} of {options.epochs} took {took:.2f} s, test accuracy {accuracy:.2%}",
                flush=True,
            )
    if options.rank == 0:
        print(f"{len(data)} images, {time.perf_counter() - began:.2f} s in all", flush=True)


def main() -> None:
    """Meet at the given address, train, leave."""
    options = parse_options()
    if find(options.data, "train-images-idx3-ubyte") is None:
        print(f"making small files in {options.data}", flush=True)
        make_files(options.data)
    gpu = torch.cuda.is_available() and dist.is_nccl_available()
    device = torch.device("cuda", 0) if gpu else torch.device("cpu")
    model = build_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    meeting = {"init_method": options.tcp, "rank": options.rank, "world_size": options.world_size}
    dist.init_process_group("nccl" if gpu else "gloo", **meeting)
    try:
        print(f"rank {options.rank} of {dist.get_world_size()}, {device}", flush=True)
        train(options, model, optimizer, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
