"""The parts of Facts."""

from __future__ import annotations

import re
from dataclasses import dataclass

IPV4 = re.compile(r"\d{1,3}(\.\d{1,3}){3}")


@dataclass(frozen=True)
class Interpreter:
    """The Python that answered."""

    executable: str | None = None
    realpath: str | None = None
    version: str | None = None
    implementation: str | None = None
    prefix: str | None = None
    base_prefix: str | None = None


@dataclass(frozen=True)
class ActivateResult:
    """How `activate` ended before Python and what it gave; `status` is `None` where there is none."""

    status: int | None = None
    path: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    conda: str | None = None
    venv: str | None = None
    inside: bool | None = None
    cuda_home: str | None = None
    nvcc: str | None = None
    cuda: str | None = None
    compiler: str | None = None
    compiler_version: str | None = None
    said: str | None = None

    @property
    def environment(self) -> str | None:
        """The directory of the environment that is active; one made last, a venv, beats conda's."""
        return self.venv or self.conda


@dataclass(frozen=True)
class Platform:
    """Kernel, processor and C library."""

    system: str | None = None
    kernel: str | None = None
    machine: str | None = None
    libc: str | None = None
    distro: str | None = None


@dataclass(frozen=True)
class Account:
    """As whom we are logged in."""

    user: str | None = None
    uid: int | None = None
    gid: int | None = None
    home: str | None = None
    shell: str | None = None


@dataclass(frozen=True)
class Machine:
    """Identity and size; memory in bytes, `ssh_address` is where SSH arrived."""

    hostname: str | None = None
    boot_id: str | None = None
    machine_id: str | None = None
    cpus: int | None = None
    cpus_allowed: int | None = None
    memory: int | None = None
    memory_free: int | None = None
    memory_limit: int | None = None
    ssh_address: str | None = None


@dataclass(frozen=True)
class Torch:
    """The torch that would be imported; `installed` is what the package's metadata claims."""

    version: str | None = None
    cuda: str | None = None
    hip: str | None = None
    git: str | None = None
    location: str | None = None
    installed: str | None = None


@dataclass(frozen=True)
class OtherNccl:
    """An NCCL to which a variable leads."""

    by: str | None = None
    library: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class Nccl:
    """The NCCL library on disk and the version it reports."""

    library: str | None = None
    version: str | None = None
    preloaded: bool | None = None
    others: tuple[OtherNccl, ...] = ()


@dataclass(frozen=True)
class InstalledPackages:
    """All packages that the interpreter finds, each as `name version`, and a digest of them."""

    digest: str | None = None
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """One GPU; memory in MiB."""

    index: int | None = None
    uuid: str | None = None
    name: str | None = None
    driver: str | None = None
    memory: int | None = None
    memory_used: int | None = None
    compute_mode: str | None = None
    bus: str | None = None
    capability: str | None = None
    mig: str | None = None
    ecc_errors: int | None = None


@dataclass(frozen=True)
class GpuProcess:
    """One process that holds memory of a GPU, in MiB; user and command only where the node shows them."""

    gpu: str | None = None
    pid: int | None = None
    memory: int | None = None
    user: str | None = None
    command: str | None = None


@dataclass(frozen=True)
class Gpus:
    """The accelerators; `module` is the loaded kernel driver, `driver` the one that nvidia-smi reports."""

    vendor: str | None = None
    count: int | None = None
    smi: str | None = None
    driver: str | None = None
    module: str | None = None
    files: int | None = None
    error: str | None = None
    devices: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True)
class Address:
    """One address of a NIC; `family` is 4 or 6."""

    ip: str | None = None
    prefix: int | None = None
    family: int | None = None
    label: str | None = None


@dataclass(frozen=True)
class Nic:
    """One network interface; speed in Mbit/s."""

    name: str | None = None
    kind: str | None = None
    up: bool | None = None
    running: bool | None = None
    state: str | None = None
    carrier: bool | None = None
    mtu: int | None = None
    speed: int | None = None
    physical: bool | None = None
    driver: str | None = None
    mac: str | None = None
    slave: bool | None = None
    addresses: tuple[Address, ...] = ()

    @property
    def ipv4(self) -> tuple[str, ...]:
        """The IPv4 addresses in the kernel's order; Gloo takes the first."""
        texts = [address.ip or "" for address in self.addresses if address.family == 4]
        return tuple(text for text in texts if IPV4.fullmatch(text))


