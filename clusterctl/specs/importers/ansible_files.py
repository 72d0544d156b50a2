"""Ansible INI and YAML, groups, host patterns."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from string import ascii_letters

from clusterctl.errors import Place, SpecError
from clusterctl.specs import codes
from clusterctl.specs.addresses import is_ipv6
from clusterctl.specs.importers.imported import MOST_FOREIGN, MOST_HOSTS, MOST_NAMES, Findings, lines_of, move
from clusterctl.specs.text import did_you_mean
from clusterctl.specs.yaml.reader import in_order, read_document
from clusterctl.specs.yaml.tree import Scalar, Table, Tree, describe, quoted

ALL, UNGROUPED = "all", "ungrouped"
MOST_GROUPS = 1000

_RANGE = re.compile(r"\[([^\[\]]*)\]")
_BOUNDS = re.compile(r"([A-Za-z]|[0-9]{0,9}):([A-Za-z]|[0-9]{1,9})(?::([0-9]{1,9}))?")
_PORT = re.compile(r"(.*\]|[^:]*):([0-9]+)")


@dataclass(frozen=True)
class Setting:
    """The text of a variable, and where it stands."""

    text: str
    place: Place


Settings = dict[str, Setting]


@dataclass(eq=False)
class Group:
    """A group: its variables, and what was put into it directly."""

    place: Place
    variables: Settings = field(default_factory=dict)
    children: dict[str, Place] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    is_declared: bool = False


@dataclass(eq=False)
class Machine:
    """A host: its own variables, and the groups that it was put into."""

    place: Place
    variables: Settings = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Groups:
    """All groups and machines, in the order in which the file names them first."""

    findings: Findings
    groups: dict[str, Group] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    names: int = 0

    def group(self, name: str, place: Place) -> Group:
        """Find a group, or begin it."""
        if name not in self.groups and len(self.groups) >= MOST_GROUPS:
            self.findings.too_many(f"{MOST_GROUPS} groups", place)
        return self.groups.setdefault(name, Group(place))

    def add_hosts(self, names: Iterable[str], group: str, variables: Settings, place: Place) -> None:
        """Put hosts into a group; a host that is named again keeps its place and gets further variables."""
        for name in names:
            self.names += 1
            if self.names > MOST_NAMES:
                self.findings.too_many(f"{MOST_NAMES} host names", place)
            machine = self.machines.setdefault(name, Machine(place))
            if len(self.machines) > MOST_HOSTS:
                self.findings.too_many(f"{MOST_HOSTS} hosts", place)
            machine.variables.update(variables)
            machine.groups.add(group)
            self.group(group, place).hosts[name] = None

    def parts(self) -> tuple[tuple[str, int], ...]:
        """Give the groups that hold some but not all machines, with how many, in the order of the file."""
        counts = dict.fromkeys(self.groups, 0)
        lineage = self.lineage()
        for machine in self.machines.values():
            for name in {above for group in machine.groups for above in lineage[group]}:
                counts[name] += 1
        inside = [(name, count) for name, count in counts.items() if 0 < count < len(self.machines)]
        return tuple((name, count) for name, count in inside if name not in (ALL, UNGROUPED))

    def lineage(self) -> dict[str, dict[str, int]]:
        """Give for every group itself and all above it, each with its depth below `all`."""
        depth = {name: 0 if name == ALL else 1 for name in self.groups}
        above: dict[str, set[str]] = {name: {name} for name in self.groups}
        for name in self._parents_first():
            for child in self.groups[name].children:
                depth[child] = max(depth[child], depth[name] + 1)
                above[child] |= above[name]
        return {name: {one: depth[one] for one in found} for name, found in above.items()}

    def _parents_first(self) -> Iterator[str]:
        parents = dict.fromkeys(self.groups, 0)
        for group in self.groups.values():
            for child in group.children:
                parents[child] += 1
        ready = [name for name, count in parents.items() if not count]
        while ready:
            name = ready.pop()
            yield name
            for child in self.groups[name].children:
                parents[child] -= 1
                if not parents[child]:
                    ready.append(child)
        if rest := [name for name, count in parents.items() if count]:
            first = self.groups[rest[0]]
            self.findings.wrong(f"the group {quoted(rest[0])} is inside itself", first.place)
            self.findings.settle()

    def chosen(self, group: str | None, file: str) -> list[str]:
        """Give the machines of a group and the groups below it, in the order of the file."""
        if group is None or group == ALL:
            return list(self.machines)
        if group not in self.groups:
            message = f"no group is called {quoted(group)}{did_you_mean(group, self.groups)}"
            some = ", ".join(name for name in list(self.groups)[:20] if name.isprintable())
            fix = f"the groups are {some}" if some else "the file has no groups"
            self.findings.wrong(message, Place(file, 1, 1), fix, codes.FOREIGN_GROUP)
            self.findings.settle()
        inside = {name for name, above in self.lineage().items() if group in above}
        return [name for name, machine in self.machines.items() if machine.groups & inside]


def expand_pattern(pattern: str, place: Place, findings: Findings) -> tuple[list[str], str | None]:
    """Give the names that a host pattern such as `gpu[01:16]:2222` stands for, and its port."""
    found = None if is_ipv6(pattern) else _PORT.fullmatch(pattern)
    body, port = found.groups() if found else (pattern, None)
    parts: list[Iterable[str]] = []
    total = 1
    for index, part in enumerate(_RANGE.split(body)):
        choices = _expand_range(part) if index % 2 else [part]
        if choices is None:
            fix = "a range is [01:16], [a:f] or [01:16:2]"
            findings.wrong(f"{quoted(part)} is no range of hosts", place, fix)
            return [], port
        total *= len(choices)
        if total > MOST_NAMES:
            findings.too_many(f"{MOST_NAMES} host names", place)
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


def read_ini(text: str, file: str, findings: Findings) -> Groups:
    """Read the groups of an INI inventory; problems go to the findings."""
    groups = Groups(findings)
    name, kind = UNGROUPED, "hosts"
    for start, whole in lines_of(text, file):
        line = whole.strip()
        place = move(start, len(whole) - len(whole.lstrip()))
        if line.startswith(("#", ";")):
            continue
        if section := _SECTION.fullmatch(line):
            name, kind = section[1], section[2] or "hosts"
            _open_section(groups, name, kind, place)
        elif line.startswith("[") and line.endswith("]"):
            fix = "[GROUP], [GROUP:vars] or [GROUP:children], without spaces"
            findings.wrong(f"{quoted(line)} is no section", place, fix)
        elif kind == "vars":
            _read_variable(groups, name, line, place)
        elif kind == "children":
            _read_child(groups, name, line, place)
        elif kind == "hosts":
            _read_host(groups, name, line, place)
    _find_undeclared(groups)
    return groups


def _open_section(groups: Groups, name: str, kind: str, place: Place) -> None:
    if kind not in ("hosts", "vars", "children"):
        fix = "there are [GROUP], [GROUP:vars] and [GROUP:children]"
        groups.findings.wrong(f"{quoted(kind)} is no kind of section", place, fix)
        return
    group = groups.group(name, place)
    group.is_declared = group.is_declared or kind != "vars" or name in ("all", UNGROUPED)


def _read_variable(groups: Groups, group: str, line: str, place: Place) -> None:
    key, equals, value = line.partition("=")
    if not equals:
        groups.findings.wrong(f"{quoted(line)} is no variable", place, "write KEY=VALUE")
        return
    where = move(place, len(line) - len(value.lstrip()))
    groups.group(group, place).variables[key.strip()] = Setting(_unquote(value.strip()), where)


def _read_child(groups: Groups, group: str, line: str, place: Place) -> None:
    match = _NAME.fullmatch(line)
    if not match:
        groups.findings.wrong(f"{quoted(line)} is no name of a group", place)
        return
    groups.group(match[1], place)
    groups.group(group, place).children[match[1]] = place


def _read_host(groups: Groups, group: str, line: str, place: Place) -> None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        groups.findings.wrong("a quotation does not end in this line", place, "close it, or escape the quote")
        return
    names, port = expand_pattern(words[0], place, groups.findings) if words else ([], None)
    variables: Settings = {} if port is None else {"ansible_port": Setting(port, place)}
    column = 0
    for word in words[1:]:
        key, equals, value = word.partition("=")
        column = max(column, line.find(f"{key}=" if equals else word, column))
        where = move(place, column)
        if not equals or not key:
            fix = "write KEY=VALUE behind the host; one host a line"
            groups.findings.wrong(f"{quoted(word)} is no variable", where, fix)
        variables[key] = Setting(_unquote(value), where)
    groups.add_hosts(names, group, variables, place)


def _unquote(text: str) -> str:
    """Take away the quotes of a Python literal, as Ansible does."""
    quoted_twice = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted_twice else text


def _find_undeclared(groups: Groups) -> None:
    for name, group in groups.groups.items():
        if not group.is_declared and name != UNGROUPED:
            fix = f"add [{name}]" if name.isprintable() else ""
            groups.findings.wrong(f"there is no group {quoted(name)}", group.place, fix)


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
