"""The text of a new inventory.yaml, of imported or discovered machines, and of a new job.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import PurePath

from clusterctl.errors import Issue, Location, SpecError
from clusterctl.specs.importers.imported import Imported, ImportedHost, Remark
from clusterctl.specs.kinds import Launcher
from clusterctl.specs.nodeset import group_values
from clusterctl.specs.values import accepts, parse_name, parse_node_name
from clusterctl.specs.yaml.reader import MAX_BYTES
from clusterctl.specs.yaml.tree import quoted, render_args, render_list, render_scalar
from clusterctl.translation import to_translate, tr, trn

MAX_REMARKS = 40
MAX_GROUPS = 12
COMMENT_COLUMN = 32  # of job.yaml

_NODE_KEYS = ("gpus", "python")
SSH_KEYS = ("user", "port", "key", "jump", "proxy_command", "config", "known_hosts", "host_keys")
_ADVICE = (
    to_translate("The order of the nodes is the node_rank: the first one is the master."),
    to_translate(
        "Often to be added: python (the interpreter with torch), nic or network (used for training)."
    ),
)

Pairs = list[tuple[str, object]]
Lines = list[tuple[str, str]]  # a line of the file and its comment; an empty line has only that


def render_inventory(imported: Imported, cluster: str = "", *, made_by: str = "inventory import") -> str:
    """Write the machines as an inventory that parse_inventory reads; raises SpecError if it would be too large."""
    names, renamed = name_nodes(imported.hosts)
    shared = {key: shared_value(imported.hosts, key) for key in (*_NODE_KEYS, *SSH_KEYS)}
    remarks = (*imported.remarks, *renamed)
    header = [
        render_comment(
            tr(
                "Made by `clusterctl {verb}` from {file}, {format}.",
                verb=made_by,
                file=quoted(imported.file),
                format=imported.format_description,
            )
        )
    ]
    header += [render_comment(tr(text)) for text in _ADVICE]
    header += [render_comment(describe_groups(imported))] if imported.groups else []
    if remarks:
        header += ["#", render_comment(tr("Not imported, or guessed:")), *_render_remarks(remarks)]
    nodes = (
        f"  - {_render_node(host, name, shared)}" for host, name in zip(imported.hosts, names, strict=True)
    )
    top = _render_top_level(choose_cluster_name(imported.file, cluster), shared)
    text = "\n".join([*header, *top, *nodes]) + "\n"
    if len(text.encode()) > MAX_BYTES:
        location = Location(imported.file, 1, 1)
        raise SpecError([Issue.of("CC-SPEC-003", "rendered", location, kib=MAX_BYTES >> 10)])
    return text


def _render_top_level(cluster: str, shared: Mapping[str, object]) -> list[str]:
    """Write what all nodes have in common."""
    ssh = _set_keys(SSH_KEYS, shared)
    return [
        "",
        f"cluster: {render_scalar(cluster)}",
        *([f"ssh: {render_flow_mapping(ssh)}"] if ssh else []),
        *(f"{key}: {render_scalar(value)}" for key, value in _set_keys(_NODE_KEYS, shared)),
        "nodes:",
    ]


def _set_keys(keys: Sequence[str], values: Mapping[str, object]) -> Pairs:
    return [(key, values[key]) for key in keys if values.get(key) is not None]


def _own_values(host: ImportedHost, shared: Mapping[str, object]) -> dict[str, object]:
    """Return what a host has and the others do not."""
    return {key: getattr(host, key) for key in shared if shared[key] is None}


def render_hosts(hosts: str) -> str:
    """Write machines that are given in one line, `gpu01,user@gpu02:2222`, as an inventory for parse_inventory."""
    nodes = [f"  - {render_scalar(host)}" for host in split_hosts(hosts)]
    return "\n".join(["nodes:", *nodes] if nodes else ["nodes: []"]) + "\n"


def split_hosts(hosts: str) -> list[str]:
    """Split at commas and white space, but not inside the brackets of a range."""
    return [host for host in re.split(r"[,\s]+(?![^\[]*\])", hosts) if host]


def describe_groups(imported: Imported) -> str:
    """Name the groups of which one may hold the machines that train, where all hosts were imported."""
    groups = [f"{name} ({count})" for name, count in imported.groups[:MAX_GROUPS] if name.isprintable()]
    hidden = len(imported.groups) - MAX_GROUPS
    groups += [tr("{count} more", count=hidden)] if hidden > 0 else []
    return trn(
        "{n} host was imported. To leave login and storage nodes out, choose one group with --group: {groups}.",
        "All {n} hosts were imported. To leave login and storage nodes out, choose one group with --group: {groups}.",
        len(imported.hosts),
        groups=tr(", ").join(groups),
    )


def shared_value(hosts: Sequence[ImportedHost], key: str) -> object:
    """Return the value that all hosts have, if they have one and the same."""
    values = {getattr(host, key) for host in hosts}
    return values.pop() if len(values) == 1 else None


def _render_node(host: ImportedHost, name: str, shared: dict[str, object]) -> str:
    pairs: Pairs = [("host", host.host)] if name == host.host else [("name", name), ("host", host.host)]
    own = _own_values(host, shared)
    pairs += _set_keys(_NODE_KEYS, own)
    ssh = _set_keys(SSH_KEYS, own)
    return render_flow_mapping([*pairs, ("ssh", ssh)] if ssh else pairs)


def render_flow_mapping(pairs: Pairs) -> str:
    """Write keys and values in one line."""
    return "{" + ", ".join(f"{key}: {_render_value(value)}" for key, value in pairs) + "}"


def _render_value(value: object) -> str:
    return render_flow_mapping(value) if isinstance(value, list) else render_scalar(value)


def render_comment(text: str) -> str:
    """Write a comment; whatever the text holds, it is one line, can be read as YAML, and moves no cursor."""
    return "# " + "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def choose_cluster_name(file: str, preferred: str) -> str:
    """Name the cluster as wanted, or after the file, if that may be a name."""
    texts = (preferred, PurePath(file).name.partition(".")[0])
    return next((text for text in texts if accepts(parse_name, text)), "imported")


def name_nodes(hosts: Sequence[ImportedHost]) -> tuple[list[str], list[Remark]]:
    """Return a valid name for each node, no two the same, and remarks on those that changed."""
    names: dict[str, None] = {}
    remarks = []
    for rank, host in enumerate(hosts):
        name = next(
            candidate
            for candidate in _candidate_names(host, rank)
            if candidate not in names and accepts(parse_node_name, candidate)
        )
        if name != host.name:
            message = tr("{host} is called {node} here", host=quoted(host.name), node=name)
            remarks.append(Remark(message, host.location))
        names[name] = None
    return list(names), remarks


def _candidate_names(host: ImportedHost, rank: int) -> Iterator[str]:
    yield host.name
    if host.port:
        yield f"{host.name}-{host.port}"
    yield f"node{rank}"
    yield from (f"node{rank}-{number}" for number in count(1))


def _render_remarks(remarks: Sequence[Remark]) -> Iterator[str]:
    """Write each remark once, with the place of the first and the number of the others."""
    locations = group_values((remark.message, remark.location) for remark in dict.fromkeys(remarks))
    for message, remark_locations in list(locations.items())[:MAX_REMARKS]:
        first = remark_locations[0]
        text = tr("- line {line}: {remark}", line=first.line, remark=message) if first else f"- {message}"
        others = len(remark_locations) - 1
        if others:
            text = trn("{text} (and {n} more time)", "{text} (and {n} more times)", others, text=text)
        yield render_comment(text)
    if len(locations) > MAX_REMARKS:
        yield render_comment(tr("- and {count} more remarks", count=len(locations) - MAX_REMARKS))


@dataclass(frozen=True)
class DiscoveredNode:
    """What a machine reported; one that was not read has a `failure` and no more, also where its server answered."""

    nic: tuple[str, ...] = ()
    ip: str | None = None
    gpus: int | None = None
    notes: tuple[str, ...] = ()
    failure: str = ""
    is_reached: bool = True


def render_discovered(
    imported: Imported,
    cluster: str,
    discovered: Mapping[str, DiscoveredNode],
    advice: tuple[str, ...] = (),
    *,
    made_by: str = "inventory discover",
) -> str:
    """Write the inventory; `discovered` is by node name. Machines that were not reached are comments at the end."""
    names, _ = name_nodes(imported.hosts)
    named_hosts = list(zip(imported.hosts, names, strict=True))
    shared = {key: shared_value(imported.hosts, key) for key in ("python", *SSH_KEYS)}
    made = render_comment(tr("Made by `clusterctl {verb}`.", verb=made_by))
    top = _render_top_level(choose_cluster_name("", cluster), shared)
    lines = [made, *map(render_comment, advice), *top]
    for host, name in named_hosts:
        if discovered[name].is_reached:
            lines += _render_discovered_node(host, name, shared, discovered[name])
    unreachable = [(host, name) for host, name in named_hosts if not discovered[name].is_reached]
    lines += ["", render_comment(tr("Not reached, so left out:"))] if unreachable else []
    for host, name in unreachable:
        lines += [f"#{line}" for line in _render_discovered_node(host, name, shared, discovered[name])]
    return "\n".join(lines) + "\n"


def _render_discovered_node(
    host: ImportedHost, name: str, shared: Mapping[str, object], discovered: DiscoveredNode
) -> Iterator[str]:
    """Write a node, a key a line, with its notes below."""
    pairs: Pairs = [("host", host.host)] if name == host.host else [("name", name), ("host", host.host)]
    own = _own_values(host, shared)
    ssh = _set_keys(SSH_KEYS, own)
    texts = [f"{key}: {render_scalar(value)}" for key, value in pairs]
    texts += [f"ssh: {render_flow_mapping(ssh)}"] if ssh else []
    texts += [f"{key}: {render_scalar(value)}" for key, value in _set_keys(("python",), own)]
    texts += [f"nic: [{', '.join(map(render_scalar, discovered.nic))}]"] if discovered.nic else []
    texts += [f"ip: {render_scalar(discovered.ip)}"] if discovered.ip else []
    texts += [f"gpus: {discovered.gpus}"] if discovered.gpus else []
    failure = [tr("not read yet: {failure}", failure=discovered.failure)] if discovered.failure else []
    texts += map(render_comment, (*discovered.notes, *failure))
    for index, text in enumerate(texts):
        yield f"  {'  ' if index else '- '}{text}"


@dataclass(frozen=True)
class JobDraft:
    """What is known of a job before its file exists; `gpus`: whether every node has some.

    `launcher`, `args` and `nproc_per_node` are what the script shows; None where the nodes decide.
    """

    name: str
    script: str
    gpus: bool
    script_exists: bool = True
    launcher: Launcher = "torchrun"
    args: tuple[str, ...] = ()
    nproc_per_node: int | None = None
    setup: Mapping[str, str | Sequence[str]] = field(default_factory=dict)


def render_job(draft: JobDraft) -> str:
    """Write the job with comments for the keys that are wanted next; parse_job reads it."""
    optional: Lines = [
        ("", ""),
        ("# env: {NCCL_DEBUG: INFO}", ""),
        ("# secrets: [WANDB_API_KEY]", tr("from your environment, never stored")),
        ("# time_limit: 12h", ""),
        ("# restart: {max: 3}", tr("after a lost node, a killed worker, a broken network")),
        ("", ""),
        ("sync:", ""),
        ("  source: .", tr("this folder goes to every node")),
        ('  exclude: [data/, "*.pt", "*.ckpt"]', ""),
    ]
    name, *program = _render_program(draft)
    first = tr("# What to run:   clusterctl check     clusterctl launch")
    lines = [(first, ""), name, ("", ""), *program, ("", ""), *_render_workers(draft), *optional]
    return "\n".join(_with_comment(line, comment) if comment else line for line, comment in lines) + "\n"


def render_brief_job(draft: JobDraft) -> str:
    """Write only the keys that the job needs; parse_job reads it."""
    lines = [*_render_program(draft), *_render_workers(draft)]
    return "".join(f"{line}\n" for line, _ in lines)


def _render_program(draft: JobDraft) -> Lines:
    found = tr("found in the script")
    lines = [(f"name: {render_scalar(draft.name)}", "")]
    lines += [
        (f"script: {render_scalar(draft.script)}", "" if draft.script_exists else tr("does not exist yet"))
    ]
    lines += [(f"launcher: {draft.launcher}", found)] if draft.launcher != "torchrun" else []
    example = tr("such as {example}", example='[--epochs, 3, --output, "${output_dir}"]')
    lines += [(render_args(draft.args), found if draft.args else example)]
    if draft.setup:
        keys = ", ".join(
            f"{key}: {render_scalar(value) if isinstance(value, str) else render_list(value)}"
            for key, value in draft.setup.items()
        )
        lines += [(f"setup: {{{keys}}}", tr("made on every node before the first launch"))]
    return lines


def _render_workers(draft: JobDraft) -> Lines:
    workers, backend = ("gpu", "nccl") if draft.gpus else ("1", "gloo")
    per_node = tr("one worker for each GPU; or a number") if draft.gpus else tr("the nodes have no GPUs")
    if draft.nproc_per_node is not None:
        workers, per_node = str(draft.nproc_per_node), tr("as the script starts them")
    return [
        ("nodes: all", tr("or a count, names, ranges: 2, gpu01, 0-3")),
        (f"nproc_per_node: {workers}", per_node),
        (f"backend: {backend}", tr("what the script uses; check verifies it")),
    ]


def _with_comment(line: str, comment: str) -> str:
    return f"{line:<{COMMENT_COLUMN - 2}}  # {comment}"


def choose_job_name(*texts: str) -> str:
    """Return the first text that may name a job."""
    return next((text for text in texts if accepts(parse_name, text)), "train")
