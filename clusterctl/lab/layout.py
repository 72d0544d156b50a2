"""What a lab looks like before it exists: names, NICs, addresses and the text of every file. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.lab.messages import PlanRecord

DEFAULT_NICS = ("enp65s0f0", "ib0np0", "eno2")
BRIDGES = ("train", "ssh")  # further NICs of a node get bridges of their own: extra1, extra2, ...
SSH_PORT = 22
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class LabNic:
    """A network card of a node; `cable` is the other end, plugged into `bridge`."""

    name: str
    address: str
    mac: str
    bridge: str
    cable: str


@dataclass(frozen=True)
class LabNodePlan:
    """A node: the first NIC carries SSH, the others carry training; a single one carries both."""

    name: str
    nics: tuple[LabNic, ...]

    @property
    def host(self) -> str:
        """The address where SSH goes."""
        return self.nics[0].address

    @property
    def ip(self) -> str:
        """The training address."""
        return self._training[0].address

    @property
    def training_nic(self) -> str:
        """The name of the NIC that owns the training address."""
        return self._training[0].name

    @property
    def training_nics(self) -> tuple[str, ...]:
        """The names of all NICs that carry training."""
        return tuple(nic.name for nic in self._training)

    @property
    def _training(self) -> tuple[LabNic, ...]:
        return self.nics[1:] or self.nics


@dataclass(frozen=True)
class LabAccount:
    """The user whom the nodes let in."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


