"""The hosts that an SSH configuration names; the rest of it is left to ssh, which reads it at each connection.

Only enough is read here to distinguish machines from bastions and git servers, and two names of one machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from clusterctl.errors import Location
from clusterctl.specs.addresses import parse_host
from clusterctl.specs.importers.imported import (
    MOST_HOSTS,
    Imported,
    ImportedHost,
    ImportReport,
    iterate_lines,
    shift_right,
)
from clusterctl.specs.yaml.tree import quoted
from clusterctl.translation import to_translate, tr

DESCRIPTION = to_translate("an SSH configuration")
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
_GIT_USER = "git"  # the login name of every git server


@dataclass(eq=False)
class _HostBlock:
    """A `Host` line and what stands below it; of several values of a key ssh takes the first."""

    location: Location
    names: list[str]
    values: dict[str, str] = field(default_factory=dict)

    def first_word(self, key: str, default: str = "") -> str:
        """Return a value of one word."""
        return _split_words(self.values.get(key, default))[0]


def is_ssh_config(text: str, file: str) -> bool:
    """Recognise an SSH configuration: it has a `Host` or `Match` line, and all lines begin with its keywords."""
    lines = [line for _, line in iterate_lines(text, file) if not line.lstrip().startswith("#")]
    matches = [_LINE.match(line.strip()) for line in lines]
    keys = [match[1].lower() if match else "" for match in matches]
    known_count = sum(key in KEYWORDS for key in keys)
    return bool({"host", "match"} & set(keys)) and 2 * known_count > len(keys)


def parse_ssh_config(text: str, file: str) -> Imported:
    """Make a node of every host that is named outright and is neither a bastion nor a git server; raises SpecError."""
    report = ImportReport()
    blocks = list(_parse_blocks(text, file, report))
    bastions = {name for block in blocks for name in _find_bastions(block)}
    hosts: dict[str, ImportedHost] = {}
    names_by_target: dict[tuple[str, str], str] = {}
    for block in blocks:
        host = _to_host(block, bastions, names_by_target, report)
        if host is not None:
            hosts.setdefault(host.name, host)
        if len(hosts) > MOST_HOSTS:
            report.fail_too_many(tr("{count} hosts", count=MOST_HOSTS), block.location)
    if not hosts and not report.issues:
        reasons = tr("; ").join(dict.fromkeys(remark.message for remark in report.remarks[:3]))
        case = "ssh-config-reasons" if reasons else "ssh-config"
        report.add_issue("CC-SPEC-022", case, Location(file, 1, 1), reasons=reasons)
    report.raise_issues()
    return Imported(tr(DESCRIPTION), file, tuple(hosts.values()), tuple(report.remarks))


def _parse_blocks(text: str, file: str, report: ImportReport) -> Iterator[_HostBlock]:
    block: _HostBlock | None = None
    for start, line in iterate_lines(text, file):
        stripped = line.strip()
        match = _LINE.fullmatch(stripped)
        if match is None or stripped.startswith("#"):
            continue
        location = shift_right(start, len(line) - len(line.lstrip()))
        key = match[1].lower()
        if key == "host":
            block = _HostBlock(location, _split_words(match[2]))
            yield block
        elif key in ("match", "include"):
            block = None
            report.add_remark(
                tr("{line} was not followed here; ssh follows it", line=quoted(stripped)), location
            )
        elif block is not None:
            block.values.setdefault(key, match[2])


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True) or [""]
    except ValueError:  # an odd number of quotes: ssh will say so
        return text.split() or [""]


def _find_bastions(block: _HostBlock) -> Iterator[str]:
    """Name what a host is reached through: `ProxyJump user@one:22,two`, `ProxyCommand ssh -W %h:%p one`."""
    for hop in block.first_word("proxyjump").removeprefix("ssh://").split(","):
        yield hop.rpartition("@")[2].partition(":")[0].strip()
    for word in _split_words(block.values.get("proxycommand", "")):
        yield word.rpartition("@")[2]


def _to_host(
    block: _HostBlock, bastions: set[str], names_by_target: dict[tuple[str, str], str], report: ImportReport
) -> ImportedHost | None:
    names = [name for name in block.names if name and not set(name) & set("*?!")]
    if not names:
        return None  # a pattern names no machine
    name, *aliases = names
    target = block.first_word("hostname", name), block.first_word("port", "22")
    if block.first_word("user") == _GIT_USER:
        report.add_remark(tr("{name} is left out: it is a git server", name=quoted(name)), block.location)
    elif bastions & set(names):
        report.add_remark(
            tr("{name} is left out: others are reached through it, so it is a bastion", name=quoted(name)),
            block.location,
        )
    elif names_by_target.setdefault(target, name) != name:
        report.add_remark(
            tr(
                "{name} is left out: it has the HostName of {other}",
                name=quoted(name),
                other=quoted(names_by_target[target]),
            ),
            block.location,
        )
    else:
        if aliases:
            report.add_remark(
                tr(
                    "{name} is also called {aliases}",
                    name=quoted(name),
                    aliases=tr(", ").join(map(quoted, aliases)),
                ),
                block.location,
            )
        address = report.try_parse(parse_host, name, block.location)
        return ImportedHost(name=name, host=address or "", location=block.location)
    return None
