"""Keys in an ssh-agent, and keys that a server accepts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from servers import Server


def add_to_agent(key: Path, passphrase: str = "") -> None:
    """Add a key, giving its passphrase as a person would."""
    askpass = key.parent / "askpass"
    askpass.write_text(f"#!/bin/sh\necho '{passphrase}'\n")
    askpass.chmod(0o700)
    environment = {**os.environ, "SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
    subprocess.run(["ssh-add", "-q", str(key)], check=True, env=environment, stdin=subprocess.DEVNULL)


def accept(server: Server, key: Path) -> None:
    """Let a key in."""
    with (server.folder / "authorized_keys").open("a") as file:
        file.write(key.with_name(key.name + ".pub").read_text())
