"""What the plugin of mypy reports: literal keys that no definition has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = """
from typing import Any, Mapping, TypedDict

class Frame(TypedDict, total=False):
    end: bool

def read(frame: Frame, record: dict[str, Any], answer: Mapping[str, object], env: dict[str, str]) -> list[object]:
    return [
        frame.get("edn"),
        record["end"],
        answer.get("end"),
        frame.get("end"),
        env["PATH"],
        record[str(1)],
    ]
"""


@pytest.mark.variant  # mypy --strict runs with the plugin, and reports each exception that it does not need
@pytest.mark.process
def test_keys_without_a_definition_are_reported(tmp_path: Path) -> None:
    """On a TypedDict, and on records whose values are of any kind; not on tables of texts."""
    file, settings = tmp_path / "frames.py", tmp_path / "mypy.ini"
    file.write_text(TEXT)
    settings.write_text(f"[mypy]\nplugins = {ROOT / 'tools' / 'mypy_keys.py'}\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        settings,
        "--cache-dir",
        tmp_path / "cache",
        file,
    ]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = [int(line.split(":")[1]) for line in printed.splitlines() if "[record-key]" in line]
    first = TEXT.splitlines().index('        frame.get("edn"),') + 1
    assert found == [first, first + 1, first + 2], printed
