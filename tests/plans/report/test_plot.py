"""Plots from plain values: where lines, ticks and signs are, and what can be read without a script."""

from __future__ import annotations

from clusterctl.plans.report.plot import SPARKS, render_sparkline


def test_a_sparkline_is_small_and_describes_itself() -> None:
    """Of many values some are drawn, the first and the last among them; one value is no line."""
    drawn = render_sparkline([2.5, None, float("nan"), *(2.0 - number / 1000 for number in range(999)), 0.25])
    assert drawn.markup.count("L") == SPARKS - 1 and len(drawn.markup) < 800
    assert 'role="img"' in drawn.markup and 'aria-label="from 2.5 to 0.25"' in drawn.markup
    assert "M0 2L" in drawn.markup and '100 22"' in drawn.markup  # from the top left to the bottom right
    assert [render_sparkline(values).markup for values in ([], [1.0], [None, 1.0])] == ["", "", ""]
    assert "nan" not in render_sparkline([1.0, 1.0, 1.0]).markup
