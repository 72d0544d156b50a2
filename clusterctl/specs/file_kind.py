"""Whether a file is of another kind than the one that is read: a script, another tool's, inventory and job swapped."""

from __future__ import annotations

import re

from clusterctl.errors import Issue, Location, SpecError
from clusterctl.specs.importers.detect import detect_format, is_ini_line, is_yaml
from clusterctl.specs.importers.imported import iterate_lines
from clusterctl.specs.importers.ssh_config import DESCRIPTION, is_ssh_config
from clusterctl.specs.text import command_line
from clusterctl.specs.yaml.tree import YamlList, YamlMapping
from clusterctl.translation import tr

_PROGRAMS = ("script", "module", "command")


def refuse_script(text: str, file: str, expected: str) -> None:
    """Raise SpecError for a Python script in place of a job file or an inventory; `expected` is translated here."""
    first_line = text.partition("\n")[0]
    if file.endswith(".py") or (first_line.startswith("#!") and "python" in first_line):
        command, start = command_line("clusterctl", "init", "--script", file), Location(file, 1, 1)
        raise SpecError([Issue.of("CC-SPEC-008", "script", start, expected=tr(expected), command=command)])


def refuse_inventory(tree: YamlMapping, file: str) -> None:
    """Raise SpecError for an inventory that stands where a job file belongs."""
    if _is_inventory(tree) and not _is_job(tree):
        command = command_line("clusterctl", "-i", file)
        raise SpecError([Issue.of("CC-SPEC-008", "inventory", Location(file, 1, 1), command=command)])


def refuse_job(tree: YamlMapping, file: str) -> None:
    """Raise SpecError for a job file that stands where an inventory belongs."""
    if _is_job(tree) and not _is_inventory(tree):
        shown = command_line(file)
        raise SpecError([Issue.of("CC-SPEC-008", "job", Location(file, 1, 1), file=shown)])


def detect_hostfile(text: str, file: str) -> str:
    """Return the format of a hostfile or list of hosts that stands in place of an inventory; empty for any other text.

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
        raise _other_tool(tr(DESCRIPTION), file)
    if any(is_ini_line(line) for line in lines):
        raise _other_tool(tr("an Ansible inventory"), file)
    return detect_format(text, file) if all(map(_HOST_LINE.fullmatch, lines)) else ""


# A host, and settings such as `slots=8`; what YAML would read as a key, a list or a quoted text is not a host.
_HOST_LINE = re.compile(r"[A-Za-z0-9_][^\s'\"{}]*(?<!:)(\s+\w+\s*=\s*\S+)*")


def refuse_ansible(tree: YamlMapping, file: str) -> None:
    """Raise SpecError for an Ansible inventory in YAML that stands where one of ours belongs."""
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
