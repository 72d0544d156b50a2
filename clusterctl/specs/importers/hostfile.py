"""Hostfiles: DeepSpeed's, those of Open MPI, MPICH and Intel MPI, and plain lists of addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from clusterctl.errors import Place, UsageError
from clusterctl.specs import codes
from clusterctl.specs.addresses import is_ipv6, parse_host, parse_user
from clusterctl.specs.importers.imported import MOST_HOSTS, Findings, Foreign, ForeignHost, lines_of, move
from clusterctl.specs.nodeset import parse_pattern
from clusterctl.specs.values import parse_count, parse_port
from clusterctl.specs.yaml.tree import quoted

KINDS = {"deepspeed": "a DeepSpeed hostfile", "mpi": "an MPI hostfile", "hosts": "a list of hosts"}

MOST_GPUS = 16  # no machine has more; more slots are processes
MOST_LINES = 200_000  # MPI may name a host once for each of its slots

_WORD = re.compile(r"[^\s=]+(?:\s*=\s*\S+)?|\S+")
_NUMBERED = re.compile(r"(.*[^:]):([0-9]{1,9})")
_SLOTS = frozenset(("slots", "slot", "cpu", "count"))
_USER = frozenset(("username", "user-name", "user_name", "user"))
_SLOTS_ARE_GPUS = "slots were taken as the number of GPUs; where that is wrong, drop gpus"


@dataclass(frozen=True)
class Line:
    """A line of a hostfile: its first word taken apart, and the words behind it."""

    place: Place
    host: str
    user: str | None
    number: str | None  # what stands behind a colon: slots to MPI, a port in a list
    settings: tuple[tuple[Place, str, str], ...]  # place, key, value; an empty value for a bare word


def split_lines(text: str, file: str) -> Iterator[Line]:
    """Take the lines apart, without comments."""
    for place, line in lines_of(text, file):
        bare = line.partition("#")[0]
        words = [(move(place, found.start()), found.group()) for found in _WORD.finditer(bare)]
        if words and not words[0][1].startswith("//"):
            yield _split_words(*words[0], words[1:])


def _split_words(place: Place, first: str, rest: list[tuple[Place, str]]) -> Line:
    user, at, host = first.rpartition("@")
    number = None
    if not is_ipv6(host) and (found := _NUMBERED.fullmatch(host)):
        host, number = found.groups()
    if host.startswith("[") and host.endswith("]") and is_ipv6(host[1:-1]):
        host = host[1:-1]
    settings = []
    for where, word in rest:
        key, _, value = word.partition("=")
        settings.append((where, key.strip(), value.strip()))
    return Line(place, host, user if at else None, number, tuple(settings))


def parse_hostfile(text: str, file: str, form: str) -> Foreign:
    """Read a hostfile of the form `deepspeed`, `mpi` or `hosts`; raises SpecError."""
    findings = Findings()
    hosts: dict[tuple[str, int | None], ForeignHost] = {}
    lines = (one for line in split_lines(text, file) for one in _spread(line, form, findings))
    for count, line in enumerate(lines):
        if count >= MOST_LINES:
            findings.too_many(f"{MOST_LINES} host names", line.place)
        host = _read_line(line, form, findings)
        if host is not None:
            _add(hosts, host, form, findings)
    hosts = {key: _without_processes(host, findings) for key, host in hosts.items()}
    if any(host.gpus is not None for host in hosts.values()) and form == "mpi":
        findings.remark(_SLOTS_ARE_GPUS, next(iter(hosts.values())).place)
    if not hosts and not findings.issues:
        findings.wrong("no host is named here", Place(file, 1, 1), "one host a line", codes.NO_NODES)
    findings.settle()
    return Foreign(KINDS[form], file, tuple(hosts.values()), tuple(findings.remarks))


def _without_processes(host: ForeignHost, findings: Findings) -> ForeignHost:
    """Leave out slots that cannot be GPUs: schedulers count processes or cores by them."""
    if host.gpus is None or host.gpus <= MOST_GPUS:
        return host
    message = (
        f"{host.gpus} slots are processes, not GPUs: gpus was left out, so clusterctl takes what the node has"
    )
    findings.remark(message, host.place)
    return replace(host, gpus=None)


def _spread(line: Line, form: str, findings: Findings) -> Iterator[Line]:
    """Give a line for each host of a range such as `gpu[01-04]`, as lists of Slurm and pdsh have them."""
    if form != "hosts" or "[" not in line.host:
        yield line
        return
    try:
        terms = parse_pattern(line.host)
    except UsageError as bad:
        findings.wrong(bad.message, line.place, "a range is gpu[01-04,07]")
        return
    names = (name for term in terms for name in term.expand())
    yield from (replace(line, host=name) for name in islice(names, MOST_HOSTS + 1))


def _read_line(line: Line, form: str, findings: Findings) -> ForeignHost | None:
    name = findings.read(parse_host, line.host, line.place)
    user = findings.read(parse_user, line.user, line.place) if line.user is not None else None
    if name is not None and is_ipv6(name):
        fix = "write the machine's IPv4 address, or a name"
        findings.wrong("training over IPv6 is not supported yet", line.place, fix, codes.IPV6)
    host = ForeignHost(name=name or "", host=name or "", place=line.place, user=user)
    if line.number is not None and form == "hosts":
        host = replace(host, port=findings.read(parse_port, line.number, line.place))
    elif line.number is not None and form == "mpi":
        host = replace(host, gpus=findings.read(parse_count, line.number, line.place))
    elif line.number is not None:
        findings.wrong(f"{quoted(line.host)} has a number behind a colon", line.place, "write slots=N")
    for where, key, value in line.settings:
        host = _apply(host, where, key.lower(), value, form, findings)
    if form == "deepspeed" and host.gpus is None and not findings.issues:
        findings.wrong(f"{quoted(line.host)} has no slots", line.place, "write HOST slots=N")
    return host if name is not None else None


def _apply(
    host: ForeignHost, place: Place, key: str, value: str, form: str, findings: Findings
) -> ForeignHost:
    """Take over a setting behind the host."""
    if not value:
        fix = "one host a line; settings are KEY=VALUE"
        findings.wrong(f"{quoted(key)} is not understood here", place, fix)
    elif key in _SLOTS and form != "hosts":
        return replace(host, gpus=findings.read(parse_count, value, place))
    elif key in _USER and form != "deepspeed":
        return replace(host, user=findings.read(parse_user, value, place))
    elif key == "port" and form != "deepspeed":
        return replace(host, port=findings.read(parse_port, value, place))
    else:
        findings.remark(f"{quoted(key)} was not taken over", place)
    return host


def _add(
    hosts: dict[tuple[str, int | None], ForeignHost], host: ForeignHost, form: str, findings: Findings
) -> None:
    """Add a host, or what a further line says about one: MPI adds the slots up."""
    key = (host.host.lower(), host.port)
    before = hosts.get(key)
    if before is None:
        hosts[key] = host
        if len(hosts) > MOST_HOSTS:
            findings.too_many(f"{MOST_HOSTS} hosts", host.place)
    elif form == "mpi":
        slots = (1 if before.gpus is None else before.gpus) + (1 if host.gpus is None else host.gpus)
        hosts[key] = replace(before, gpus=slots)
    elif form == "hosts":
        findings.remark("this host stands here again; to MPI (--format mpi) that means slots", host.place)
    else:
        fix = "keep one line; --format mpi adds the slots up"
        findings.wrong(f"{quoted(host.host)} stands here again", host.place, fix, codes.SAME_ADDRESS)
