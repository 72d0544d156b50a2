"""What `pull` has downloaded, on the screen and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from clusterctl.client.files.receiver import DownloadReport
from clusterctl.client.sync.upload import SentFiles
from clusterctl.console.run.remarks import render_outside_note
from clusterctl.console.terminal import print_error_line, print_line
from clusterctl.errors import ClusterctlError
from clusterctl.plans.sync.listed_files import OutsideFiles
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import render_size
from clusterctl.translation import to_translate, tr, trn

if TYPE_CHECKING:
    from clusterctl.console.documents.nodes import (
        CopiedHere,
        CopiedThere,
        CopyDocument,
        FailedNode,
        PullDocument,
        PulledNode,
        ReceivedFiles,
    )

MAX_PATHS = 10  # paths of one kind that are named


def report_pull(name: str, report: DownloadReport, directory: Path, *, complete: bool) -> None:
    """Print what came from a node, and on stderr what did not and why."""
    if report.is_empty and complete:
        print_line(tr("{node}: no outputs", node=name))
    elif complete or report.files:
        files = _render_files(report)
        print_line(tr("{node}: {files} -> {directory}", node=name, files=files, directory=directory))
    refused = [
        tr("{subject}: {text}", subject=refusal.path, text=refusal.reason) for refusal in report.refused
    ]
    for message, paths in (
        (
            to_translate("{node}: changed here, so not replaced (--overwrite replaces it): {file}"),
            report.kept,
        ),
        (to_translate("{node}: written to during the download, may be incomplete: {file}"), report.changing),
        (to_translate("{node}: NOT downloaded: {file}"), refused),
    ):
        for path in paths[:MAX_PATHS]:
            print_error_line(_escape_newlines(tr(message, node=name, file=path)))
        if len(paths) > MAX_PATHS:
            more = tr("{n} more", n=len(paths) - MAX_PATHS)
            print_error_line(tr(message, node=name, file=more))


def _render_files(files: DownloadReport | SentFiles, *more: str) -> str:
    new = trn("{n} file, {size}", "{n} files, {size}", files.files, size=render_size(files.bytes))
    texts = [new if files.files else tr("nothing new")]
    if files.unchanged:
        texts.append(trn("{n} file unchanged", "{n} files unchanged", files.unchanged))
    return "; ".join([*texts, *more])


def report_outside(outside: Mapping[str, OutsideFiles], run_id: str, command: str) -> None:
    """Print on stderr what a run has left outside the output directory, and was not asked for."""
    for line in render_outside_note(outside, run_id, command):
        print_error_line(line)


def _escape_newlines(text: str) -> str:
    return text.replace("\n", "\\n").encode("utf-8", "backslashreplace").decode()


def report_sent(sent: Mapping[tuple[str, str], SentFiles]) -> None:
    """Print what nodes have taken, equal lines once, and on stderr what they have kept."""
    lines = [(_render_sent(path, sent[node, path]), node) for node, path in sorted(sent)]
    for line, nodes in group_values(lines).items():
        print_line(tr("{subject}: {text}", subject=fold_names(nodes), text=line))
    for (node, _), files in sent.items():
        for path in files.kept:
            text = tr(
                "{node}: exists with other content, so not replaced (--overwrite replaces it): {file}",
                node=node,
                file=path,
            )
            print_error_line(_escape_newlines(text))
        if files.kept_count > len(files.kept):
            print_error_line(tr("{node}: {n} more", node=node, n=files.kept_count - len(files.kept)))


def report_conflicts(paths: Sequence[str], *, gathered: bool) -> None:
    """Print on stderr which files nodes have with different content, and that nothing was missing anywhere."""
    for path in paths[:MAX_PATHS]:
        text = tr("not copied, because its content differs between nodes: {file}", file=path)
        print_error_line(_escape_newlines(text))
    if len(paths) > MAX_PATHS:
        print_error_line(tr("{n} more", n=len(paths) - MAX_PATHS))
    if gathered and not paths:
        print_line(tr("every node has all files"))


def _render_sent(path: str, files: SentFiles) -> str:
    taken = [tr("{taken} from another node", taken=render_size(files.taken))] if files.taken else []
    return tr("{files} -> {directory}", files=_render_files(files, *taken), directory=path or "~")


def copies_to_json(
    received: Mapping[str, tuple[DownloadReport, Path]],
    sent: Mapping[tuple[str, str], SentFiles],
    errors: Sequence[ClusterctlError],
    conflicts: Sequence[str],
) -> CopyDocument:
    """Return the document of `cp --json`: what arrived on this machine by node, and what nodes have taken."""
    here: list[CopiedHere] = [
        {**_node_to_json(name, report, None), "path": str(path)} for name, (report, path) in received.items()
    ]
    there: list[CopiedThere] = [
        {
            "node": node,
            "path": path,
            "files": files.files,
            "bytes": files.bytes,
            "unchanged": files.unchanged,
            "kept": files.kept_count,
            "sent": files.sent,
            "taken": files.taken,
        }
        for (node, path), files in sent.items()
    ]
    failed: list[FailedNode] = [
        {"node": error.node, "error": f"{error.code} {error.message}"} for error in errors
    ]
    conflicting = [_escape_newlines(path) for path in conflicts]
    return {"schema": 1, "received": here, "sent": there, "conflicts": conflicting, "errors": failed}


def pull_to_json(
    run_id: str | None,
    job: str,
    target: Path,
    reports: Mapping[str, DownloadReport],
    errors: Mapping[str, ClusterctlError],
    node_names: Sequence[str],
    outside: Mapping[str, OutsideFiles],
) -> PullDocument:
    """Return the document of `pull --json`."""
    nodes: list[PulledNode] = [
        {
            **_node_to_json(name, reports.get(name, DownloadReport()), errors.get(name)),
            "outside": asdict(outside[name]) if name in outside else None,
        }
        for name in node_names
    ]
    return {"schema": 1, "run": run_id, "job": job, "directory": str(target), "nodes": nodes}


def _node_to_json(name: str, report: DownloadReport, error: ClusterctlError | None) -> ReceivedFiles:
    return {
        "node": name,
        "files": report.files,
        "bytes": report.bytes,
        "unchanged": report.unchanged,
        "changed_here": [_escape_newlines(path) for path in report.kept],
        "written_to": [_escape_newlines(path) for path in report.changing],
        "refused": [
            {"path": _escape_newlines(refusal.path), "why": refusal.reason} for refusal in report.refused
        ],
        "error": f"{error.code} {error.message}" if error else None,
    }
