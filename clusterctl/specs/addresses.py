"""Hosts, users, addresses, NICs and ports as they may stand in an inventory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address, ip_network

from clusterctl.errors import InvalidValueError
from clusterctl.specs import values
from clusterctl.specs.yaml.tree import quoted

LONGEST_HOST = 253
LONGEST_CHAIN = 8  # bastions, one behind the other
LONGEST_NIC = 15  # IFNAMSIZ of Linux, less the final NUL
LOWEST_PORT = 1024
HIGHEST_PORT = 65535

HOST_PATTERN = r"[A-Za-z0-9._][A-Za-z0-9._-]*"
USER_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9._@+-]*"
NIC_PATTERN = r"[^\s/:,@=^-][^\s/:,@]{0,14}"
PORTS_PATTERN = r"[0-9]{1,5}-[0-9]{1,5}"
IPV4_PATTERN = r"[0-9]{1,3}(\.[0-9]{1,3}){3}"
PROXY_TOKENS = "%h %p %r %%"

DIRECT = "none"  # as in OpenSSH's `ProxyJump none`
_BASTION = re.compile(r"(?:(?P<user>[^@]*)@)?(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>[^:]*))?")


def is_ipv6(text: str) -> bool:
    """Whether a text is an IPv6 address, as a host may be."""
    return ":" in text and _is_ip_address(text)


def parse_host(text: str) -> str:
    """Read where SSH goes: a name or an address, nothing that a shell or ssh could take for more."""
    if is_ipv6(text) and "%" not in text:
        return text
    if re.fullmatch(r"[0-9.]+", text) and not _is_ip_address(text):
        raise InvalidValueError("CC-SPEC-013", "not-ipv4-address", text=quoted(text))
    if not re.fullmatch(HOST_PATTERN, text) or len(text) > LONGEST_HOST:
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
    """Read a bastion or a chain of them, as ssh's `-J` takes it; `none` is the straight way."""
    if text != DIRECT:
        split_jump(text)
    return text


def split_jump(text: str) -> tuple[Bastion, ...]:
    """Split a chain of bastions in the order in which they are passed; none for `none`."""
    if text == DIRECT:
        return ()
    hops = [hop.strip() for hop in text.split(",")]
    if len(hops) > LONGEST_CHAIN:
        raise InvalidValueError("CC-SPEC-013", "long-chain", count=len(hops), longest_chain=LONGEST_CHAIN)
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
        None if port is None else values.parse_port(port),
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
    if len(text.encode()) > LONGEST_NIC:
        raise InvalidValueError("CC-SPEC-025", "too-long", text=quoted(text), longest_nic=LONGEST_NIC)
    if not re.fullmatch(NIC_PATTERN, text) or not text.isprintable() or text in (".", ".."):
        raise InvalidValueError("CC-SPEC-025", "not-nic", text=quoted(text))
    return text


def parse_ports(text: str) -> tuple[int, int]:
    """Read a range of ports."""
    if not re.fullmatch(PORTS_PATTERN, text):
        raise InvalidValueError("CC-SPEC-013", "port-range", text=quoted(text))
    low, high = (int(port) for port in text.split("-"))
    if not LOWEST_PORT <= low <= HIGHEST_PORT or not high <= HIGHEST_PORT:
        raise InvalidValueError(
            "CC-SPEC-015",
            "port-limits",
            text=quoted(text),
            lowest_port=LOWEST_PORT,
            highest_port=HIGHEST_PORT,
        )
    if low > high:
        raise InvalidValueError("CC-SPEC-015", "backwards", text=quoted(text), high=high, low=low)
    return low, high


def parse_proxy_command(text: str) -> str:
    """Read a command that carries the SSH connection; knows OpenSSH's tokens for host, port and user."""
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
