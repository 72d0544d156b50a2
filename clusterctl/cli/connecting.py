"""The connections of one command, with what only this side can give: notices, a folder, a person's answers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clusterctl.runs.cluster import Cluster
    from clusterctl.runs.hostkeys import HostKeys


def open_cluster(hostkeys: HostKeys | None = None) -> Cluster:
    """Give the connections of this command; nothing is opened yet. `hostkeys` judges in place of the usual ones."""
    from clusterctl.cli.places import state_dir
    from clusterctl.cli.reaching import notice
    from clusterctl.runs.cluster import Cluster

    ask = ask_passphrase if _is_attended() else None
    return Cluster(notice, remember=state_dir() / "ssh", ask=ask, hostkeys=hostkeys)


def ask_passphrase(path: str) -> str | None:
    """Ask the person at the terminal for the passphrase of a key; None without an answer."""
    from getpass import getpass

    try:
        return getpass(f"Passphrase for {path} (empty: do without): ", stream=sys.stderr) or None
    except EOFError:
        return None


def _is_attended() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
