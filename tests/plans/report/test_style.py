"""The colours of a report: what is read has the contrast that WCAG wants, light and dark."""

from __future__ import annotations

import re

import pytest

from clusterctl.plans.report.markup import STYLE

TEXT, DRAWN = 4.5, 3.0  # WCAG 2.2: 1.4.3 for text, 1.4.11 for what is drawn
READ = ("fg", "dim", "bad", "good", "warn", *(f"c{number}" for number in range(8)))
PHASES = ("preparing", "setup", "waiting", "starting", "running", "stopping", "after")


def read_colours() -> dict[str, dict[str, str]]:
    """Give the values of the variables, light and dark."""
    light, dark = (
        dict(re.findall(r"--([\w-]+):(#[0-9a-f]{3,8})", block))
        for block in re.findall(r":root\{([^}]*)\}", STYLE)
    )
    return {"light": light, "dark": {**light, **dark}}


def luminance(colour: str) -> float:
    """Give how bright a colour is, as WCAG defines it."""
    digits = colour[1:] if len(colour) > 4 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Give the contrast of two colours, from 1 to 21."""
    lower, higher = sorted((luminance(one), luminance(other)))
    return (higher + 0.05) / (lower + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_texts_and_lines_can_be_read(mode: str) -> None:
    """Every colour of a text or a line, and every phase of the timeline, on the page and on the boxes."""
    colours = read_colours()[mode]
    weak = [
        (name, ground, round(found, 2))
        for names, least in ((READ, TEXT), (PHASES, DRAWN))
        for name in names
        for ground in ("bg", "box")
        if (found := contrast(colours[name], colours[ground])) < least
    ]
    assert weak == []
    assert contrast("#000", "#fff") == 21
