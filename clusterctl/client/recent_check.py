"""What was expensive in a check that passed a moment ago: the test of the network, GPU health, the version of NCCL.

A check asks for everything else again, in the same round trip. One file for each set of nodes and questions, in a
directory of ours; nothing is kept of a check that found an error or lacked an answer.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterctl.client.local.private_files import keep_newest, read_own, remove_older, write_own
from clusterctl.client.rpc.bundle import payload_zip
from clusterctl.plans.diagnose.mesh import MeshResult
from clusterctl.plans.facts.facts import Facts, probe_request
from clusterctl.plans.facts.untrusted import MAX_ITEMS, read_value
from clusterctl.protocol.untrusted import MalformedError, parse_json
from clusterctl.specs.inventory.model import Node

if TYPE_CHECKING:
    from clusterctl.client.rpc.session import Interpreter

# seconds from a check to its launch. In that time a cable or a GPU seldom breaks, and a run whose network does break
# meanwhile fails as one that was launched before. After a launch nothing is reused: its run may have crashed because
# of a GPU or the network.
MAX_AGE = 60.0
MOST_KEPT = 20  # files
MOST_BYTES, MOST_VALUES = 8 << 20, 500_000
REUSED = ("gpu_health", "nccl")
UNCHANGED = ("torch", "setup", "interpreter")  # what these depend on, and what is asked again

Rails = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class RecentCheck:
    """The facts of `REUSED` and `UNCHANGED` and the boot of each node, its addresses by rail, and what they tested."""

    time: float
    facts: Mapping[str, Facts]
    rails: Rails
    mesh: MeshResult | None = None


def name_check(nodes: Sequence[Node], interpreters: Mapping[str, Interpreter], *, test_mesh: bool) -> str:
    """Name a check by all that its answers depend on here: what is asked of which nodes, by which code and Python."""
    digest = payload_zip()[0]
    questions = [
        [asdict(node), asdict(interpreters[node.name]), probe_request(node, tuple(nodes), digest)]
        for node in nodes
    ]
    text = json.dumps([questions, test_mesh])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def load_check(folder: Path, name: str, now: float) -> RecentCheck | None:
    """Return what was kept of a check, if that is young enough; a damaged file is none."""
    notes: list[str] = []
    try:
        document = parse_json(read_own(folder / f"{name}.json", MOST_BYTES), MOST_BYTES, MOST_VALUES)
        check: RecentCheck | None = read_value(RecentCheck, document, "check", notes)
    except (OSError, MalformedError, TypeError):  # the last for a value that is missing
        return None
    return check if check and not notes and 0 <= now - check.time < MAX_AGE else None


def remove_check(folder: Path, name: str) -> None:
    """Remove what was kept of a check."""
    remove_older(folder, f"{name}.json", math.inf)


def save_check(folder: Path, name: str, check: RecentCheck) -> None:
    """Keep what a check found; what cannot be written is asked again."""
    if check.mesh is not None and len(check.mesh.paths) > MAX_ITEMS:
        return
    document = {
        "time": check.time,
        "facts": {name: _facts_to_plain(facts) for name, facts in check.facts.items()},
        "rails": {name: dict(rails) for name, rails in check.rails.items()},
        "mesh": asdict(check.mesh) if check.mesh else None,
    }
    content = json.dumps(document)
    if len(content) <= MOST_BYTES:
        with suppress(OSError):
            write_own(folder / f"{name}.json", content)
            keep_newest(folder, MOST_KEPT)


def merge_facts(check: RecentCheck, fresh: Mapping[str, Facts]) -> dict[str, Facts] | None:
    """Complete fresh facts by those of a check; None if a node has been started again or was changed meanwhile."""
    merged = {}
    for name, facts in fresh.items():
        known = check.facts.get(name)
        if known is None or not facts.machine.boot_id or known.machine.boot_id != facts.machine.boot_id:
            return None
        if any(getattr(known, key) != getattr(facts, key) for key in UNCHANGED):
            return None
        reused: dict[str, Any] = {key: getattr(known, key) for key in REUSED}
        merged[name] = replace(facts, **reused)
    return merged


def _facts_to_plain(facts: Facts) -> dict[str, Any]:
    kept = {key: getattr(facts, key) for key in (*REUSED, *UNCHANGED)}
    return {
        **{key: asdict(value) for key, value in kept.items()},
        "machine": {"boot_id": facts.machine.boot_id},
    }
