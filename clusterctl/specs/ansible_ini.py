"""Ansible's INI form: sections of hosts, of variables and of child groups."""

from __future__ import annotations

import re
import shlex

from clusterctl.errors import Place
from clusterctl.specs.ansible_groups import UNGROUPED, Groups, Setting, Settings, expand_pattern
from clusterctl.specs.foreign import Findings, lines_of, move
from clusterctl.specs.tree import quoted

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
