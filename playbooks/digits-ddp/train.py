"""Train a small network to read digits, on as many processes as torchrun starts.

An ordinary PyTorch script: nothing in it knows about clusterctl, and `torchrun --nproc-per-node 2 train.py`
runs it as well. Nothing is downloaded: every process draws the same images from the same seeds.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import affine_grid, cross_entropy, grid_sample
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SIZE = 28
TRAIN_SEED, TEST_SEED, MODEL_SEED = 1, 2, 3

FONT = """
.###. ..#.. .###. .###. ...#. ##### ..##. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... .#... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ..##. ..##. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. .#... ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. #.... #...# ...#. #...# #...# ..#.. #...# ...#.
.###. .###. ##### .###. ...#. .###. .###. ..#.. .###. .##..
"""


@dataclass(frozen=True)
class Process:
    """The numbers of this process, from the environment that torchrun sets."""

    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    backend: str

    def say(self, text: str, everyone: bool = False) -> None:
        """Print a line, from rank 0 only or from all; in one piece, because ranks may share a terminal."""
        if everyone or self.rank == 0:
            print(f"{text}\n", end="", flush=True)

    def total(self, *numbers: float) -> list[float]:
        """Return the sum of each number over all ranks."""
        sums = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a small network to read drawn digits.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=48, help="images per step and process")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--samples", type=int, default=20_000, help="training images, all ranks together")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for checkpoint.pt")
    parser.add_argument("--resume", action="store_true", help="go on from checkpoint.pt if a rank finds one")
    parser.add_argument("--run-id", default="", help="name of the run, written into its checkpoints")
    parser.add_argument("--attempt", type=int, default=1, help="beyond 1: go on from this run's checkpoint")
    parser.add_argument("--backend", choices=("auto", "gloo", "nccl"), default="auto")
    return parser.parse_args()


def identify(backend: str) -> Process:
    """Read the numbers of this process and select its device: one GPU and NCCL, else the CPU and Gloo."""
    if backend == "auto":
        backend = "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    device = torch.device("cuda", local_rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # By default torch starts a thread per core in every process: on a shared machine they only fight.
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    return Process(rank, local_rank, world_size, device, backend)


def describe(process: Process) -> str:
    """Describe where this process runs and which network interface it uses."""
    variable = f"{process.backend.upper()}_SOCKET_IFNAME"
    ranks = f"rank {process.rank} of {process.world_size}, local rank {process.local_rank}"
    network = f"{process.backend}, {variable}={os.environ.get(variable, '(not set)')}"
    return f"{socket.gethostname()}: {ranks}, {process.device}, {network}"


def draw_digits(count: int, seed: int) -> TensorDataset:
    """Draw digits that are turned, sized, moved and lit at random, under noise, as (count, 1, SIZE, SIZE)."""
    rows = FONT.split()
    glyphs = torch.tensor([[[pixel == "#" for pixel in row] for row in rows[d::10]] for d in range(10)])
    random = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=random)

    labels = torch.randint(10, (count,), generator=random)
    angle, width, height = uniform(-0.25, 0.25), uniform(1.5, 2.3), uniform(1.1, 1.7)
    right, down = uniform(-0.5, 0.5), uniform(-0.3, 0.3)
    sine, cosine = angle.sin(), angle.cos()
    matrices = torch.stack([width * cosine, -width * sine, right, height * sine, height * cosine, down], 1)
    grid = affine_grid(matrices.view(count, 2, 3), [count, 1, SIZE, SIZE], align_corners=False)
    images = grid_sample(glyphs[labels].float().unsqueeze(1), grid, align_corners=False)
    images *= uniform(0.5, 1.0).view(count, 1, 1, 1)
    images += 0.2 * torch.randn(images.shape, generator=random)
    return TensorDataset(images, labels)


def build_model() -> nn.Sequential:
    """Return a small convolutional network; equal on every rank, because the seed is."""
    torch.manual_seed(MODEL_SEED)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (SIZE // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def train_epoch(
    process: Process, model: nn.Module, optimizer: torch.optim.Optimizer, batches: DataLoader[Any]
) -> float:
    """Go once over this rank's share; return the mean loss over all ranks."""
    model.train()
    loss_sum = torch.zeros((), device=process.device)
    for images, labels in batches:
        loss = cross_entropy(model(images.to(process.device)), labels.to(process.device))
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients over all ranks in here
        optimizer.step()
        loss_sum += loss.detach()
    total, steps = process.total(loss_sum.item(), len(batches))
    return total / steps


