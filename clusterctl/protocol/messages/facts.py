"""What a node reports of itself: the facts of the verb `probe`, and the samples of `top`.

plans/facts reads them into values of the same names and fields; a fact that cannot be had is a Problem, or null.
"""

from __future__ import annotations

from typing import TypedDict

from .agent import Holder
from .files import GpuUser


class Problem(TypedDict):
    """Why a fact is missing."""

    problem: str


class InterpreterFacts(TypedDict):
    """The Python that answered."""

    executable: str | None
    realpath: str | None
    version: str | None
    implementation: str | None
    prefix: str | None
    base_prefix: str | None


class ActivateFacts(TypedDict, total=False):
    """How `activate` ended before Python and what it gave; `status` is null where there is none."""

    status: int | None
    path: list[str]
    libraries: list[str]
    conda: str | None
    venv: str | None
    inside: bool | None
    cuda_home: str | None
    nvcc: str | None
    cuda: str | None
    compiler: str | None
    compiler_version: str | None


class PlatformFacts(TypedDict):
    """Kernel, processor and C library."""

    system: str | None
    kernel: str | None
    machine: str | None
    libc: str | None
    distro: str | None


class AccountFacts(TypedDict):
    """As whom we are logged in."""

    user: str | None
    uid: int | None
    gid: int | None
    home: str | None
    shell: str | None


class MachineFacts(TypedDict):
    """Identity and size; memory in bytes, `ssh_address` is where SSH arrived."""

    hostname: str | None
    boot_id: str | None
    machine_id: str | None
    cpus: int | None
    cpus_allowed: int | None
    memory: int | None
    memory_free: int | None
    memory_limit: int | None
    ssh_address: str | None


class TorchFacts(TypedDict):
    """The torch that would be imported; `installed` is what the package's metadata claims."""

    version: str | None
    cuda: str | None
    hip: str | None
    git: str | None
    location: str | None
    installed: str | None


class OtherNcclFacts(TypedDict):
    """An NCCL to which a variable leads."""

    by: str | None
    library: str | None
    version: str | None


class NcclFacts(TypedDict, total=False):
    """The NCCL library on disk and the version it reports."""

    library: str | None
    version: str | None
    preloaded: bool | None
    others: list[OtherNcclFacts]


class PackagesFacts(TypedDict):
    """All packages that the interpreter finds, each as `name version`, and a digest of them."""

    digest: str | None
    packages: list[str]


class GpuFacts(TypedDict, total=False):
    """One GPU; memory in MiB."""

    index: int | None
    uuid: str | None
    name: str | None
    driver: str | None
    memory: int | None
    memory_used: int | None
    compute_mode: str | None
    bus: str | None
    capability: str | None
    mig: str | None
    ecc_errors: int | None


class GpuProcessFacts(GpuUser):
    """One process that holds memory of a GPU, in MiB."""

    gpu: str | None


class GpusFacts(TypedDict, total=False):
    """The accelerators; `module` is the loaded kernel driver, `driver` the one that nvidia-smi reports."""

    vendor: str | None
    count: int | None
    smi: str | None
    driver: str | None
    module: str | None
    files: int | None
    error: str | None
    devices: list[GpuFacts]
    processes: list[GpuProcessFacts]


class AddressFacts(TypedDict):
    """One address of a NIC; `family` is 4 or 6."""

    ip: str | None
    prefix: int | None
    family: int | None
    label: str | None


class NicFacts(TypedDict):
    """One network interface; speed in Mbit/s."""

    name: str | None
    kind: str | None
    up: bool | None
    running: bool | None
    state: str | None
    carrier: bool | None
    mtu: int | None
    speed: int | None
    physical: bool | None
    driver: str | None
    mac: str | None
    slave: bool | None
    addresses: list[AddressFacts]


class RouteFacts(TypedDict, total=False):
    """Where the kernel would send packets for a peer."""

    address: str | None
    source: str | None
    nic: str | None
    problem: str | None


class RouteEntryFacts(TypedDict):
    """One row of the routing table."""

    nic: str | None
    to: str | None
    prefix: int | None
    gateway: str | None
    metric: int | None
    usable: bool | None


class ResolvedNameFacts(TypedDict, total=False):
    """What a name resolves to on the node."""

    host: str | None
    addresses: list[str]
    error: str | None


class PortRangeFacts(TypedDict):
    """The ephemeral ports."""

    first: int | None
    last: int | None
    reserved: str | None


class WorkdirFacts(TypedDict, total=False):
    """Where clusterctl keeps its things on the node."""

    path: str | None
    exists: bool | None
    nearest: str | None
    directory: bool | None
    owner: int | None
    mode: int | None
    writable: bool | None
    payload: bool | None


class DiskFacts(TypedDict):
    """Room on one file system, in bytes and inodes, as this user may use it."""

    path: str | None
    mount: str | None
    kind: str | None
    total: int | None
    free: int | None
    inodes: int | None
    inodes_free: int | None
    read_only: bool | None


class LimitFacts(TypedDict):
    """One resource limit; -1 is unlimited."""

    soft: int | None
    hard: int | None


class LimitsFacts(TypedDict):
    """The resource limits of an SSH session."""

    nofile: LimitFacts | None
    memlock: LimitFacts | None
    nproc: LimitFacts | None
    stack: LimitFacts | None


class LogindFacts(TypedDict):
    """Whether logind ends a user's processes with the session."""

    running: bool | None
    kills: bool | None
    removes_ipc: bool | None
    linger: bool | None


