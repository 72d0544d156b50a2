"""Compile the catalogue of Chinese messages when hatch builds a wheel, an sdist or an editable install."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CatalogueHook(BuildHookInterface[Any]):
    """The build hook that pyproject.toml names; `artifacts` there put the result into the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatch gives them
        """Compile the catalogue of this checkout before its files are collected."""
        sys.path.insert(0, str(Path(self.root) / "tools"))
        from messages import compile_catalogue  # noqa: PLC0415 - found only now

        compile_catalogue()
