"""A simulated nvidia-smi."""

from __future__ import annotations

import os
from pathlib import Path


def with_smi(folder: Path, script: str) -> dict[str, str]:
    """Put a shell script that stands for nvidia-smi first on PATH; returns the environment for it."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
