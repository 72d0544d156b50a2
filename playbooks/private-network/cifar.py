"""Read CIFAR-10's binary files, or make small ones that can be learned.

A record is one byte of label and 3072 bytes of picture: 1024 red, 1024 green, 1024 blue, row after row.

    python cifar.py FOLDER        makes data_batch_1.bin to data_batch_5.bin, test_batch.bin, batches.meta.txt
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import Tensor

SIZE, RECORD = 32, 1 + 3 * 32 * 32
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = ("test_batch.bin",)
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def load(folder: Path, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Return pictures as (count, 3, 32, 32) from -1 to 1, and labels; ValueError if a file is not whole."""
    parts = [_read(folder / name) for name in names]
    records = torch.cat(parts)
    labels = records[:, 0].long()
    if labels.max() >= len(NAMES):
        raise ValueError(f"{folder}: label {int(labels.max())}; there are {len(NAMES)} classes")
    return records[:, 1:].reshape(-1, 3, SIZE, SIZE).float() / 127.5 - 1, labels


def _read(file: Path) -> Tensor:
    content = bytearray(file.read_bytes())
    if not content or len(content) % RECORD:
        raise ValueError(f"{file}: {len(content)} bytes are no whole number of records of {RECORD}")
    return torch.frombuffer(content, dtype=torch.uint8).reshape(-1, RECORD)


def draw(count: int, seed: int) -> Tensor:
    """Draw records: stripes whose direction is the class, of any colour, at a random place, under noise."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(NAMES), (count,), generator=random)
    angle = labels * (torch.pi / len(NAMES))
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    along = angle.cos().view(-1, 1, 1) * columns + angle.sin().view(-1, 1, 1) * rows
    wave = (0.8 * along + 6.3 * torch.rand(count, 1, 1, generator=random)).sin()
    colour = 0.3 + 0.7 * torch.rand(count, 3, 1, 1, generator=random)
    pictures = 128 + 70 * wave.unsqueeze(1) * colour
    pictures += 40 * torch.randn(pictures.shape, generator=random)
    flat = pictures.clamp(0, 255).to(torch.uint8).reshape(count, -1)
    return torch.cat([labels.to(torch.uint8).unsqueeze(1), flat], dim=1)


def make_files(folder: Path, count: int = 400) -> None:
    """Write `count` records into each file; each appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate((*TRAIN, *TEST)):
        _write(folder / name, draw(count, seed).numpy().tobytes())
    _write(folder / "batches.meta.txt", "\n".join(NAMES).encode() + b"\n")


def _write(file: Path, content: bytes) -> None:
    aside = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    aside.write_bytes(content)
    aside.replace(file)


def main() -> None:
    """Make what is missing; files that are there, such as the real ones, stay."""
    folder = Path(sys.argv[1]).expanduser()
    if all((folder / name).is_file() for name in (*TRAIN, *TEST)):
        print(f"{folder}: all files are there", flush=True)
        return
    make_files(folder)
    print(f"{folder}: made small files in CIFAR-10's format", flush=True)


if __name__ == "__main__":
    main()
