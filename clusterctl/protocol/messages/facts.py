"""What a node reports of itself: the facts of the verb `probe`, and the samples of `top`.

A fact that cannot be had is None, or of a whole question the answer is a Problem.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .record import Record, flag, integer, many, named, number, optional, record, string

MAX_PID = 1 << 22  # PID_MAX_LIMIT of 64-bit Linux
IPV4 = re.compile(r"\d{1,3}(\.\d{1,3}){3}")


class Interpreter(Record):
    """The Python that answered."""

    executable: str | None = string()
    realpath: str | None = string()
    version: str | None = string()
    implementation: str | None = string()
    prefix: str | None = string()
    base_prefix: str | None = string()


class ActivateResult(Record):
    """How `activate` ended before Python and what it gave; `status` is `None` where there is none."""

    status: int | None = integer()
    path: tuple[str, ...] = many(string())
    libraries: tuple[str, ...] = many(string())
    conda: str | None = string()
    venv: str | None = string()
    inside: bool | None = flag()
    cuda_home: str | None = string()
    nvcc: str | None = string()
    cuda: str | None = string()
    compiler: str | None = string()
    compiler_version: str | None = string()
    said: str | None = string()

    @property
    def environment(self) -> str | None:
        """The directory of the environment that is active; one made last, a venv, beats conda's."""
        return self.venv or self.conda


class Platform(Record):
    """Kernel, processor and C library."""

    system: str | None = string()
    kernel: str | None = string()
    machine: str | None = string()
    libc: str | None = string()
    distro: str | None = string()


class Account(Record):
    """As whom we are logged in."""

    user: str | None = string()
    uid: int | None = integer()
    gid: int | None = integer()
    home: str | None = string()
    shell: str | None = string()


class Machine(Record):
    """Identity and size; memory in bytes, `ssh_address` is where SSH arrived."""

    hostname: str | None = string()
    boot_id: str | None = string()
    machine_id: str | None = string()
    cpus: int | None = integer()
    cpus_allowed: int | None = integer()
    memory: int | None = integer()
    memory_free: int | None = integer()
    memory_limit: int | None = integer()
    ssh_address: str | None = string()


class Torch(Record):
    """The torch that would be imported; `installed` is what the package's metadata claims."""

    version: str | None = string()
    cuda: str | None = string()
    hip: str | None = string()
    git: str | None = string()
    location: str | None = string()
    installed: str | None = string()


class OtherNccl(Record):
    """An NCCL to which a variable leads."""

    by: str | None = string()
    library: str | None = string()
    version: str | None = string()


class Nccl(Record):
    """The NCCL library on disk and the version it reports."""

    library: str | None = string()
    version: str | None = string()
    preloaded: bool | None = flag()
    others: tuple[OtherNccl, ...] = many(record(OtherNccl))


class InstalledPackages(Record):
    """All packages that the interpreter finds, each as `name version`, and a digest of them."""

    digest: str | None = string()
    packages: tuple[str, ...] = many(string())


class Gpu(Record):
    """One GPU; memory in MiB."""

    index: int | None = integer()
    uuid: str | None = string()
    name: str | None = string()
    driver: str | None = string()
    memory: int | None = integer()
    memory_used: int | None = integer()
    compute_mode: str | None = string()
    bus: str | None = string()
    capability: str | None = string()
    mig: str | None = string()
    ecc_errors: int | None = integer()


class GpuProcess(Record):
    """One process that holds memory of a GPU, in MiB; user and command only where the node shows them."""

    gpu: str | None = string()
    pid: int | None = integer()
    memory: int | None = integer()
    user: str | None = string()
    command: str | None = string()


class Gpus(Record):
    """The accelerators; `module` is the loaded kernel driver, `driver` the one that nvidia-smi reports."""

    vendor: str | None = string()
    count: int | None = integer()
    smi: str | None = string()
    driver: str | None = string()
    module: str | None = string()
    files: int | None = integer()
    error: str | None = string()
    devices: tuple[Gpu, ...] = many(record(Gpu))
    processes: tuple[GpuProcess, ...] = many(record(GpuProcess))


class Address(Record):
    """One address of a NIC; `family` is 4 or 6."""

    ip: str | None = string()
    prefix: int | None = integer()
    family: int | None = integer()
    label: str | None = string()


class Nic(Record):
    """One network interface; speed in Mbit/s."""

    name: str | None = string()
    kind: str | None = string()
    up: bool | None = flag()
    running: bool | None = flag()
    state: str | None = string()
    carrier: bool | None = flag()
    mtu: int | None = integer()
    speed: int | None = integer()
    physical: bool | None = flag()
    driver: str | None = string()
    mac: str | None = string()
    slave: bool | None = flag()
    addresses: tuple[Address, ...] = many(record(Address))

    @property
    def ipv4(self) -> tuple[str, ...]:
        """The IPv4 addresses in the kernel's order; Gloo takes the first."""
        texts = [address.ip or "" for address in self.addresses if address.family == 4]
        return tuple(text for text in texts if IPV4.fullmatch(text))


