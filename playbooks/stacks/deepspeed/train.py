"""Train a small network with DeepSpeed's ZeRO: optimizer state and gradients are sharded over all ranks."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import nn

CONFIG = Path(__file__).with_name("zero.json")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Imitate a random network.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for the checkpoint")
    return parser.parse_args()


def build_model(seed: int) -> nn.Sequential:
    """Return a small network; equal on every rank, because the seed is."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))


def resume(engine: deepspeed.DeepSpeedEngine) -> int:
    """Load the checkpoint that a restart goes on from; returns its step, 0 without one."""
    restored = os.environ.get("CLUSTERCTL_RESUME")
    if not restored:
        return 0
    _, state = engine.load_checkpoint(str(Path(restored).parent), tag=Path(restored).name)
    return int(state["step"])


def train(options: argparse.Namespace) -> None:
    """Train, and save: each rank writes its part of the optimizer's state."""
    config = json.loads(CONFIG.read_text(encoding="utf-8"))
    model = build_model(seed=2)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = engine.zero_optimization_stage()
    print(f"rank {rank} of {world}, {engine.device}, ZeRO stage {stage}", flush=True)
    teacher = build_model(seed=1).to(engine.device)
    for step in range(resume(engine) + 1, options.steps + 1):
        random = torch.Generator().manual_seed(step * world + rank)
        x = torch.randn(32, 16, generator=random).to(engine.device)
        with torch.no_grad():
            target = teacher(x)
        loss = nn.functional.mse_loss(engine(x), target)
        engine.backward(loss)
        engine.step()
        if step % 20 == 0:
            mean = loss.detach()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step}/{options.steps}  loss {mean.item() / world:.4f}", flush=True)
            engine.save_checkpoint(str(options.output), tag=f"step-{step}", client_state={"step": step})
    if rank == 0:
        print(f"saved {options.output / f'step-{options.steps}'}", flush=True)


def main() -> None:
    """Join the group, train, leave the group."""
    options = parse_options()
    deepspeed.init_distributed(get_accelerator().communication_backend_name())
    try:
        train(options)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
