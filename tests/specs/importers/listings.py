"""What `ansible-inventory --list` prints: recorded, and made for a test."""

from __future__ import annotations

import json
from pathlib import Path

CASES = Path(__file__).parent / "cases"
INI, YAML = ((CASES / name).read_text(encoding="utf-8") for name in ("hosts.ini.json", "hosts.yml.json"))


def listing(hostvars: dict[str, dict[str, object]], **groups: object) -> str:
    """Write what Ansible lists of these hosts in one group."""
    members = {"hosts": list(hostvars)}
    return json.dumps(
        {"_meta": {"hostvars": hostvars}, "all": {"children": ["gpu"]}, "gpu": members, **groups}
    )