class PythonFacts(TypedDict):
    """An interpreter: its path, `~/...` in the home, its version such as `3.11`, and that of its torch."""

    path: str
    version: str
    torch: str | None


class InfinibandPortFacts(TypedDict):
    """One port of an adapter; `link` is InfiniBand or Ethernet (RoCE), `gids` the kinds of its addresses."""

    adapter: str | None
    port: int | None
    state: str | None
    physical: str | None
    rate: str | None
    link: str | None
    nics: list[str]
    gids: list[str]


class GpuDirectFacts(TypedDict):
    """Whether network adapters can reach GPU memory: by the module nvidia_peermem, or by an open kernel driver."""

    peermem: bool | None
    open_driver: bool | None


class ClockFacts(TypedDict):
    """The node's clock; `offset` is node minus here, `error` how far that may be off, in seconds."""

    received: float | None
    answered: float | None


class GpuStateFacts(TypedDict, total=False):
    """One GPU: why it is slowed, rows of memory to remap, fabric, PCIe lanes, NVLinks and how many are down."""

    index: int | None
    uuid: str | None
    bus: str | None
    persistence: str | None
    slowed: list[str]
    remap_pending: str | None
    remap_failed: str | None
    fabric: str | None
    fabric_status: str | None
    width: int | None
    width_most: int | None
    links: int | None
    links_down: int | None


class XidFacts(TypedDict):
    """A kind of error that the kernel has reported of a GPU since the boot; `age` of the last one in seconds."""

    bus: str | None
    code: int | None
    count: int | None
    age: float | None
    text: str | None


class GpuHealthFacts(TypedDict):
    """All GPUs; `pci` are the bus addresses of those that the machine has, whether the driver lists them or not."""

    devices: list[GpuStateFacts]
    error: str | None
    xids: list[XidFacts]
    xids_hidden: str | None
    pci: list[str]


class CgroupFacts(TypedDict):
    """The limits of the session's control groups; memory in bytes, null where there is no limit."""

    memory: int | None
    memory_free: int | None
    cpus: float | None
    pids_free: int | None


class SharedMemoryFacts(TypedDict):
    """What processes that are gone have left in /dev/shm."""

    files: int | None
    bytes: int | None


class EncodingFacts(TypedDict):
    """How Python reads text there, and the variables that decide it."""

    encoding: str | None
    variables: list[str]


class SetupFacts(TypedDict, total=False):
    """Whether the environment is there (null: the job has none), where, and whether packages are known only then."""

    made: bool | None
    prefix: str | None


class SetupQuery(TypedDict):
    """Which environment a probe looks into."""

    content: str
    brings_torch: bool


class CheckpointFacts(TypedDict):
    """The newest distributed checkpoint among a job's outputs; `names` is a checksum of the names of its parts."""

    path: str
    time: float
    metadata: bool
    parts: int
    names: int


class ProbeFacts(TypedDict):
    """All that a node reports."""

    interpreter: InterpreterFacts | Problem
    activate: ActivateFacts | Problem
    platform: PlatformFacts | Problem
    account: AccountFacts | Problem
    machine: MachineFacts | Problem
    torch: TorchFacts | Problem | None
    packages: dict[str, str] | Problem
    installed: PackagesFacts | Problem
    setup: SetupFacts | Problem | None
    nccl: NcclFacts | Problem | None
    gpus: GpusFacts | Problem
    gpu_health: GpuHealthFacts | Problem | None
    locks: list[Holder] | Problem
    nics: list[NicFacts] | Problem
    routing: list[RouteEntryFacts] | Problem
    routes: dict[str, RouteFacts] | Problem
    address: ResolvedNameFacts | Problem
    hostname: ResolvedNameFacts | Problem
    ports: PortRangeFacts | Problem
    workdir: WorkdirFacts | Problem
    workdir_disk: DiskFacts | Problem
    tmp_disk: DiskFacts | Problem
    shm_disk: DiskFacts | Problem
    home_disk: DiskFacts | Problem
    python_disk: DiskFacts | Problem
    shm_left: SharedMemoryFacts | Problem
    checkpoint: CheckpointFacts | Problem | None
    cgroup: CgroupFacts | Problem
    text: EncodingFacts | Problem
    limits: LimitsFacts | Problem
    environment: dict[str, str] | Problem
    nccl_conf: dict[str, list[str]] | Problem
    logind: LogindFacts | Problem
    programs: dict[str, str] | Problem  # mpirun and orted: where they are, empty where they are not
    infiniband: list[InfinibandPortFacts] | Problem
    gpudirect: GpuDirectFacts | Problem
    clock: ClockFacts | Problem


class GpuSample(TypedDict):
    """One GPU: `busy` in per cent, memory in MiB, degrees Celsius, watts."""

    index: int | None
    name: str | None
    busy: int | None
    memory_used: int | None
    memory: int | None
    temperature: int | None
    power: float | None


class TrafficSample(TypedDict):
    """Bytes per second."""

    received: float
    sent: float


class MachineSample(TypedDict):
    """What a node reports at one moment: `cpu` from 0 to 1, memory in bytes."""

    cpu: float
    cores: int | None
    load: float
    memory: int | None
    memory_free: int | None
    nics: dict[str, TrafficSample]


class GpusSample(TypedDict):
    """The GPUs at one moment; `gpu_pending` until they were asked."""

    gpus: list[GpuSample]
    gpu_problem: str | None
    gpu_pending: bool


class UsageSample(MachineSample, GpusSample):
    """How busy a node is."""
