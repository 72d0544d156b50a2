"""The document of `export`."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict


class ExportDocument(TypedDict):
    """The script, the file that it was written to, and notes about what it leaves out."""

    schema: Literal[1]
    target: Literal["slurm", "bash"]
    file: str | None
    script: str
    notes: list[str]
