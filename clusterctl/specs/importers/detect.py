"""Which kind of file a text is: an inventory of another tool, and of which; a script, inventory and job swapped."""

from __future__ import annotations

import re
from pathlib import PurePath

from clusterctl.errors import Issue, Location, SpecError
from clusterctl.specs.importers.ansible import is_listing, parse_ansible
from clusterctl.specs.importers.formats import FORMAT_DESCRIPTIONS
from clusterctl.specs.importers.hostfile import (
    HostLine,
    is_ssh_config,
    parse_hostfile,
    parse_ssh_config,
    split_lines,
)
from clusterctl.specs.importers.imported import Imported, iterate_lines
from clusterctl.specs.text import command_line
from clusterctl.specs.yaml.tree import YamlList, YamlMapping
from clusterctl.translation import tr

MAX_SLOTS = 128  # a larger number behind a host's colon is no number of slots
SSH_PORT = 22

_SECTION = re.compile(r"\s*\[[^\]\s]+\]\s*(#.*)?")
_VARIABLE = re.compile(r"\sansible_[a-z_]+\s*=")
_YAML = re.compile(r"(---|[\w.-]+:)\s*(#.*)?|[\w.-]+:\s+\S.*|\{.*")
_OWN = re.compile(r"^nodes\s*:", re.MULTILINE)
_PROGRAMS = ("script", "module", "command")
# A host, and settings such as `slots=8`; what YAML would read as a key, a list or a quoted text is not a host.
_HOST_LINE = re.compile(r"[A-Za-z0-9_][^\s'\"{}]*(?<!:)(\s+\w+\s*=\s*\S+)*")


def parse_imported(text: str, file: str, form: str = "auto", group: str | None = None) -> Imported:
    """Parse the inventory of another tool; `group` takes a part of Ansible's, which is what it lists of its files.

    Raises SpecError with everything that is wrong, in the order of the file.
    """
    form = detect_format(text, file) if form == "auto" else form
    _reject_group(group, form, file)
    if form == "ssh":
        return parse_ssh_config(text, file)
    if form != "ansible":
        return parse_hostfile(text, file, form)
    return parse_ansible(text, file, group)


def needs_ansible(text: str, file: str, form: str) -> bool:
    """Return whether Ansible has to list the hosts of a file first; raises SpecError for an inventory of ours."""
    if form != "ansible" or is_listing(text):
        return False
    if match := _OWN.search(text):
        location = Location(file, text.count("\n", 0, match.start()) + 1, 1)
        raise SpecError([Issue.of("CC-SPEC-051", "own", location)])
    return True


def is_yaml(text: str, file: str) -> bool:
    """Distinguish YAML and INI by the file's name, else by its first line."""
    if PurePath(file).suffix in (".yml", ".yaml", ".json"):
        return True
    first = next(
        (line for _, line in iterate_lines(text, file) if not line.lstrip().startswith(("#", ";"))), ""
    )
    return bool(_YAML.fullmatch(first.strip()))


def detect_format(text: str, file: str) -> str:
    """Return whose inventory it is; raises SpecError when that would be a guess."""
    if is_listing(text):
        return "ansible"
    lines = [line for _, line in iterate_lines(text, file)]
    if is_ssh_config(text, file):
        return "ssh"
    if is_yaml(text, file) or any(map(is_ini_line, lines)):
        return "ansible"
    host_lines = list(split_lines(text, file))
    keys = {key.lower() for line in host_lines for _, key, value in line.settings if value}
    if keys - {"slots"}:
        return "mpi"
    return "deepspeed" if keys else _detect_by_numbers(host_lines)


def is_ini_line(line: str) -> bool:
    """Return whether a line is one that only Ansible's inventories in INI have."""
    return bool(_SECTION.fullmatch(line) or _VARIABLE.search(line))


