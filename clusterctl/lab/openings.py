"""Waiting until sshd answers."""

from __future__ import annotations

import socket
import time

from clusterctl.lab.layout import SSH_PORT


def wait_for_banners(addresses: list[str], seconds: float) -> None:
    """Return when every address has told its SSH version; TimeoutError names the first one that has not."""
    deadline = time.monotonic() + seconds
    for address in addresses:
        while not _answers(address, deadline):
            if time.monotonic() > deadline:
                raise TimeoutError(None, f"sshd on {address} does not answer")
            time.sleep(0.003)


def _answers(address: str, deadline: float) -> bool:
    limit = max(0.1, deadline - time.monotonic())
    try:
        with socket.create_connection((address, SSH_PORT), limit) as connection:
            banner = connection.makefile("rb").readline(256)
    except OSError:
        return False
    return banner.startswith(b"SSH-") and banner.endswith(b"\n")
