"""Hosts, users, addresses, NICs and ports as they may stand in an inventory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address, ip_network

from clusterctl.specs import codes, values
from clusterctl.specs.codes import InvalidValueError
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

_NO_IPV6 = "training over IPv6 is not supported yet"


def is_ipv6(text: str) -> bool:
    """Whether a text is an IPv6 address, as a host may be."""
    return ":" in text and _is_ip_address(text)


def parse_host(text: str) -> str:
    """Read where SSH goes: a name or an address, nothing that a shell or ssh could take for more."""
    if is_ipv6(text) and "%" not in text:
        return text
    if re.fullmatch(r"[0-9.]+", text) and not _is_ip_address(text):
        fix = "four numbers from 0 to 255, such as 192.168.10.235"
        raise InvalidValueError(f"{quoted(text)} is not an IPv4 address", fix)
    if not re.fullmatch(HOST_PATTERN, text) or len(text) > LONGEST_HOST:
        raise InvalidValueError(
            f"{quoted(text)} is not a host name or address", _host_fix(text), codes.UNSAFE
        )
    return text


def _host_fix(text: str) -> str:
    if "@" in text:
        return "write the user under ssh: {user: ...}"
    if re.fullmatch(r".*:[0-9]+", text):
        return "write the port under ssh: {port: ...}"
    return "letters, digits, '.', '_' and '-' only, and no '-' in front"


def parse_user(text: str) -> str:
    """Read a login name."""
    if not re.fullmatch(USER_PATTERN, text):
        raise InvalidValueError(
            f"{quoted(text)} is not a user name", "letters, digits and . _ @ + - only", codes.UNSAFE
        )
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
        raise InvalidValueError(f"a chain of {len(hops)} bastions", f"{LONGEST_CHAIN} at most")
    return tuple(_parse_bastion(hop) for hop in hops)


def _parse_bastion(word: str) -> Bastion:
    without_scheme = word[len("ssh://") :] if word.startswith("ssh://") else word
    match = _BASTION.fullmatch(without_scheme)
    if match is None or not match["host"]:
        fix = "user@host:port or the name of a host in your SSH configuration; commas make a chain"
        raise InvalidValueError(f"{quoted(word)} is not a bastion", fix)
    host, user, port = match["host"].strip("[]"), match["user"], match["port"]
    return Bastion(
        parse_host(host),
        None if user is None else parse_user(user),
        None if port is None else values.parse_port(port),
    )


def parse_training_ip(text: str) -> str:
    """Read the IPv4 address of a node in the training network."""
    if is_ipv6(text):
        raise InvalidValueError(f"{_NO_IPV6}: {quoted(text)}", "give the node's IPv4 address", codes.IPV6)
    try:
        return str(IPv4Address(text))
    except ValueError as error:
        raise InvalidValueError(f"{quoted(text)} is not an IPv4 address", "such as 192.168.10.235") from error


def parse_network(text: str) -> str:
    """Read an IPv4 network in CIDR form."""
    address, _, prefix_length = text.partition("/")
    if is_ipv6(address):
        raise InvalidValueError(f"{_NO_IPV6}: {quoted(text)}", "give the IPv4 network", codes.IPV6)
    if not re.fullmatch(IPV4_PATTERN, address) or not re.fullmatch(r"[0-9]{1,2}", prefix_length):
        raise InvalidValueError(f"{quoted(text)} is not a network", "such as 192.168.10.0/24")
    try:
        return str(IPv4Network(text))
    except ValueError as error:
        raise InvalidValueError(f"{quoted(text)} is not a network", _network_fix(text)) from error


def _network_fix(text: str) -> str:
    try:
        return f"did you mean {ip_network(text, strict=False)}?"
    except ValueError:
        return "such as 192.168.10.0/24"


def parse_nic(text: str) -> str:
    """Read the name of a network interface as Linux has it."""
    for character, reason, fix in (
        (":", "is an alias, which NCCL and Gloo cannot bind", "name the NIC itself"),
        ("@", "holds an '@'", "of eth0@if3, as ip shows it, the name is eth0"),
        (",", "holds a ','", "write a list: nic: [meth919, meth920]"),
    ):
        if character in text:
            raise InvalidValueError(f"{quoted(text)} {reason}", fix, codes.NIC_NAME)
    if len(text.encode()) > LONGEST_NIC:
        message = f"{quoted(text)} is longer than a NIC's name can be: {LONGEST_NIC} bytes"
        raise InvalidValueError(message, code=codes.NIC_NAME)
    if not re.fullmatch(NIC_PATTERN, text) or not text.isprintable() or text in (".", ".."):
        fix = "such as eth0; `ip link` on the node shows them"
        raise InvalidValueError(f"{quoted(text)} is not the name of a NIC", fix, codes.NIC_NAME)
    return text


def parse_ports(text: str) -> tuple[int, int]:
    """Read a range of ports."""
    if not re.fullmatch(PORTS_PATTERN, text):
        fix = "write the first and the last port with a '-' between them"
        raise InvalidValueError(f"expected a range of ports such as 20000-20100, got {quoted(text)}", fix)
    low, high = (int(port) for port in text.split("-"))
    if not LOWEST_PORT <= low <= HIGHEST_PORT or not high <= HIGHEST_PORT:
        fix = f"ports from {LOWEST_PORT} to {HIGHEST_PORT} can be used"
        raise InvalidValueError(f"{quoted(text)} leaves the range of ports", fix, codes.OUT_OF_RANGE)
    if low > high:
        raise InvalidValueError(
            f"the range {quoted(text)} runs backwards", f"write {high}-{low}", codes.OUT_OF_RANGE
        )
    return low, high


def parse_proxy_command(text: str) -> str:
    """Read a command that carries the SSH connection; knows OpenSSH's tokens for host, port and user."""
    for token in re.findall(r"%.?", text, re.DOTALL):
        if token not in PROXY_TOKENS.split():
            message = f"unknown token {quoted(token)} in a proxy command"
            raise InvalidValueError(message, f"known are {PROXY_TOKENS} (host, port, user, a percent sign)")
    if text.strip() in ("", "none"):
        raise InvalidValueError(f"expected a command, got {quoted(text)}", "write null for no proxy command")
    return text


def _is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
