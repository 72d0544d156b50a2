"""The explanations of all codes, which come with the package as `codes.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clusterctl.plans.explain import Manual

CODES_FILE = Path(__file__).parents[1] / "codes.json"


def read_codes() -> Manual:
    """Read the explanations."""
    from clusterctl.plans.explain import parse_manual

    return parse_manual(json.loads(CODES_FILE.read_text(encoding="utf-8")))
