"""Where `forward` listens: a port of the loopback address, or a socket that no other account can use."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import closing
from pathlib import Path

import pytest

from clusterctl.client.forward import listen, render_address, stop_listening


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_socket_is_ours_alone_and_is_removed(tmp_path: Path, mask: int) -> None:
    """Whatever the umask, which is the same afterwards."""
    path = tmp_path / "sock"
    before = os.umask(mask)
    try:
        listener = listen(str(path))
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    try:
        assert render_address(listener) == str(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with closing(socket.socket(socket.AF_UNIX)) as client:
            client.connect(str(path))
    finally:
        stop_listening(listener)
    assert not path.exists()


def test_a_file_that_is_there_is_left(tmp_path: Path) -> None:
    """It is an error, and not replaced."""
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        listen(str(path))
    assert path.read_text() == "mine"


def test_a_port_is_one_of_the_loopback_address() -> None:
    """Nothing outside this machine reaches it."""
    listener = listen(0)
    assert render_address(listener).startswith("127.0.0.1:")
    stop_listening(listener)
