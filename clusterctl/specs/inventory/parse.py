"""An inventory's text to its machines: with every default merged in, or all mistakes at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from clusterctl.errors import InvalidValueError, Issue, SpecError
from clusterctl.specs import values
from clusterctl.specs.fields import keys_of
from clusterctl.specs.importers.detect import detect_hostfile, refuse_ansible, refuse_job, refuse_script
from clusterctl.specs.importers.hostfile import parse_host_word, parse_hostfile
from clusterctl.specs.importers.imported import ImportedHost
from clusterctl.specs.inventory.model import (
    Allocation,
    Inventory,
    InventoryFile,
    Node,
    NodeSettings,
    Slurm,
    Ssh,
)
from clusterctl.specs.render import render_inventory
from clusterctl.specs.yaml.reader import read_document, sort_issues
from clusterctl.specs.yaml.tree import (
    YamlList,
    YamlMapping,
    YamlScalar,
    YamlTree,
    find_scalar,
    follow_path,
    quoted,
)
from clusterctl.specs.yaml.validate import find_duplicates, missing_key, validate
from clusterctl.translation import to_translate


def parse_inventory(text: str, file: str) -> Inventory:
    """Read an inventory or a hostfile; raises SpecError with everything that is wrong, in the order of the file."""
    refuse_script(text, file, to_translate("an inventory"))
    if form := detect_hostfile(text, file):
        text = render_inventory(parse_hostfile(text, file, form))
    tree, issues = read_document(text, file)
    refuse_job(tree, file)
    refuse_ansible(tree, file)
    tree, host_issues = _expand_hosts(tree)
    top, model_issues = validate(tree, InventoryFile, file=file, index=0)
    issues = sort_issues((*issues, *host_issues, *model_issues, *_node_issues(tree)))
    if issues or top is None:
        raise SpecError(issues)
    nodes = _listed_nodes(top, tree) if top.slurm is None else (_login_node(top, top.slurm, tree),)
    return Inventory(cluster=top.cluster, file=file, nodes=nodes, waive=top.waive, slurm=top.slurm)


def _listed_nodes(top: InventoryFile, tree: YamlMapping) -> tuple[Node, ...]:
    listing = tree.get("nodes")
    written = listing.items if isinstance(listing, YamlList) else ()
    return tuple(
        replace(_merge_node(top, node, keys), index=index)
        for index, (node, keys) in enumerate(zip(top.nodes, written, strict=True))
    )


def _expand_hosts(tree: YamlMapping) -> tuple[YamlMapping, list[Issue]]:
    """Write nodes that are hosts as on the command line, such as `user@gpu02:2222`, as keys and values."""
    key, listing = tree.get_key("nodes"), tree.get("nodes")
    if key is None or not isinstance(listing, YamlList):
        return tree, []
    nodes: list[YamlTree] = []
    issues: list[Issue] = []
    for item in listing.items:
        if not isinstance(item, YamlScalar) or item.text is None:
            nodes.append(item)
            continue
        try:
            nodes += [_node_of(host, item) for host in parse_host_word(item.text, item.location)]
        except SpecError as error:
            issues += error.issues
    return tree.with_entry("nodes", key, YamlList(tuple(nodes), listing.location)), issues


def _node_of(host: ImportedHost, item: YamlScalar) -> YamlMapping:
    """Write one host as a node whose keys and values all have the place of the item."""
    ssh: dict[str, YamlTree] = {}
    if host.user is not None:
        ssh["user"] = _scalar_at(item, host.user)
    if host.port is not None:
        ssh["port"] = _scalar_at(item, str(host.port))
    node: dict[str, YamlTree] = {"host": _scalar_at(item, host.host)}
    return _mapping_at(item, {**node, "ssh": _mapping_at(item, ssh)} if ssh else node)


def _mapping_at(item: YamlScalar, keys: Mapping[str, YamlTree]) -> YamlMapping:
    entries = {key: (_scalar_at(item, key), value) for key, value in keys.items()}
    return YamlMapping(entries, item.location)


def _scalar_at(item: YamlScalar, text: str) -> YamlScalar:
    return YamlScalar(text, text, item.location)


def _login_node(top: InventoryFile, slurm: Slurm, tree: YamlMapping) -> Node:
    """Return the login node, with what the inventory has for every node."""
    login = Node(index=0, host=slurm.login.host, name=slurm.login.name, ssh=slurm.login.ssh)
    node = _merge_node(top, login, follow_path(tree, ("slurm", "login"))[0])
    workdir = slurm.workdir or node.workdir
    allocation = Allocation(connection=node.name)
    return replace(node, workdir=workdir, gpus=slurm.gpus_per_node, allocation=allocation)


def _merge_node(top: InventoryFile, node: Node, written: YamlTree | None) -> Node:
    """Return a node with the top level's values of keys that are not `written` at the node."""
    own = written.entries if isinstance(written, YamlMapping) else {}
    inherited = {key: getattr(top, key) for key in keys_of(NodeSettings) if key not in own}
    if node.network is not None and "nic" in inherited:
        inherited["nic"] = ()
    ssh = _merge_ssh(top.ssh, node.ssh, own.get("ssh", (None, None))[1])
    return replace(node, **{**inherited, "ssh": ssh, "name": node.name or node.host})


