"""SSH, login shell, key files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import partial

from clusterctl.codes.lookup import find_entry
from clusterctl.errors import ClusterctlError
from clusterctl.plans.checks.framework import (
    CheckContext,
    Finding,
    Hit,
    across_nodes,
    check,
    join_items,
    of_nodes,
    on_node,
    ssh_to,
)
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import command_line
from clusterctl.translation import tr, trn

# what a node that gave no answer ended with
UNANSWERED = (
    *(f"CC-SSH-{number:03}" for number in (*range(1, 22), 30, 31)),
    *(f"CC-PY-{number:03}" for number in range(1, 5)),
)
SHOWN_NOISE = 80
# Modules that torch or Python's own start-up import, and whose names users give to their files.
SHADOWED_MODULES = frozenset(
    (
        *(
            "abc",
            "ast",
            "asyncio",
            "bisect",
            "calendar",
            "code",
            "codecs",
            "collections",
            "copy",
            "csv",
            "ctypes",
        ),
        *(
            "dataclasses",
            "datetime",
            "decimal",
            "email",
            "enum",
            "functools",
            "glob",
            "gzip",
            "hashlib",
            "heapq",
        ),
        *(
            "html",
            "http",
            "inspect",
            "io",
            "json",
            "logging",
            "math",
            "multiprocessing",
            "numbers",
            "operator",
        ),
        *(
            "os",
            "pathlib",
            "pickle",
            "platform",
            "profile",
            "queue",
            "random",
            "re",
            "select",
            "signal",
            "site",
        ),
        *(
            "socket",
            "ssl",
            "stat",
            "statistics",
            "string",
            "struct",
            "subprocess",
            "sys",
            "tarfile",
            "tempfile",
        ),
        *(
            "threading",
            "time",
            "token",
            "tokenize",
            "traceback",
            "types",
            "typing",
            "unittest",
            "uuid",
            "warnings",
        ),
        *("weakref", "xml", "zipfile", "numpy", "torch", "torchvision"),
    )
)


def failure_findings(context: CheckContext) -> list[Finding]:
    """Return findings for the failures whose codes are not in the table."""
    unlisted = {error.code for error in context.failures.values()} - set(UNANSWERED)
    return [_unlisted_finding(context, code) for code in sorted(unlisted)]


def _unlisted_finding(context: CheckContext, code: str) -> Finding:
    failed = _list_failed(context, code)
    names = tuple(name for name, _ in failed)
    evidence = "\n".join(of_nodes([name], _render_error(error)) for name, error in failed)
    fixes = dict.fromkeys(error.fix for _, error in failed if error.fix)
    fix = "\n".join(fixes) or _explain(code)
    why, title = tr(find_entry("CC-SSH-003").why), tr("no answer from the node")
    return Finding(code, "error", names, evidence, why, fix, title)


def _explain(code: str) -> str:
    return command_line("clusterctl", "explain", code) if code else "clusterctl -v check"


def _list_failed(context: CheckContext, code: str) -> list[tuple[str, ClusterctlError]]:
    failures = [
        (node.name, context.failures[node.name]) for node in context.nodes if node.name in context.failures
    ]
    return [(name, error) for name, error in failures if error.code == code]


def _render_error(error: ClusterctlError) -> str:
    evidence = error.evidence.strip()
    return tr("{error} ({evidence})", error=error.message, evidence=evidence) if evidence else error.message


def _find_failed(code: str, context: CheckContext) -> Iterator[Hit]:
    failed = dict(_list_failed(context, code))
    groups = group_values(
        (_generalize_fix(node, failed[node.name].fix), node) for node in context.nodes if node.name in failed
    )
    for first, *others in groups.values():
        fix, other_names = failed[first.name].fix, fold_names(node.name for node in others)
        differs = any(failed[node.name].fix != fix for node in others)
        more = "\n" + tr("# the same for {nodes}", nodes=other_names) if differs else ""
        folded = f"{fix}{more}" if fix else _explain(code)
        for node in (first, *others):
            yield Hit((node.name,), _render_error(failed[node.name]), fix=folded)


def _generalize_fix(node: Node, fix: str) -> str:
    """Take what is a node's own, its name, host and port, out of a fix."""
    host = rf"(?<![\w.-]){re.escape(node.host)}(?![\w-])"
    port = node.ssh.port or 22
    name = rf"(?<![\w.-]){re.escape(node.name)}(?![\w-])"
    generalized = re.sub(host, "HOST", re.sub(name, "NODE", fix))
    return re.sub(rf"-p {port} |(?<=\]):{port}\b", "", generalized)


for _code in UNANSWERED:
    check(_code)(partial(_find_failed, _code))


@check("CC-SSH-022")
def readable_private_key(context: CheckContext) -> Iterator[Hit]:
    for path, mode in context.local_facts.readable_keys.items():
        users = [node.name for node in context.nodes if node.ssh.key == path]
        if users:
            evidence = tr(
                "{path} has mode {mode}; used for {nodes}",
                path=path,
                mode=f"{mode:04o}",
                nodes=fold_names(users),
            )
            yield across_nodes(users, evidence, file=shlex.quote(path))


@check("CC-SSH-023")
def noisy_shell(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if facts.noise:
            shown = facts.noise[:SHOWN_NOISE] + ("..." if len(facts.noise) > SHOWN_NOISE else "")
            evidence = tr("it prints: {output}", output=shown)
            yield on_node(node, evidence, command=ssh_to(node, "true"))


@check("CC-PY-020")
def shadowing_module(context: CheckContext) -> Iterator[Hit]:
    names = [
        name
        for name in context.local_facts.script_siblings
        if name.rstrip("/").removesuffix(".py") in SHADOWED_MODULES
    ]
    if names and context.known and context.job is not None:
        evidence = tr(
            "{files} in the directory of {script}", files=join_items(names[:6]), script=context.job.script
        )
        yield across_nodes(
            [node.name for node, _ in context.known],
            evidence,
            files=trn("{n} file", "{n} files", len(names)),
            names=" ".join(map(shlex.quote, names[:6])),
        )
