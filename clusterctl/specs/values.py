"""Parsers of single values: names, numbers, durations, sizes, paths, variables; hosts, addresses, NICs, ports."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address, ip_network
from pathlib import PurePosixPath

from clusterctl.errors import InvalidValueError
from clusterctl.protocol.messages.environment import CLEARED_NAMES, CLEARED_PREFIXES
from clusterctl.protocol.run_id import MAX_JOB_NAME, NAME_PATTERN
from clusterctl.specs.yaml.tree import quoted

MAX_NODE_NAME = 128  # characters
MAX_NAME = MAX_JOB_NAME

ENV_PATTERN = r"[A-Za-z_][A-Za-z0-9_]*"
DURATION_PATTERN = r"(\d+d)?(\d+h)?(\d+m)?(\d+(\.\d+)?s?)?"

_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,14}")
_DURATION = re.compile(
    r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s?)?", re.ASCII
)
_RESERVED_PREFIXES = (*CLEARED_PREFIXES, "GROUP_", "ROLE_", "CLUSTERCTL_")
_RESERVED_NAMES = tuple(name for name in CLEARED_NAMES if not name.startswith(_RESERVED_PREFIXES))

FREE_ENV_PATTERN = f"(?!({'|'.join(_RESERVED_NAMES)})$|{'|'.join(_RESERVED_PREFIXES)}){ENV_PATTERN}"
SIZE_PATTERN = r"0|\d+(\.\d+)? ?([kKMGT]i?)?B"
MIN_SIZE = 1000**2  # bytes
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) ?([kKMGT]?)(i?)B", re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
MAX_HOST = 253  # characters
MAX_CHAIN = 8  # bastions
MAX_NIC = 15  # IFNAMSIZ of Linux, less the final NUL
MIN_PORT = 1024
MAX_PORT = 65535
HOST_PATTERN = r"[A-Za-z0-9._][A-Za-z0-9._-]*"
USER_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9._@+-]*"
NIC_PATTERN = r"[^\s/:,@=^-][^\s/:,@]{0,14}"
PORTS_PATTERN = r"[0-9]{1,5}-[0-9]{1,5}"
IPV4_PATTERN = r"[0-9]{1,3}(\.[0-9]{1,3}){3}"
PROXY_TOKENS = "%h %p %r %%"
DIRECT = "none"  # as in OpenSSH's `ProxyJump none`
_BASTION = re.compile(r"(?:(?P<user>[^@]*)@)?(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>[^:]*))?")


def accepts(parse: Callable[[str], object], text: str) -> bool:
    """Return whether a parser takes a text."""
    try:
        parse(text)
    except InvalidValueError:
        return False
    return True


def parse_text(text: str) -> str:
    """Read a text that may be anything but empty."""
    if not text.strip():
        raise InvalidValueError("CC-SPEC-014", "empty-text")
    return text


def parse_name(text: str, max_length: int = MAX_NAME) -> str:
    """Read a name that is safe as a part of paths, commands and patterns."""
    if not re.fullmatch(NAME_PATTERN, text):
        raise InvalidValueError("CC-SPEC-013", "not-name", text=quoted(text))
    if len(text) > max_length:
        raise InvalidValueError("CC-SPEC-013", "too-long", text=quoted(text), max_length=max_length)
    return text


def is_node_name(text: str) -> bool:
    """Return whether a text that a machine sent can be the name of a node, so that commands can hold it unquoted."""
    return len(text) <= MAX_NODE_NAME and re.fullmatch(NAME_PATTERN, text) is not None


def parse_node_name(text: str) -> str:
    """Read a node's name, which must not read as ranks or as all nodes."""
    if re.fullmatch(r"[0-9]+(-[0-9]+)?", text):
        raise InvalidValueError("CC-SPEC-020", "reads-as-ranks", text=quoted(text), plain=text)
    if text == "all":
        raise InvalidValueError("CC-SPEC-020", "all")
    return parse_name(text, MAX_NODE_NAME)


def parse_whole_number(text: str) -> int:
    """Read a whole number in plain decimal digits."""
    if not _NUMBER.fullmatch(text):
        raise InvalidValueError("CC-SPEC-012", "whole-number", text=quoted(text))
    return int(text)


def parse_count(text: str) -> int:
    """Read a whole number that is not negative."""
    number = parse_whole_number(text)
    if number < 0:
        raise InvalidValueError("CC-SPEC-015", "negative", number=number)
    return number


def parse_positive(text: str) -> int:
    """Read a whole number from 1 up."""
    number = parse_whole_number(text)
    if number < 1:
        raise InvalidValueError("CC-SPEC-015", "not-positive", number=number)
    return number


