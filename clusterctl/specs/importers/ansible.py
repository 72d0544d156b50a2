"""Ansible variables to ssh settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from clusterctl.errors import Place
from clusterctl.specs import addresses, codes, values
from clusterctl.specs.addresses import parse_jump, parse_proxy_command, parse_user
from clusterctl.specs.codes import BadValueError
from clusterctl.specs.importers.ansible_files import ALL, Groups, Setting, Settings, read_ini, read_yaml
from clusterctl.specs.importers.imported import LONGEST_LINE, Findings, Foreign, ForeignHost
from clusterctl.specs.text import counted
from clusterctl.specs.values import parse_port, parse_text
from clusterctl.specs.yaml.tree import quoted

_SHORT = {"-J": "proxyjump", "-p": "port", "-i": "identityfile", "-l": "user"}
_TAKES_A_VALUE = "-B-b-c-D-E-e-F-I-L-m-O-o-Q-R-S-W-w"
_HARMLESS = frozenset(
    ("controlmaster", "controlpersist", "controlpath", "batchmode", "forwardagent", "loglevel")
)
_KEYS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "port": ("port", parse_port),
    "user": ("user", parse_user),
    "identityfile": ("key", parse_text),
}


def parse_ssh_args(text: str, place: Place, findings: Findings) -> dict[str, object]:
    """Give the inventory's keys for what ssh would be told; what has none becomes a remark."""
    try:
        words = shlex.split(text[: LONGEST_LINE + 1])
    except ValueError:
        words = []
    if len(text) > LONGEST_LINE or not words:
        findings.remark("ssh options that cannot be read were not taken over", place)
        return {}
    found: dict[str, object] = {}
    for name, value in _options(words):  # ssh takes the first of several
        found = _keys_for(name, value, place, findings) | found
    return found


def _options(words: list[str]) -> list[tuple[str, str]]:
    """Give the options by the names that they have in ssh_config; flags without a name keep their sign."""
    options = []
    rest = iter(words)
    for word in rest:
        flag, value = word[:2], word[2:]
        if flag in _SHORT or (len(flag) == 2 and flag[0] == "-" and flag in _TAKES_A_VALUE):
            value = value or next(rest, "")
        if flag == "-o":
            name, value = _split(value.strip())
            options.append((name.lower(), value))
        else:
            options.append((_SHORT.get(flag, flag), value))
    return options


def _split(option: str) -> tuple[str, str]:
    """Part name and value, between which stands a space or `=`; another `=` belongs to the value."""
    name = re.split(r"[\s=]", option, maxsplit=1)[0]
    return name, re.sub(r"^\s*=?\s*", "", option[len(name) :])


def _keys_for(name: str, value: str, place: Place, findings: Findings) -> dict[str, object]:
    if name in _KEYS and value:
        key, parse = _KEYS[name]
        read = findings.read(parse, value, place)
        return {} if read is None else {key: read}
    if name == "proxyjump" and value.lower() != "none":
        return _jump(value, place, findings)
    if name == "proxycommand" and value.lower() != "none":
        findings.remark("proxy_command runs on the machine that clusterctl runs on: look at it", place)
        return _checked_command(value, place, findings)
    if name == "stricthostkeychecking":
        return _host_keys(value.lower(), place, findings)
    if name == "userknownhostsfile" and value and value != "/dev/null":
        return {"known_hosts": value}
    if name not in _HARMLESS:
        findings.remark(f"the ssh option {quoted(name)} was not taken over", place)
    return {}


def _host_keys(value: str, place: Place, findings: Findings) -> dict[str, object]:
    if value in ("accept-new", "yes"):
        return {"host_keys": "accept-new" if value == "accept-new" else "strict"}
    findings.remark("host keys are always verified here; host_keys: accept-new records unknown ones", place)
    return {}


def _jump(value: str, place: Place, findings: Findings) -> dict[str, object]:
    try:
        return {"jump": parse_jump(value)}
    except BadValueError:
        findings.remark(f"the jump host {quoted(value)} was not taken over", place)
        return {}


def _checked_command(value: str, place: Place, findings: Findings) -> dict[str, object]:
    try:
        return {"proxy_command": parse_proxy_command(value)}
    except BadValueError:
        findings.remark(f"the ProxyCommand {quoted(value)} was not taken over", place)
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
_BY_SSH = ("", "ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh")


def parse_ansible_ini(text: str, file: str, group: str | None) -> Foreign:
    """Read an Ansible inventory in INI form; raises SpecError."""
    findings = Findings()
    return _to_foreign(read_ini(text, file, findings), "an Ansible inventory (INI)", file, group)


def parse_ansible_yaml(text: str, file: str, group: str | None) -> Foreign:
    """Read an Ansible inventory in YAML form; raises SpecError."""
    findings = Findings()
    return _to_foreign(read_yaml(text, file, findings), "an Ansible inventory (YAML)", file, group)


def _to_foreign(groups: Groups, kind: str, file: str, group: str | None) -> Foreign:
    findings = groups.findings
    findings.settle()
    names = groups.chosen(group, file)
    lineage = groups.lineage()
    shared: dict[frozenset[str], Settings] = {}
    known_args: dict[Setting, dict[str, object]] = {}
    hosts: list[ForeignHost] = []
    for name in names:
        machine = groups.machines[name]
        own_groups = frozenset(machine.groups)
        if own_groups not in shared:
            shared[own_groups] = _merge(groups, own_groups, lineage)
        host = _Reader({**shared[own_groups], **machine.variables}, machine.place, findings, known_args).host(
            name
        )
        hosts += [host] if host else []
    _refuse_twins(hosts, findings)
    if not hosts and not findings.issues:
        findings.wrong(*_why_empty(group, names, findings, file), codes.NO_NODES)
    findings.settle()
    parts = groups.parts() if group is None else ()
    return Foreign(kind, file, tuple(hosts), tuple(findings.remarks), parts)


