"""A network sharded over all ranks (FSDP2): saves with DCP, goes on from CLUSTERCTL_RESUME; resume.py kills it.

Each step's loss is printed with all its bits. Nothing but the step decides what is drawn, so an attempt that goes on
from a right checkpoint prints the losses of an undisturbed run.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

SAVE_EVERY = 5


def build(width: int) -> nn.Sequential:
    """Return the sharded network."""
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def collect(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> dict[str, Any]:
    """Return what a checkpoint holds."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "step": step}


def main() -> None:
    """Train STEPS steps of a network that is WIDTH wide, with PAUSE seconds between two."""
    steps, width, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = build(width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    folder, resume, done = Path(os.environ["CLUSTERCTL_OUTPUT_DIR"]), os.environ.get("CLUSTERCTL_RESUME"), 0
    if resume:
        state = collect(model, optimizer, 0)
        dcp.load(state, checkpoint_id=resume)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        done = int(state["step"])
    lead = dist.get_rank() == 0
    if lead:
        print(f"begins after {done} of {resume or 'nothing'}", flush=True)
    for step in range(done + 1, steps + 1):
        random = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        loss = model(torch.randn(8, width, generator=random)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if lead:
            print(f"step {step} loss {total.item().hex()}", flush=True)
        if step % SAVE_EVERY == 0:
            dcp.save(collect(model, optimizer, step), checkpoint_id=folder / f"step-{step}")
        time.sleep(pause)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