def _merge_ssh(top: Ssh, node: Ssh, written: YamlTree | None) -> Ssh:
    own = written.entries if isinstance(written, YamlMapping) else {}
    values = {key: getattr(node if key in own else top, key) for key in keys_of(Ssh)}
    for key, other in (("jump", "proxy_command"), ("proxy_command", "jump")):
        if getattr(node, key) is not None and getattr(node, other) is None:
            values[other] = None  # a node's own way replaces the other kind of way as well
    return Ssh(**values)


def _node_issues(tree: YamlMapping) -> Iterator[Issue]:
    """Compare nodes as they are written: one with a wrong value is still compared with the others."""
    yield from find_duplicates(tree.get("nic"), "nic")
    yield from _proxy_issues(tree)
    listing = tree.get_key("nodes")
    slurm = tree.get_key("slurm") if isinstance(tree.get("slurm"), YamlMapping) else None
    if listing is None and slurm is None:
        yield missing_key(InventoryFile, ("nodes",), tree.location)
    elif listing is not None and slurm is not None:
        yield Issue.of("CC-SLURM-002", "both", max(listing.location, slurm.location))
    yield from _proxy_issues_of_login(tree)
    yield from _listed_node_issues(tree)


def _proxy_issues_of_login(tree: YamlMapping) -> Iterator[Issue]:
    slurm = tree.get("slurm")
    login = slurm.get("login") if isinstance(slurm, YamlMapping) else None
    if isinstance(login, YamlMapping):
        yield from _proxy_issues(login)


def _listed_node_issues(tree: YamlMapping) -> Iterator[Issue]:
    listing = tree.get("nodes")
    if not isinstance(listing, YamlList):
        return
    if not listing.items:
        yield Issue.of("CC-SPEC-022", "empty-list", listing.location)
    names: dict[str, YamlScalar] = {}
    hosts: dict[tuple[str, str], YamlScalar] = {}
    for node in listing.items:
        if isinstance(node, YamlMapping):
            yield from find_duplicates(node.get("nic"), "nic")
            yield from _host_issues(node)
            yield from _proxy_issues(node)
            same_address = list(_address_issues(tree, node, hosts))
            yield from same_address or _name_issues(node, names)


def _host_issues(node: YamlMapping) -> Iterator[Issue]:
    host = find_scalar(node, "host")
    if host and values.is_ipv6(host.text or "") and node.get("ip") is None:
        yield Issue.of("CC-SPEC-023", "node", host.location)


def _proxy_issues(table: YamlMapping) -> Iterator[Issue]:
    """Report two ways at once; the cluster may have one and a node the other."""
    jump, command = find_scalar(table, "ssh", "jump"), find_scalar(table, "ssh", "proxy_command")
    if jump is not None and command is not None and jump.text and command.text:
        yield Issue.of("CC-SPEC-013", "two-ways", command.location)


def _address_issues(
    tree: YamlMapping, node: YamlMapping, hosts: dict[tuple[str, str], YamlScalar]
) -> Iterator[Issue]:
    host = find_scalar(node, "host")
    if host is None:
        return
    port = find_scalar(node, "ssh", "port") or find_scalar(tree, "ssh", "port")
    address = ((host.text or "").lower(), (port.text if port else None) or "22")
    if address not in hosts:
        hosts[address] = host
    else:
        yield Issue.of(
            "CC-SPEC-021", "same-port", host.location, location=hosts[address].location, address=address[1]
        )


def _name_issues(node: YamlMapping, names: dict[str, YamlScalar]) -> Iterator[Issue]:
    name = find_scalar(node, "name") or find_scalar(node, "host")
    if name is None or name.text is None:
        return
    if name.text not in names:
        names[name.text] = name
    else:
        yield Issue.of(
            "CC-SPEC-020",
            "same-name",
            name.location,
            location=names[name.text].location,
            text=quoted(name.text),
        )
    if node.get_key("name") is None and values.accepts(values.parse_host, name.text):
        try:
            values.parse_node_name(name.text)
        except InvalidValueError as error:
            yield Issue.of("CC-SPEC-020", "host-as-name", name.location, problem=error.message)
