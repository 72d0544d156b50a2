"""Fit a line with Ray Train: its workers are on all nodes, and have a process group of torch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, get_device, prepare_model
from torch import nn


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Fit a line.")
    parser.add_argument("--workers", type=int, default=2, help="of all nodes together")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument(
        "--output", type=Path, default=Path("output"), help="folder for what Ray Train writes"
    )
    return parser.parse_args()


def work(config: dict[str, Any]) -> None:
    """Train as one of the workers; each draws other points of the same line."""
    context = ray.train.get_context()
    rank = context.get_world_rank()
    print(f"rank {rank} of {context.get_world_size()} on {ray.util.get_node_ip_address()}", flush=True)
    device, random = get_device(), torch.Generator().manual_seed(rank)
    model = prepare_model(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    steps = config["steps"]
    for step in range(1, steps + 1):
        x = 2 * torch.rand(64, 1, generator=random).to(device) - 1
        loss = nn.functional.mse_loss(model(x), 2 * x + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            ray.train.report({"step": step, "loss": loss.item()})  # all ranks together; without a checkpoint
            if rank == 0:
                print(f"step {step}/{steps}  loss {loss.item():.4f}", flush=True)


def main() -> None:
    """Start the workers, and wait for them."""
    options = parse_options()
    gpu = torch.cuda.is_available()
    ray.init(logging_level="WARNING")  # RAY_ADDRESS is set
    trainer = TorchTrainer(
        work,
        train_loop_config={"steps": options.steps},
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=options.workers,
            use_gpu=gpu,
            resources_per_worker=None if gpu else {"CPU": 0.5},
            placement_strategy="SPREAD",
        ),
        run_config=RunConfig(storage_path=str(options.output.resolve()), name="last"),
    )
    trainer.fit()
    print(f"trained by {options.workers} workers", flush=True)


if __name__ == "__main__":
    main()
