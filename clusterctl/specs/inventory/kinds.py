"""The kinds of value that the keys of an inventory take: their types, their parsers, their words."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from clusterctl.errors import InvalidValueError, UsageError
from clusterctl.protocol.run_id import NAME_PATTERN
from clusterctl.specs import addresses, values
from clusterctl.specs.fields import (
    FLAG,
    NAME,
    OPTIONAL_TEXT,
    PYTHON,
    OneOrMore,
    ScalarType,
    one_of,
    optional,
    text_schema,
    whole_number_schema,
)
from clusterctl.specs.nodeset import parse_pattern
from clusterctl.translation import to_translate

SLURM_NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.,:@+-]*"
# What clusterctl sets itself, or what would make another kind of job.
OWN_SBATCH_OPTIONS = (
    *(
        "--array",
        "--chdir",
        "--error",
        "--export",
        "--input",
        "--job-name",
        "--kill-on-invalid-dep",
        "--nodelist",
    ),
    *("--nodes", "--ntasks", "--ntasks-per-node", "--open-mode", "--output", "--parsable", "--requeue"),
    *("--no-requeue", "--test-only", "--wait", "--wrap", "--partition", "--account", "--qos", "--time"),
)

CODE = r"CC-[A-Z]+-[0-9]{3}"
LONGEST_REASON = 300


def _parse_code(word: str) -> str:
    if re.fullmatch(CODE, word.upper()):
        return word.upper()
    raise InvalidValueError("CC-SPEC-013", "code", word=word)


def _parse_nodes(word: str) -> str:
    try:
        parse_pattern(word)
    except UsageError as error:
        raise InvalidValueError("CC-SPEC-013", "node-pattern", problem=error.message, way_out="") from error
    return word


def _parse_reason(word: str) -> str:
    if word.strip() and len(word) <= LONGEST_REASON and word.isprintable():
        return word.strip()
    raise InvalidValueError("CC-SPEC-013", "reason", longest_reason=LONGEST_REASON)


def parse_slurm_name(word: str) -> str:
    """Read the name of a partition, account or QOS; several partitions are separated by commas."""
    if re.fullmatch(SLURM_NAME_PATTERN, word):
        return word
    raise InvalidValueError("CC-SLURM-002", "name", word=word)


def parse_sbatch_option(word: str) -> str:
    """Read one further option of sbatch, in one word; what clusterctl sets itself is refused."""
    name = word.partition("=")[0]
    if not re.fullmatch(r"--[a-z][a-z0-9-]*", name) or not word.isprintable():
        raise InvalidValueError("CC-SLURM-002", "option", word=word)
    if name in OWN_SBATCH_OPTIONS:
        raise InvalidValueError("CC-SLURM-002", "own-option", name=name)
    return word


Code = Annotated[
    str,
    ScalarType(
        to_translate("the code of a finding"), _parse_code, {"type": "string", "pattern": f"^{CODE}$"}
    ),
]
NodePattern = Annotated[
    str, ScalarType(to_translate("a choice of nodes"), _parse_nodes, {"type": "string", "minLength": 1})
]
WaiverReason = Annotated[
    str,
    ScalarType(
        to_translate("a reason"),
        _parse_reason,
        {"type": "string", "minLength": 1, "maxLength": LONGEST_REASON},
    ),
]

_NIC_SCHEMA = {"type": "string", "pattern": f"^{addresses.NIC_PATTERN}$"}

Name = Annotated[str, NAME]
NodeName = Annotated[
    str,
    ScalarType(
        to_translate("a name"), values.parse_node_name, {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
    ),
]
Host = Annotated[
    str,
    ScalarType(
        to_translate("a host name or address"), addresses.parse_host, {"type": "string", "minLength": 1}
    ),
]
User = Annotated[
    str | None,
    optional(to_translate("a user name"), addresses.parse_user, text_schema(addresses.USER_PATTERN)),
]
Port = Annotated[
    int | None,
    ScalarType(to_translate("a port"), values.parse_port, whole_number_schema(minimum=1, maximum=65535)),
]
Jump = Annotated[
    str | None, optional(to_translate("a bastion"), addresses.parse_jump, {"type": "string", "minLength": 1})
]
OptionalText = Annotated[str | None, OPTIONAL_TEXT]
ProxyCommand = Annotated[
    str | None,
    optional(to_translate("a command"), addresses.parse_proxy_command, {"type": "string", "minLength": 1}),
]
HostKeys = Annotated[Literal["strict", "accept-new"] | None, one_of("strict", "accept-new")]
Transport = Annotated[Literal["paramiko", "openssh"], one_of("paramiko", "openssh")]
TrainingIp = Annotated[
    str | None,
    optional(
        to_translate("an IPv4 address"),
        addresses.parse_training_ip,
        {"type": "string", "pattern": f"^{addresses.IPV4_PATTERN}$"},
    ),
]
Network = Annotated[
    str | None,
    optional(
        to_translate("an IPv4 network"),
        addresses.parse_network,
        {"type": "string", "pattern": f"^{addresses.IPV4_PATTERN}/[0-9]{{1,2}}$"},
    ),
]
Nic = Annotated[str, ScalarType(to_translate("the name of a NIC"), addresses.parse_nic, _NIC_SCHEMA)]
Nics = Annotated[tuple[Nic, ...], OneOrMore()]
Gpus = Annotated[
    int | None, optional(to_translate("a whole number"), values.parse_count, whole_number_schema(minimum=0))
]
Ports = Annotated[
    tuple[int, int] | None,
    optional(
        to_translate("a range of ports"),
        addresses.parse_ports,
        {"type": "string", "pattern": f"^{addresses.PORTS_PATTERN}$"},
        "20000-20100",
    ),
]
Workdir = Annotated[
    str, ScalarType(to_translate("a path"), values.parse_workdir, {"type": "string", "pattern": "^(/|~/)."})
]
SlurmWorkdir = Annotated[
    str | None,
    optional(to_translate("a path"), values.parse_workdir, {"type": "string", "pattern": "^(/|~/)."}),
]
SlurmName = Annotated[
    str | None, optional(to_translate("a name"), parse_slurm_name, text_schema(SLURM_NAME_PATTERN))
]
TimeLimit = Annotated[
    float | None,
    optional(
        to_translate("a time"),
        values.parse_limit,
        {"type": ["string", "number"], "pattern": f"^{values.DURATION_PATTERN}$"},
    ),
]
SbatchOption = Annotated[
    str,
    ScalarType(
        to_translate("an option of sbatch"), parse_sbatch_option, {"type": "string", "pattern": "^--[a-z]"}
    ),
]
Python = Annotated[str, PYTHON]
Flag = Annotated[bool, FLAG]
