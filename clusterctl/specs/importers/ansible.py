"""Ansible variables to ssh settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from clusterctl.errors import InvalidValueError, Location
from clusterctl.specs import addresses, values
from clusterctl.specs.addresses import parse_jump, parse_proxy_command, parse_user
from clusterctl.specs.importers.ansible_files import (
    ALL,
    AnsibleInventory,
    Setting,
    Settings,
    read_ini,
    read_yaml,
)
from clusterctl.specs.importers.imported import LONGEST_LINE, Imported, ImportedHost, ImportReport
from clusterctl.specs.values import parse_port, parse_text
from clusterctl.specs.yaml.tree import quoted
from clusterctl.translation import tr, trn

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


def parse_ssh_args(text: str, location: Location, report: ImportReport) -> dict[str, object]:
    """Give the inventory's keys for options of ssh; what has none becomes a remark."""
    try:
        arguments = shlex.split(text[: LONGEST_LINE + 1])
    except ValueError:
        arguments = []
    if len(text) > LONGEST_LINE or not arguments:
        report.add_remark(tr("ssh options that cannot be parsed were not imported"), location)
        return {}
    settings: dict[str, object] = {}
    for name, value in _split_options(arguments):  # ssh takes the first of several
        settings = _convert_option(name, value, location, report) | settings
    return settings


def _split_options(arguments: list[str]) -> list[tuple[str, str]]:
    """Give the options by the names that they have in ssh_config; flags without a name keep their sign."""
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
    """Part name and value, between which stands a space or `=`; another `=` belongs to the value."""
    name = re.split(r"[\s=]", option, maxsplit=1)[0]
    return name, re.sub(r"^\s*=?\s*", "", option[len(name) :])


def _convert_option(name: str, value: str, location: Location, report: ImportReport) -> dict[str, object]:
    if name in _KEYS and value:
        key, parse = _KEYS[name]
        parsed = report.try_parse(parse, value, location)
        return {} if parsed is None else {key: parsed}
    if name == "proxyjump" and value.lower() != "none":
        return _convert_jump(value, location, report)
    if name == "proxycommand" and value.lower() != "none":
        report.add_remark(tr("proxy_command runs on the machine that clusterctl runs on: check it"), location)
        return _convert_proxy_command(value, location, report)
    if name == "stricthostkeychecking":
        return _convert_host_keys(value.lower(), location, report)
    if name == "userknownhostsfile" and value and value != "/dev/null":
        return {"known_hosts": value}
    if name not in _IGNORED_OPTIONS:
        report.add_remark(tr("the ssh option {name} was not imported", name=quoted(name)), location)
    return {}


def _convert_host_keys(value: str, location: Location, report: ImportReport) -> dict[str, object]:
    if value in ("accept-new", "yes"):
        return {"host_keys": "accept-new" if value == "accept-new" else "strict"}
    report.add_remark(
        tr("host keys are always verified here; host_keys: accept-new records unknown ones"), location
    )
    return {}


def _convert_jump(value: str, location: Location, report: ImportReport) -> dict[str, object]:
    try:
        return {"jump": parse_jump(value)}
    except InvalidValueError:
        report.add_remark(tr("the jump host {name} was not imported", name=quoted(value)), location)
        return {}


def _convert_proxy_command(value: str, location: Location, report: ImportReport) -> dict[str, object]:
    try:
        return {"proxy_command": parse_proxy_command(value)}
    except InvalidValueError:
        report.add_remark(tr("the ProxyCommand {name} was not imported", name=quoted(value)), location)
        return {}


Value = TypeVar("Value")

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


def parse_ansible_ini(text: str, file: str, group: str | None) -> Imported:
    """Read an Ansible inventory in INI form; raises SpecError."""
    report = ImportReport()
    return _to_imported(read_ini(text, file, report), tr("an Ansible inventory (INI)"), file, group)


def parse_ansible_yaml(text: str, file: str, group: str | None) -> Imported:
    """Read an Ansible inventory in YAML form; raises SpecError."""
    report = ImportReport()
    return _to_imported(read_yaml(text, file, report), tr("an Ansible inventory (YAML)"), file, group)


def _to_imported(groups: AnsibleInventory, format_description: str, file: str, group: str | None) -> Imported:
    report = groups.report
    report.raise_issues()
    names = groups.select_hosts(group, file)
    ancestor_depths = groups.ancestor_depths()
    merged_settings: dict[frozenset[str], Settings] = {}
    parsed_args: dict[Setting, dict[str, object]] = {}
    hosts: list[ImportedHost] = []
    for name in names:
        host_entry = groups.hosts[name]
        group_names = frozenset(host_entry.groups)
        if group_names not in merged_settings:
            merged_settings[group_names] = _merge_settings(groups, group_names, ancestor_depths)
        host = _HostReader(
            {**merged_settings[group_names], **host_entry.variables}, host_entry.location, report, parsed_args
        ).read_host(name)
        hosts += [host] if host else []
    _report_duplicates(hosts, report)
    if not hosts and not report.issues:
        _report_empty(group, names, report, file)
    report.raise_issues()
    partial_groups = groups.list_partial_groups() if group is None else ()
    return Imported(format_description, file, tuple(hosts), tuple(report.remarks), partial_groups)


