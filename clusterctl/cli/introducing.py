"""New host keys, shown to a person before anybody talks to whoever shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from clusterctl.console.sanitize import sanitize

if TYPE_CHECKING:
    from clusterctl.runs.introductions import Introductions

MOST_MEETINGS = 10  # behind a bastion that is met first there are more to meet, and a chain has eight
QUESTION = "Are these the nodes' own keys (compare with `ssh-keygen -lf /etc/ssh/ssh_host_*.pub` there)?"


def introduce(introductions: Introductions, *, believe: bool, attended: bool) -> bool:
    """Show the strangers met so far; True if they are welcome from now on, each with the very key that was shown."""
    strangers = sorted(introductions.strangers.values(), key=lambda one: (one.node, one.place))
    for one in strangers:
        text = f"{one.node} ({one.place}) is not known here yet; it shows {one.key_type} {one.fingerprint}"
        click.echo(sanitize(text), err=True)
    if not strangers or not (believe or (attended and click.confirm(QUESTION, err=True))):
        return False
    introductions.welcome_all()
    return True
