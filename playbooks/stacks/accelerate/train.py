"""Train a small network with Accelerate: the loop is that of one process, `prepare` makes it that of all."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 4


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Tell four clouds of points apart.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for the model")
    return parser.parse_args()


def draw_points(count: int = 2048) -> TensorDataset:
    """Draw points around the corners of a square; the same on every rank."""
    random = torch.Generator().manual_seed(3)
    labels = torch.randint(CLASSES, (count,), generator=random)
    corners = torch.stack([labels % 2, labels // 2], dim=1).float()
    return TensorDataset(corners + 0.2 * torch.randn(count, 2, generator=random), labels)


def main() -> None:
    """Train, measure on all ranks, save once."""
    options = parse_options()
    # Without cpu=True a rank on a machine without GPUs would train alone, as rank 0 of 1.
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    set_seed(1)
    print(
        f"rank {accelerator.process_index} of {accelerator.num_processes}, {accelerator.device}", flush=True
    )
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batches = DataLoader(draw_points(), options.batch_size, shuffle=True)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    for epoch in range(1, options.epochs + 1):
        right = seen = 0
        for points, labels in batches:
            output = model(points)
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(output, labels))
            optimizer.step()
            answers, truth = accelerator.gather_for_metrics((output.argmax(1), labels))
            right, seen = right + int((answers == truth).sum()), seen + len(truth)
        accelerator.print(f"epoch {epoch}/{options.epochs}  accuracy {right / seen:.2%}", flush=True)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        options.output.mkdir(parents=True, exist_ok=True)
        torch.save(accelerator.unwrap_model(model).state_dict(), options.output / "model.pt")
    accelerator.print(f"saved {options.output / 'model.pt'}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
