"""Train a network whose parameters are sharded over all ranks (FSDP2), with checkpoints of which each rank has a part.

`torchrun --standalone --nproc-per-node 2 train.py` runs it on one machine.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH = 64


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Imitate a random network.")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--save-every", type=int, default=10, help="steps between two checkpoints")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for checkpoints")
    parser.add_argument(
        "--resume", action="store_true", help="go on from the last checkpoint of an earlier run"
    )
    return parser.parse_args()


class Block(nn.Module):
    """One layer with a residual connection: what FSDP2 gathers, uses and frees at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Add what the layer computes."""
        return x + self.layers(x)


def build_model(device: torch.device, seed: int) -> nn.Sequential:
    """Return the whole network; equal on every rank, because the seed is."""
    torch.manual_seed(seed)
    return nn.Sequential(*(Block() for _ in range(4))).to(device)


def shard(model: nn.Sequential, device: torch.device) -> None:
    """Shard each block by itself, then the rest."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write one file per rank, and `.metadata` on rank 0 when all are written."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "step": step}
    dcp.save(state, checkpoint_id=folder / f"step-{step}")


def load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load a checkpoint; the number of ranks may be another one than when it was saved."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": model_state, "optimizer": optimizer_state, "step": 0}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return int(state["step"])


def find_checkpoint(folder: Path) -> Path | None:
    """Let rank 0 choose the last complete checkpoint: the one with the highest step that has a `.metadata`."""
    complete = [file.parent for file in folder.glob("step-*/.metadata")]
    newest = max(complete, key=lambda path: int(path.name.removeprefix("step-")), default=None)
    chosen = [newest.name if newest else None]
    dist.broadcast_object_list(chosen, src=0)
    return folder / chosen[0] if chosen[0] else None


def say(text: str) -> None:
    """Print a line once, not once per rank."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def resume(options: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the step of the checkpoint to go on from, loaded; 0 if there is none.

    After a restart clusterctl has put all of its files on every node, and names it.
    """
    restored = os.environ.get("CLUSTERCTL_RESUME")
    found = Path(restored) if restored else find_checkpoint(options.output) if options.resume else None
    if found is None:
        return 0
    step = load(found, model, optimizer)
    say(f"resumed after step {step}")
    return step


def train(options: argparse.Namespace, device: torch.device) -> None:
    """Train from where the checkpoint ends; what is drawn depends on step and rank only."""
    teacher, model = build_model(device, seed=1), build_model(device, seed=2)
    shard(model, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    own = sum(parameter.to_local().numel() for parameter in model.parameters())
    total = sum(parameter.numel() for parameter in model.parameters())
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {own} of {total} parameters", flush=True)
    done = resume(options, model, optimizer)
    for step in range(done + 1, options.steps + 1):
        random = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        x = torch.randn(32, WIDTH, generator=random).to(device)
        with torch.no_grad():
            target = teacher(x)
        loss = nn.functional.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % options.save_every == 0 or step == options.steps:
            mean = loss.detach()
            dist.all_reduce(mean)
            say(f"step {step}/{options.steps}  loss {mean.item() / dist.get_world_size():.4f}")
            save(options.output, model, optimizer, step)
            say(f"saved {options.output / f'step-{step}'}")


def main() -> None:
    """Join the group, train, leave the group."""
    options = parse_options()
    gpu = torch.cuda.is_available() and dist.is_nccl_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    # With GPUs both: DCP and find_checkpoint exchange objects over Gloo.
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo")
    try:
        train(options, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
