"""The machines of a cluster: what the file of an inventory declares, key by key, and what is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from clusterctl.specs import kinds
from clusterctl.specs.fields import documented
from clusterctl.specs.nodeset import ALL
from clusterctl.specs.values import accepts, parse_name
from clusterctl.translation import to_translate

DEFAULT_CLUSTER = "cluster"


@dataclass(frozen=True, kw_only=True)
class Ssh:
    """How SSH reaches a node; a node's own keys replace the cluster's one by one."""

    user: kinds.User = field(
        default=None,
        metadata=documented(
            to_translate(
                "Login name on the node; default: what your SSH configuration says, "
                "else the name you use on this machine."
            )
        ),
    )
    port: kinds.Port = field(
        default=None,
        metadata=documented(
            to_translate("Port of the node's SSH server; default: what your SSH configuration says, else 22.")
        ),
    )
    key: kinds.NullableText = field(
        default=None,
        metadata=documented(
            to_translate(
                "Private key file on this machine, `~` allowed; default: what your SSH configuration says, "
                "else your SSH agent and usual keys."
            )
        ),
    )
    jump: kinds.Jump = field(
        default=None,
        metadata=documented(
            to_translate(
                "Bastion to go through, as ssh's `-J`: `user@host:port` or a name from your SSH configuration; "
                "commas make a chain, `none` is the straight way."
            )
        ),
    )
    proxy_command: kinds.ProxyCommand = field(
        default=None,
        metadata=documented(
            to_translate(
                "Command whose input and output carry the connection, as OpenSSH's ProxyCommand; "
                "`%h`, `%p`, `%r` stand for host, port and user, `%%` for a percent sign."
            )
        ),
    )
    config: kinds.NullableText = field(
        default=None,
        metadata=documented(
            to_translate(
                "SSH configuration file on this machine to read instead of `~/.ssh/config`; `none`: read none."
            )
        ),
    )
    known_hosts: kinds.NullableText = field(
        default=None,
        metadata=documented(
            to_translate(
                "File on this machine with the nodes' host keys; default: what your SSH configuration says, "
                "else `~/.ssh/known_hosts`."
            )
        ),
    )
    host_keys: kinds.HostKeys = field(
        default=None,
        metadata=documented(
            to_translate(
                "What to do with a host key that is not known yet: refuse it (`strict`), or record it and "
                "say so (`accept-new`); default: what your SSH configuration says, else `strict`."
            )
        ),
    )
    transport: kinds.Transport = field(
        default="paramiko",
        metadata=documented(
            to_translate(
                "What speaks SSH: clusterctl itself (`paramiko`), or your own `ssh` program over a ControlMaster "
                "(`openssh`), for logins with a password, a second factor or Kerberos."
            )
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """How a node of a Slurm cluster is reached: over the login node, by a step of a job; without a job it is that node.

    Nodes with the same `connection` share one.
    """

    connection: str
    job: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """Keys of the top level for all nodes, and of a node for that one."""

    ssh: Ssh = field(default_factory=Ssh, metadata=documented(to_translate("How SSH reaches the node.")))
    python: kinds.Python = field(
        default="python3",
        metadata=documented(
            to_translate("Interpreter with torch on the node: an absolute path, `~/...`, or a bare command.")
        ),
    )
    activate: kinds.NullableText = field(
        default=None,
        metadata=documented(
            to_translate(
                "Shell line run on the node before Python, such as `source /etc/profile.d/modules.sh`."
            )
        ),
    )
    workdir: kinds.Workdir = field(
        default="~/.clusterctl",
        metadata=documented(
            to_translate("Directory on the node that belongs to clusterctl; everything is kept in it.")
        ),
    )
    nic: kinds.Nics = field(
        default=(),
        metadata=documented(
            to_translate(
                "NIC or NICs for training; may differ between nodes; takes precedence over `network`."
            )
        ),
    )
    network: kinds.Network = field(
        default=None,
        metadata=documented(
            to_translate("IPv4 network (CIDR) of the training; each node uses the NIC with an address in it.")
        ),
    )
    gpus: kinds.Gpus = field(
        default=None,
        metadata=documented(
            to_translate(
                "Number of GPUs that runs use on the node: the first ones. `check` reports a node that has more "
                "or fewer. Default: all."
            )
        ),
    )
    ports: kinds.Ports = field(
        default=None,
        metadata=documented(
            to_translate("Range that the rendezvous port is taken from, such as `20000-20100`; default: any.")
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _NodeIdentity:
    host: kinds.Host = field(metadata=documented(to_translate("Where SSH goes: a host name or an address.")))
    name: kinds.NodeName = field(
        default="",
        metadata=documented(to_translate("Name of the node in all that is shown; default: its `host`.")),
    )
    ip: kinds.TrainingIp = field(
        default=None,
        metadata=documented(
            to_translate("IPv4 address for the training; default: found by `nic`, `network` or `host`.")
        ),
    )
    spare: kinds.Flag = field(
        default=False,
        metadata=documented(to_translate("Spare node: only jobs that name it, or ask for `spares`, use it.")),
    )


@dataclass(frozen=True, kw_only=True)
class Node(NodeSettings, _NodeIdentity):  # the fields of the last base come first
    """One node; the order of the nodes is their node_rank, and node 0 is the master."""

    index: int
    allocation: Allocation | None = None


@dataclass(frozen=True, kw_only=True)
class Login:
    """The login node of a Slurm cluster: the only machine that SSH goes to."""

    host: kinds.Host = field(
        metadata=documented(to_translate("Where SSH goes: the host name or address of the login node."))
    )
    name: kinds.NodeName = field(
        default="",
        metadata=documented(
            to_translate("Name of the login node in all that is shown; default: its `host`.")
        ),
    )
    ssh: Ssh = field(
        default_factory=Ssh, metadata=documented(to_translate("How SSH reaches the login node."))
    )


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """A Slurm cluster in place of `nodes`: jobs are submitted there, and Slurm chooses the nodes."""

    login: Login = field(metadata=documented(to_translate("The login node.")))
    partition: kinds.SlurmName = field(
        default=None,
        metadata=documented(to_translate("Partition, as `sbatch --partition`; default: Slurm's own.")),
    )
    account: kinds.SlurmName = field(
        default=None, metadata=documented(to_translate("Account that is charged, as `sbatch --account`."))
    )
    qos: kinds.SlurmName = field(
        default=None, metadata=documented(to_translate("Quality of service, as `sbatch --qos`."))
    )
    gpus_per_node: kinds.Gpus = field(
        default=None,
        metadata=documented(
            to_translate(
                "GPUs to ask for on each node; default: as many as `nproc_per_node` of a job that uses GPUs."
            )
        ),
    )
    time: kinds.TimeLimit = field(
        default=None,
        metadata=documented(
            to_translate(
                "Longest time of a Slurm job, such as `12h`, as `sbatch --time`; the job's own `time_limit` "
                "shortens it. Default: that of the partition."
            )
        ),
    )
    workdir: kinds.SlurmWorkdir = field(
        default=None,
        metadata=documented(
            to_translate(
                "Directory that the login node and all nodes share under the same path; default: `workdir`."
            )
        ),
    )
    extra: tuple[kinds.SbatchOption, ...] = field(
        default=(),
        metadata=documented(to_translate("Further options of sbatch, such as `--constraint=a100`.")),
    )


@dataclass(frozen=True, kw_only=True)
class Waiver:
    """One finding of `check` that does not count, and why."""

    code: kinds.Code = field(metadata=documented(to_translate("Code of the finding, such as `CC-NET-009`.")))
    nodes: kinds.NodePattern = field(
        default=ALL,
        metadata=documented(to_translate("On which nodes: names, ranges and globs such as `gpu[01-04]`.")),
    )
    reason: kinds.WaiverReason = field(
        metadata=documented(to_translate("Why it is ignored; shown whenever the waiver is used."))
    )
    file: str


@dataclass(frozen=True, kw_only=True)
class _Header:
    cluster: kinds.Name = field(
        default="",
        metadata=documented(
            to_translate("Name of the cluster; default: the name of the folder that the inventory is in.")
        ),
    )
    waive: tuple[Waiver, ...] = field(
        default=(), metadata=documented(to_translate("Findings of `check` to ignore, and why."))
    )


@dataclass(frozen=True, kw_only=True)
class InventoryFile(NodeSettings, _Header):
    """The machines of one cluster; keys beside `cluster`, `nodes` and `slurm` are defaults for every node."""

    nodes: tuple[Node, ...] = field(
        default=(),
        metadata=documented(
            to_translate(
                "The nodes; their order is the node_rank, and the first one is the master. A node that needs no other "
                "keys is a text as on the command line: `gpu01`, `user@host:port`, `gpu[01-04]`."
            ),
            minItems=1,
        ),
    )
    slurm: Slurm | None = field(
        default=None,
        metadata=documented(to_translate("A Slurm cluster in place of `nodes`; see the keys of `slurm`.")),
    )


@dataclass(frozen=True, kw_only=True)
class Inventory(_Header):
    """A cluster: what its file has of each node is at the node. Of a Slurm cluster the only node is the login node.

    `file` is where it was written, `cluster` is empty where the file gives no name.
    """

    file: str
    nodes: tuple[Node, ...]
    slurm: Slurm | None = None


def name_cluster(inventory: Inventory, folder: str) -> Inventory:
    """Name a cluster whose file gives no name after the folder of the file."""
    if inventory.cluster:
        return inventory
    return replace(inventory, cluster=folder if accepts(parse_name, folder) else DEFAULT_CLUSTER)
