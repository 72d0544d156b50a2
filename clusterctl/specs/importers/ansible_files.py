"""Ansible INI and YAML, groups, host patterns."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from string import ascii_letters

from clusterctl.errors import Location, SpecError
from clusterctl.specs.addresses import is_ipv6
from clusterctl.specs.importers.imported import (
    MOST_CHARACTERS,
    MOST_HOSTS,
    MOST_NAMES,
    ImportReport,
    iterate_lines,
    shift_right,
)
from clusterctl.specs.text import did_you_mean
from clusterctl.specs.yaml.reader import read_document, sort_issues
from clusterctl.specs.yaml.tree import YamlMapping, YamlScalar, YamlTree, describe, quoted
from clusterctl.translation import tr

ALL, UNGROUPED = "all", "ungrouped"
MOST_GROUPS = 1000

_RANGE = re.compile(r"\[([^\[\]]*)\]")
_BOUNDS = re.compile(r"([A-Za-z]|[0-9]{0,9}):([A-Za-z]|[0-9]{1,9})(?::([0-9]{1,9}))?")
_PORT = re.compile(r"(.*\]|[^:]*):([0-9]+)")


@dataclass(frozen=True)
class Setting:
    """The text of a variable, and where it stands."""

    text: str
    location: Location


Settings = dict[str, Setting]


@dataclass(eq=False)
class AnsibleGroup:
    """A group: its variables, and what was put into it directly."""

    location: Location
    variables: Settings = field(default_factory=dict)
    children: dict[str, Location] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    is_declared: bool = False


@dataclass(eq=False)
class AnsibleHost:
    """A host: its own variables, and the groups that it was put into."""

    location: Location
    variables: Settings = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)


@dataclass(eq=False)
class AnsibleInventory:
    """All groups and machines, in the order in which the file names them first."""

    report: ImportReport
    groups: dict[str, AnsibleGroup] = field(default_factory=dict)
    hosts: dict[str, AnsibleHost] = field(default_factory=dict)
    name_count: int = 0

    def ensure_group(self, name: str, location: Location) -> AnsibleGroup:
        """Find a group, or begin it."""
        if name not in self.groups and len(self.groups) >= MOST_GROUPS:
            self.report.fail_too_many(tr("{count} groups", count=MOST_GROUPS), location)
        return self.groups.setdefault(name, AnsibleGroup(location))

    def add_hosts(self, names: Iterable[str], group: str, variables: Settings, location: Location) -> None:
        """Put hosts into a group; a host that is named again keeps its place and gets further variables."""
        for name in names:
            self.name_count += 1
            if self.name_count > MOST_NAMES:
                self.report.fail_too_many(tr("{count} host names", count=MOST_NAMES), location)
            host = self.hosts.setdefault(name, AnsibleHost(location))
            if len(self.hosts) > MOST_HOSTS:
                self.report.fail_too_many(tr("{count} hosts", count=MOST_HOSTS), location)
            host.variables.update(variables)
            host.groups.add(group)
            self.ensure_group(group, location).hosts[name] = None

    def list_partial_groups(self) -> tuple[tuple[str, int], ...]:
        """Give the groups that hold some but not all machines, with how many, in the order of the file."""
        counts = dict.fromkeys(self.groups, 0)
        depths = self.ancestor_depths()
        for host in self.hosts.values():
            for name in {ancestor for group in host.groups for ancestor in depths[group]}:
                counts[name] += 1
        partial = [
            (name, host_count) for name, host_count in counts.items() if 0 < host_count < len(self.hosts)
        ]
        return tuple((name, host_count) for name, host_count in partial if name not in (ALL, UNGROUPED))

    def ancestor_depths(self) -> dict[str, dict[str, int]]:
        """Give for every group itself and all above it, each with its depth below `all`."""
        depth = {name: 0 if name == ALL else 1 for name in self.groups}
        ancestors: dict[str, set[str]] = {name: {name} for name in self.groups}
        for name in self._parents_first():
            for child in self.groups[name].children:
                depth[child] = max(depth[child], depth[name] + 1)
                ancestors[child] |= ancestors[name]
        return {
            name: {ancestor: depth[ancestor] for ancestor in group_ancestors}
            for name, group_ancestors in ancestors.items()
        }

    def _parents_first(self) -> Iterator[str]:
        parent_counts = dict.fromkeys(self.groups, 0)
        for group in self.groups.values():
            for child in group.children:
                parent_counts[child] += 1
        ready = [name for name, count in parent_counts.items() if not count]
        while ready:
            name = ready.pop()
            yield name
            for child in self.groups[name].children:
                parent_counts[child] -= 1
                if not parent_counts[child]:
                    ready.append(child)
        if cyclic := [name for name, count in parent_counts.items() if count]:
            first_group = self.groups[cyclic[0]]
            self.report.add_issue(
                "CC-SPEC-050", "group-inside-itself", first_group.location, cyclic=quoted(cyclic[0])
            )
            self.report.raise_issues()

    def select_hosts(self, group: str | None, file: str) -> list[str]:
        """Give the machines of a group and the groups below it, in the order of the file."""
        if group is None or group == ALL:
            return list(self.hosts)
        if group not in self.groups:
            examples = ", ".join(name for name in list(self.groups)[:20] if name.isprintable())
            self.report.add_issue(
                "CC-SPEC-052",
                "unknown" if examples else "no-groups",
                Location(file, 1, 1),
                group=quoted(group),
                suggestion=did_you_mean(group, self.groups),
                groups=examples,
            )
            self.report.raise_issues()
        subgroups = {name for name, ancestors in self.ancestor_depths().items() if group in ancestors}
        return [name for name, host in self.hosts.items() if host.groups & subgroups]


def expand_pattern(pattern: str, location: Location, report: ImportReport) -> tuple[list[str], str | None]:
    """Give the names that a host pattern such as `gpu[01:16]:2222` stands for, and its port."""
    match = None if is_ipv6(pattern) else _PORT.fullmatch(pattern)
    host_part, port = match.groups() if match else (pattern, None)
    parts: list[Iterable[str]] = []
    total = 1
    for index, part in enumerate(_RANGE.split(host_part)):
        choices = _expand_range(part) if index % 2 else [part]
        if choices is None:
            report.add_issue("CC-SPEC-050", "host-range", location, part=quoted(part))
            return [], port
        total *= len(choices)
        if total > MOST_NAMES:
            report.fail_too_many(tr("{count} host names", count=MOST_NAMES), location)
        parts.append(choices)
    return ["".join(choice) for choice in product(*parts)], port


def _expand_range(text: str) -> list[str] | None:
    """Give the members of a range, or None if it is none."""
    match = _BOUNDS.fullmatch(text)
    if not match:
        return None
    low, high, step = match[1] or "0", match[2], int(match[3] or 1)
    if low.isalpha() != high.isalpha() or step < 1:
        return None
    if low.isalpha():
        members = list(ascii_letters[ascii_letters.index(low) : ascii_letters.index(high) + 1 : step])
        return members or None
    if int(low) > int(high) or (low.startswith("0") and len(low) > 1 and len(low) != len(high)):
        return None
    width = len(low) if low.startswith("0") else 0
    count = range(int(low), min(int(high), int(low) + step * MOST_NAMES) + 1, step)
    return [str(number).zfill(width) for number in count]


_SECTION = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:#.*)?")
_NAME = re.compile(r"([^:\]\s]+)\s*(?:#.*)?")


def read_ini(text: str, file: str, report: ImportReport) -> AnsibleInventory:
    """Read the groups of an INI inventory; problems go to the findings."""
    inventory = AnsibleInventory(report)
    section_name, section_kind = UNGROUPED, "hosts"
    for line_location, raw_line in iterate_lines(text, file):
        line = raw_line.strip()
        location = shift_right(line_location, len(raw_line) - len(raw_line.lstrip()))
        if line.startswith(("#", ";")):
            continue
        if section := _SECTION.fullmatch(line):
            section_name, section_kind = section[1], section[2] or "hosts"
            _open_section(inventory, section_name, section_kind, location)
        elif line.startswith("[") and line.endswith("]"):
            report.add_issue("CC-SPEC-050", "no-section", location, line=quoted(line))
        elif section_kind == "vars":
            _read_variable(inventory, section_name, line, location)
        elif section_kind == "children":
            _read_child(inventory, section_name, line, location)
        elif section_kind == "hosts":
            _read_host(inventory, section_name, line, location)
    _report_undeclared_groups(inventory)
    return inventory


def _open_section(inventory: AnsibleInventory, name: str, kind: str, location: Location) -> None:
    if kind not in ("hosts", "vars", "children"):
        inventory.report.add_issue("CC-SPEC-050", "section-kind", location, kind=quoted(kind))
        return
    group = inventory.ensure_group(name, location)
    group.is_declared = group.is_declared or kind != "vars" or name in ("all", UNGROUPED)


def _read_variable(inventory: AnsibleInventory, group: str, line: str, location: Location) -> None:
    key, equals, value = line.partition("=")
    if not equals:
        inventory.report.add_issue("CC-SPEC-050", "group-variable", location, line=quoted(line))
        return
    value_location = shift_right(location, len(line) - len(value.lstrip()))
    inventory.ensure_group(group, location).variables[key.strip()] = Setting(
        _unquote(value.strip()), value_location
    )


def _read_child(inventory: AnsibleInventory, group: str, line: str, location: Location) -> None:
    match = _NAME.fullmatch(line)
    if not match:
        inventory.report.add_issue("CC-SPEC-050", "group-name", location, line=quoted(line))
        return
    inventory.ensure_group(match[1], location)
    inventory.ensure_group(group, location).children[match[1]] = location


def _read_host(inventory: AnsibleInventory, group: str, line: str, location: Location) -> None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        inventory.report.add_issue("CC-SPEC-050", "open-quote", location)
        return
    names, port = expand_pattern(words[0], location, inventory.report) if words else ([], None)
    variables: Settings = {} if port is None else {"ansible_port": Setting(port, location)}
    column = 0
    for word in words[1:]:
        key, equals, value = word.partition("=")
        column = max(column, line.find(f"{key}=" if equals else word, column))
        word_location = shift_right(location, column)
        if not equals or not key:
            inventory.report.add_issue("CC-SPEC-050", "host-variable", word_location, word=quoted(word))
        variables[key] = Setting(_unquote(value), word_location)
    inventory.add_hosts(names, group, variables, location)


def _unquote(text: str) -> str:
    """Take away the quotes of a Python literal, as Ansible does."""
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if is_quoted else text


def _report_undeclared_groups(inventory: AnsibleInventory) -> None:
    for name, group in inventory.groups.items():
        if not group.is_declared and name != UNGROUPED:
            case = "undeclared-group" if name.isprintable() else "odd-group"
            inventory.report.add_issue("CC-SPEC-050", case, group.location, name=quoted(name), section=name)


def read_yaml(text: str, file: str, report: ImportReport) -> AnsibleInventory:
    """Read the groups of a YAML inventory; problems go to the findings."""
    tree, issues = read_document(text, file, max_bytes=MOST_CHARACTERS)
    for issue in issues:
        if issue.code == "CC-SPEC-006" and issue.location:  # a vault's tag, a merge key
            report.add_remark(issue.message, issue.location)
        else:
            report.issues.append(issue)
    inventory = AnsibleInventory(report)
    _reject_other_files(tree, report)
    pending = list(_child_mappings(tree, report))
    for name, location, body in pending:
        pending.extend(_read_group(inventory, name, location, body))
    return inventory


def _reject_other_files(tree: YamlMapping, report: ImportReport) -> None:
    """A playbook, an inventory of ours or a plugin's file is no list of groups."""
    key = tree.get_key("nodes") or tree.get_key("plugin")
    if key is None:
        return
    report.add_issue("CC-SPEC-051", "plugin" if key.text == "plugin" else "own", key.location)
    raise SpecError(sort_issues(report.issues))


