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
    parser.add_argument("--save-every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for the checkpoint")
    return parser.parse_args()


def build_model(seed: int) -> nn.Sequential:
    """Return a small network; equal on every rank, because the seed is."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))


def resume(engine: deepspeed.DeepSpeedEngine) -> int:
    """Load the checkpoint that a restart goes on from; returns its step, 0 without one.

    The tag comes from the path: the file `latest` is on node 0 only, and may name a checkpoint whose files are lost.
    """
    if restored := os.environ.get("CLUSTERCTL_RESUME"):
        loaded, _ = engine.load_checkpoint(str(Path(restored).parent), tag=Path(restored).name)
        if loaded is None:  # DeepSpeed only warns
            raise RuntimeError(f"nothing was loaded from {restored}")
    return int(engine.global_steps)


def save(engine: deepspeed.DeepSpeedEngine, folder: Path) -> Path:
    """Write a checkpoint, and a file that shows that all ranks have written their part: DeepSpeed has none."""
    engine.save_checkpoint(str(folder))  # its tag is global_step and the number; all ranks meet at its end
    saved = folder / f"global_step{engine.global_steps}"
    if dist.get_rank() == 0:
        (saved / "complete").touch()
    return saved


def train(options: argparse.Namespace) -> None:
    """Train, and save: each rank writes its part of the optimizer's state."""
    config = json.loads(CONFIG.read_text(encoding="utf-8"))
    model = build_model(seed=2)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = engine.zero_optimization_stage()
    print(f"rank {rank} of {world}, {engine.device}, ZeRO stage {stage}", flush=True)
    teacher = build_model(seed=1).to(engine.device)
    done = resume(engine)
    if rank == 0 and done:
        print(f"resumed after step {done}", flush=True)
    for step in range(done + 1, options.steps + 1):
        random = torch.Generator().manual_seed(step * world + rank)
        x = torch.randn(32, 16, generator=random).to(engine.device)
        with torch.no_grad():
            target = teacher(x)
        loss = nn.functional.mse_loss(engine(x), target)
        engine.backward(loss)
        engine.step()
        if step % options.save_every == 0 or step == options.steps:
            mean = loss.detach()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step}/{options.steps}  loss {mean.item() / world:.4f}", flush=True)
            saved = save(engine, options.output)
            if rank == 0:
                print(f"saved {saved}", flush=True)


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
