"""A command as a user types it in a directory, with a state directory of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from commands import run_command
from waiting import HANG


def run(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `clusterctl ARGS` in a directory, with a state directory of its own."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("CLUSTERCTL_")}
    home = {"XDG_STATE_HOME": str(folder / "state")}
    return run_command(args, cwd=folder, env={**clean, **home, **env}, timeout=HANG)