class Route(Record):
    """Where the kernel would send packets for a peer."""

    address: str | None = string()
    source: str | None = string()
    nic: str | None = string()
    problem: str | None = string()


class RouteEntry(Record):
    """One row of the routing table."""

    nic: str | None = string()
    to: str | None = string()
    prefix: int | None = integer()
    gateway: str | None = string()
    metric: int | None = integer()
    usable: bool | None = flag()


class ResolvedName(Record):
    """What a name resolves to on the node."""

    host: str | None = string()
    addresses: tuple[str, ...] = many(string())
    error: str | None = string()


class PortRange(Record):
    """The ephemeral ports."""

    first: int | None = integer()
    last: int | None = integer()
    reserved: str | None = string()


class Workdir(Record):
    """Where clusterctl keeps its things on the node."""

    path: str | None = string()
    exists: bool | None = flag()
    nearest: str | None = string()
    directory: bool | None = flag()
    owner: int | None = integer()
    mode: int | None = integer()
    writable: bool | None = flag()
    payload: bool | None = flag()


class Disk(Record):
    """Room on one file system, in bytes and inodes, as this user may use it."""

    path: str | None = string()
    mount: str | None = string()
    kind: str | None = string()
    total: int | None = integer()
    free: int | None = integer()
    inodes: int | None = integer()
    inodes_free: int | None = integer()
    read_only: bool | None = flag()


class Limit(Record):
    """One resource limit; -1 is unlimited."""

    soft: int | None = integer()
    hard: int | None = integer()


class Limits(Record):
    """The resource limits of an SSH session."""

    nofile: Limit | None = optional(Limit)
    memlock: Limit | None = optional(Limit)
    nproc: Limit | None = optional(Limit)
    stack: Limit | None = optional(Limit)


class Logind(Record):
    """Whether logind ends a user's processes with the session."""

    running: bool | None = flag()
    kills: bool | None = flag()
    removes_ipc: bool | None = flag()
    linger: bool | None = flag()


class InfinibandPort(Record):
    """One port of an adapter; `link` is InfiniBand or Ethernet (RoCE), `gids` the kinds of its addresses."""

    adapter: str | None = string()
    port: int | None = integer()
    state: str | None = string()
    physical: str | None = string()
    rate: str | None = string()
    link: str | None = string()
    nics: tuple[str, ...] = many(string())
    gids: tuple[str, ...] = many(string())


class GpuDirect(Record):
    """Whether network adapters can reach GPU memory: by the module nvidia_peermem, or by an open kernel driver."""

    peermem: bool | None = flag()
    open_driver: bool | None = flag()


class Clock(Record):
    """The node's clock; `offset` is node minus here, `error` how far that may be off, in seconds."""

    received: float | None = number()
    answered: float | None = number()
    offset: float | None = number()
    error: float | None = number()


class GpuState(Record):
    """One GPU: why it is slowed, rows of memory to remap, fabric, PCIe lanes, NVLinks and how many are down."""

    index: int | None = integer()
    uuid: str | None = string()
    bus: str | None = string()
    persistence: str | None = string()
    slowed: tuple[str, ...] = many(string())
    remap_pending: str | None = string()
    remap_failed: str | None = string()
    fabric: str | None = string()
    fabric_status: str | None = string()
    width: int | None = integer()
    width_most: int | None = integer()
    links: int | None = integer()
    links_down: int | None = integer()


class Xid(Record):
    """A kind of error that the kernel has reported of a GPU since the boot; `age` of the last one in seconds."""

    bus: str | None = string()
    code: int | None = integer()
    count: int | None = integer()
    age: float | None = number()
    text: str | None = string()


class GpuHealth(Record):
    """All GPUs; `pci` are the bus addresses of those that the machine has, whether the driver lists them or not."""

    devices: tuple[GpuState, ...] = many(record(GpuState))
    error: str | None = string()
    xids: tuple[Xid, ...] = many(record(Xid))
    xids_hidden: str | None = string()
    pci: tuple[str, ...] = many(string())


class Cgroup(Record):
    """The limits of the session's control groups; memory in bytes, `None` where there is no limit."""

    memory: int | None = integer()
    memory_free: int | None = integer()
    cpus: float | None = number()
    pids_free: int | None = integer()


class LeftoverSharedMemory(Record):
    """What processes that are gone have left in /dev/shm."""

    files: int | None = integer()
    bytes: int | None = integer()


class Checkpoint(Record):
    """The newest distributed checkpoint among the job's outputs; `names` is a checksum of the names of its parts."""

    path: str | None = string()
    time: float | None = number()
    metadata: bool | None = flag()
    parts: int | None = integer()
    names: int | None = integer()


class Encoding(Record):
    """How Python reads text there, and the variables that decide it."""

    encoding: str | None = string()
    variables: tuple[str, ...] = many(string())


