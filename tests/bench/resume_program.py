"""A network sharded over all ranks (FSDP2): saves with DCP, goes on from CLUSTERCTL_RESUME; resume.py strikes it.

Arguments: STEPS WIDTH PAUSE EVERY MIB: seconds between two steps, steps between two saves, and what a checkpoint holds
besides the network. Each step's loss is printed with all its bits, what it took, and when it was done. Nothing but the
step decides what is drawn, so an attempt that goes on from a right checkpoint prints the losses of an undisturbed run.
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
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard

MIB_OF_FLOATS = 1 << 18


def build(mesh: DeviceMesh, width: int) -> nn.Sequential:
    """Return the sharded network."""
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def make_ballast(mesh: DeviceMesh, mib: int) -> DTensor:
    """Return so many MiB, of which each rank has its share; another one at each rank."""
    random = torch.Generator().manual_seed(dist.get_rank())
    share = torch.rand(mib * MIB_OF_FLOATS // mesh.size(), generator=random)
    return DTensor.from_local(share, mesh, [Shard(0)])


def collect(
    model: nn.Module, optimizer: torch.optim.Optimizer, ballast: DTensor | None, step: int
) -> dict[str, Any]:
    """Return what a checkpoint holds."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "step": step}
    return state if ballast is None else {**state, "ballast": ballast}


def load(model: nn.Module, optimizer: torch.optim.Optimizer, ballast: DTensor | None, folder: str) -> int:
    """Load a checkpoint; return its step."""
    empty = None if ballast is None else torch.zeros_like(ballast)
    state = collect(model, optimizer, empty, 0)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    if ballast is not None and not torch.equal(state["ballast"].to_local(), ballast.to_local()):
        raise SystemExit("the checkpoint has other bits than were saved")
    return int(state["step"])


def find_newest(folder: Path) -> str:
    """Return the newest checkpoint on this node's own disk: what there is without the key `checkpoints`."""
    return str(max(folder.glob("step-*"), key=lambda path: int(path.name[5:]), default=""))


def choose_resume(folder: Path) -> str:
    """Return what to go on from: rank 0 decides."""
    chosen = [os.environ.get("CLUSTERCTL_RESUME", find_newest(folder))]
    dist.broadcast_object_list(chosen)
    return chosen[0]


def tell(text: str) -> None:
    """Print a line, on one rank."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, ballast: DTensor | None, done: int, folder: Path
) -> None:
    """Train from one step on to the last."""
    steps, width, pause, every = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    for step in range(done + 1, steps + 1):
        began = time.monotonic()
        random = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        loss = model(torch.randn(8, width, generator=random)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        took = time.monotonic() - began
        tell(f"step {step} loss {total.item().hex()} took {took:.4f} at {time.time():.3f}")
        if step % every == 0:
            dcp.save(collect(model, optimizer, ballast, step), checkpoint_id=folder / f"step-{step}")
            tell(f"saved in {time.monotonic() - began - took:.4f}")
        time.sleep(pause)


def main() -> None:
    """Train, from a checkpoint if there is one."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    tell(f"collective at {time.time():.3f}")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = build(mesh, int(sys.argv[2]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ballast = make_ballast(mesh, int(sys.argv[5])) if int(sys.argv[5]) else None
    folder = Path(os.environ["CLUSTERCTL_OUTPUT_DIR"])
    resume = choose_resume(folder)
    done = load(model, optimizer, ballast, resume) if resume else 0
    tell(f"begins after {done} of {resume or 'nothing'}")
    train(model, optimizer, ballast, done, folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
