"""The four files of MNIST: read those that are there, or make small ones that can be learned.

python digits.py FOLDER        makes them
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from idx import read_idx, write_idx
from torch import Tensor

SIZE = 28
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 6000),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 1000),
}
# Seven bars of a pocket calculator: top, upper left, upper right, middle, lower left, lower right, bottom.
BARS = (
    "1110111",
    "0010010",
    "1011101",
    "1011011",
    "0111010",
    "1101011",
    "1101111",
    "1010010",
    "1111111",
    "1111011",
)


def draw_bars(digit: int, width: int, height: int, thick: int) -> Tensor:
    """Draw a digit as a calculator shows it, into `height` x `width`."""
    top, upper_left, upper_right, middle, lower_left, lower_right, bottom = map(int, BARS[digit])
    image, half = torch.zeros(height, width), height // 2
    image[:thick] += top
    image[half - thick // 2 : half - thick // 2 + thick] += middle
    image[-thick:] += bottom
    image[:half, :thick] += upper_left
    image[:half, -thick:] += upper_right
    image[half:, :thick] += lower_left
    image[half:, -thick:] += lower_right
    return image.clamp(max=1)


def draw_images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw digits of many sizes, at many places, more or less bright, with a little noise."""
    random = torch.Generator().manual_seed(seed)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=random))

    labels = torch.randint(10, (count,), generator=random)
    images = torch.zeros(count, SIZE, SIZE)
    for image, label in zip(images, labels.tolist(), strict=True):
        width, height = pick(9, 16), pick(15, 23)
        left, above = pick(2, SIZE - width - 1), pick(2, SIZE - height - 1)
        image[above : above + height, left : left + width] = draw_bars(label, width, height, pick(2, 4))
    images *= 140 + 115 * torch.rand(count, 1, 1, generator=random)
    images += 20 * torch.rand(images.shape, generator=random)
    return images.clamp(0, 255).to(torch.uint8), labels.to(torch.uint8)


def make_files(folder: Path) -> None:
    """Write the four files; each appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (image_name, label_name, count) in enumerate(FILES.values()):
        for name, numbers in zip((image_name, label_name), draw_images(count, seed), strict=True):
            aside = folder / f"{name}.{os.getpid()}.gz"
            write_idx(aside, numbers)
            aside.replace(folder / f"{name}.gz")


def find(folder: Path, name: str) -> Path | None:
    """Find a file, packed or not."""
    return next((file for file in (folder / f"{name}.gz", folder / name) if file.is_file()), None)


def load(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """Return images as (count, 1, 28, 28) from 0 to 1 and labels; ValueError if their counts differ."""
    names = FILES[part][:2]
    files = [find(folder, name) for name in names]
    if None in files:
        raise ValueError(
            f"{folder}: {' and '.join(names)} are not both there, neither packed (.gz) nor plain"
        )
    images, labels = (read_idx(file) for file in files if file)
    if images.shape != (len(labels), SIZE, SIZE):
        raise ValueError(f"{folder}: {tuple(images.shape)} images do not fit {len(labels)} labels")
    return images.unsqueeze(1).float() / 255, labels.long()


if __name__ == "__main__":
    make_files(Path(sys.argv[1]))