@torch.no_grad()
def measure_accuracy(process: Process, model: nn.Module, images: TensorDataset, batch_size: int) -> float:
    """Return the accuracy over the whole test set, of which each rank evaluates its part.

    A DistributedSampler would pad the parts to one length and count some images twice; striding does not.
    `model` is the bare one: DDP's forward may wait for ranks that have already finished a shorter part.
    """
    model.eval()
    mine = Subset(images, range(process.rank, len(images), process.world_size))
    right = 0
    for batch, labels in DataLoader(mine, batch_size):
        right += int((model(batch.to(process.device)).argmax(1).cpu() == labels).sum())
    total, seen = process.total(right, len(mine))
    return total / seen


def fingerprint(model: nn.Module) -> str:
    """Return a short hash of the parameters: DDP keeps it equal on all ranks."""
    values = torch.cat([parameter.detach().flatten().cpu() for parameter in model.parameters()])
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:12]


def save_checkpoint(file: Path, state: dict[str, Any]) -> None:
    """Write a temporary file, then rename it: a reader sees the old checkpoint or the new one, never a part."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(f".{socket.gethostname()}.tmp")  # nodes may share the folder
    with aside.open("wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(file)


def load_checkpoint(process: Process, options: argparse.Namespace, file: Path) -> dict[str, Any] | None:
    """Return the newest checkpoint that any rank finds, on every rank: a node may be new here, also node 0."""
    mine = torch.load(file, map_location="cpu", weights_only=True) if file.exists() else None
    ours = mine is not None and mine.get("run") == options.run_id
    usable = mine is not None and (options.resume or (options.attempt > 1 and ours))
    ages: list[Any] = [None] * process.world_size
    dist.all_gather_object(ages, (usable, ours, mine["epoch"]) if mine else (False, False, 0))
    best = max(range(process.world_size), key=ages.__getitem__)
    found = [mine if process.rank == best and usable else None]
    dist.broadcast_object_list(found, src=best, device=process.device)
    return found[0]


def train(
    process: Process, options: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Train, and after each epoch measure, print and save."""
    file, done = options.output / "checkpoint.pt", 0
    if (options.resume or options.attempt > 1) and (state := load_checkpoint(process, options, file)):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epoch"]
        process.say(f"resumed after epoch {done} from {file}")

    parallel = DistributedDataParallel(model)
    images, unseen = draw_digits(options.samples, TRAIN_SEED), draw_digits(options.samples // 5, TEST_SEED)
    sampler: DistributedSampler[Any] = DistributedSampler(images)
    batches = DataLoader(images, options.batch_size, sampler=sampler)
    for epoch in range(done + 1, options.epochs + 1):
        started = time.perf_counter()
        sampler.set_epoch(epoch)  # another order, and other shares, in every epoch
        loss = train_epoch(process, parallel, optimizer, batches)
        accuracy = measure_accuracy(process, model, unseen, options.batch_size)
        seconds = time.perf_counter() - started
        result = f"loss {loss:.4f}  accuracy {accuracy:.2%}  {seconds:.1f} s"
        process.say(f"epoch {epoch}/{options.epochs}  {result}")
        if process.local_rank == 0:  # on every node: each may be the one that is lost
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save_checkpoint(file, {**state, "epoch": epoch, "run": options.run_id})
    process.say(f"rank {process.rank} done, parameter hash {fingerprint(model)}", everyone=True)
    process.say(f"checkpoint: {file}")


@record  # lets torchrun keep the traceback of the rank that failed
def main() -> None:
    """Prepare, join the group, train, leave the group."""
    options = parse_options()
    process = identify(options.backend)
    process.say(describe(process), everyone=True)
    # The optimizer comes before the process group: it imports torch._dynamo, which would keep a group that is
    # already there alive beyond its end, and a thread of Gloo could then abort the process as it exits.
    model = build_model().to(process.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    dist.init_process_group(process.backend)
    try:
        train(process, options, model, optimizer)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