def _why_empty(
    group: str | None, names: Sequence[str], findings: Findings, file: str
) -> tuple[str, Place, str]:
    """Say why no host was taken: none is named, or none of those that are is reached by SSH."""
    if not names:
        what = f"the group {quoted(group)} has no hosts" if group else "no host is named here"
        return what, Place(file, 1, 1), ""
    left = findings.remarks[0]
    more = f" (and {counted(len(names) - 1, 'more host')})" if len(names) > 1 else ""
    return f"no host is reached by SSH: {left.message}{more}", left.place, "name machines that run sshd"


def _merge(groups: Groups, own: frozenset[str], lineage: dict[str, dict[str, int]]) -> Settings:
    """Merge the variables of a host's groups as Ansible does: the most general first, equals by name."""
    depth = {name: level for group in own for name, level in lineage[group].items()}
    merged = dict(groups.groups[ALL].variables) if ALL in groups.groups else {}
    for name in sorted(depth, key=lambda one: (depth[one], one)):
        merged.update(groups.groups[name].variables)
    return merged


def _refuse_twins(hosts: list[ForeignHost], findings: Findings) -> None:
    seen: dict[tuple[str, int], ForeignHost] = {}
    for host in hosts:
        if not host.host:
            continue
        before = seen.setdefault((host.host.lower(), host.port or 22), host)
        if before is not host:
            message = f"{quoted(host.name)} and {quoted(before.name)} are one machine: {quoted(host.host)}"
            findings.wrong(message, host.place, "choose one of them, or a --group", codes.SAME_ADDRESS)


class _Reader:
    """The variables of one host, read one by one."""

    def __init__(
        self,
        settings: Settings,
        place: Place,
        findings: Findings,
        known_args: dict[Setting, dict[str, object]],
    ) -> None:
        self.settings = settings
        self.place = place
        self.findings = findings
        self.known_args = known_args

    def host(self, name: str) -> ForeignHost | None:
        """Give the machine, or None if it is not reached by SSH."""
        connection = self._find(_CONNECTION)
        if connection and connection.text not in _BY_SSH:
            message = (
                f"{quoted(name)} is left out: Ansible reaches it by {quoted(connection.text)}, not by SSH"
            )
            self.findings.remark(message, self.place)
            return None
        self._remark_unused()
        target = self._find(_HOST) or Setting(name, self.place)
        user, _, bare = target.text.rpartition("@")  # ssh takes user@host, and Ansible hands it on
        host = self.findings.read(_parse_ipv4_or_name, bare, target.place)
        more: dict[str, Any] = self._login(user, target.place)
        for arguments in _ARGS:
            found = self._untemplated(self._find((arguments,)), arguments)
            more |= self._ssh_args(found) if found else {}
        more |= self._value("user", _USER, addresses.parse_user) | self._value(
            "port", _PORT, values.parse_port
        )
        more |= self._value("key", _KEY, values.parse_text) | self._python()
        return ForeignHost(name=name.rpartition("@")[2], host=host or "", place=self.place, **more)

    def _login(self, user: str, place: Place) -> dict[str, object]:
        login = self.findings.read(addresses.parse_user, user, place) if user else None
        return {"user": login} if login else {}

    def _ssh_args(self, found: Setting) -> dict[str, object]:
        """Read options of ssh; those of a group are read once for all its hosts."""
        if found not in self.known_args:
            self.known_args[found] = parse_ssh_args(found.text, found.place, self.findings)
        return self.known_args[found]

    def _find(self, names: tuple[str, ...]) -> Setting | None:
        found = [self.settings[name] for name in names if name in self.settings]
        return found[-1] if found else None

    def _untemplated(self, found: Setting | None, name: str) -> Setting | None:
        """Leave out what Ansible would compute."""
        if found and ("{{" in found.text or "{%" in found.text):
            self.findings.remark(f"{name} is a template, which only Ansible can fill in", found.place)
            return None
        return found if found and found.text else None

    def _value(self, key: str, names: tuple[str, ...], parse: Callable[[str], Value]) -> dict[str, Value]:
        found = self._untemplated(self._find(names), names[-1])
        value = self.findings.read(parse, found.text, found.place) if found else None
        return {key: value} if value is not None else {}

    def _python(self) -> dict[str, str]:
        found = self._untemplated(self._find(_PYTHON), _PYTHON[0])
        if not found or found.text.startswith("auto"):
            return {}
        self.findings.remark(
            "python is the one that Ansible uses; is it the one that has torch?", found.place
        )
        return self._value("python", _PYTHON, values.parse_python)

    def _remark_unused(self) -> None:
        for name, setting in self.settings.items():
            if _PASSWORD.fullmatch(name):
                self.findings.remark(
                    f"{quoted(name)} was not taken over: clusterctl logs in by key", setting.place
                )
            elif name not in _USED:
                self.findings.remark(f"the variable {quoted(name)} was not taken over", setting.place)


def _parse_ipv4_or_name(text: str) -> str:
    if addresses.is_ipv6(text):
        message = f"training over IPv6 is not supported yet: {quoted(text)}"
        raise BadValueError(message, "write the machine's IPv4 address, or a name", codes.IPV6)
    return addresses.parse_host(text)
