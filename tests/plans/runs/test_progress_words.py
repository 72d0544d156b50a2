"""How far a run is, by what nodes report: bounded, in words, and of the right node."""

from __future__ import annotations

from clusterctl.plans.runs.progress import MAX_LOSSES, Progress, choose_progress, parse_progress
from clusterctl.protocol.untrusted import Untrusted


def test_what_a_node_makes_up_is_bounded() -> None:
    """Numbers only, not too many, and no total below the step."""
    made_up = {"step": "7", "total": -3, "losses": [[1.0], ["x"], [1e300], 7, *[[0.5]] * 1000]}
    found = parse_progress(Untrusted(made_up))
    assert found is not None and found.step is None and found.total is None
    assert len(found.losses) <= MAX_LOSSES and found.losses[:3] == (1.0, None, None)
    assert parse_progress(Untrusted({"step": 9, "total": 5, "losses": []})) == Progress(9, None)
    assert parse_progress(Untrusted({})) is None


def test_words() -> None:
    """A loss that is not finite is seen at once."""
    assert Progress(120, 500).step_text == "120 of 500" and Progress(7, None).step_text == "7"
    assert (
        Progress(None, None, (2.0, None)).loss_text == "nan"
        and Progress(1, None, (0.123456,)).loss_text == "0.1235"
    )


def test_the_lowest_rank_with_a_loss_counts() -> None:
    """Else the lowest with a step."""
    plain, measured = Progress(5, None), Progress(4, None, (1.0,))
    assert choose_progress([(8, measured), (0, plain)]) == measured
    assert choose_progress([(8, plain)]) == plain and choose_progress([]) is None
