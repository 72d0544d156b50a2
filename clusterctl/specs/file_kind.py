"""Whether a file is of another kind than the one that is read: a script, or the inventory and the job swapped."""

from __future__ import annotations

from clusterctl.errors import Issue, Location, SpecError
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


def _is_inventory(tree: YamlMapping) -> bool:
    return tree.get("cluster") is not None or isinstance(tree.get("nodes"), YamlList)


def _is_job(tree: YamlMapping) -> bool:
    return any(tree.get(key) is not None for key in _PROGRAMS)
