"""Known texts of ranks, and signals: by which text each is known, and what it means for the cause and a restart.

Nodes and client judge by this table. What only a client shows of a code, its meaning and what to do, is in
`plans/runs/verdict.py`.

Symptom("CC-JOB-022", r"Disk quota exceeded", grade="own", restart=None)

A text that is searched was written by a rank, or by an account that pretends to be one: no pattern may take quadratic
time on a line.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from . import reasons

# own: the rank's own failure. doubtful: that, or the answer to another's. waited: no peer came. peer: a peer left.
GRADES = ("own", "doubtful", "waited", "peer")
KILLS = (signal.SIGKILL, signal.SIGTERM)


@dataclass(frozen=True)
class Symptom:
    """One known text or signal; `restart` is the reason for which a run may be started again, None if it may not.

    A text that many errors share counts only if the script's line that raised it matches `source`.
    """

    code: str
    pattern: str = ""  # none where a signal, or something else than a text, shows it
    source: str = ""
    grade: str = "own"
    restart: str | None = None

    @property
    def follows(self) -> bool:
        """Return whether it only reports what another rank, or the network, has done."""
        return self.grade in ("waited", "peer")


@dataclass(frozen=True)
class SymptomMatch:
    """A symptom in what one rank wrote: the words that showed it, and the pattern's named groups."""

    symptom: Symptom
    text: str = ""
    values: Mapping[str, str] = field(default_factory=dict)


def match_symptom(symptoms: Sequence[Symptom], text: str, source: str = "") -> SymptomMatch | None:
    """Return the first symptom, in the table's order, that a text and the line of the script show."""
    for symptom in symptoms:
        match = re.search(symptom.pattern, text, re.IGNORECASE) if text else None
        if match and re.search(symptom.source, source, re.IGNORECASE):
            names = {key: value for key, value in match.groupdict().items() if value}
            return SymptomMatch(symptom, match[0], names)
    return None


def recognise(message: str, tail: Sequence[str], by: int | None, source: str = "") -> SymptomMatch | None:
    """Name the symptom that a rank's exception shows, or else its last lines, or else the signal that ended it.

    `source` is the line of the script that raised the exception. The last lines of a rank that was killed do not say
    why, but for ours: it could not write anything then.
    """
    if message:
        return match_symptom(_IN_WORDS, message, source)
    found = match_symptom(_IN_PASSING if by not in KILLS else _OUR_WORDS, "\n".join(tail))
    if found is None and by is not None and by in BY_SIGNAL:
        return SymptomMatch(BY_SIGNAL[by])
    return found


def all_symptoms() -> tuple[Symptom, ...]:
    """Return every symptom, by its code."""
    every = (*_IN_WORDS, *BY_SIGNAL.values(), OOM_KILLED, ENDED_EARLY)
    return tuple(sorted(every, key=lambda symptom: symptom.code))


