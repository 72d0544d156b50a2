"""The hosts of an Ansible inventory, from what `ansible-inventory --list` prints: JSON with all variables merged.

Ansible reads its files itself, with their patterns, group_vars, plug-ins and vaults; `client/local/programs.py` runs
it.
Here are the hosts of a group, and their variables as keys of an inventory.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, TypeVar

from clusterctl.errors import InvalidValueError, Issue, Location, SpecError
from clusterctl.protocol.untrusted import parse_json
from clusterctl.specs.importers.imported import (
    FORBIDDEN,
    MAX_HOSTS,
    MAX_LINE,
    MAX_NAMES,
    Imported,
    ImportedHost,
    ImportReport,
)
from clusterctl.specs.text import did_you_mean
from clusterctl.specs.values import (
    is_ipv6,
    parse_host,
    parse_jump,
    parse_port,
    parse_proxy_command,
    parse_python,
    parse_text,
    parse_user,
)
from clusterctl.specs.yaml.tree import quoted
from clusterctl.translation import tr, trn

MAX_LISTING = 16 << 20  # bytes; each host has the variables of all its groups
MAX_VALUES = 1_000_000
MAX_GROUPS = 1000
ALL, UNGROUPED = "all", "ungrouped"

_SHORT_FLAGS = {"-J": "proxyjump", "-p": "port", "-i": "identityfile", "-l": "user"}
_FLAGS_WITH_VALUE = "-B-b-c-D-E-e-F-I-L-m-O-o-Q-R-S-W-w"
_IGNORED_OPTIONS = frozenset(
    ("controlmaster", "controlpersist", "controlpath", "batchmode", "forwardagent", "loglevel")
)
_KEYS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "port": ("port", parse_port),
    "user": ("user", parse_user),
    "identityfile": ("key", parse_text),
}
Value = TypeVar("Value")
Variables = Mapping[str, object]
# The later name of each pair wins where both are given, as in Ansible.
_HOST = ("ansible_host", "ansible_ssh_host")
_USER = ("ansible_user", "ansible_ssh_user")
_PORT = ("ansible_port", "ansible_ssh_port")
_KEY = ("ansible_private_key_file", "ansible_ssh_private_key_file")
_ARGS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
_PYTHON = ("ansible_python_interpreter",)
_CONNECTION = ("ansible_connection",)
_USED = frozenset((*_HOST, *_USER, *_PORT, *_KEY, *_ARGS, *_PYTHON, *_CONNECTION))
_PASSWORD = re.compile(r"ansible_(ssh_)?pass(word)?")
_SSH_CONNECTIONS = ("", "ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh")


def _split_options(arguments: list[str]) -> list[tuple[str, str]]:
    """Return the options by their names in ssh_config; flags without a name keep their sign."""
    options = []
    remaining = iter(arguments)
    for word in remaining:
        flag, value = word[:2], word[2:]
        if flag in _SHORT_FLAGS or (len(flag) == 2 and flag[0] == "-" and flag in _FLAGS_WITH_VALUE):
            value = value or next(remaining, "")
        if flag == "-o":
            name, value = _split_option(value.strip())
            options.append((name.lower(), value))
        else:
            options.append((_SHORT_FLAGS.get(flag, flag), value))
    return options


def _split_option(option: str) -> tuple[str, str]:
    """Split name and value at the first space or `=`; another `=` belongs to the value."""
    name = re.split(r"[\s=]", option, maxsplit=1)[0]
    return name, re.sub(r"^\s*=?\s*", "", option[len(name) :])


@dataclass(frozen=True)
class _Listing:
    """Groups with all their hosts, those of the groups below them too, and the variables of each host."""

    file: str
    members: Mapping[str, Sequence[str]]
    variables: Mapping[str, Variables]

    def select_hosts(self, group: str | None) -> Sequence[str]:
        """Return the hosts of a group, or all; raises SpecError for an unknown group."""
        if group is None or group in self.members:
            return self.members[group or ALL]
        examples = ", ".join(name for name in list(self.members)[:20] if name.isprintable())
        raise _error(
            "CC-SPEC-052",
            "unknown",
            self.file,
            group=quoted(group),
            suggestion=did_you_mean(group, self.members),
            groups=examples,
        )

    def list_partial_groups(self) -> tuple[tuple[str, int], ...]:
        """Return the groups that hold some but not all hosts, with how many."""
        counts = {name: len(hosts) for name, hosts in self.members.items() if name not in (ALL, UNGROUPED)}
        return tuple((name, count) for name, count in counts.items() if 0 < count < len(self.members[ALL]))


def is_listing(text: str) -> bool:
    """Return whether a text is what `ansible-inventory --list` prints."""
    return text.lstrip().startswith("{") and '"_meta"' in text


def parse_ansible(text: str, file: str, group: str | None) -> Imported:
    """Parse what `ansible-inventory --list` prints, or one group of it; raises SpecError."""
    listing = _parse_listing(text, file)
    names = listing.select_hosts(group)
    report = ImportReport()
    reader = _HostReader(listing, report)
    hosts = [host for host in map(reader.read_host, names) if host]
    _report_duplicates(hosts, report)
    if not hosts and not report.issues:
        _report_empty(group, names, report, file)
    report.raise_issues()
    for name in names:
        reader.remark_unused(name)
    partial_groups = listing.list_partial_groups() if group is None else ()
    return Imported(tr("an Ansible inventory"), file, tuple(hosts), tuple(report.remarks), partial_groups)


def _parse_listing(text: str, file: str) -> _Listing:
    """Parse the JSON within its limits; raises SpecError."""
    try:
        groups = parse_json(text.encode(), MAX_LISTING, MAX_VALUES)
        hostvars = groups.pop("_meta")["hostvars"]
        children = {name: _read_names(group, "children") for name, group in groups.items()}
        hosts = {name: _read_names(group, "hosts") for name, group in groups.items()}
        variables = {name: dict(hostvars.get(name, {})) for names in hosts.values() for name in names}
        _check_counts(file, children, hosts, len(variables))
        members: dict[str, Sequence[str]] = {ALL: ()}
        for name in TopologicalSorter(children).static_order():  # the groups below a group come before it
            below = [host for child in children.get(name, ()) for host in members[child]]
            # a group without hosts is listed only as a child
            members[name] = tuple(dict.fromkeys([*hosts.get(name, ()), *below]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _error("CC-SPEC-053", "listing", file) from error
    return _Listing(file, members, variables)


def _read_names(group: Mapping[str, Sequence[object]], key: str) -> list[str]:
    """Return the children or the hosts of a group; raises AttributeError or TypeError for anything but names."""
    names = [name for name in group.get(key, []) if isinstance(name, str)]
    if len(names) != len(group.get(key, [])):
        raise TypeError
    return names


def _check_counts(
    file: str, children: Mapping[str, Sequence[str]], hosts: Mapping[str, Sequence[str]], host_count: int
) -> None:
    """Raise SpecError for more groups, hosts or names in groups than an inventory has."""
    named = sum(map(len, [*children.values(), *hosts.values()]))
    for limit, exceeded in (
        (tr("{count} groups", count=MAX_GROUPS), len(children) > MAX_GROUPS),
        (tr("{count} hosts", count=MAX_HOSTS), host_count > MAX_HOSTS),
        (tr("{count} host names", count=MAX_NAMES), named > MAX_NAMES),
    ):
        if exceeded:
            raise _error("CC-SPEC-003", "import", file, limit=limit)


def _error(code: str, case: str, file: str, **facts: object) -> SpecError:
    return SpecError([Issue.of(code, case, Location(file, 1, 1), **facts)])


def _report_empty(group: str | None, names: Sequence[str], report: ImportReport, file: str) -> None:
    """Report why no host was taken: none is named, or none of those that are is reached by SSH."""
    start = Location(file, 1, 1)
    if not names:
        report.add_issue(
            "CC-SPEC-022", "empty-group" if group else "no-hosts", start, group=quoted(group or "")
        )
        return
    remark, more = report.remarks[0], trn("{n} more host", "{n} more hosts", len(names) - 1)
    case = "none-by-ssh" if len(names) > 1 else "no-ssh"
    report.add_issue("CC-SPEC-022", case, start, reason=remark.message, more=more)


def _report_duplicates(hosts: Sequence[ImportedHost], report: ImportReport) -> None:
    hosts_by_address: dict[tuple[str, int], ImportedHost] = {}
    for host in hosts:
        if not host.host:
            continue
        earlier = hosts_by_address.setdefault((host.host.lower(), host.port or 22), host)
        if earlier is not host:
            names = {"name": quoted(host.name), "other": quoted(earlier.name), "host": quoted(host.host)}
            report.add_issue("CC-SPEC-021", "one-machine", host.location, **names)


class _HostReader:
    """Reads the variables of the hosts of a listing, one host after the other."""

    def __init__(self, listing: _Listing, report: ImportReport) -> None:
        self.listing = listing
        self.report = report
        self.location = Location(listing.file, 1, 1)
        self.name = ""
        self.variables: Variables = {}
        self.parsed_args: dict[str, dict[str, object]] = {}

    def read_host(self, name: str) -> ImportedHost | None:
        """Return the machine, or None if it is not reached by SSH."""
        self.name, self.variables = name, self.listing.variables[name]
        connection = self._find_text(_CONNECTION)
        if connection not in _SSH_CONNECTIONS:
            message = tr(
                "{name} is left out: Ansible connects to it with {connection}, not with SSH",
                name=quoted(name),
                connection=quoted(connection),
            )
            self.report.add_remark(message)
            return None
        target = self._find_text(_HOST) or name
        user, _, address = target.rpartition("@")  # ssh takes user@host, and Ansible hands it on
        host = self._try_parse(_parse_ipv4_or_name, address)
        keys: dict[str, Any] = self._parse_key("user", parse_user, user)
        for variable in _ARGS:
            keys |= self._parse_ssh_args(self._find_setting((variable,)))
        keys |= self._parse_key("user", parse_user, self._find_setting(_USER))
        keys |= self._parse_key("port", parse_port, self._find_setting(_PORT))
        keys |= self._parse_key("key", parse_text, self._find_setting(_KEY))
        keys |= self._python_key()
        return ImportedHost(name=name.rpartition("@")[2], host=host or "", location=self.location, **keys)

    def remark_unused(self, name: str) -> None:
        """Remark which variables of a host have no counterpart in an inventory."""
        for variable, value in self.listing.variables[name].items():
            if _PASSWORD.fullmatch(variable):
                message = tr("{name} was not imported: clusterctl logs in with a key", name=quoted(variable))
                self.report.add_remark(message)
            elif variable not in _USED or _text_of(value) is None:
                self.report.add_remark(tr("the variable {name} was not imported", name=quoted(variable)))

    def _find_text(self, names: Sequence[str]) -> str:
        texts = [_text_of(self.variables[name]) for name in names if name in self.variables]
        return (texts[-1] or "") if texts else ""

    def _find_setting(self, names: Sequence[str]) -> str:
        """Return the text of a variable, empty for one that Ansible would compute."""
        text = self._find_text(names)
        if "{{" in text or "{%" in text:
            self.report.add_remark(tr("{name} is a template, which only Ansible can fill in", name=names[-1]))
            return ""
        return text

    def _try_parse(self, parse: Callable[[str], Value], text: str) -> Value | None:
        """Parse a text; None, and a problem that names the host, if it is not what it should be."""
        if forbidden := FORBIDDEN.search(text):
            self.report.add_issue("CC-SPEC-002", "character", self.location, number=ord(forbidden.group()))
            return None
        try:
            return parse(text)
        except InvalidValueError as error:
            message = tr("host {name}: {problem}", name=quoted(self.name), problem=error.message)
            self.report.append(Issue(error.code, message, self.location, error.fix))
            return None

    def _parse_key(self, key: str, parse: Callable[[str], Value], text: str) -> dict[str, Value]:
        value = self._try_parse(parse, text) if text else None
        return {key: value} if value is not None else {}

    def _python_key(self) -> dict[str, str]:
        text = self._find_setting(_PYTHON)
        if not text or text.startswith("auto"):
            return {}
        self.report.add_remark(tr("python is the one that Ansible uses; does it have torch?"))
        return self._parse_key("python", parse_python, text)

    def _parse_ssh_args(self, text: str) -> dict[str, object]:
        """Parse options of ssh to keys of the inventory; those of a group are parsed once for all its hosts."""
        if text and text not in self.parsed_args:
            self.parsed_args[text] = self._convert_args(text)
        return self.parsed_args.get(text, {})

    def _convert_args(self, text: str) -> dict[str, object]:
        try:
            arguments = shlex.split(text[: MAX_LINE + 1])
        except ValueError:
            arguments = []
        if len(text) > MAX_LINE or not arguments:
            self.report.add_remark(tr("ssh options that cannot be parsed were not imported"))
            return {}
        settings: dict[str, object] = {}
        for name, value in _split_options(arguments):  # ssh takes the first of several
            settings = self._convert_option(name, value) | settings
        return settings

    def _convert_option(self, name: str, value: str) -> dict[str, object]:
        if name in _KEYS and value:
            key, parse = _KEYS[name]
            return self._parse_key(key, parse, value)
        if name == "proxyjump" and value.lower() != "none":
            return self._convert_way(
                "jump", parse_jump, value, tr("the jump host {name} was not imported", name=quoted(value))
            )
        if name == "proxycommand" and value.lower() != "none":
            self.report.add_remark(tr("proxy_command runs on the machine that clusterctl runs on: check it"))
            return self._convert_way(
                "proxy_command",
                parse_proxy_command,
                value,
                tr("the ProxyCommand {name} was not imported", name=quoted(value)),
            )
        if name == "stricthostkeychecking":
            return self._convert_host_keys(value.lower())
        if name == "userknownhostsfile" and value and value != "/dev/null":
            return self._parse_key("known_hosts", parse_text, value)
        if name not in _IGNORED_OPTIONS:
            self.report.add_remark(tr("the ssh option {name} was not imported", name=quoted(name)))
        return {}

    def _convert_host_keys(self, value: str) -> dict[str, object]:
        if value in ("accept-new", "yes"):
            return {"host_keys": "accept-new" if value == "accept-new" else "strict"}
        self.report.add_remark(
            tr("host keys are always verified here; host_keys: accept-new records unknown ones")
        )
        return {}

    def _convert_way(
        self, key: str, parse: Callable[[str], str], value: str, refusal: str
    ) -> dict[str, object]:
        try:
            return {key: parse(value)}
        except InvalidValueError:
            self.report.add_remark(refusal)
            return {}


def _text_of(value: object) -> str | None:
    """Return a value as text; None for a list or a table, which also stands for what ansible-vault has encrypted."""
    return None if isinstance(value, (dict, list)) else "" if value is None else str(value)


def _parse_ipv4_or_name(text: str) -> str:
    if is_ipv6(text):
        raise InvalidValueError("CC-SPEC-023", "ipv6-machine", text=quoted(text))
    return parse_host(text)
