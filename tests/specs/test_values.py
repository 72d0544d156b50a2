"""Sizes such as 20GB."""

from __future__ import annotations

import pytest

from clusterctl.errors import InvalidValueError
from clusterctl.specs.values import Size, parse_size


@pytest.mark.parametrize(
    ("text", "size", "shown"),
    [
        ("0", 0, "0"),
        ("20GB", 20 * 10**9, "20GB"),
        ("1.5 TB", 1500 * 10**9, "1.5TB"),
        ("512MiB", 512 << 20, "536.9MB"),
        ("1000000B", 10**6, "1MB"),
        ("4000kB", 4 * 10**6, "4MB"),
    ],
)
def test_sizes_are_read_and_written(text: str, size: int, shown: str) -> None:
    """Units of 1000, and of 1024 with an i."""
    assert (parse_size(text), str(Size(size))) == (size, shown)


@pytest.mark.parametrize(
    "text", ["", "20", "-1GB", "1e9B", "GB", "20gb", "999kB", "1PB", "0GB", "\uff12\uff10GB"]
)
def test_what_is_no_size(text: str) -> None:
    """A number without a unit could be anything, and less than 1 MB would hold no log."""
    with pytest.raises(InvalidValueError):
        parse_size(text)
