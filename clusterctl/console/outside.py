"""Files that a run has left outside the output directory, on the screen."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.console.progress import render_size
from clusterctl.plans.outside import Outside
from clusterctl.specs.counted import counted
from clusterctl.specs.nodeset import fold_names

SHOWN = 3  # names


def render_outside(parts: Mapping[str, Outside]) -> str:
    """Put it into a line: `2 files outside ${output_dir}: 0.ckpt, 1.ckpt (13.2 MB) on gpu01`."""
    files = sum(one.files for one in parts.values())
    least = "at least " if any(one.more for one in parts.values()) else ""
    names = list(dict.fromkeys(name.replace("\n", "\\n") for one in parts.values() for name in one.names))
    told = sum(len(one.names) for one in parts.values())
    more = ", ..." if names[SHOWN:] or files > told else ""
    named = f": {', '.join(names[:SHOWN])}{more}" if names else ""
    size = render_size(sum(one.bytes for one in parts.values()))
    return f"{least}{counted(files, 'file')} outside ${{output_dir}}{named} ({size}) on {fold_names(parts)}"


def render_stranded(parts: Mapping[str, Outside], run: str, command: str) -> list[str]:
    """Say so of a run that has ended, with the command that brings them; `command` is how hints begin."""
    return [f"note: {render_outside(parts)}", f"  bring them: {command} pull {run} --all"] if parts else []
