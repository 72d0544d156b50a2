"""Machines that were asked, as the text of an inventory: what was found as keys, what else there is as comments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clusterctl.specs.foreign import Foreign, ForeignHost
from clusterctl.specs.inventory_text import (
    SSH_KEYS,
    Pairs,
    cluster_name,
    comment,
    flow,
    name_nodes,
    scalar,
    shared_value,
)


@dataclass(frozen=True)
class Discovered:
    """What a machine said; a machine that did not answer has a `failure` and no more."""

    nic: tuple[str, ...] = ()
    ip: str | None = None
    gpus: int | None = None
    notes: tuple[str, ...] = ()
    failure: str = ""


def render_discovered(
    foreign: Foreign, cluster: str, found: Mapping[str, Discovered], advice: tuple[str, ...] = ()
) -> str:
    """Write the inventory; `found` is by node name. Machines that did not answer stand in comments at the end."""
    names, _ = name_nodes(foreign.hosts)
    known = list(zip(foreign.hosts, names, strict=True))
    ssh = {key: shared_value(foreign.hosts, key) for key in SSH_KEYS}
    lines = ["# Made by `clusterctl inventory discover`.", *map(comment, advice), ""]
    lines.append(f"cluster: {scalar(cluster_name('', cluster))}")
    common: Pairs = [(key, value) for key, value in ssh.items() if value is not None]
    lines += [f"ssh: {flow(common)}"] if common else []
    python = shared_value(foreign.hosts, "python")
    lines += [f"python: {scalar(python)}"] if python else []
    shared = {**ssh, "python": python}
    lines.append("nodes:")
    for host, name in known:
        if not found[name].failure:
            lines += _node(host, name, shared, found[name])
    lost = [(host, name) for host, name in known if found[name].failure]
    lines += ["", "# Not reached, and so left out:"] if lost else []
    for host, name in lost:
        entry = _node(host, name, shared, Discovered(notes=(found[name].failure,)))
        lines += [f"#{line}" for line in entry]
    return "\n".join(lines) + "\n"


def _node(host: ForeignHost, name: str, shared: Mapping[str, object], said: Discovered) -> Iterator[str]:
    """Write a node, a key a line, with its notes below."""
    pairs: Pairs = [("host", host.host)] if name == host.host else [("name", name), ("host", host.host)]
    own: Pairs = [(key, getattr(host, key)) for key in SSH_KEYS if shared[key] is None]
    ssh: Pairs = [(key, value) for key, value in own if value is not None]
    texts = [f"{key}: {scalar(value)}" for key, value in pairs]
    texts += [f"ssh: {flow(ssh)}"] if ssh else []
    texts += [f"python: {scalar(host.python)}"] if host.python and shared["python"] is None else []
    texts += [f"nic: [{', '.join(map(scalar, said.nic))}]"] if said.nic else []
    texts += [f"ip: {scalar(said.ip)}"] if said.ip else []
    texts += [f"gpus: {said.gpus}"] if said.gpus else []
    texts += map(comment, said.notes)
    for place, text in enumerate(texts):
        yield f"  {'  ' if place else '- '}{text}"
