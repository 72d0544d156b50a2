"""Inventories of other tools: which tool's it is, and the machines in it."""

from __future__ import annotations

import re
from pathlib import PurePath

from clusterctl.errors import Issue, Place, SpecError
from clusterctl.specs import codes
from clusterctl.specs.importers.ansible import parse_ansible_ini, parse_ansible_yaml
from clusterctl.specs.importers.hostfile import KINDS, Line, parse_hostfile, split_lines
from clusterctl.specs.importers.imported import Foreign, lines_of
from clusterctl.specs.importers.ssh_config import KIND, is_ssh_config, parse_ssh_config

FORMS = ("deepspeed", "mpi", "ansible", "hosts", "ssh")
MOST_SLOTS = 128  # a larger number behind a host's colon is no number of slots
SSH_PORT = 22

_SECTION = re.compile(r"\s*\[[^\]\s]+\]\s*(#.*)?")
_VARIABLE = re.compile(r"\sansible_[a-z_]+\s*=")
_YAML = re.compile(r"(---|[\w.-]+:)\s*(#.*)?|[\w.-]+:\s+\S.*|\{.*")
_CHOOSE = "give --format ansible if it is one"


def parse_foreign(text: str, file: str, form: str = "auto", group: str | None = None) -> Foreign:
    """Read the inventory of another tool; `group` takes a part of Ansible's.

    Raises SpecError with everything that is wrong, in the order of the file.
    """
    form = detect_form(text, file) if form == "auto" else form
    _refuse_group(group, form, file)
    if form == "ssh":
        return parse_ssh_config(text, file)
    if form != "ansible":
        return parse_hostfile(text, file, form)
    return (parse_ansible_yaml if is_yaml(text, file) else parse_ansible_ini)(text, file, group)


def is_yaml(text: str, file: str) -> bool:
    """Tell YAML from INI by the file's name, else by its first line."""
    if PurePath(file).suffix in (".yml", ".yaml", ".json"):
        return True
    first = next((line for _, line in lines_of(text, file) if not line.lstrip().startswith(("#", ";"))), "")
    return bool(_YAML.fullmatch(first.strip()))


def detect_form(text: str, file: str) -> str:
    """Tell whose inventory it is; raises SpecError when that would be a guess."""
    lines = [line for _, line in lines_of(text, file)]
    if is_ssh_config(text, file):
        return "ssh"
    if is_yaml(text, file) or any(_SECTION.fullmatch(line) or _VARIABLE.search(line) for line in lines):
        return "ansible"
    found = list(split_lines(text, file))
    keys = {key.lower() for line in found for _, key, value in line.settings if value}
    if keys - {"slots"}:
        return "mpi"
    return "deepspeed" if keys else _detect_number(found)


def _detect_number(lines: list[Line]) -> str:
    """`host:4` is a number of slots, `host:2222` a port."""
    numbered = [line for line in lines if line.number is not None]
    ports = [line for line in numbered if (n := int(line.number or 0)) > MOST_SLOTS or n == SSH_PORT]
    if numbered and not ports:
        return "mpi"
    if len(ports) < len(numbered):
        place = next(line.place for line in numbered if line not in ports)
        message = "the numbers behind the colons may be ports or slots"
        fix = "give --format hosts for ports, --format mpi for slots"
        raise SpecError([Issue(codes.FOREIGN_FORM, message, place, fix)])
    return "hosts"


def _refuse_group(group: str | None, form: str, file: str) -> None:
    """Point out that only Ansible's inventories have groups."""
    if group is not None and form != "ansible":
        read_as = KIND if form == "ssh" else KINDS[form]
        message = f"only Ansible's inventories have groups, and this was read as {read_as}"
        raise SpecError([Issue(codes.FOREIGN_GROUP, message, Place(file, 1, 1), _CHOOSE)])
