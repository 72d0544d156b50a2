"""The hosts that an SSH configuration names; the rest of it is left to ssh, which reads it at each connection.

Only enough is read here to tell machines from bastions and git servers, and two names of one machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from clusterctl.errors import Place
from clusterctl.specs import codes
from clusterctl.specs.addresses import parse_host
from clusterctl.specs.importers.imported import MOST_HOSTS, Findings, Foreign, ForeignHost, lines_of, move
from clusterctl.specs.yaml.tree import quoted

KIND = "an SSH configuration"
# Enough of ssh_config(5) to know one from a list of hosts.
KEYWORDS = frozenset(
    (
        *("host", "match", "include", "hostname", "user", "port", "identityfile", "identitiesonly"),
        *("identityagent", "proxyjump", "proxycommand", "forwardagent", "forwardx11", "localforward"),
        *("remoteforward", "dynamicforward", "serveraliveinterval", "serveralivecountmax", "hostkeyalias"),
        *("stricthostkeychecking", "userknownhostsfile", "controlmaster", "controlpath", "controlpersist"),
        *("compression", "loglevel", "addkeystoagent", "preferredauthentications", "requesttty"),
        *("pubkeyauthentication", "passwordauthentication", "connecttimeout", "tcpkeepalive", "checkhostip"),
    )
)

_LINE = re.compile(r"([A-Za-z0-9]+)(?:\s*=\s*|\s+)(\S.*)")
_GIT = "git"  # the login name of every git server


@dataclass(eq=False)
class _Block:
    """A `Host` line and what stands below it; of several values of a key ssh takes the first."""

    place: Place
    names: list[str]
    values: dict[str, str] = field(default_factory=dict)

    def value(self, key: str, default: str = "") -> str:
        """Give a value of one word."""
        return _words(self.values.get(key, default))[0]


def is_ssh_config(text: str, file: str) -> bool:
    """Tell an SSH configuration: it has a `Host` or `Match` line, and every line begins with one of its keywords."""
    lines = [line for _, line in lines_of(text, file) if not line.lstrip().startswith("#")]
    found = [_LINE.match(line.strip()) for line in lines]
    keys = [match[1].lower() if match else "" for match in found]
    known = sum(key in KEYWORDS for key in keys)
    return bool({"host", "match"} & set(keys)) and 2 * known > len(keys)


def parse_ssh_config(text: str, file: str) -> Foreign:
    """Make a node of every host that is named outright and is neither a bastion nor a git server; raises SpecError."""
    findings = Findings()
    blocks = list(_blocks(text, file, findings))
    bastions = {name for block in blocks for name in _bastions(block)}
    hosts: dict[str, ForeignHost] = {}
    known: dict[tuple[str, str], str] = {}
    for block in blocks:
        host = _host(block, bastions, known, findings)
        if host is not None:
            hosts.setdefault(host.name, host)
        if len(hosts) > MOST_HOSTS:
            findings.too_many(f"{MOST_HOSTS} hosts", block.place)
    if not hosts and not findings.issues:
        fix = "name the machines: clusterctl init HOST..., or a list with one host a line"
        why = "; ".join(dict.fromkeys(remark.message for remark in findings.remarks[:3]))
        message = f"this is {KIND} without a host to take" + (f": {why}" if why else "")
        findings.wrong(message, Place(file, 1, 1), fix, codes.NO_NODES)
    findings.settle()
    return Foreign(KIND, file, tuple(hosts.values()), tuple(findings.remarks))


def _blocks(text: str, file: str, findings: Findings) -> Iterator[_Block]:
    block: _Block | None = None
    for start, line in lines_of(text, file):
        bare = line.strip()
        found = _LINE.fullmatch(bare)
        if found is None or bare.startswith("#"):
            continue
        place = move(start, len(line) - len(line.lstrip()))
        key = found[1].lower()
        if key == "host":
            block = _Block(place, _words(found[2]))
            yield block
        elif key in ("match", "include"):
            block = None
            findings.remark(f"{quoted(bare)} was not followed here; ssh does", place)
        elif block is not None:
            block.values.setdefault(key, found[2])


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True) or [""]
    except ValueError:  # an odd number of quotes: ssh will say so
        return text.split() or [""]


def _bastions(block: _Block) -> Iterator[str]:
    """Name what a host is reached through: `ProxyJump user@one:22,two`, `ProxyCommand ssh -W %h:%p one`."""
    for hop in block.value("proxyjump").removeprefix("ssh://").split(","):
        yield hop.rpartition("@")[2].partition(":")[0].strip()
    for word in _words(block.values.get("proxycommand", "")):
        yield word.rpartition("@")[2]


def _host(
    block: _Block, bastions: set[str], known: dict[tuple[str, str], str], findings: Findings
) -> ForeignHost | None:
    names = [name for name in block.names if name and not set(name) & set("*?!")]
    if not names:
        return None  # a pattern names no machine
    name, *others = names
    target = block.value("hostname", name), block.value("port", "22")
    if block.value("user") == _GIT:
        findings.remark(f"{quoted(name)} is left out: it is a git server", block.place)
    elif bastions & set(names):
        findings.remark(f"{quoted(name)} is left out: others go through it, so it is a bastion", block.place)
    elif known.setdefault(target, name) != name:
        findings.remark(
            f"{quoted(name)} is left out: it has the HostName of {quoted(known[target])}", block.place
        )
    else:
        if others:
            findings.remark(f"{quoted(name)} is also called {', '.join(map(quoted, others))}", block.place)
        taken = findings.read(parse_host, name, block.place)
        return ForeignHost(name=name, host=taken or "", place=block.place)
    return None
