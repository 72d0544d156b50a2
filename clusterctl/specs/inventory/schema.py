"""Inventory.yaml as pydantic models."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

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
    StrictModel,
    one_of,
    optional,
    text_schema,
    whole_number_schema,
)
from clusterctl.specs.inventory.model import Waiver
from clusterctl.specs.nodeset import ALL, parse_pattern
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


class WaiveEntry(StrictModel):
    """One finding of `check` that does not count, and why."""

    model_config = ConfigDict(title="waive")

    code: Code = Field(description=to_translate("Code of the finding, such as `CC-NET-009`."))
    nodes: NodePattern = Field(
        ALL, description=to_translate("On which nodes: names, ranges and globs such as `gpu[01-04]`.")
    )
    reason: WaiverReason = Field(
        description=to_translate("Why it is ignored; shown whenever the waiver is used.")
    )


def waivers_of(entries: tuple[WaiveEntry, ...], file: str) -> tuple[Waiver, ...]:
    """Give the waivers of a file."""
    return tuple(
        Waiver(code=entry.code, nodes=entry.nodes, reason=entry.reason, file=file) for entry in entries
    )


_NIC_SCHEMA = {"type": "string", "pattern": f"^{addresses.NIC_PATTERN}$"}

Name = Annotated[str | None, NAME]
NodeName = Annotated[
    str | None,
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
Nics = Annotated[tuple[Nic, ...] | None, OneOrMore(_NIC_SCHEMA)]
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


class SshEntry(StrictModel):
    """How SSH reaches a node; a node's own keys replace the cluster's one by one."""

    model_config = ConfigDict(title="ssh")

    user: User = Field(
        None,
        description=to_translate(
            "Login name on the node; default: what your SSH configuration says, "
            "else the name you use on this machine."
        ),
    )
    port: Port = Field(
        None,
        description=to_translate(
            "Port of the node's SSH server; default: what your SSH configuration says, else 22."
        ),
    )
    key: OptionalText = Field(
        None,
        description=to_translate(
            "Private key file on this machine, `~` allowed; default: what your SSH configuration says, "
            "else your SSH agent and usual keys."
        ),
    )
    jump: Jump = Field(
        None,
        description=to_translate(
            "Bastion to go through, as ssh's `-J`: `user@host:port` or a name from your SSH configuration; "
            "commas make a chain, `none` is the straight way."
        ),
    )
    proxy_command: ProxyCommand = Field(
        None,
        description=to_translate(
            "Command whose input and output carry the connection, as OpenSSH's ProxyCommand; "
            "`%h`, `%p`, `%r` stand for host, port and user, `%%` for a percent sign."
        ),
    )
    config: OptionalText = Field(
        None,
        description=to_translate(
            "SSH configuration file on this machine to read instead of `~/.ssh/config`; `none`: read none."
        ),
    )
    known_hosts: OptionalText = Field(
        None,
        description=to_translate(
            "File on this machine with the nodes' host keys; default: what your SSH configuration says, "
            "else `~/.ssh/known_hosts`."
        ),
    )
    host_keys: HostKeys = Field(
        None,
        description=to_translate(
            "What to do with a host key that is not known yet: refuse it (`strict`), or record it and "
            "say so (`accept-new`); default: what your SSH configuration says, else `strict`."
        ),
    )
    transport: Transport = Field(
        "paramiko",
        description=to_translate(
            "What speaks SSH: clusterctl itself (`paramiko`), or your own `ssh` program over a ControlMaster "
            "(`openssh`), for logins with a password, a second factor or Kerberos."
        ),
    )


class NodeSettings(StrictModel):
    """What may stand at the top level for all nodes, and at a node for that one."""

    ssh: SshEntry = Field(default_factory=SshEntry, description=to_translate("How SSH reaches the node."))
    python: Python = Field(
        "python3",
        description=to_translate(
            "Interpreter with torch on the node: an absolute path, `~/...`, or a bare command."
        ),
    )
    activate: OptionalText = Field(
        None,
        description=to_translate(
            "Shell line run on the node before Python, such as `source /etc/profile.d/modules.sh`."
        ),
    )
    workdir: Workdir = Field(
        "~/.clusterctl",
        description=to_translate(
            "Directory on the node that belongs to clusterctl; everything is kept in it."
        ),
    )
    nic: Nics = Field(
        None,
        description=to_translate(
            "NIC or NICs for training; may differ between nodes; takes precedence over `network`."
        ),
    )
    network: Network = Field(
        None,
        description=to_translate(
            "IPv4 network (CIDR) of the training; each node uses the NIC with an address in it."
        ),
    )
    gpus: Gpus = Field(
        None,
        description=to_translate(
            "Number of GPUs that runs use on the node: the first ones. `check` reports a node that has more "
            "or fewer. Default: all."
        ),
    )
    ports: Ports = Field(
        None,
        description=to_translate(
            "Range that the rendezvous port is taken from, such as `20000-20100`; default: any."
        ),
    )


class _NodeIdentity(StrictModel):
    host: Host = Field(description=to_translate("Where SSH goes: a host name or an address."))
    name: NodeName = Field(
        None, description=to_translate("Name of the node in all that is shown; default: its `host`.")
    )
    ip: TrainingIp = Field(
        None,
        description=to_translate(
            "IPv4 address for the training; default: found by `nic`, `network` or `host`."
        ),
    )
    spare: Flag = Field(
        False, description=to_translate("Spare node: only jobs that name it, or ask for `spares`, use it.")
    )


class NodeEntry(NodeSettings, _NodeIdentity):  # pydantic puts the fields of the last base first
    """One node; the order of the nodes is their node_rank, and node 0 is the master."""

    model_config = ConfigDict(title="node")


class LoginEntry(StrictModel):
    """The login node of a Slurm cluster: the only machine that SSH goes to."""

    model_config = ConfigDict(title="login")

    host: Host = Field(
        description=to_translate("Where SSH goes: the host name or address of the login node.")
    )
    name: NodeName = Field(
        None, description=to_translate("Name of the login node in all that is shown; default: its `host`.")
    )
    ssh: SshEntry = Field(
        default_factory=SshEntry, description=to_translate("How SSH reaches the login node.")
    )


class SlurmEntry(StrictModel):
    """A Slurm cluster in place of `nodes`: jobs are submitted there, and Slurm chooses the nodes."""

    model_config = ConfigDict(title="slurm")

    login: LoginEntry = Field(description=to_translate("The login node."))
    partition: SlurmName = Field(
        None, description=to_translate("Partition, as `sbatch --partition`; default: Slurm's own.")
    )
    account: SlurmName = Field(
        None, description=to_translate("Account that is charged, as `sbatch --account`.")
    )
    qos: SlurmName = Field(None, description=to_translate("Quality of service, as `sbatch --qos`."))
    gpus_per_node: Gpus = Field(
        None,
        description=to_translate(
            "GPUs to ask for on each node; default: as many as `nproc_per_node` of a job that uses GPUs."
        ),
    )
    time: TimeLimit = Field(
        None,
        description=to_translate(
            "Longest time of a Slurm job, such as `12h`, as `sbatch --time`; the job's own `time_limit` "
            "shortens it. Default: that of the partition."
        ),
    )
    workdir: SlurmWorkdir = Field(
        None,
        description=to_translate(
            "Directory that the login node and all nodes share under the same path; default: `workdir`."
        ),
    )
    extra: tuple[SbatchOption, ...] = Field(
        (), description=to_translate("Further options of sbatch, such as `--constraint=a100`.")
    )


class _InventoryHeader(StrictModel):
    cluster: Name = Field(
        None,
        description=to_translate(
            "Name of the cluster; default: the name of the folder that the inventory is in."
        ),
    )
    waive: tuple[WaiveEntry, ...] = Field(
        (), description=to_translate("Findings of `check` to ignore, and why.")
    )


class InventoryFile(NodeSettings, _InventoryHeader):
    """The machines of one cluster; keys beside `cluster`, `nodes` and `slurm` are defaults for every node."""

    model_config = ConfigDict(
        title="clusterctl inventory",
        json_schema_extra={"oneOf": [{"required": ["nodes"]}, {"required": ["slurm"]}]},
    )

    nodes: tuple[NodeEntry, ...] = Field(
        (),
        description=to_translate(
            "The nodes; their order is the node_rank, and the first one is the master. A node that needs no other keys "
            "is a text as on the command line: `gpu01`, `user@host:port`, `gpu[01-04]`."
        ),
        json_schema_extra={"minItems": 1},
    )
    slurm: SlurmEntry | None = Field(
        None, description=to_translate("A Slurm cluster in place of `nodes`; see the keys of `slurm`.")
    )