def _child_mappings(
    mapping: YamlMapping, report: ImportReport
) -> Iterator[tuple[str, Location, YamlMapping]]:
    """Give the keys of a table whose values are tables, or nothing."""
    for name, (key, body) in mapping.entries.items():
        if isinstance(body, YamlMapping):
            yield name, key.location, body
        elif isinstance(body, YamlScalar) and body.text is None:
            yield name, key.location, YamlMapping({}, key.location)
        else:
            report.add_issue(
                "CC-SPEC-050", "group-body", body.location, name=quoted(name), found=describe(body)
            )


def _read_group(
    inventory: AnsibleInventory, name: str, location: Location, body: YamlMapping
) -> Iterator[tuple[str, Location, YamlMapping]]:
    """Take in one group; gives the groups below it."""
    group = inventory.ensure_group(name, location)
    for key, (key_scalar, value) in body.entries.items():
        if key not in ("hosts", "children", "vars"):
            inventory.report.add_issue("CC-SPEC-050", "group-key", key_scalar.location, key=quoted(key))
        elif isinstance(value, YamlScalar) and value.text is None:
            continue
        elif not isinstance(value, YamlMapping):
            inventory.report.add_issue(
                "CC-SPEC-050", "group-member", value.location, key=key, found=describe(value)
            )
        elif key == "vars":
            group.variables.update(_to_settings(value))
        elif key == "hosts":
            _read_hosts(inventory, name, value)
        else:
            for child, child_location, child_body in _child_mappings(value, inventory.report):
                inventory.ensure_group(child, child_location)
                group.children[child] = child_location
                yield child, child_location, child_body


def _read_hosts(inventory: AnsibleInventory, group: str, mapping: YamlMapping) -> None:
    for pattern, location, variables in _child_mappings(mapping, inventory.report):
        names, port = expand_pattern(pattern, location, inventory.report)
        settings: Settings = {} if port is None else {"ansible_port": Setting(port, location)}
        inventory.add_hosts(names, group, {**settings, **_to_settings(variables)}, location)


def _to_settings(mapping: YamlMapping) -> Settings:
    return {
        name: Setting(_scalar_text(value), value.location) for name, (_, value) in mapping.entries.items()
    }


def _scalar_text(value: YamlTree) -> str:
    return (value.text or "") if isinstance(value, YamlScalar) else ""
