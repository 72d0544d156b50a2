"""The end of a run as each verb reports it: one state, one cause, one exit code, whoever asks and however."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from driving import Result

from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.states import FINAL

Ask = Callable[..., Result]  # clusterctl with these words, on the cluster of the run
NO_CAUSE: dict[str, Any] = {}


class End(NamedTuple):
    """What a verb reports; `cause` is node, rank and code, `exit` the command's own where it is that of the run."""

    state: str
    cause: tuple[Any, ...] | None
    exit: int | None


def ask_all(ask: Ask, run: str, page: Path | None) -> dict[str, End]:
    """Ask each verb how a run ended; twice by its full name, since which node answers first is chance.

    Without a place for its page `report` is not asked: it needs nodes that have something of the run.
    """
    attached = ask("attach", run, "--json")
    verdict = attached.verdict()
    ends = {"attach": End(verdict["state"], _cause(verdict["cause"]), attached.code)}
    assert verdict["exit_code"] == attached.code, attached.err
    for name, how in {"status": run, "status again": run, "status of the short name": short_id(run)}.items():
        shown = json.loads(ask("status", how, "--json").out)
        ends[name] = End(shown["run"]["state"], _cause(shown["cause"]), None)
    listed = {one["run"]: one for one in json.loads(ask("ps", "--json").out)["runs"]}
    ends["ps"] = End(listed[run]["state"], ends["status"].cause, None)
    if page is not None:
        reported = ask("report", run, "-o", page)
        state = re.search(rf"\b({'|'.join(FINAL)})\b", page.read_text())
        assert state is not None, reported.err
        ends["report"] = End(state[1], ends["status"].cause, None)
    return ends


def _cause(cause: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    return (cause["node"], cause["rank"], cause["code"]) if cause else None


def find_differences(ends: Mapping[str, End], state: str, code: int) -> list[str]:
    """List the verbs that report another end than `launch` did, or another cause than the others."""
    causes = {end.cause for end in ends.values()}
    wrong = [
        f"{verb}: {end}" for verb, end in ends.items() if end.state != state or end.exit not in (None, code)
    ]
    return wrong + ([f"causes differ: {ends}"] if len(causes) > 1 else [])


def shown_state(screen: str) -> str:
    """Return the state that `launch` or `attach` has shown."""
    (*_, found) = re.finditer(r"^[✓✗■] ([A-Z_]+) after", screen, re.MULTILINE)
    return found[1]
