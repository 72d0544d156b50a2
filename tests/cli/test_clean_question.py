"""Who may agree to what `clean` removes: a person who has seen it, or -y."""

from __future__ import annotations

import sys

import click
import pytest

from clusterctl.cli.cleaning import Clean, Wishes
from clusterctl.errors import UsageError
from clusterctl.plans.cleaning import Bounds


@pytest.mark.parametrize(
    ("as_json", "yes", "at_terminal", "agreed"),
    [
        (False, False, True, True),
        (True, False, True, False),  # nothing was shown to whoever sits there
        (False, False, False, False),
        (True, True, False, True),
    ],
)
def test_nobody_agrees_to_what_was_not_shown(
    monkeypatch: pytest.MonkeyPatch, as_json: bool, yes: bool, at_terminal: bool, agreed: bool
) -> None:
    """A person at a terminal says yes to every question; with --json there is none."""
    monkeypatch.setattr(sys.stdin, "isatty", lambda: at_terminal, raising=False)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
    wishes = Wishes(Bounds(), everyone=False, dry_run=False, yes=yes, as_json=as_json)
    if agreed:
        Clean((), wishes)._confirm()
        return
    with pytest.raises(UsageError) as caught:
        Clean((), wishes)._confirm()
    assert ("--dry-run" in caught.value.fix) == as_json