BY_SIGNAL: Mapping[int, Symptom] = {
    signal.SIGKILL: Symptom("CC-JOB-041", restart=reasons.WORKER_KILLED),
    signal.SIGSEGV: Symptom("CC-JOB-042", restart=reasons.WORKER_CRASHED),
    signal.SIGBUS: Symptom("CC-JOB-043", restart=reasons.WORKER_CRASHED),
    signal.SIGABRT: Symptom("CC-JOB-044", restart=reasons.WORKER_CRASHED),
    signal.SIGTERM: Symptom("CC-JOB-045", restart=reasons.WORKER_KILLED),
    signal.SIGILL: Symptom("CC-JOB-046", restart=reasons.WORKER_CRASHED),
}
OOM_KILLED = Symptom("CC-JOB-040", restart=reasons.OUT_OF_MEMORY)
ENDED_EARLY = Symptom("CC-JOB-053")
GPU = (
    Symptom(
        "CC-JOB-001",
        r"(CUDA|HIP|NPU|XPU) out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
        r"|OutOfMemoryError",
        restart=reasons.OUT_OF_MEMORY,
    ),
    Symptom(
        "CC-JOB-002",
        r"device-side assert triggered",
    ),
    Symptom(
        "CC-JOB-003",
        r"an illegal memory access was encountered|unspecified launch failure|misaligned address"
        r"|CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED",
        restart=reasons.GPU,
    ),
    Symptom(
        "CC-JOB-004",
        r"uncorrectable (NVLink |ECC )error|NVRM: Xid.*: (48|63|64|74|94|95)\b",
        restart=reasons.GPU,
    ),
    Symptom(
        "CC-JOB-005",
        r"fallen off the bus|Unable to determine the device handle|NVRM: Xid.*: 79\b|GPU is lost",
        restart=reasons.GPU,
    ),
    Symptom(
        "CC-JOB-006",
        r"no kernel image is available for execution",
    ),
    Symptom(
        "CC-JOB-007",
        r"invalid device ordinal",
    ),
    Symptom(
        "CC-JOB-008",
        r"device\(s\) is/are busy or unavailable|all CUDA-capable devices are busy",
        restart=reasons.GPU,
    ),
    Symptom(
        "CC-JOB-009",
        r"Found no NVIDIA driver|No CUDA GPUs are available|driver version is insufficient"
        r"|not compiled with CUDA enabled"
        r"|forward compatibility was attempted|CUDA error: (system not yet initialized|initialization error)",
    ),
)
NETWORK = (
    Symptom(
        "CC-JOB-030",
        r"Unable to find address for: (?P<nic>\S+)|no socket interface found|Unable to find interface",
    ),
    Symptom(
        "CC-JOB-035",
        r"Duplicate GPU detected|Multiple Ranks are using the same GPU",
    ),
    Symptom(
        "CC-JOB-036",
        r"Mismatched NCCL version",
    ),
    Symptom(
        "CC-JOB-034",
        r"Got completion from peer .* with (status|error) ?=?\s?\d+|ibv_modify_qp\w* failed"
        r"|connect incompatible devices"
        r"|IBV_WC_\w+_ERR",
        grade="doubtful",
        restart=reasons.NETWORK,
    ),
    Symptom(
        "CC-JOB-039",
        r"Distributed package doesn't have MPI built in|Name or service not known"
        r"|Temporary failure in name resolution",
    ),
    Symptom(
        "CC-JOB-038",
        r"NCCL (error|WARN).{0,400}unhandled cuda error|ncclUnhandledCudaError|ncclInvalidUsage"
        r"|ncclInvalidArgument",
    ),
)
# What a rank writes when others do not come, or went away. The order matters: the more telling first.
FOLLOWING = (
    Symptom(
        "CC-JOB-050",
        r"watchdog caught collective operation timeout|WorkNCCL\(.*Timeout\(ms\)"
        r"|Timed out waiting \d+ms for( \w+ operation)?"
        r"|failed to pass monitoredBarrier|timed out in monitoredBarrier"
        r"|Application timeout caused pair closure",
        grade="waited",
    ),
    Symptom(
        "CC-JOB-032",
        r"client socket has (timed out|failed to connect)|TCP client failed to connect",
        grade="waited",
    ),
    Symptom(
        "CC-JOB-033",
        r"(?<!\d)\d+/\d+ clients joined|wait timeout after \d+ ?ms, keys|Timeout waiting for key"
        r"|barrier timeout after|GetKeyValue\(\) timed out"
        r"|Socket Timeout",
        grade="waited",
    ),
    Symptom(
        "CC-JOB-031",
        r"connection refused, remote=|connectFullMesh failed|SO_ERROR: (No route to host"
        r"|Connection timed out)",
        grade="peer",
    ),
    Symptom(
        "CC-JOB-037",
        r"ncclSystemError|unhandled system error|ncclInternalError",
        grade="peer",
    ),
    Symptom(
        "CC-JOB-052",
        r"connection closed by( peer)?|connection reset by peer|broken pipe|connection was likely closed"
        r"|got 0 bytes|sent 0 bytes"
        r"|remote worker crashing|ncclRemoteError|remote process exited|NCCL communicator was aborted"
        r"|watchdog thread terminated|socket closed|recvValueWithTimeout failed"
        r"|Did the remote server shutdown"
        r"|signalexception|DataLoader worker \(pid[^)\n]{0,200}\)+ is killed by signal: Terminated"
        r"|successfully reached monitoredBarrier",
        grade="peer",
    ),
)
NODE = (
    Symptom(
        "CC-JOB-020",
        r"insufficient shared memory|out of shared memory|failed to extend /dev/shm"
        r"|unable to allocate shared memory"
        r"|unable to (open|write to|mmap) (shared memory|.*<?/torch_)|/dev/shm.*No space left",
    ),
    Symptom(
        "CC-JOB-021",
        r"No space left on device|\[Errno 28\]|PytorchStreamWriter failed writing|file write failed"
        r"|unexpected pos \d+ vs \d+|\[enforce fail at inline_container",
    ),
    Symptom(
        "CC-JOB-022",
        r"Disk quota exceeded|\[Errno 122\]",
    ),
    Symptom(
        "CC-JOB-023",
        r"Too many open files|received 0 items of ancdata|\[Errno 24\]",
    ),
    Symptom(
        "CC-JOB-024",
        r"EADDRINUSE|Address already in use",
        restart=reasons.PORT_TAKEN,
    ),
    Symptom(
        "CC-JOB-025",
        r"can't start new thread|BlockingIOError: \[Errno 11\]"
        r"|fork: (retry: )?Resource temporarily unavailable",
    ),
    Symptom(
        "CC-JOB-026",
        r"ibv_(reg_mr|create_qp|create_cq)\w* failed",
    ),
    Symptom(
        "CC-JOB-027",
        r"Stale file handle|\[Errno 116\]|Input/output error|\[Errno 5\]|Read-only file system|\[Errno 30\]"
        r"|Transport endpoint is not connected",
    ),
)
PROGRAM = (
    Symptom(
        "CC-JOB-060",
        r"(?m:^)(cannot start |\S{1,200}: (line )?\d+: )(?P<program>[\w./+-]+): "
        r"(\[Errno \d+\]|(command )?not found)",
    ),
    Symptom(
        "CC-JOB-061",
        r"(unrecognized arguments|arguments are required): [^\n]*--local[-_]rank",
    ),
    Symptom(
        "CC-JOB-062",
        r"operator torchvision::\w+ does not exist",
    ),
    Symptom(
        "CC-JOB-063",
        r"No module named 'torch\._six'|module 'torch' has no attribute '_six'"
        r"|cannot import name '_six' from 'torch'",
    ),
    Symptom(
        "CC-JOB-064",
        r"No such file or directory: '(?P<folder>[^'\n]{0,400})/(?:\.metadata|__\d{1,6}_\d{1,6}\.distcp)'",
    ),
    Symptom(
        "CC-JOB-065",
        r"(?m:^bdb\.BdbQuit)",
    ),
    Symptom(
        "CC-JOB-069",
        r"ProcessGroupNCCL is only supported with GPUs|Distributed package doesn't have NCCL built in",
    ),
    Symptom(
        "CC-JOB-070",
        r"Default process group has not been initialized",
    ),
    Symptom(
        "CC-JOB-071",
        r"No rendezvous handler for (?P<scheme>[\w.+-]{0,64})://",
    ),
    Symptom(
        "CC-JOB-072",
        r"SyncBatchNorm (layers only work with GPU modules|expected input tensor to be on GPU)",
    ),
    Symptom(
        "CC-JOB-073",
        r"int\(\) argument must be [^\n]{0,99}'NoneType'|with a specified index or an integer, but got: ?None"
        r"|Invalid device string: '(cuda:)?None'",
        source=r"local_?rank",
    ),
    Symptom(
        "CC-JOB-074",
        r"(?m:^ZeroDivisionError: )",
        source=r"device_count|gpu",
    ),
    Symptom(
        "CC-JOB-011",
        r"\(most likely due to a circular import\)|partially initialized module",
    ),
    Symptom(
        "CC-JOB-012",
        r"undefined symbol|cannot open shared object file|version `(GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found",
    ),
    Symptom(
        "CC-JOB-010",
        r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'|ImportError: ",
    ),
    Symptom(
        "CC-JOB-014",
        r"Detected mismatch between collectives on ranks|DDP expects same model across all ranks"
        r"|Tensors must have (identical|same)|op.preamble.length <= op.nbytes",
    ),
    Symptom(
        "CC-JOB-015",
        r"Expected to have finished reduction in the prior iteration"
        r"|Expected to mark a variable ready only once",
    ),
    Symptom(
        "CC-JOB-018",
        r"DefaultCPUAllocator: (can't|not enough)|(?<!OutOf)MemoryError|Cannot allocate memory",
        restart=reasons.OUT_OF_MEMORY,
    ),
    Symptom(
        "CC-JOB-016",
        r"(PermissionError|OSError): \[Errno (13|1)\]|Permission denied: '(?P<path>[^']+)'",
    ),
    Symptom(
        "CC-JOB-017",
        r"(FileNotFoundError|NotADirectoryError): \[Errno \d+\] [^:]*: '(?P<path>[^']+)'"
        r"|FileNotFoundError",
    ),
)
LOADERS = (
    Symptom(
        "CC-JOB-013",
        r"DataLoader worker \(pid(\(s\))? [\d, ]+\) (is killed by signal: (?!Terminated)"
        r"|exited unexpectedly)",
        grade="doubtful",
    ),
    Symptom(
        "CC-JOB-019",
        r"(?m:^ConnectionResetError: )",
        grade="doubtful",
    ),
)

CLUSTERS = (  # Ray, and the daemons of Open MPI
    Symptom(
        "CC-JOB-066",
        r"(?m:^clusterctl: Ray (ended|did not start))",
        restart=reasons.WORKER_CRASHED,
    ),
    Symptom(
        "CC-JOB-068",
        r"(?m:^clusterctl: orted on \S{1,200} ended)",
        restart=reasons.WORKER_CRASHED,
    ),
    Symptom(
        "CC-JOB-067",
        r"\b(its node has died|node it was running on is dead|NodeDiedError)",
        grade="peer",
    ),
)

_OUR_WORDS = CLUSTERS[:2]
_IN_WORDS = (*CLUSTERS, *GPU, *NETWORK, *NODE, *LOADERS, *FOLLOWING, *PROGRAM)
# Other lines of stderr may be about something that did no harm, such as a cache that could not be read.
_IN_PASSING = (
    *CLUSTERS[:2],
    *GPU,
    *NETWORK,
    *NODE[:1],
    *LOADERS,
    *FOLLOWING,
    *CLUSTERS[2:],
    *NODE[1:],
    *PROGRAM,
)
