"""Axes of plots: which ticks they have, and how values and times are written at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from clusterctl.specs.text import render_duration

TIME_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
ROUND_STEPS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
MAX_PLAIN = 1e9  # from here on a number is written with an exponent
MAX_GAP = (
    0.2  # of an axis above the highest value: up to this it ends at a tick, with two ticks up to twice this
)
FLAT = 1e-9  # of a value: a smaller range is none
MIN_RANGE = 1e-30


@dataclass(frozen=True)
class Format:
    """How a quantity is written: its unit, the prefixes of that and by what they grow, whether as a whole number."""

    unit: str = ""
    prefixes: tuple[str, ...] = ("",)
    base: float = 1000.0
    is_whole: bool = False

    def __call__(self, value: float) -> str:
        """Write a value that was measured."""
        power = self._power(value)
        scaled = value / self.base**power
        return self._with_unit(f"{scaled:.0f}" if self.is_whole else write_number(scaled), power)

    def tick(self, value: float, step: float, highest: float) -> str:
        """Write a tick with as many digits as the step needs, in the unit of the highest tick."""
        if not value:
            return "0"
        power = self._power(highest)
        divisor = self.base**power
        return self._with_unit(_write_tick(value / divisor, step / divisor), power)

    def divisor(self, highest: float) -> float:
        """Return how much the unit is in which ticks up to the highest are written."""
        return self.base ** self._power(highest)

    def _power(self, value: float) -> int:
        """Choose a prefix."""
        powers = range(len(self.prefixes))
        return max((power for power in powers if abs(value) >= self.base**power), default=0)

    def _with_unit(self, number: str, power: int) -> str:
        unit = self.prefixes[power] + self.unit
        return f"{number} {unit}" if unit else number


format_number = Format()
format_percent = Format("%", is_whole=True)
format_watts = Format("W", is_whole=True)
format_degrees = Format("°C", is_whole=True)
format_bytes = Format("B", ("", "Ki", "Mi", "Gi", "Ti", "Pi"), 1024.0)  # of memory, as `top` shows it
format_rate = Format("B/s", ("", "k", "M", "G", "T", "P"))  # networks and disks count in thousands


def write_number(value: float) -> str:
    """Write a number with four digits, from a hundred on as a whole one."""
    if 100 <= abs(value) < MAX_PLAIN:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) < 100 else f"{value:.2e}"


def _write_tick(value: float, step: float) -> str:
    decimals = max(0, -floor(log10(step) + 1e-9))
    if decimals > 5 or abs(value) >= MAX_PLAIN:
        return f"{value:.3g}"
    return f"{value:,.{decimals}f}"


def choose_ticks(low: float, high: float, most: int, unit: float = 1.0) -> tuple[float, tuple[float, ...]]:
    """Return the smallest step of 1, 2 or 5 of a unit or its tens that needs no more ticks, and these ticks.

    The first tick is at or below `low`, the last at or below `high`.
    """
    span = (high - low) / unit
    step = 10.0 ** floor(log10(span / (most + 1))) * unit
    factor = next(one for one in ROUND_STEPS if _count(low, high, step * one) <= most)
    step *= factor
    first = floor(low / step + FLAT)
    return step, tuple(
        (first + number) * step for number in range(max(2, _count(low, high, step))) if number < most
    )


def _count(low: float, high: float, step: float) -> int:
    return floor(high / step + FLAT) - floor(low / step + FLAT) + 1


def choose_range(values: Sequence[float], top: float | None, *, from_zero: bool) -> tuple[float, float]:
    """Return lowest and highest of an axis for some values before it is rounded; never the same."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if top is not None:
        high = max(high, top)
    if from_zero and low >= 0:
        low = 0.0
    if high - low <= max(FLAT * max(abs(low), abs(high)), MIN_RANGE):
        low, high = min(0.0, low), max(0.0, high)
    if high - low <= MIN_RANGE:
        return 0.0, 1.0
    return low, high


@dataclass(frozen=True)
class ValueAxis:
    """The axis of values: from where to where it goes, and its ticks with their texts."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """Return how far up a value is, from 0 to 1."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def make_value_axis(low: float, high: float, form: Format, most: int) -> ValueAxis:
    """Round an axis: its low end is a tick, its high end too unless much of the plot would be empty."""
    step, ticks = choose_ticks(low, high, most, form.divisor(max(abs(low), abs(high))))
    above = ticks[-1] + step
    gap = MAX_GAP * (high - ticks[0]) * (2 if len(ticks) == 2 else 1)
    if ticks[-1] < high - FLAT * step and above - high <= gap and len(ticks) < most:
        ticks = (*ticks, above)
    highest = max(abs(ticks[0]), abs(ticks[-1]))
    texts = tuple((tick, form.tick(tick, step, highest)) for tick in ticks)
    return ValueAxis(ticks[0], max(high, ticks[-1]), texts)


def time_step(seconds: float, most: int = 5) -> float:
    """Choose the distance of the times that are written below a plot."""
    fitting = (float(step) for step in TIME_STEPS if seconds / step <= most)
    return next(fitting, 86400.0 * ceil(seconds / most / 86400))


def render_time(seconds: float) -> str:
    """Write a time since the launch, at an axis, in a table or at a sample: the same everywhere."""
    return render_duration(seconds) if round(seconds) else "0"