def _detect_by_numbers(lines: list[HostLine]) -> str:
    """`host:4` is a number of slots, `host:2222` a port."""
    with_number = [line for line in lines if line.colon_number is not None]
    with_port = [
        line
        for line in with_number
        if (number := int(line.colon_number or 0)) > MAX_SLOTS or number == SSH_PORT
    ]
    if with_number and not with_port:
        return "mpi"
    if len(with_port) < len(with_number):
        location = next(line.location for line in with_number if line not in with_port)
        raise SpecError([Issue.of("CC-SPEC-051", "ports-or-slots", location)])
    return "hosts"


def _reject_group(group: str | None, format_name: str, file: str) -> None:
    """Raise SpecError for a group of any file but Ansible's."""
    if group is not None and format_name != "ansible":
        description = tr(FORMAT_DESCRIPTIONS[format_name])
        raise SpecError(
            [Issue.of("CC-SPEC-052", "no-ansible", Location(file, 1, 1), description=description)]
        )


def refuse_script(text: str, file: str, expected: str) -> None:
    """Raise SpecError for a Python script in place of a job file or an inventory; `expected` is translated here."""
    first_line = text.partition("\n")[0]
    if file.endswith(".py") or (first_line.startswith("#!") and "python" in first_line):
        command, start = command_line("clusterctl", "init", "--script", file), Location(file, 1, 1)
        raise SpecError([Issue.of("CC-SPEC-008", "script", start, expected=tr(expected), command=command)])


def refuse_inventory(tree: YamlMapping, file: str) -> None:
    """Raise SpecError for an inventory in place of a job file."""
    if _is_inventory(tree) and not _is_job(tree):
        command = command_line("clusterctl", "-i", file)
        raise SpecError([Issue.of("CC-SPEC-008", "inventory", Location(file, 1, 1), command=command)])


def refuse_job(tree: YamlMapping, file: str) -> None:
    """Raise SpecError for a job file in place of an inventory."""
    if _is_job(tree) and not _is_inventory(tree):
        shown = command_line(file)
        raise SpecError([Issue.of("CC-SPEC-008", "job", Location(file, 1, 1), file=shown)])


def detect_hostfile(text: str, file: str) -> str:
    """Return the format of a hostfile or list of hosts in place of an inventory; empty for any other text.

    Raises SpecError for an Ansible inventory in INI and for an SSH configuration, which `init` reads.
    """
    try:
        lines = [line.partition("#")[0].strip() for _, line in iterate_lines(text, file)]
    except SpecError:  # the reader of inventories reports it
        return ""
    lines = [line for line in lines if line]
    if is_yaml(text, file) or not lines:
        return ""
    if is_ssh_config(text, file):
        raise _other_tool(tr(FORMAT_DESCRIPTIONS["ssh"]), file)
    if any(is_ini_line(line) for line in lines):
        raise _other_tool(tr("an Ansible inventory"), file)
    return detect_format(text, file) if all(map(_HOST_LINE.fullmatch, lines)) else ""


def refuse_ansible(tree: YamlMapping, file: str) -> None:
    """Raise SpecError for an Ansible inventory in YAML in place of one of ours."""
    if _is_inventory(tree) or tree.get("slurm") is not None:
        return
    groups = [value for _, value in tree.entries.values() if isinstance(value, YamlMapping)]
    if any(group.get("hosts") is not None or group.get("children") is not None for group in groups):
        raise _other_tool(tr("an Ansible inventory"), file)


def _other_tool(description: str, file: str) -> SpecError:
    command, start = command_line("clusterctl", "init", "--from", file), Location(file, 1, 1)
    return SpecError([Issue.of("CC-SPEC-008", "other-tool", start, description=description, command=command)])


def _is_inventory(tree: YamlMapping) -> bool:
    return tree.get("cluster") is not None or isinstance(tree.get("nodes"), YamlList)


def _is_job(tree: YamlMapping) -> bool:
    return any(tree.get(key) is not None for key in _PROGRAMS)
