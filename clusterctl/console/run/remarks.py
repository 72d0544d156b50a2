"""Remarks on a run: the files that it left outside its output directory.

Not here: its end and the cause (`verdict`), which import far more than commands about files need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterctl.console.text import UNBROKEN, wrap_text
from clusterctl.plans.sync.listed_files import OutsideFiles
from clusterctl.protocol.run_paths import short_id
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line, render_size
from clusterctl.translation import tr, trn

MAX_NAMES = 3  # names
INDENT = "    "


def render_outside(outside: Mapping[str, OutsideFiles]) -> str:
    """Put it into a line: `2 files outside ${output_dir}: 0.ckpt, 1.ckpt (13.2 MB) on gpu01`."""
    files = sum(node_outside.files for node_outside in outside.values())
    names = list(
        dict.fromkeys(
            name.replace("\n", "\\n") for node_outside in outside.values() for name in node_outside.names
        )
    )
    named_count = sum(len(node_outside.names) for node_outside in outside.values())
    ellipsis = ", ..." if names[MAX_NAMES:] or files > named_count else ""
    facts = {
        "names": ", ".join(names[:MAX_NAMES]) + ellipsis,
        "size": render_size(sum(node_outside.bytes for node_outside in outside.values())),
        "nodes": fold_names(outside),
    }
    if any(node_outside.more for node_outside in outside.values()):
        return tr(
            "at least {files} files outside ${output_dir}: {names} ({size}) on {nodes}", files=files, **facts
        )
    if not names:
        return trn(
            "{n} file outside ${output_dir} ({size}) on {nodes}",
            "{n} files outside ${output_dir} ({size}) on {nodes}",
            files,
            **facts,
        )
    return trn(
        "{n} file outside ${output_dir}: {names} ({size}) on {nodes}",
        "{n} files outside ${output_dir}: {names} ({size}) on {nodes}",
        files,
        **facts,
    )


def wrap_remarks(lines: Iterable[str], width: int) -> list[str]:
    """Break what is no command between words; a line keeps its indentation."""
    pieces: list[str] = []
    for line in lines:
        text = line.lstrip()
        start = line[: len(line) - len(text)]
        pieces += [line] if "clusterctl " in text else wrap_text(text, width, start, f"{start}  ")
    return pieces


def render_outside_note(
    outside: Mapping[str, OutsideFiles], run_id: str, command: str, width: int = UNBROKEN
) -> list[str]:
    """Return the hint for a run that has ended, with the command that downloads them; hints begin with `command`."""
    if not outside:
        return []
    pull = command_line("pull", short_id(run_id), "--all", command=command)
    return [
        *wrap_remarks([tr("note: {text}", text=render_outside(outside))], width),
        INDENT + tr("next: {command}", command=pull),
    ]
