"""Serve the page until Ctrl-C, and open a browser where there is one."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Mapping
from contextlib import suppress

import click

from clusterctl.cli.actions.monitor.ui.feed import Feed
from clusterctl.cli.actions.monitor.ui.fragments import render_page
from clusterctl.cli.actions.monitor.ui.server import UiServer
from clusterctl.cli.actions.monitor.ui.source import ClusterSource, Target
from clusterctl.cli.context.nodes import current_owner
from clusterctl.console.terminal import hint, info
from clusterctl.errors import UsageError
from clusterctl.interrupts import INTERRUPTS, announce_nothing
from clusterctl.node_texts import describe_system_error
from clusterctl.specs.text import command_line
from clusterctl.translation import tr


def serve(target: Target, port: int, *, opens_browser: bool) -> int:
    """Serve until Ctrl-C; UsageError if the port cannot be had."""
    feed = Feed(ClusterSource(target))
    try:
        server = UiServer(port, feed, render_page(target.inventory.cluster))
    except OSError as error:
        raise UsageError("CC-USE-098", port=port, reason=describe_system_error(error)) from error
    try:
        _announce(server, opens_browser=opens_browser)
        with INTERRUPTS.leaving(announce_nothing):
            INTERRUPTS.call(server.serve_forever)
    except KeyboardInterrupt:
        return INTERRUPTS.exit_code_of_server
    finally:
        feed.close()
        server.server_close()
    return 0


def _announce(server: UiServer, *, opens_browser: bool) -> None:
    click.echo(server.url)
    if is_remote(os.environ):
        host = f"{current_owner().name.partition('@')[0]}@{socket.gethostname()}"
        command = command_line("ssh", "-N", "-L", f"{server.port}:127.0.0.1:{server.port}", host)
        hint(tr("on your own machine: {command}, then open the address above", command=command))
    elif opens_browser and has_browser(os.environ, sys.platform):
        threading.Thread(target=_open, args=(server.make_ticket(),), daemon=True).start()
    info(tr("keep the address secret: with it, runs can be stopped; Ctrl-C ends the page"))
    sys.stdout.flush()


def is_remote(environment: Mapping[str, str]) -> bool:
    """Return whether this is a login over SSH, so that a browser here is not in front of the user."""
    return bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"))


def has_browser(environment: Mapping[str, str], platform: str) -> bool:
    """Return whether a browser would have a window: one of text would take this terminal."""
    graphical = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    return platform == "darwin" or any(environment.get(name) for name in graphical)


def _open(address: str) -> None:
    with suppress(Exception):  # the address is on the terminal
        webbrowser.open(address)
