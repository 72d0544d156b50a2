"""SSH servers and a client for the tests of what happens on nodes."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from servers import Client, Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One sshd for the tests that leave it as it is."""
    from servers import start_server

    running = start_server(tmp_path_factory.mktemp("sshd"))
    yield running
    running.stop()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers with options of the test's own."""
    from servers import start_server

    running: list[Server] = []

    def start(*options: str, name: str = "sshd", **where: Any) -> Server:
        running.append(start_server(tmp_path / name, *options, **where))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Connect without an agent and with an empty home."""
    from servers import make_client

    mine = make_client(tmp_path / "home")
    yield mine
    mine.close()


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An ssh-agent of the test's own, with no key in it."""
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # it prints its address once it listens
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    yield path
    process.send_signal(signal.SIGTERM)
    process.wait()
    process.stdout.close()