def _report_empty(group: str | None, names: Sequence[str], report: ImportReport, file: str) -> None:
    """Say why no host was taken: none is named, or none of those that are is reached by SSH."""
    if not names:
        empty = "empty-group" if group else "no-hosts"
        report.add_issue("CC-SPEC-022", empty, Location(file, 1, 1), group=quoted(group or ""))
        return
    remark, more = report.remarks[0], trn("{n} more host", "{n} more hosts", len(names) - 1)
    case = "none-by-ssh" if len(names) > 1 else "no-ssh"
    report.add_issue("CC-SPEC-022", case, remark.location, reason=remark.message, more=more)


def _merge_settings(
    groups: AnsibleInventory, group_names: frozenset[str], ancestor_depths: dict[str, dict[str, int]]
) -> Settings:
    """Merge the variables of a host's groups as Ansible does: the most general first, equals by name."""
    depth = {name: level for group in group_names for name, level in ancestor_depths[group].items()}
    merged_settings = dict(groups.groups[ALL].variables) if ALL in groups.groups else {}
    for name in sorted(depth, key=lambda group_name: (depth[group_name], group_name)):
        merged_settings.update(groups.groups[name].variables)
    return merged_settings


def _report_duplicates(hosts: list[ImportedHost], report: ImportReport) -> None:
    hosts_by_address: dict[tuple[str, int], ImportedHost] = {}
    for host in hosts:
        if not host.host:
            continue
        earlier = hosts_by_address.setdefault((host.host.lower(), host.port or 22), host)
        if earlier is not host:
            report.add_issue(
                "CC-SPEC-021",
                "one-machine",
                host.location,
                name=quoted(host.name),
                other=quoted(earlier.name),
                host=quoted(host.host),
            )


class _HostReader:
    """The variables of one host, read one by one."""

    def __init__(
        self,
        settings: Settings,
        location: Location,
        report: ImportReport,
        parsed_args: dict[Setting, dict[str, object]],
    ) -> None:
        self.settings = settings
        self.location = location
        self.report = report
        self.parsed_args = parsed_args

    def read_host(self, name: str) -> ImportedHost | None:
        """Give the machine, or None if it is not reached by SSH."""
        connection = self._find_setting(_CONNECTION)
        if connection and connection.text not in _SSH_CONNECTIONS:
            message = tr(
                "{name} is left out: Ansible connects to it with {connection}, not with SSH",
                name=quoted(name),
                connection=quoted(connection.text),
            )
            self.report.add_remark(message, self.location)
            return None
        self._remark_unused()
        target = self._find_setting(_HOST) or Setting(name, self.location)
        user, _, address = target.text.rpartition("@")  # ssh takes user@host, and Ansible hands it on
        host = self.report.try_parse(_parse_ipv4_or_name, address, target.location)
        keys: dict[str, Any] = self._user_key(user, target.location)
        for variable in _ARGS:
            setting = self._without_template(self._find_setting((variable,)), variable)
            keys |= self._parse_ssh_args(setting) if setting else {}
        keys |= self._parse_key("user", _USER, addresses.parse_user) | self._parse_key(
            "port", _PORT, values.parse_port
        )
        keys |= self._parse_key("key", _KEY, values.parse_text) | self._python_key()
        return ImportedHost(name=name.rpartition("@")[2], host=host or "", location=self.location, **keys)

    def _user_key(self, user: str, location: Location) -> dict[str, object]:
        login = self.report.try_parse(addresses.parse_user, user, location) if user else None
        return {"user": login} if login else {}

    def _parse_ssh_args(self, setting: Setting) -> dict[str, object]:
        """Read options of ssh; those of a group are read once for all its hosts."""
        if setting not in self.parsed_args:
            self.parsed_args[setting] = parse_ssh_args(setting.text, setting.location, self.report)
        return self.parsed_args[setting]

    def _find_setting(self, names: tuple[str, ...]) -> Setting | None:
        settings = [self.settings[name] for name in names if name in self.settings]
        return settings[-1] if settings else None

    def _without_template(self, setting: Setting | None, name: str) -> Setting | None:
        """Leave out what Ansible would compute."""
        if setting and ("{{" in setting.text or "{%" in setting.text):
            message = tr("{name} is a template, which only Ansible can fill in", name=name)
            self.report.add_remark(message, setting.location)
            return None
        return setting if setting and setting.text else None

    def _parse_key(self, key: str, names: tuple[str, ...], parse: Callable[[str], Value]) -> dict[str, Value]:
        setting = self._without_template(self._find_setting(names), names[-1])
        value = self.report.try_parse(parse, setting.text, setting.location) if setting else None
        return {key: value} if value is not None else {}

    def _python_key(self) -> dict[str, str]:
        setting = self._without_template(self._find_setting(_PYTHON), _PYTHON[0])
        if not setting or setting.text.startswith("auto"):
            return {}
        self.report.add_remark(
            tr("python is the one that Ansible uses; does it have torch?"), setting.location
        )
        return self._parse_key("python", _PYTHON, values.parse_python)

    def _remark_unused(self) -> None:
        for name, setting in self.settings.items():
            if _PASSWORD.fullmatch(name):
                self.report.add_remark(
                    tr("{name} was not imported: clusterctl logs in with a key", name=quoted(name)),
                    setting.location,
                )
            elif name not in _USED:
                message = tr("the variable {name} was not imported", name=quoted(name))
                self.report.add_remark(message, setting.location)


def _parse_ipv4_or_name(text: str) -> str:
    if addresses.is_ipv6(text):
        raise InvalidValueError("CC-SPEC-023", "ipv6-machine", text=quoted(text))
    return addresses.parse_host(text)
