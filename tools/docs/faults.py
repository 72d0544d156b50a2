"""The tables of docs/inside/faults.md: what the tests strike, and what the bench has measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "lab"))

from fault_table import CHECKPOINT_FAULTS, FAULTS, Fault
from tables import table

MEASURED = Path(__file__).parent / "measured" / "faults.json"
LIMIT = 60.0  # seconds after which the bench ends a peer that does not react
Rows = Iterator[tuple[str, ...]]


def fault_table(name: str) -> str:
    """Write what the tests strike, also while checkpoints are kept, or what the bench has measured."""
    if name == "struck":
        return table(
            ("what breaks", "how it is made", "within", "the screen shows", "exit code", ""), struck()
        )
    if name == "checkpoints":
        rows = ((fault.breaks, fault.follows) for fault in CHECKPOINT_FAULTS)
        return table(("what breaks", "what the run does"), rows)
    return f"{table(measured_headings(), measured())}\n{machine()}\n"


def struck() -> Rows:
    """Give each fault: how it is made, by when it is noticed, what is shown, the exit code, and the tests."""
    for fault in FAULTS:
        within = f"{fault.within:g} s" if fault.within is not None else "no effect"
        shown = "<br>".join(f"`{text}`" for text in fault.says).replace("{node}", "NODE")
        yield fault.breaks, fault.how, within, shown, str(fault.exit), fault.note


def measured_headings() -> tuple[str, ...]:
    """Give the columns of `measured`."""
    return ("fault", "ranks ended", "worst", "nothing left", *facts()["peers"])


def measured() -> Rows:
    """Give what the bench has measured, beside the others."""
    found = facts()
    for name, took in found["seconds"].items():
        ended, left = zip(*took, strict=True)
        ours = (median(ended), max(ended), median(left))
        yield (
            words(name),
            *(f"{number:.2f}" for number in ours),
            *(cell(peer.get(name)) for peer in found["peers"].values()),
        )


def words(name: str) -> str:
    """Write a fault as the first table does."""
    found: dict[str, Fault] = {fault.name: fault for fault in FAULTS}
    heeding = name.removesuffix("-plain")
    return found[heeding].breaks + (", all heed SIGTERM" if heeding != name else "")


def cell(took: list[float | None] | None) -> str:
    """Write the median of a peer; a round that did not end counts as the longest."""
    if not took:
        return ""
    middle = median(LIMIT + 1 if one is None else one for one in took)
    return f"> {LIMIT:g}" if middle > LIMIT else f"{middle:.1f}"


def machine() -> str:
    """Say on what it was measured, with which versions, and what else was measured there."""
    found = facts()
    about, names = found["machine"], found["versions"]
    rounds = max(len(took) for took in found["seconds"].values())
    skew = [each * 1000 for each in found["skew"]]
    rest = (
        f"\n\nOn the same day: the ranks of eight nodes began within {median(skew):.0f} ms of each other (worst of "
        f"{len(skew)}: {max(skew):.0f} ms). Guardian and agent of an idle run together: {found['memory']:.1f} MB "
        f"(proportional set size) and {found['cpu']:.3f} % of a core."
        if skew
        else ""
    )
    where = f"{about['cores']} cores, Linux {about['kernel']}, Python {about['Python']}"
    compared = ", ".join(f"{name} {version}" for name, version in names.items())
    return (
        f"Medians of {rounds} rounds, of the others one round each, in seconds; {found['date']}, {where}, {compared}. "
        f"Much other work ran there: load averages from {min(found['loads']):g} to {max(found['loads']):g}.{rest}"
    )


def facts() -> dict[str, Any]:
    """Read what the bench wrote."""
    content: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return content