class LockHolder(Record):
    """The holder of one lock, as it describes itself; `user`, `uid` and `pid` are the kernel's. Age in seconds."""

    name: str | None = string()
    run: str | None = string()
    job: str | None = string()
    node: str | None = string()
    by: str | None = string()
    age: float | None = number()
    submitted: float | None = number()
    going: bool | None = flag()
    user: str | None = string()
    uid: int | None = integer()
    pid: int | None = integer()


class Orphan(Record):
    """One process of a run without guardian and agent; `known` if the node's work directory holds the run."""

    run: str | None = string()
    pid: int | None = integer(1, MAX_PID)
    starttime: int | None = integer(0, (1 << 63) - 1)
    age: float | None = number()
    command: str | None = string()
    known: bool | None = flag()
    job: str | None = string()
    state: str | None = string()
    launched_by: str | None = string()
    launched_id: str | None = string()

    @property
    def is_possible(self) -> bool:
        """Return whether a process can have this id and this start time."""
        return self.pid is not None and self.starttime is not None


class FoundPython(Record):
    """An interpreter of a node; `version` is such as `3.11`, `torch` None where it has none."""

    path: str | None = string()
    version: str | None = string()
    torch: str | None = string()


class SetupFacts(Record):
    """Whether the environment is there (`None`: the job has none), where, and whether packages are known only then."""

    made: bool | None = flag()
    prefix: str | None = string()
    pending: bool = flag(False)


class Facts(Record):
    """All that a node reported; `problems` holds what it could not answer, `notes` what was dropped."""

    interpreter: Interpreter = record(Interpreter)
    activate: ActivateResult = record(ActivateResult)
    platform: Platform = record(Platform)
    account: Account = record(Account)
    machine: Machine = record(Machine)
    torch: Torch = record(Torch)
    packages: Mapping[str, str] = named(string())
    installed: InstalledPackages = record(InstalledPackages)
    setup: SetupFacts = record(SetupFacts)
    nccl: Nccl = record(Nccl)
    gpus: Gpus = record(Gpus)
    gpu_health: GpuHealth = record(GpuHealth)
    locks: tuple[LockHolder, ...] = many(record(LockHolder))
    nics: tuple[Nic, ...] = many(record(Nic))
    routing: tuple[RouteEntry, ...] = many(record(RouteEntry))
    routes: Mapping[str, Route] = named(record(Route))
    address: ResolvedName = record(ResolvedName)
    hostname: ResolvedName = record(ResolvedName)
    ports: PortRange = record(PortRange)
    workdir: Workdir = record(Workdir)
    workdir_disk: Disk = record(Disk)
    tmp_disk: Disk = record(Disk)
    shm_disk: Disk = record(Disk)
    home_disk: Disk = record(Disk)
    python_disk: Disk = record(Disk)
    shm_left: LeftoverSharedMemory = record(LeftoverSharedMemory)
    checkpoint: Checkpoint = record(Checkpoint)
    cgroup: Cgroup = record(Cgroup)
    text: Encoding = record(Encoding)
    noise: str = string(missing="")
    limits: Limits = record(Limits)
    environment: Mapping[str, str] = named(string())
    nccl_conf: Mapping[str, tuple[str, ...]] = named(many(string()))
    logind: Logind = record(Logind)
    programs: Mapping[str, str] = named(string())
    infiniband: tuple[InfinibandPort, ...] = many(record(InfinibandPort))
    gpudirect: GpuDirect = record(GpuDirect)
    clock: Clock = record(Clock)
    problems: Mapping[str, str] = named(string())
    notes: tuple[str, ...] = many(string())


class GpuUsage(Record):
    """One GPU: `busy` in per cent, memory in MiB, degrees Celsius, watts."""

    index: int | None = integer()
    name: str | None = string()
    busy: int | None = integer()
    memory_used: int | None = integer()
    memory: int | None = integer()
    temperature: int | None = integer()
    power: float | None = number()


class Traffic(Record):
    """Bytes per second."""

    received: float = number(missing=0.0)
    sent: float = number(missing=0.0)


class GpusSample(Record):
    """The GPUs of a node at one moment; `gpu_pending` until they were asked."""

    gpus: tuple[GpuUsage, ...] = many(record(GpuUsage))
    gpu_problem: str | None = string()
    gpu_pending: bool | None = flag()


class Sample(GpusSample):
    """A node at one moment: `cpu` from 0 to 1, memory in bytes."""

    cpu: float | None = number()
    cores: int | None = integer()
    load: float | None = number()
    memory: int | None = integer()
    memory_free: int | None = integer()
    nics: Mapping[str, Traffic] = named(record(Traffic))

    @property
    def gpu_busy(self) -> float | None:
        """The mean of the GPUs' shares in per cent."""
        known = [gpu.busy for gpu in self.gpus if gpu.busy is not None]
        return sum(known) / len(known) if known else None

    @property
    def memory_used(self) -> int | None:
        """Bytes in use."""
        return None if self.memory is None or self.memory_free is None else self.memory - self.memory_free
