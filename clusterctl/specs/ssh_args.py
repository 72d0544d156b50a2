"""Options of the command ssh, as they stand in ansible_ssh_common_args, as keys of an inventory."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from clusterctl.errors import Place
from clusterctl.specs.addresses import parse_jump, parse_proxy_command, parse_user
from clusterctl.specs.bad_value import BadValueError
from clusterctl.specs.foreign import LONGEST_LINE, Findings
from clusterctl.specs.tree import quoted
from clusterctl.specs.values import parse_port, parse_text

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