@dataclass(frozen=True)
class Route:
    """Where the kernel would send packets for a peer."""

    address: str | None = None
    source: str | None = None
    nic: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class RouteEntry:
    """One row of the routing table."""

    nic: str | None = None
    to: str | None = None
    prefix: int | None = None
    gateway: str | None = None
    metric: int | None = None
    usable: bool | None = None


@dataclass(frozen=True)
class ResolvedName:
    """What a name resolves to on the node."""

    host: str | None = None
    addresses: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class PortRange:
    """The ephemeral ports."""

    first: int | None = None
    last: int | None = None
    reserved: str | None = None


@dataclass(frozen=True)
class Workdir:
    """Where clusterctl keeps its things on the node."""

    path: str | None = None
    exists: bool | None = None
    nearest: str | None = None
    directory: bool | None = None
    owner: int | None = None
    mode: int | None = None
    writable: bool | None = None
    payload: bool | None = None


@dataclass(frozen=True)
class Disk:
    """Room on one file system, in bytes and inodes, as this user may use it."""

    path: str | None = None
    mount: str | None = None
    kind: str | None = None
    total: int | None = None
    free: int | None = None
    inodes: int | None = None
    inodes_free: int | None = None
    read_only: bool | None = None


@dataclass(frozen=True)
class Limit:
    """One resource limit; -1 is unlimited."""

    soft: int | None = None
    hard: int | None = None


@dataclass(frozen=True)
class Limits:
    """The resource limits of an SSH session."""

    nofile: Limit | None = None
    memlock: Limit | None = None
    nproc: Limit | None = None
    stack: Limit | None = None


@dataclass(frozen=True)
class Logind:
    """Whether logind ends a user's processes with the session."""

    running: bool | None = None
    kills: bool | None = None
    removes_ipc: bool | None = None
    linger: bool | None = None


@dataclass(frozen=True)
class InfinibandPort:
    """One port of an adapter; `link` is InfiniBand or Ethernet (RoCE), `gids` the kinds of its addresses."""

    adapter: str | None = None
    port: int | None = None
    state: str | None = None
    physical: str | None = None
    rate: str | None = None
    link: str | None = None
    nics: tuple[str, ...] = ()
    gids: tuple[str, ...] = ()


@dataclass(frozen=True)
class GpuDirect:
    """Whether network adapters can reach GPU memory: by the module nvidia_peermem, or by an open kernel driver."""

    peermem: bool | None = None
    open_driver: bool | None = None


@dataclass(frozen=True)
class Clock:
    """The node's clock; `offset` is node minus here, `error` how far that may be off, in seconds."""

    received: float | None = None
    answered: float | None = None
    offset: float | None = None
    error: float | None = None


@dataclass(frozen=True)
class GpuState:
    """One GPU: why it is slowed, rows of memory to remap, fabric, PCIe lanes, NVLinks and how many are down."""

    index: int | None = None
    uuid: str | None = None
    bus: str | None = None
    persistence: str | None = None
    slowed: tuple[str, ...] = ()
    remap_pending: str | None = None
    remap_failed: str | None = None
    fabric: str | None = None
    fabric_status: str | None = None
    width: int | None = None
    width_most: int | None = None
    links: int | None = None
    links_down: int | None = None


@dataclass(frozen=True)
class Xid:
    """A kind of error that the kernel has reported of a GPU since the boot; `age` of the last one in seconds."""

    bus: str | None = None
    code: int | None = None
    count: int | None = None
    age: float | None = None
    text: str | None = None


@dataclass(frozen=True)
class GpuHealth:
    """All GPUs; `pci` are the bus addresses of those that the machine has, whether the driver lists them or not."""

    devices: tuple[GpuState, ...] = ()
    error: str | None = None
    xids: tuple[Xid, ...] = ()
    xids_hidden: str | None = None
    pci: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cgroup:
    """The limits of the session's control groups; memory in bytes, `None` where there is no limit."""

    memory: int | None = None
    memory_free: int | None = None
    cpus: float | None = None
    pids_free: int | None = None


@dataclass(frozen=True)
class LeftoverSharedMemory:
    """What processes that are gone have left in /dev/shm."""

    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Checkpoint:
    """The newest distributed checkpoint among the job's outputs; `names` is a checksum of the names of its parts."""

    path: str | None = None
    time: float | None = None
    metadata: bool | None = None
    parts: int | None = None
    names: int | None = None


@dataclass(frozen=True)
class Encoding:
    """How Python reads text there, and the variables that decide it."""

    encoding: str | None = None
    variables: tuple[str, ...] = ()
