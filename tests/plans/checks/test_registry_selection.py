"""Choosing checks and waiving findings: what is refused, and with which words."""

from __future__ import annotations

import pytest

from clusterctl.errors import UsageError
from clusterctl.plans.checks.registry import UNWAIVABLE, all_checks, choose_checks, resolve_waivers
from clusterctl.specs.inventory.model import Waiver


def waive(code: str, nodes: str = "all") -> Waiver:
    """Make a waiver."""
    return Waiver(code=code, nodes=nodes, reason="because", file="lab.yaml")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("CC-NET-099", "did you mean CC-NET-0"),
        ("NTE", "did you mean CC-NET?"),
        ("gpus", "did you mean CC-GPU?"),
        ("*-099", "families ("),
        ("?", "families ("),
    ],
)
def test_an_unknown_word_names_the_nearest(word: str, hint: str) -> None:
    """For codes, families and globs that match nothing."""
    with pytest.raises(UsageError) as caught:
        choose_checks([word], [])
    assert caught.value.code == "CC-USE-050"
    assert hint in caught.value.fix, caught.value.fix


def test_what_makes_a_launch_impossible_is_not_waived() -> None:
    """An unreachable node, no torch, no place to write."""
    assert all_checks().keys() >= UNWAIVABLE
    for code in ("CC-SSH-003", "CC-PY-001", *UNWAIVABLE):
        with pytest.raises(UsageError, match="cannot be waived") as caught:
            resolve_waivers([waive(code)], ["gpu1"])
        assert caught.value.code == "CC-USE-051"


def test_waivers_that_mean_nothing() -> None:
    """A code that there is not, and a node that there is not; the file is named."""
    with pytest.raises(UsageError, match=r"lab.yaml: waive CC-NET-909: no such finding") as caught:
        resolve_waivers([waive("CC-NET-909")], ["gpu1"])
    assert "did you mean CC-NET-0" in caught.value.fix
    with pytest.raises(UsageError, match=r"lab.yaml: waive CC-NET-009: .*gpu7"):
        resolve_waivers([waive("CC-NET-009", "gpu7")], ["gpu1"])
