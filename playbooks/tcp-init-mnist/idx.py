"""Read and write IDX files, the format of MNIST, packed by gzip or not.

Two zero bytes, one for the type, one for the number of dimensions; each dimension as four bytes, the highest first;
then the numbers, the last dimension running fastest.
"""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import torch
from torch import Tensor

UNSIGNED_BYTES = 8  # the type of both the images and the labels


def read_idx(file: Path) -> Tensor:
    """Return what the file holds, as bytes; ValueError if it is not whole."""
    packed = file.read_bytes()
    try:
        content = gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed
    except (EOFError, OSError) as error:
        raise ValueError(f"{file}: damaged: {error}") from error
    if len(content) < 4 or content[:2] != b"\0\0":
        raise ValueError(f"{file}: not an IDX file")
    kind, dimensions = content[2], content[3]
    if kind != UNSIGNED_BYTES:
        raise ValueError(f"{file}: its numbers are of type {kind}, expected {UNSIGNED_BYTES} (bytes)")
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError(f"{file}: ends within its head")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise ValueError(f"{file}: {len(content) - start} numbers, expected {math.prod(shape)} for {shape}")
    return torch.frombuffer(bytearray(content[start:]), dtype=torch.uint8).reshape(shape)


def write_idx(file: Path, numbers: Tensor) -> None:
    """Write bytes as they are shaped; packed if the name ends in .gz."""
    head = bytes([0, 0, UNSIGNED_BYTES, numbers.dim()]) + struct.pack(f">{numbers.dim()}I", *numbers.shape)
    content = head + numbers.to(torch.uint8).contiguous().numpy().tobytes()
    file.write_bytes(gzip.compress(content, compresslevel=6, mtime=0) if file.suffix == ".gz" else content)