@dataclass(frozen=True)
class LabPlan:
    """Everything the holder needs to build a lab."""

    name: str
    directory: str
    account: LabAccount
    nodes: tuple[LabNodePlan, ...]
    python: str
    visible: tuple[str, ...]
    sshd: str
    ip: str
    shared_home: bool = False
    backend: str = "netns"
    ssh_port: int = SSH_PORT
    gpus: int = 0
    slurmctld: str = ""  # the programs of Slurm, where the nodes have it
    slurmd: str = ""

    def home_directory(self, node: LabNodePlan) -> str:
        """The directory here that is a node's home; one for all nodes if they share it, as with NFS."""
        return f"{self.directory}/home" if self.shared_home else f"{self.directory}/nodes/{node.name}/home"

    def find_node(self, name: str) -> LabNodePlan | None:
        """The node of that name, if there is one."""
        return next((node for node in self.nodes if node.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> LabPlan:
        """The inverse of `to_dict`."""
        record = cast("PlanRecord", values)
        nodes = tuple(
            LabNodePlan(node["name"], tuple(LabNic(**nic) for nic in node["nics"]))
            for node in record["nodes"]
        )
        converted = {
            "nodes": nodes,
            "account": LabAccount(**record["account"]),
            "visible": tuple(record["visible"]),
        }
        return LabPlan(**{**values, **converted})


def plan_nodes(count: int, nics: Sequence[str]) -> tuple[LabNodePlan, ...]:
    """Name `count` nodes and give them NICs in turn; `a+b` gives one node two NICs."""
    width = max(2, len(str(count)))
    return tuple(
        LabNodePlan(f"gpu{number:0{width}}", _plan_nics(number, nics[(number - 1) % len(nics)].split("+")))
        for number in range(1, count + 1)
    )


def _plan_nics(number: int, names: Sequence[str]) -> tuple[LabNic, ...]:
    training = min(1, len(names) - 1)
    return tuple(_plan_nic(number, index, name, shared=index == training) for index, name in enumerate(names))


def _plan_nic(number: int, index: int, name: str, *, shared: bool) -> LabNic:
    """Plan one NIC: the first one for training is in the network that every node has, whatever else it has."""
    subnet = 0 if shared else index + 1
    return LabNic(
        name=name,
        address=f"10.77.{subnet}.{number}",
        mac=_mac(subnet, number),
        bridge=bridge_name(subnet),
        cable=f"gpu{number}-{index}",
    )


def plan_loopback_nodes(count: int, subnet: int) -> tuple[LabNodePlan, ...]:
    """Name `count` nodes without namespaces: 127.77.<net>.<number> each, which every Linux has on `lo`."""
    width = max(2, len(str(count)))
    return tuple(
        LabNodePlan(
            f"gpu{number:0{width}}", (LabNic("lo", f"127.77.{subnet}.{number}", mac="", bridge="", cable=""),)
        )
        for number in range(1, count + 1)
    )


def session_environment(plan: LabPlan, node: LabNodePlan) -> dict[str, str]:
    """The variables of a session on a node without namespaces.

    NCCL_HOSTID distinguishes the nodes although hostname and boot are one; CLUSTERCTL_LAB is the tag by
    which `lab down` finds the processes of a node.
    """
    account = plan.account
    system_path = DEFAULT_PATH if account.uid == 0 else "/usr/local/bin:/usr/bin:/bin"
    programs = f"{plan.directory}/nodes/{node.name}/programs:" if plan.gpus else ""
    return {
        "USER": account.name,
        "LOGNAME": account.name,
        "HOME": plan.home_directory(node),
        "SHELL": account.shell,
        "PATH": programs + system_path,
        "NCCL_HOSTID": f"{plan.name}-{node.name}",
        "CLUSTERCTL_LAB": plan.directory,
    }


OUTSIDE = 254  # the number of the machine outside, where the nodes count from 1


def _mac(net: int, number: int) -> str:
    return f"02:4c:41:42:{net:02x}:{number:02x}"


def bridge_name(subnet: int) -> str:
    """The bridge of a subnet 10.77.<net>.0/24."""
    return BRIDGES[subnet] if subnet < len(BRIDGES) else f"extra{subnet - 1}"


def render_bridges(nodes: Sequence[LabNodePlan]) -> str:
    """Lines for `ip -batch` that build the bridges; 10.77.<net>.254 is the machine outside.

    Each has a MAC address of its own. Without one the kernel gives it that of a cable: when that node loses power, the
    machine outside has another address, and the other nodes send to the old one for up to two minutes.
    """
    lines = ["link set lo up"]
    nets = {nic.bridge: nic.address.split(".")[2] for node in nodes for nic in node.nics}
    for bridge, subnet in nets.items():
        lines.append(f"link add name {bridge} address {_mac(int(subnet), OUTSIDE)} up type bridge")
        lines.append(f"addr add 10.77.{subnet}.{OUTSIDE}/24 dev {bridge}")
    return "\n".join(lines) + "\n"


def render_cables(node: LabNodePlan, pid: int) -> str:
    """Lines for `ip -batch` that put a node's NICs into the network namespace of a process."""
    return "".join(
        f"link add name {nic.cable} up master {nic.bridge} type veth"
        f" peer name {nic.name} address {nic.mac} netns {pid}\n"
        for nic in node.nics
    )


def render_addresses(node: LabNodePlan) -> str:
    """Lines for `ip -batch`, run inside the node, that configure its NICs."""
    lines = ["link set dev lo up"]
    for nic in node.nics:
        lines.append(f"addr add {nic.address}/24 brd + dev {nic.name}")
        lines.append(f"link set dev {nic.name} up")
    return "\n".join(lines) + "\n"


def render_hosts(nodes: Sequence[LabNodePlan]) -> str:
    """The nodes' /etc/hosts: names mean training addresses.

    torch's store listens on an IPv6 socket and looks up the names of addresses in their mapped form; without an
    answer it warns on every rank. That answer is another name, so that looking the node's name up stays as it was.
    """
    names = "".join(f"{node.ip} {node.name}\n::ffff:{node.ip} {node.name}.mapped\n" for node in nodes)
    return "127.0.0.1 localhost\n" + names


def render_sshd_config(folder: str, *, programs: str | None = None, slurm_conf: str = "") -> str:
    """The nodes' sshd_config: limits are OpenSSH's own, only keys are accepted; `programs` come first on PATH."""
    variables = [f"PATH={programs}:{DEFAULT_PATH}"] if programs else []
    variables += [f"SLURM_CONF={slurm_conf}"] if slurm_conf else []
    lines = [
        f"Port {SSH_PORT}",
        "ListenAddress 0.0.0.0",
        f"HostKey {folder}/host_key",
        f"AuthorizedKeysFile {folder}/authorized_keys",
        "AuthenticationMethods publickey",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "UsePAM no",
        "StrictModes no",
        "PidFile none",
        "PrintMotd no",
        "PrintLastLog no",
        "Subsystem sftp internal-sftp",
        *([f"SetEnv {' '.join(variables)}"] if variables else []),  # sshd reads the first such line only
    ]
    return "\n".join(lines) + "\n"


def render_slurm_conf(plan: LabPlan, folder: str) -> str:
    """The nodes' slurm.conf: the first node is the controller; needs neither munge nor cgroups nor a database.

    It starts jobs at once, and gives up a node, or a process that ignores SIGTERM, sooner than Slurm's defaults.
    """
    user = plan.account.name
    lines = [
        "ClusterName=lab",
        f"SlurmctldHost={plan.nodes[0].name}",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        "AuthType=auth/none",
        "CredType=cred/none",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd.pid",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "MpiDefault=none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "SlurmdTimeout=10",
        "KillWait=5",
    ]
    for node in plan.nodes:
        lines.append(f"NodeName={node.name} NodeAddr={node.ip} CPUs=4 RealMemory=2000 State=UNKNOWN")
    lines.append("PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


def render_known_hosts(plan: LabPlan, keys: Mapping[str, str]) -> str:
    """A known_hosts line for each node; keys are public host keys by node name."""
    pattern = "{}" if plan.ssh_port == SSH_PORT else f"[{{}}]:{plan.ssh_port}"
    return "".join(
        f"{pattern.format(node.name)},{pattern.format(node.host)} {' '.join(keys[node.name].split()[:2])}\n"
        for node in plan.nodes
    )


def render_ssh_config(plan: LabPlan, proxy_command: str | None) -> str:
    """A file for `ssh -F` that reaches the nodes by name."""
    lines = [f"# {tr('Written by `clusterctl lab up`.')}"]
    for node in plan.nodes:
        lines += [f"Host {node.name}", f"  HostName {node.host}"]
    lines += [
        "Host *",
        f"  User {plan.account.name}",
        f"  Port {plan.ssh_port}",
        f"  IdentityFile {_quote_path(plan.directory + '/id_ed25519')}",
        "  IdentitiesOnly yes",
        "  IdentityAgent none",
        f"  UserKnownHostsFile {_quote_path(plan.directory + '/known_hosts')}",
        "  GlobalKnownHostsFile none",
        "  StrictHostKeyChecking yes",
        f"  ProxyCommand {proxy_command or 'none'}",
        "  LogLevel ERROR",
    ]
    return "\n".join(lines) + "\n"


def _quote_path(path: str) -> str:
    return '"' + path.replace("%", "%%") + '"'


SLURM_INVENTORY = "slurm.yaml"  # beside the lab's own


def render_lab_inventory(plan: LabPlan, proxy_command: str | None) -> str:
    """The lab's inventory; JSON strings are YAML strings."""
    return _render_inventory(plan, proxy_command, ["nodes:", *(_inventory_node(node) for node in plan.nodes)])


def render_slurm_inventory(plan: LabPlan, proxy_command: str | None) -> str:
    """The inventory by which jobs go to the lab's Slurm: its first node is the login node."""
    login = f"  login: {{name: login, host: {plan.nodes[0].host}}}"
    return _render_inventory(plan, proxy_command, ["slurm:", login, "  partition: lab"])


def _render_inventory(plan: LabPlan, proxy_command: str | None, nodes: list[str]) -> str:
    ssh = {
        "user": plan.account.name,
        "port": plan.ssh_port,
        "key": plan.directory + "/id_ed25519",
        "known_hosts": plan.directory + "/known_hosts",
        **({"proxy_command": proxy_command} if proxy_command else {}),
        "config": "none",
    }
    remark = (
        tr("Written by `clusterctl lab up`. The addresses exist only inside the lab.")
        if proxy_command
        else tr("Written by `clusterctl lab up`. The addresses exist only on this machine.")
    )
    lines = [
        f"# {remark}",
        f"cluster: {json.dumps(plan.name)}",
        f"python: {json.dumps(plan.python)}",
        "ssh:",
        *(f"  {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in ssh.items()),
        *nodes,
    ]
    return "\n".join(lines) + "\n"


def _inventory_node(node: LabNodePlan) -> str:
    nics = json.dumps(node.training_nics)
    return f"  - {{name: {node.name}, host: {node.host}, ip: {node.ip}, nic: {nics}}}"
