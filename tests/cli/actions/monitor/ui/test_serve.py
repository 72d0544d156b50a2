"""How `ui` begins: a port that is taken, and where a browser is opened."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from clusterctl.cli.actions.monitor.ui.serve import has_browser, is_remote, serve
from clusterctl.cli.actions.monitor.ui.source import Target
from clusterctl.errors import UsageError
from clusterctl.specs.inventory.parse import parse_inventory


def test_a_port_that_is_taken_is_an_error_with_a_code() -> None:
    """Nothing was asked of any node before."""
    no_cluster: Any = None
    target = Target(no_cluster, parse_inventory("cluster: c\nnodes: [{host: gpu01}]", "-"), "c", "clusterctl")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"127.0.0.1:{port}: Address already in use") as found:
            serve(target, port, opens_browser=False)
    assert found.value.code == "CC-USE-098"


@pytest.mark.parametrize(
    ("environment", "platform", "remote", "browser"),
    [
        ({}, "linux", False, False),  # one of text would take the terminal
        ({"DISPLAY": ":0"}, "linux", False, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", False, True),
        ({"SSH_CONNECTION": "10.0.0.1 5 10.0.0.2 22", "DISPLAY": "localhost:10.0"}, "linux", True, True),
        ({}, "darwin", False, True),
    ],
)
def test_a_browser_is_opened_in_front_of_the_user_only(
    environment: dict[str, str], platform: str, remote: bool, browser: bool
) -> None:
    """Over SSH its window would be on another machine, or slow."""
    assert (is_remote(environment), has_browser(environment, platform)) == (remote, browser)