def parse_port(text: str) -> int:
    """Read a TCP port."""
    port = parse_whole_number(text)
    if not 1 <= port <= 65535:
        raise InvalidValueError("CC-SPEC-015", "port", port=port)
    return port


def parse_duration(text: str) -> float:
    """Read a time such as 30s, 1h30m or 90; the result is in seconds."""
    match = _DURATION.fullmatch(text)
    if not match or not text:
        raise InvalidValueError("CC-SPEC-012", "time", text=quoted(text))
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_limit(text: str) -> float:
    """Read a time that something may take, in seconds; 0 would leave none."""
    seconds = parse_duration(text)
    if not seconds:
        raise InvalidValueError("CC-SPEC-015", "zero-limit")
    return seconds


def parse_workdir(text: str) -> str:
    """Read the directory on the nodes that clusterctl owns; never a root or home itself."""
    path = PurePosixPath(text)
    if not text.startswith(("/", "~/")) and text != "~":
        raise InvalidValueError("CC-SPEC-013", "not-absolute", text=quoted(text))
    if ".." in path.parts:
        raise InvalidValueError("CC-SPEC-024", "parent-folder", text=quoted(text))
    if len(path.parts) < 2:
        raise InvalidValueError("CC-SPEC-024", "whole-home", text=quoted(text))
    return text


def parse_python(text: str) -> str:
    """Read an interpreter: absolute, in the home directory, or a command found on the node's PATH."""
    if text.startswith(("/", "~/")) and not text.endswith("/"):
        return text
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", text):
        raise InvalidValueError("CC-SPEC-013", "not-interpreter", text=quoted(text))
    return text


def parse_script(text: str) -> str:
    """Read a script's path: inside the source directory, or absolute on the nodes."""
    path = PurePosixPath(text)
    if text.startswith(("-", "~")) or text.endswith("/") or not path.parts:
        raise InvalidValueError("CC-SPEC-013", "not-script", text=quoted(text))
    if not path.is_absolute() and ".." in path.parts:
        raise InvalidValueError("CC-SPEC-013", "leaves-source-directory", text=quoted(text))
    return text


def parse_module(text: str) -> str:
    """Read a module's dotted name."""
    if not all(part.isidentifier() for part in text.split(".")):
        raise InvalidValueError("CC-SPEC-013", "not-module", text=quoted(text))
    return text


def parse_env_name(text: str) -> str:
    """Read the name of a variable for the job; what torchrun and clusterctl set themselves is refused."""
    if not re.fullmatch(ENV_PATTERN, text):
        raise InvalidValueError("CC-SPEC-013", "not-variable", text=quoted(text))
    if text in _RESERVED_NAMES or text.startswith(_RESERVED_PREFIXES):
        set_by = "clusterctl" if text.startswith("CLUSTERCTL_") else "torchrun"
        raise InvalidValueError("CC-SPEC-031", "", text=text, set_by=set_by)
    return text


class Size(int):
    """A number of bytes that is written as people write it."""

    def __str__(self) -> str:
        for unit, power in reversed(_POWERS.items()):
            if self >= 1000**power and power:
                return f"{self / 1000**power:.4g}{unit.replace('K', 'k')}B"
        return f"{int(self)}B" if self else "0"


def parse_size(text: str) -> Size:
    """Read a size; `0` means none, and is the only one without a unit."""
    match = _SIZE.fullmatch(text)
    if text == "0":
        return Size(0)
    if not match:
        raise InvalidValueError("CC-SPEC-012", "size", text=quoted(text))
    number, unit, binary = match.groups()
    size = Size(float(number) * (1024 if binary else 1000) ** _POWERS[unit.upper()])
    if size < MIN_SIZE:
        raise InvalidValueError("CC-SPEC-015", "small-size", text=quoted(text))
    return size


def is_ipv6(text: str) -> bool:
    """Return whether a text is an IPv6 address."""
    return ":" in text and _is_ip_address(text)


def parse_host(text: str) -> str:
    """Read where SSH goes: a name or an address, nothing that a shell or ssh could take for more."""
    if is_ipv6(text) and "%" not in text:
        return text
    if re.fullmatch(r"[0-9.]+", text) and not _is_ip_address(text):
        raise InvalidValueError("CC-SPEC-013", "not-ipv4-address", text=quoted(text))
    if not re.fullmatch(HOST_PATTERN, text) or len(text) > MAX_HOST:
        raise InvalidValueError("CC-SPEC-024", _host_case(text), text=quoted(text))
    return text


def _host_case(text: str) -> str:
    if "@" in text:
        return "host-user"
    return "host-port" if re.fullmatch(r".*:[0-9]+", text) else "host"


