"""Sizes as they may stand in a file: 20GB, 1.5TB, 512MiB."""

from __future__ import annotations

import re

from clusterctl.specs import codes
from clusterctl.specs.bad_value import BadValueError
from clusterctl.specs.tree import quoted

SIZE_PATTERN = r"0|\d+(\.\d+)? ?([kKMGT]i?)?B"
SMALLEST = 1000**2

_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) ?([kKMGT]?)(i?)B", re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_FIX = "such as 500MB, 20GB or 1TB; 0 for no limit"


class Size(int):
    """A number of bytes that is written as people write it."""

    def __str__(self) -> str:
        for unit, power in reversed(_POWERS.items()):
            if self >= 1000**power and power:
                return f"{self / 1000**power:.4g}{unit.replace('K', 'k')}B"
        return f"{int(self)}B" if self else "0"


def parse_size(text: str) -> Size:
    """Read a size; `0` means none, and is the only one without a unit."""
    match = _SIZE.fullmatch(text)
    if text == "0":
        return Size(0)
    if not match:
        raise BadValueError(f"expected a size, got {quoted(text)}", _FIX, codes.WRONG_TYPE)
    number, unit, binary = match.groups()
    size = Size(float(number) * (1024 if binary else 1000) ** _POWERS[unit.upper()])
    if size < SMALLEST:
        raise BadValueError(f"{quoted(text)} is less than 1MB", _FIX, codes.OUT_OF_RANGE)
    return size
