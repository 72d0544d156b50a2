"""Files that list hosts line by line: hostfiles of DeepSpeed and MPI, plain lists of addresses, SSH configurations.

Of an SSH configuration only enough is read to distinguish machines from bastions and git servers, and two names of one
machine; ssh reads the rest at each connection.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from clusterctl.errors import Location, UsageError
from clusterctl.specs.importers.formats import FORMAT_DESCRIPTIONS
from clusterctl.specs.importers.imported import (
    MAX_HOSTS,
    Imported,
    ImportedHost,
    ImportReport,
    iterate_lines,
    shift_right,
)
from clusterctl.specs.nodeset import parse_pattern
from clusterctl.specs.values import is_ipv6, parse_count, parse_host, parse_port, parse_user
from clusterctl.specs.yaml.tree import quoted
from clusterctl.translation import to_translate, tr

MAX_GPUS = 16  # no machine has more; more slots are processes
MAX_LINES = 200_000  # MPI may name a host once for each of its slots

# Enough of ssh_config(5) to distinguish one from a list of hosts.
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
_WORD = re.compile(r"[^\s=]+(?:\s*=\s*\S+)?|\S+")
_NUMBERED = re.compile(r"(.*[^:]):([0-9]{1,9})")
_SLOTS = frozenset(("slots", "slot", "cpu", "count"))
_USER = frozenset(("username", "user-name", "user_name", "user"))
_SLOTS_ARE_GPUS = to_translate("slots are used as the number of GPUs; if that is wrong, delete gpus")


@dataclass(frozen=True)
class HostLine:
    """A line of a hostfile: its first word in parts, and the words after it."""

    location: Location
    host: str
    user: str | None
    colon_number: str | None  # after a colon: slots to MPI, a port in a list
    settings: tuple[tuple[Location, str, str], ...]  # place, key, value; an empty value for a bare word


def split_lines(text: str, file: str) -> Iterator[HostLine]:
    """Yield the lines in parts, without comments."""
    for location, line in iterate_lines(text, file):
        content = line.partition("#")[0]
        words = [(shift_right(location, match.start()), match.group()) for match in _WORD.finditer(content)]
        if words and not words[0][1].startswith("//"):
            yield _parse_words(*words[0], words[1:])


def _parse_words(location: Location, first: str, setting_words: list[tuple[Location, str]]) -> HostLine:
    user, at, host = first.rpartition("@")
    colon_number = None
    if not is_ipv6(host) and (match := _NUMBERED.fullmatch(host)):
        host, colon_number = match.groups()
    if host.startswith("[") and host.endswith("]") and is_ipv6(host[1:-1]):
        host = host[1:-1]
    settings = []
    for word_location, word in setting_words:
        key, _, value = word.partition("=")
        settings.append((word_location, key.strip(), value.strip()))
    return HostLine(location, host, user if at else None, colon_number, tuple(settings))


def parse_hostfile(text: str, file: str, format_name: str) -> Imported:
    """Read a hostfile of the form `deepspeed`, `mpi` or `hosts`; raises SpecError."""
    report = ImportReport()
    hosts: dict[tuple[str, int | None], ImportedHost] = {}
    lines = (
        host_line
        for line in split_lines(text, file)
        for host_line in _expand_ranges(line, format_name, report)
    )
    for count, line in enumerate(lines):
        if count >= MAX_LINES:
            report.fail_too_many(tr("{count} host names", count=MAX_LINES), line.location)
        host = _read_line(line, format_name, report)
        if host is not None:
            _add_host(hosts, host, format_name, report)
    hosts = {key: _drop_process_slots(host, report) for key, host in hosts.items()}
    if any(host.gpus is not None for host in hosts.values()) and format_name == "mpi":
        report.add_remark(tr(_SLOTS_ARE_GPUS), next(iter(hosts.values())).location)
    if not hosts and not report.issues:
        report.add_issue("CC-SPEC-022", "no-host", Location(file, 1, 1))
    report.raise_issues()
    return Imported(tr(FORMAT_DESCRIPTIONS[format_name]), file, tuple(hosts.values()), tuple(report.remarks))


def parse_host_word(word: str, location: Location) -> tuple[ImportedHost, ...]:
    """Read what names machines in one word, `gpu01`, `user@host:port` or `gpu[01-04]`; raises SpecError."""
    report = ImportReport()
    line = _parse_words(location, word, [])
    hosts = [_read_line(one, "hosts", report) for one in _expand_ranges(line, "hosts", report)]
    if len(hosts) > MAX_HOSTS:
        report.fail_too_many(tr("{count} hosts", count=MAX_HOSTS), location)
    report.raise_issues()
    return tuple(host for host in hosts if host is not None)


def _drop_process_slots(host: ImportedHost, report: ImportReport) -> ImportedHost:
    """Leave out slots that cannot be GPUs: schedulers count processes or cores by them."""
    if host.gpus is None or host.gpus <= MAX_GPUS:
        return host
    message = tr(
        "slots={slots} counts processes, not GPUs: `gpus` is not set, so all GPUs are used", slots=host.gpus
    )
    report.add_remark(message, host.location)
    return replace(host, gpus=None)


def _expand_ranges(line: HostLine, format_name: str, report: ImportReport) -> Iterator[HostLine]:
    """Yield a line for each host of a range such as `gpu[01-04]`, as lists of Slurm and pdsh have them."""
    if format_name != "hosts" or "[" not in line.host:
        yield line
        return
    try:
        terms = parse_pattern(line.host)
    except UsageError as error:
        report.add_issue("CC-SPEC-050", "pattern", line.location, problem=error.message)
        return
    names = (name for term in terms for name in term.expand())
    yield from (replace(line, host=name) for name in islice(names, MAX_HOSTS + 1))


def _read_line(line: HostLine, format_name: str, report: ImportReport) -> ImportedHost | None:
    name = report.try_parse(parse_host, line.host, line.location)
    user = report.try_parse(parse_user, line.user, line.location) if line.user is not None else None
    if name is not None and is_ipv6(name):
        report.add_issue("CC-SPEC-023", "ipv6-host", line.location)
    host = ImportedHost(name=name or "", host=name or "", location=line.location, user=user)
    if line.colon_number is not None and format_name == "hosts":
        host = replace(host, port=report.try_parse(parse_port, line.colon_number, line.location))
    elif line.colon_number is not None and format_name == "mpi":
        host = replace(host, gpus=report.try_parse(parse_count, line.colon_number, line.location))
    elif line.colon_number is not None:
        report.add_issue("CC-SPEC-050", "number", line.location, host=quoted(line.host))
    for setting_location, key, value in line.settings:
        host = _apply_setting(host, setting_location, key.lower(), value, format_name, report)
    if format_name == "deepspeed" and host.gpus is None and not report.issues:
        report.add_issue("CC-SPEC-050", "no-slots", line.location, host=quoted(line.host))
    return host if name is not None else None


def _apply_setting(
    host: ImportedHost, location: Location, key: str, value: str, format_name: str, report: ImportReport
) -> ImportedHost:
    """Return a host with one of its settings."""
    if not value:
        report.add_issue("CC-SPEC-050", "setting", location, key=quoted(key))
    elif key in _SLOTS and format_name != "hosts":
        return replace(host, gpus=report.try_parse(parse_count, value, location))
    elif key in _USER and format_name != "deepspeed":
        return replace(host, user=report.try_parse(parse_user, value, location))
    elif key == "port" and format_name != "deepspeed":
        return replace(host, port=report.try_parse(parse_port, value, location))
    else:
        report.add_remark(tr("{name} was not imported", name=quoted(key)), location)
    return host


def _add_host(
    hosts: dict[tuple[str, int | None], ImportedHost],
    host: ImportedHost,
    format_name: str,
    report: ImportReport,
) -> None:
    """Add a host, or what a further line adds to one: MPI adds the slots up."""
    address = (host.host.lower(), host.port)
    earlier = hosts.get(address)
    if earlier is None:
        hosts[address] = host
        if len(hosts) > MAX_HOSTS:
            report.fail_too_many(tr("{count} hosts", count=MAX_HOSTS), host.location)
    elif format_name == "mpi":
        slots = (1 if earlier.gpus is None else earlier.gpus) + (1 if host.gpus is None else host.gpus)
        hosts[address] = replace(earlier, gpus=slots)
    elif format_name == "hosts":
        report.add_remark(
            tr("this host is listed again; for MPI (--format mpi) that means slots"), host.location
        )
    else:
        report.add_issue("CC-SPEC-021", "again", host.location, host=quoted(host.host))


@dataclass(eq=False)
class _HostBlock:
    """A `Host` line and the lines below it; of several values of a key ssh takes the first."""

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
        if len(hosts) > MAX_HOSTS:
            report.fail_too_many(tr("{count} hosts", count=MAX_HOSTS), block.location)
    if not hosts and not report.issues:
        reasons = tr("; ").join(dict.fromkeys(remark.message for remark in report.remarks[:3]))
        case = "ssh-config-reasons" if reasons else "ssh-config"
        report.add_issue("CC-SPEC-022", case, Location(file, 1, 1), reasons=reasons)
    report.raise_issues()
    return Imported(tr(FORMAT_DESCRIPTIONS["ssh"]), file, tuple(hosts.values()), tuple(report.remarks))


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
    except ValueError:  # an odd number of quotes: ssh reports it
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