def parse_user(text: str) -> str:
    """Read a login name."""
    if not re.fullmatch(USER_PATTERN, text):
        raise InvalidValueError("CC-SPEC-024", "not-user-name", text=quoted(text))
    return text


@dataclass(frozen=True)
class Bastion:
    """A machine on the way, as it is written; None leaves the choice to the user's own SSH set-up."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        return (f"{self.user}@" if self.user else "") + host + (f":{self.port}" if self.port else "")


def parse_jump(text: str) -> str:
    """Read a bastion or a chain of them, as ssh's `-J` takes it; `none` means no bastion."""
    if text != DIRECT:
        split_jump(text)
    return text


def split_jump(text: str) -> tuple[Bastion, ...]:
    """Split a chain of bastions in the order in which they are passed; empty for `none`."""
    if text == DIRECT:
        return ()
    hops = [hop.strip() for hop in text.split(",")]
    if len(hops) > MAX_CHAIN:
        raise InvalidValueError("CC-SPEC-013", "long-chain", count=len(hops), longest_chain=MAX_CHAIN)
    return tuple(_parse_bastion(hop) for hop in hops)


def _parse_bastion(word: str) -> Bastion:
    without_scheme = word[len("ssh://") :] if word.startswith("ssh://") else word
    match = _BASTION.fullmatch(without_scheme)
    if match is None or not match["host"]:
        raise InvalidValueError("CC-SPEC-013", "not-bastion", word=quoted(word))
    host, user, port = match["host"].strip("[]"), match["user"], match["port"]
    return Bastion(
        parse_host(host),
        None if user is None else parse_user(user),
        None if port is None else parse_port(port),
    )


def parse_training_ip(text: str) -> str:
    """Read the IPv4 address of a node in the training network."""
    if is_ipv6(text):
        raise InvalidValueError("CC-SPEC-023", "ipv6-address", text=quoted(text))
    try:
        return str(IPv4Address(text))
    except ValueError as error:
        raise InvalidValueError("CC-SPEC-013", "not-training-ip", text=quoted(text)) from error


def parse_network(text: str) -> str:
    """Read an IPv4 network in CIDR form."""
    address, _, prefix_length = text.partition("/")
    if is_ipv6(address):
        raise InvalidValueError("CC-SPEC-023", "ipv6-network", text=quoted(text))
    if not re.fullmatch(IPV4_PATTERN, address) or not re.fullmatch(r"[0-9]{1,2}", prefix_length):
        raise InvalidValueError("CC-SPEC-013", "not-network", text=quoted(text))
    try:
        return str(IPv4Network(text))
    except ValueError as error:
        raise _invalid_network(text) from error


def _invalid_network(text: str) -> InvalidValueError:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return InvalidValueError("CC-SPEC-013", "not-network", text=quoted(text))
    return InvalidValueError("CC-SPEC-013", "network-bits", text=quoted(text), network=network)


def parse_nic(text: str) -> str:
    """Read the name of a network interface as Linux has it."""
    for character, case in ((":", "alias"), ("@", "at-sign"), (",", "comma")):
        if character in text:
            raise InvalidValueError("CC-SPEC-025", case, text=quoted(text))
    if len(text.encode()) > MAX_NIC:
        raise InvalidValueError("CC-SPEC-025", "too-long", text=quoted(text), longest_nic=MAX_NIC)
    if not re.fullmatch(NIC_PATTERN, text) or not text.isprintable() or text in (".", ".."):
        raise InvalidValueError("CC-SPEC-025", "not-nic", text=quoted(text))
    return text


def parse_ports(text: str) -> tuple[int, int]:
    """Read a range of ports."""
    if not re.fullmatch(PORTS_PATTERN, text):
        raise InvalidValueError("CC-SPEC-013", "port-range", text=quoted(text))
    low, high = (int(port) for port in text.split("-"))
    if not MIN_PORT <= low <= MAX_PORT or not high <= MAX_PORT:
        raise InvalidValueError(
            "CC-SPEC-015",
            "port-limits",
            text=quoted(text),
            lowest_port=MIN_PORT,
            highest_port=MAX_PORT,
        )
    if low > high:
        raise InvalidValueError("CC-SPEC-015", "backwards", text=quoted(text), high=high, low=low)
    return low, high


def parse_proxy_command(text: str) -> str:
    """Read a command that carries the SSH connection, with OpenSSH's tokens for host, port and user."""
    for token in re.findall(r"%.?", text, re.DOTALL):
        if token not in PROXY_TOKENS.split():
            raise InvalidValueError("CC-SPEC-013", "proxy-token", token=quoted(token))
    if text.strip() in ("", "none"):
        raise InvalidValueError("CC-SPEC-013", "no-proxy-command", text=quoted(text))
    return text


def _is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
