"""Ansible's YAML form: groups with the keys hosts, children and vars."""

from __future__ import annotations

from collections.abc import Iterator

from clusterctl.errors import Place, SpecError
from clusterctl.specs import codes
from clusterctl.specs.ansible_groups import Groups, Setting, Settings, expand_pattern
from clusterctl.specs.document import in_order, read_document
from clusterctl.specs.foreign import MOST_FOREIGN, Findings
from clusterctl.specs.tree import Scalar, Table, Tree, describe, quoted


def read_yaml(text: str, file: str, findings: Findings) -> Groups:
    """Read the groups of a YAML inventory; problems go to the findings."""
    tree, issues = read_document(text, file, most=MOST_FOREIGN)
    for issue in issues:
        if issue.code == codes.UNSUPPORTED and issue.place:  # a vault's tag, a merge key
            findings.remark(issue.message, issue.place)
        else:
            findings.issues.append(issue)
    groups = Groups(findings)
    _refuse_other_files(tree, findings)
    todo = list(_tables(tree, findings))
    for name, place, body in todo:
        todo.extend(_read_group(groups, name, place, body))
    return groups


def _refuse_other_files(tree: Table, findings: Findings) -> None:
    """A playbook, an inventory of ours or a plugin's file is no list of groups."""
    key = tree.key("nodes") or tree.key("plugin")
    if key is None:
        return
    message, fix = "this is an inventory of clusterctl already", "clusterctl -i FILE check"
    if key.text == "plugin":
        message = "this is the file of an Ansible inventory plugin"
        fix = "let Ansible write what it finds: ansible-inventory -i FILE --list --yaml"
    findings.wrong(message, key.place, fix, codes.FOREIGN_FORM)
    raise SpecError(in_order(findings.issues))


def _tables(table: Table, findings: Findings) -> Iterator[tuple[str, Place, Table]]:
    """Give the keys of a table whose values are tables, or nothing."""
    for name, (key, body) in table.entries.items():
        if isinstance(body, Table):
            yield name, key.place, body
        elif isinstance(body, Scalar) and body.text is None:
            yield name, key.place, Table({}, key.place)
        else:
            findings.wrong(f"{quoted(name)}: expected keys and values, got {describe(body)}", body.place)


def _read_group(groups: Groups, name: str, place: Place, body: Table) -> Iterator[tuple[str, Place, Table]]:
    """Take in one group; gives the groups below it."""
    group = groups.group(name, place)
    for key, (where, value) in body.entries.items():
        if key not in ("hosts", "children", "vars"):
            fix = "a group has hosts, children and vars"
            groups.findings.wrong(f"{quoted(key)} is no key of a group", where.place, fix)
        elif isinstance(value, Scalar) and value.text is None:
            continue
        elif not isinstance(value, Table):
            message = f"{key}: expected keys and values, got {describe(value)}"
            groups.findings.wrong(
                message, value.place, "a name is followed by a colon, also alone in its line"
            )
        elif key == "vars":
            group.variables.update(_settings(value))
        elif key == "hosts":
            _read_hosts(groups, name, value)
        else:
            for child, spot, below in _tables(value, groups.findings):
                groups.group(child, spot)
                group.children[child] = spot
                yield child, spot, below


def _read_hosts(groups: Groups, group: str, table: Table) -> None:
    for pattern, place, variables in _tables(table, groups.findings):
        names, port = expand_pattern(pattern, place, groups.findings)
        settings: Settings = {} if port is None else {"ansible_port": Setting(port, place)}
        groups.add_hosts(names, group, {**settings, **_settings(variables)}, place)


def _settings(table: Table) -> Settings:
    return {name: Setting(_text(value), value.place) for name, (_, value) in table.entries.items()}


def _text(value: Tree) -> str:
    return (value.text or "") if isinstance(value, Scalar) else ""
