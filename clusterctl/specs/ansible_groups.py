"""An Ansible inventory as groups, machines and variables, whichever form it was written in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from string import ascii_letters

from clusterctl.errors import Place
from clusterctl.specs import codes
from clusterctl.specs.addresses import is_ipv6
from clusterctl.specs.foreign import MOST_HOSTS, MOST_NAMES, Findings
from clusterctl.specs.nearest import did_you_mean
from clusterctl.specs.tree import quoted

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
