"""Ticks of plots from plain values: round steps, few of them, one unit."""

from __future__ import annotations

import random

import pytest

from clusterctl.plans.report.axes import (
    Format,
    choose_range,
    format_bytes,
    format_number,
    format_percent,
    format_rate,
    format_watts,
    make_value_axis,
    render_time,
    time_step,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("low", "high", "form", "texts"),
    [
        (0.108, 2.47, format_number, ["0", "0.5", "1.0", "1.5", "2.0"]),
        (1.69, 2.44, format_number, ["1.6", "1.8", "2.0", "2.2", "2.4"]),
        (0.0, 441.0, format_watts, ["0", "100 W", "200 W", "300 W", "400 W"]),
        (0.0, 100.0, format_percent, ["0", "50 %", "100 %"]),
        (0.0, 79.6 * GIB, format_bytes, ["0", "20 GiB", "40 GiB", "60 GiB", "80 GiB"]),
        (0.0, 0.9 * GIB, format_bytes, ["0", "200 MiB", "400 MiB", "600 MiB", "800 MiB"]),
        (0.0, 103e6, format_rate, ["0", "50 MB/s", "100 MB/s"]),
        (0.0, 3e-4, format_number, ["0", "0.0001", "0.0002", "0.0003"]),
        (14100.0, 16100.0, format_number, ["14,000", "14,500", "15,000", "15,500", "16,000"]),
    ],
)
def test_ticks_are_round(low: float, high: float, form: Format, texts: list[str]) -> None:
    """In steps of 1, 2 or 5; those of memory are in the units that `top` shows, those of networks in thousands."""
    axis = make_value_axis(low, high, form, 5)
    assert [text for _, text in axis.ticks] == texts
    assert axis.low == axis.ticks[0][0] <= low and axis.high >= high


@pytest.mark.parametrize("seed", range(20))
def test_any_range_has_a_few_ticks_and_holds_its_values(seed: int) -> None:
    """From the smallest to the largest number that a node can send, also where all values are the same."""
    chance = random.Random(seed)
    for _ in range(200):
        size = 10.0 ** chance.randint(-29, 29)
        values = [chance.uniform(-1, 1) * size, chance.uniform(-1, 1) * size * 10.0 ** chance.randint(-12, 0)]
        low, high = choose_range(values[: chance.randint(1, 2)], None, from_zero=chance.random() < 0.5)
        most = chance.choice((3, 5))
        axis = make_value_axis(low, high, chance.choice((format_number, format_bytes, format_rate)), most)
        assert 2 <= len(axis.ticks) <= most, (low, high, axis)
        slack = 1e-6 * (high - low)
        assert axis.low <= low + slack and axis.high >= high, (low, high, axis)
        assert all(0 <= axis.share(value) <= 1 for value in values)


def test_times_and_units_are_readable() -> None:
    """A value that was measured has its own unit and up to four digits."""
    assert [render_time(seconds) for seconds in (0, 40, 300, 330, 7200, 5400)] == [
        "0", "40 s", "5m", "5m30s", "2h", "1h30m",
    ]  # fmt: skip
    for most in (2, 5, 8):
        for seconds in (10, 59, 3600, 86400, 7 * 86400):
            assert 0.3 * most <= seconds / time_step(seconds, most) <= most + 0.01
    assert [format_bytes(value) for value in (0, 999, 1024, 80 * GIB)] == ["0 B", "999 B", "1 KiB", "80 GiB"]
    assert [format_rate(value) for value in (999, 1000, 103.4e6)] == ["999 B/s", "1 kB/s", "103 MB/s"]
    assert [format_number(value) for value in (0.06, 2.4612, 15320, 7.5e-05, 1e30)] == [
        "0.06", "2.461", "15,320", "7.5e-05", "1.00e+30",
    ]  # fmt: skip
