"""What `clusterctl explain` shows in addition to the table of codes: real cases of each check, and known failures.

`generate.py` writes it as `clusterctl/cli/examples.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, get_args

from clusterctl.translation import Language, use_language

ROOT = Path(__file__).parents[2]
FILE = ROOT / "clusterctl" / "cli" / "examples.json"


def written(happens: dict[str, list[str]]) -> str:
    """Render the file; `happens` are the known failures that a code stands for."""
    return json.dumps({"examples": examples(), "happens": happens}, ensure_ascii=False, indent=1) + "\n"


def examples() -> dict[str, dict[str, dict[str, str]]]:
    """Give the examples in each language."""
    found = {}
    for chosen in get_args(Language):
        use_language(chosen)
        found[chosen] = examples_here()
    use_language("en")
    return found


def examples_here() -> dict[str, dict[str, str]]:
    """Take of every check the first case with a finding of it, and that finding, in the language in use."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from cases import every_case, judge  # noqa: PLC0415 - the cases are where the tests keep them

    found: dict[str, dict[str, str]] = {}
    for case in every_case():
        wanted = {finding["code"] for finding in case.get("findings", [])} - found.keys()
        findings: Any = judge(case) if wanted else ()
        found |= {one.code: {"seen": one.evidence, "fix": one.fix} for one in findings if one.code in wanted}
    return dict(sorted(found.items()))
