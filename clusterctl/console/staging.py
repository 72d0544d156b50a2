"""What was staged, or would be: on the screen and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from clusterctl.client.sync.upload import SentFiles
from clusterctl.console.terminal import print_line, stdout
from clusterctl.errors import ClusterctlError
from clusterctl.plans.runs.documents import StagePreview
from clusterctl.plans.sync.staging import SHOWN_DIGITS, StagedItem
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import render_size
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.console.documents.nodes import StagedEntry, StagedNode, StageDocument, VerifyDocument
    from clusterctl.plans.checks.framework import Finding
    from clusterctl.plans.sync.staged import StagedContent
    from clusterctl.specs.inventory.model import Node


@dataclass(frozen=True)
class Staged:
    """An entry of `stage`, and what each node has got of it."""

    item: StagedItem
    nodes: dict[str, SentFiles] = field(default_factory=dict)


def report_staged(entries: Sequence[Staged], *, dry_run: bool) -> None:
    """Print each entry, and below it what nodes have got; equal lines once."""
    for entry in entries:
        print_line(render_item(entry.item))
        lines = [(_render_node(files, dry_run=dry_run), name) for name, files in entry.nodes.items()]
        for line, names in group_values(lines).items():
            print_line(f"  {tr('{subject}: {text}', subject=fold_names(names), text=line)}")


def render_item(item: StagedItem) -> str:
    """Write what an entry is: source, place, revision if there is one, size, hash."""
    facts = {
        "source": item.source,
        "to": item.to,
        "revision": item.revision[:SHOWN_DIGITS],
        "size": render_size(item.bytes),
        "tree": item.tree[:SHOWN_DIGITS],
    }
    if item.revision:
        return trn(
            "{source} -> {to}  {n} file, {size}; revision {revision}, tree {tree}",
            "{source} -> {to}  {n} files, {size}; revision {revision}, tree {tree}",
            item.files,
            **facts,
        )
    return trn(
        "{source} -> {to}  {n} file, {size}; tree {tree}",
        "{source} -> {to}  {n} files, {size}; tree {tree}",
        item.files,
        **facts,
    )


def _render_node(files: SentFiles, *, dry_run: bool) -> str:
    size = render_size(files.bytes)
    if not files.files:
        return tr("already there")
    if dry_run:
        text = trn(
            "{n} file, {size} would be copied", "{n} files, {size} would be copied", files.files, size=size
        )
    else:
        text = trn("{n} file, {size} copied", "{n} files, {size} copied", files.files, size=size)
    texts = [text]
    if files.unchanged:
        texts.append(trn("{n} file already there", "{n} files already there", files.unchanged))
    if files.replaced:
        texts.append(trn("{n} file replaced", "{n} files replaced", files.replaced))
    if files.taken:
        texts.append(tr("{taken} from another node", taken=render_size(files.taken)))
    return "; ".join(texts)


def render_preview(previews: Sequence[StagePreview]) -> list[str]:
    """Return which sources would be staged to which nodes, as comments."""
    return [
        tr(
            "# stage: {source} -> {nodes}: {content}",
            source=entry["from"],
            nodes=f"{fold_names(entry['nodes'])}:{entry['to']}"
            if entry["to"]
            else fold_names(entry["nodes"]),
            content=_render_content(entry["files"], entry["bytes"]),
        )
        for entry in previews
    ]


def _render_content(files: int | None, size: int | None) -> str:
    if files is None or size is None:
        return tr("its size is not known yet")
    return trn("{n} file, {size}", "{n} files, {size}", files, size=render_size(size))


def report_verified(
    copies: Mapping[str, Mapping[str, StagedContent]],
    nodes: Sequence[Node],
    findings: Sequence[Finding],
    stage_command: str,
) -> None:
    """Print for each source what the hashes of its files show on each node, and below that what to do."""
    for source, by_node in copies.items():
        print_line(source)
        lines = [(_render_verified(by_node.get(node.name)), node.name) for node in nodes]
        for line, names in group_values(lines).items():
            print_line(f"  {tr('{subject}: {text}', subject=fold_names(names), text=line)}")
    from clusterctl.console.findings import render_findings  # which loads tables

    render_findings(stdout(), findings)
    if any(not by_node for by_node in copies.values()):
        print_line(tr("{command} copies what was not staged yet", command=stage_command))


def _render_verified(content: StagedContent | None) -> str:
    if content is None:
        return tr("not staged")
    if content.state != "whole":
        return trn(
            "{n} of {files} is not as it was staged",
            "{n} of {files} are not as they were staged",
            content.differing,
            files=trn("{n} file", "{n} files", content.files),
        )
    return trn(
        "{n} file, {size}, as it was staged; tree {tree}",
        "{n} files, {size}, as they were staged; tree {tree}",
        content.files,
        size=render_size(content.bytes),
        tree=content.tree[:SHOWN_DIGITS],
    )


def verified_to_json(
    staged: Mapping[str, Sequence[StagedContent]],
    findings: Sequence[Finding],
    errors: Mapping[str, ClusterctlError],
) -> VerifyDocument:
    """Return the document of `stage --verify --json`."""
    return {
        "schema": 1,
        "staged": [{"node": name, **asdict(one)} for name, contents in staged.items() for one in contents],
        "findings": [asdict(finding) for finding in findings],
        "errors": [
            {"node": name, "error": f"{error.code} {error.message}"} for name, error in errors.items()
        ],
    }


def render_summary(entries: Sequence[Staged]) -> tuple[str, str]:
    """Return what a launch shows of its phase: for a line of its own, and where phases share one."""
    size = sum(entry.item.bytes for entry in entries)
    copied = sum(files.bytes for entry in entries for files in entry.nodes.values())
    if not copied:
        return tr("{size}, already there", size=render_size(size)), ""
    sent = sum(files.sent for entry in entries for files in entry.nodes.values())
    text = tr("{size}; {sent} sent from here", size=render_size(size), sent=render_size(sent))
    return text, f"stage {render_size(size)}"


def staged_to_json(
    entries: Sequence[Staged], errors: Sequence[ClusterctlError], *, dry_run: bool
) -> StageDocument:
    """Return the document of `stage --json`."""
    return {
        "schema": 1,
        "dry_run": dry_run,
        "staged": [_entry_to_json(entry) for entry in entries],
        "errors": [{"node": error.node, "error": f"{error.code} {error.message}"} for error in errors],
    }


def _entry_to_json(entry: Staged) -> StagedEntry:
    item = entry.item
    nodes: list[StagedNode] = [
        {
            "node": name,
            "files": files.files,
            "bytes": files.bytes,
            "unchanged": files.unchanged,
            "replaced": files.replaced,
            "sent": files.sent,
            "taken": files.taken,
        }
        for name, files in sorted(entry.nodes.items())
    ]
    return {
        "from": item.source,
        "to": item.to,
        "revision": item.revision,
        "tree": item.tree,
        "files": item.files,
        "bytes": item.bytes,
        "nodes": nodes,
    }
