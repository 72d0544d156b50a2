"""What a client shows of a known error of a rank: its meaning, what to do, a command.

By which texts it is known stands in `protocol/known_errors.py`, by which the nodes judge as well.

"CC-JOB-022": Guidance("the account's disk quota is used up", "...", "clusterctl exec ...")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusterctl.protocol.root_cause import Cause
from clusterctl.specs.text import quote_word


@dataclass(frozen=True)
class Guidance:
    """What one code means and what to do; `related_check` is a related check.

    `command` may name {node}, {rank}, {run} and the named groups of the code's pattern. Each is quoted for the shell,
    and so stands outside of the command's own quotes, but for a group that matches only word characters.
    """

    meaning: str
    advice: str
    command: str = ""
    related_check: str = ""

    def render_command(self, values: Mapping[str, str]) -> str:
        """Give the command for one case; nothing where it needs a name that the case lacks."""
        try:
            return self.command.format_map({name: quote_word(value) for name, value in values.items()})
        except KeyError:
            return ""


def guidance_of(code: str) -> Guidance:
    """Return what is shown of a code; nothing for one that this version does not know."""
    return GUIDANCE.get(code, _NOTHING)


def advised_command(cause: Cause, run: str) -> str:
    """Give the command that shows more about what is known of the cause; nothing if there is none."""
    if cause.symptom_match is None:
        return ""
    rank = {} if cause.failure.rank is None else {"rank": str(cause.failure.rank)}
    names = {**cause.symptom_match.values, **rank, "node": cause.failure.node, "run": run}
    return guidance_of(cause.symptom_match.symptom.code).render_command(names)


_NOTHING = Guidance("", "")
_SHOW_NCCL_LOG = "clusterctl launch job.yaml --set env.NCCL_DEBUG=INFO"

GUIDANCE: Mapping[str, Guidance] = {
    "CC-JOB-001": Guidance(
        "the GPU's memory is full",
        "Either the batch or the model is too large for this GPU, or somebody else's process holds a part "
        "of it. If only "
        "one rank runs out, look for another process on its node first.",
        "clusterctl exec --nodes {node} -- nvidia-smi",
        related_check="CC-GPU-015",
    ),
    "CC-JOB-002": Guidance(
        "a kernel on the GPU found a value that must not be, nearly always an index out of range",
        "Labels outside of the number of classes, or tokens outside of the vocabulary, in the data of this "
        "rank. The "
        "traceback points elsewhere, because kernels run later than they are called; with "
        "CUDA_LAUNCH_BLOCKING it is exact.",
        "clusterctl launch job.yaml --set env.CUDA_LAUNCH_BLOCKING=1",
    ),
    "CC-JOB-003": Guidance(
        "a kernel on the GPU read or wrote where it must not",
        "A bug in a CUDA extension, or a GPU that fails. If it comes back on the same node only, suspect "
        "the GPU.",
        "clusterctl exec --nodes {node} -- nvidia-smi "
        "--query-gpu=index,ecc.errors.uncorrected.volatile.total --format=csv",
        related_check="CC-GPU-014",
    ),
    "CC-JOB-004": Guidance(
        "the GPU's memory or its links have a fault that cannot be corrected",
        "Take the node out with --exclude; a reset or reboot may help, a second time means that the card is "
        "broken.",
        "clusterctl exec --nodes {node} -- nvidia-smi -q -d ECC,ROW_REMAPPER",
        related_check="CC-GPU-014",
    ),
    "CC-JOB-005": Guidance(
        "the GPU does not answer any more",
        "A hardware fault, or heat, or power. Take the node out with --exclude and reboot it.",
        "clusterctl exec --nodes {node} -- sh -c 'nvidia-smi; dmesg | grep -i xid | tail'",
        related_check="CC-GPU-016",
    ),
    "CC-JOB-006": Guidance(
        "this torch, or an extension, was not built for this GPU",
        "The GPU is newer or older than what the wheel was compiled for. Install the wheel for your CUDA "
        "version; build "
        "extensions with TORCH_CUDA_ARCH_LIST.",
        "clusterctl check job.yaml",
    ),
    "CC-JOB-007": Guidance(
        "the rank asked for a GPU that it does not see",
        "More workers than GPUs, a script that counts GPUs by the global rank instead of LOCAL_RANK, or "
        "gpus: in the job "
        "or CUDA_VISIBLE_DEVICES hiding some.",
        "clusterctl exec --nodes {node} -- nvidia-smi -L",
        related_check="CC-GPU-002",
    ),
    "CC-JOB-008": Guidance(
        "the GPU takes no further process",
        "It is in exclusive mode, or a process that should be gone still holds it.",
        "clusterctl exec --nodes {node} -- nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
        related_check="CC-GPU-011",
    ),
    "CC-JOB-009": Guidance(
        "torch and the driver of this node do not come together",
        "No driver, one that is too old for this torch, one that was updated without a reboot, or a CPU "
        "build of torch.",
        "clusterctl check job.yaml",
        related_check="CC-GPU-005",
    ),
    "CC-JOB-010": Guidance(
        "a module cannot be imported on this node",
        "If it is missing everywhere: install it, or let `setup:` do that on every node. Else the environments differ, "
        "or the module lies outside of what is sent as code; a package below src/ needs `env: {PYTHONPATH: src}`. "
        "The command shows where it is missing; take the job's own Python.",
        "clusterctl exec -- python3 -c 'import {module}'",
    ),
    "CC-JOB-011": Guidance(
        "two modules import each other, or a file of yours has the name of another module",
        "A file called like a module of Python (types.py, random.py, logging.py) or torch.py takes its "
        "place: rename it.",
    ),
    "CC-JOB-012": Guidance(
        "a compiled library does not fit what is installed on this node",
        "It was built for another torch, CUDA or system, or LD_LIBRARY_PATH finds another one first.",
        "clusterctl check job.yaml",
    ),
    "CC-JOB-013": Guidance(
        "a process of the data loader died",
        "Killed: mostly memory. Segmentation fault: a library in the dataset. With num_workers=0 its own "
        "error is seen.",
        "clusterctl exec --nodes {node} -- sh -c 'free -h; dmesg | grep -i \"out of memory\" | tail'",
    ),
    "CC-JOB-014": Guidance(
        "the ranks did different things: another collective, or other shapes",
        "A collective that only some ranks reach, uneven batches, or models that were built differently. "
        "With "
        "TORCH_DISTRIBUTED_DEBUG torch says which ranks differ.",
        "clusterctl launch job.yaml --set env.TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    "CC-JOB-015": Guidance(
        "some parameters got no gradient in this step, or one twice",
        "Give DistributedDataParallel find_unused_parameters=True, or let every output take part in the "
        "loss.",
        "clusterctl launch job.yaml --set env.TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    "CC-JOB-016": Guidance(
        "this account may not read or write something on this node",
        "Other owners or numbers of users than on the other nodes, root squash on NFS, or a cache of "
        "somebody else.",
        "clusterctl exec -- ls -ld {path}",
    ),
    "CC-JOB-017": Guidance(
        "a file is not there on this node",
        "Data is not sent with the code: it must lie at the same path on every node. A relative path begins "
        "in the copy "
        "of the code; what a rank writes belongs below CLUSTERCTL_OUTPUT_DIR.",
        "clusterctl exec -- ls -ld {path}",
    ),
    "CC-JOB-018": Guidance(
        "the node, or what this account may use of it, has no memory left",
        "Fewer data loader workers, smaller batches, or a higher limit (ulimit -v, the cgroup's memory.max).",
        "clusterctl exec --nodes {node} -- free -h",
    ),
    "CC-JOB-019": Guidance(
        "a process or server that the rank spoke to went away",
        "This comes from Python's own sockets, not from torch's: mostly a process of the data loader was killed, for "
        "its memory say, or a download broke off.",
        "clusterctl exec --nodes {node} -- sh -c 'free -h; dmesg | grep -i \"out of memory\" | tail'",
    ),
    "CC-JOB-020": Guidance(
        "the shared memory of this node, /dev/shm, is full or small",
        "Data loaders and NCCL use it. Fewer workers, a larger /dev/shm (--shm-size or --ipc=host in a "
        "container), and "
        "files in it that dead processes left.",
        "clusterctl exec --nodes {node} -- sh -c 'df -h /dev/shm; ls -l /dev/shm | tail'",
        related_check="CC-SYS-004",
    ),
    "CC-JOB-021": Guidance(
        "a disk of this node is full",
        "Not always the one you think: /tmp, the cache below ~/.cache and the place of the checkpoints are "
        "often others. "
        "torch.save says it in words of its own. A disk can also run out of inodes.",
        "clusterctl exec --nodes {node} -- sh -c 'df -h . /tmp /dev/shm; df -i . /tmp'",
        related_check="CC-DISK-003",
    ),
    "CC-JOB-022": Guidance(
        "the account's disk quota is used up",
        "There is space, and you have had your share. Old runs go with clean; results can lie elsewhere.",
        "clusterctl exec --nodes {node} -- quota -s",
    ),
    "CC-JOB-023": Guidance(
        "a process has as many files open as it may",
        "Data loaders share tensors by file descriptors. Raise the limit in activate: (ulimit -n 65536), or "
        "call "
        "torch.multiprocessing.set_sharing_strategy('file_system').",
        "clusterctl exec --nodes {node} -- sh -c 'ulimit -n; ulimit -Hn'",
        related_check="CC-SYS-003",
    ),
    "CC-JOB-024": Guidance(
        "the script wants a port that is taken on this node",
        "A port of the script's own choice: several ranks of one node want the same, an earlier run lives, "
        "or the script "
        "opens MASTER_PORT itself, which torchrun's store holds: use init_method env://.",
        "clusterctl exec --nodes {node} -- ss -ltnp",
    ),
    "CC-JOB-025": Guidance(
        "no further process or thread may be started",
        "The limit of processes (ulimit -u) or of the cgroup (pids.max) is reached. Fewer loader workers; "
        "OMP_NUM_THREADS.",
        "clusterctl exec --nodes {node} -- sh -c 'ulimit -u; ps -u $(id -un) | wc -l'",
    ),
    "CC-JOB-026": Guidance(
        "the network card may not lock memory",
        "Raise memlock in /etc/security/limits.conf (sshd reads it at the next login), or LimitMEMLOCK of a "
        "service.",
        "clusterctl exec --nodes {node} -- sh -c 'ulimit -l'",
        related_check="CC-SYS-007",
    ),
    "CC-JOB-027": Guidance(
        "a file system of this node has failed",
        "A network file system that was remounted or whose server is gone, or a disk with errors.",
        "clusterctl exec --nodes {node} -- sh -c 'df -h; dmesg | tail'",
    ),
    "CC-JOB-030": Guidance(
        "this node does not have the NIC that Gloo or NCCL was told to use",
        "nic: in the inventory is wrong for this node, or a variable in env: overrides it. Names may differ "
        "per node.",
        "clusterctl check job.yaml",
        related_check="CC-NET-001",
    ),
    "CC-JOB-031": Guidance(
        "the rank did not reach another rank on the training network",
        "If another rank has its own error, that is the cause. Otherwise the addresses: remote=[127.0.0.1] "
        "means that a "
        "node's name resolves to itself; else NICs of different nets, or closed ports.",
        "clusterctl check job.yaml",
        related_check="CC-NET-010",
    ),
    "CC-JOB-032": Guidance(
        "the rank did not reach the store on the first node",
        "If the first node has its own error, that is the cause. Otherwise: a firewall, a wrong training "
        "address, or a "
        "script with an address of its own.",
        "clusterctl logs {run} --node 0 --tail 30",
    ),
    "CC-JOB-033": Guidance(
        "not all ranks came to the store in time",
        "Look at the ranks that do not complain: they had not started, or hang before their process group.",
        "clusterctl logs {run} --tail 3",
    ),
    "CC-JOB-034": Guidance(
        "InfiniBand or RoCE between the nodes does not work",
        "A port that is down, another subnet, GID or MTU. As a test: env: {NCCL_IB_DISABLE: 1} goes over "
        "TCP.",
        "clusterctl exec -- sh -c 'grep . /sys/class/infiniband/*/ports/*/state'",
    ),
    "CC-JOB-035": Guidance(
        "two ranks use the same GPU",
        "The script does not choose its GPU by LOCAL_RANK: "
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])).",
    ),
    "CC-JOB-036": Guidance(
        "the nodes have different versions of NCCL",
        "The same torch on every node, and no LD_LIBRARY_PATH or LD_PRELOAD that brings another NCCL.",
        "clusterctl check job.yaml",
        related_check="CC-TORCH-004",
    ),
    "CC-JOB-037": Guidance(
        "a system call of NCCL failed, mostly because the network or a peer is gone",
        "If another rank has its own error, that is the cause. Otherwise NCCL's own lines name what failed.",
        _SHOW_NCCL_LOG,
    ),
    "CC-JOB-038": Guidance(
        "NCCL cannot use the GPU, or is used wrongly",
        "NCCL's own lines name what failed; they come with NCCL_DEBUG.",
        _SHOW_NCCL_LOG,
    ),
    "CC-JOB-039": Guidance(
        (
            "this node lacks what the script asks for: a build of torch with that backend, or a name that "
            "resolves"
        ),
        "backend: gloo for a CPU build; an address instead of a name; no downloads from nodes without a way "
        "out.",
        "clusterctl check job.yaml",
        related_check="CC-TORCH-006",
    ),
    "CC-JOB-040": Guidance(
        "the kernel killed it because memory ran out",
        "The node's count of such kills rose while the rank lived. The node's own memory, or what a cgroup or "
        "container grants: fewer data loader workers, smaller batches on the CPU, a higher limit.",
        "clusterctl exec --nodes {node} -- sh -c 'free -h; dmesg -T | grep -iE \"out of memory|oom\" | tail -3'",
    ),
    "CC-JOB-041": Guidance(
        "killed from outside",
        "Who is killed so cannot say anything. It was a person, a batch system, a watchdog, or the kernel for want "
        "of memory: then its log says so.",
        'clusterctl exec --nodes {node} -- sh -c \'dmesg -T | grep -iE "out of memory|oom" | tail -3; free '
        "-h'",
    ),
    "CC-JOB-042": Guidance(
        "a segmentation fault: compiled code read where it must not",
        "Mostly an extension built for another torch or CUDA; at the start of NCCL also ulimit -s "
        "unlimited. With "
        "PYTHONFAULTHANDLER the line of Python is shown.",
        "clusterctl launch job.yaml --set env.PYTHONFAULTHANDLER=1",
        related_check="CC-SYS-008",
    ),
    "CC-JOB-043": Guidance(
        "a bus error: a file that was mapped into memory lost its ground",
        "A full /dev/shm, a file that was truncated while it was read, or a network file system that failed.",
        "clusterctl exec --nodes {node} -- df -h /dev/shm",
        related_check="CC-SYS-004",
    ),
    "CC-JOB-044": Guidance(
        "compiled code gave up",
        "Its reason stands in the last lines before, often after `what():`. With PYTHONFAULTHANDLER the line of Python "
        "is shown. `terminate called without an active exception` after the script's last line: call "
        "torch.distributed.destroy_process_group() before the script ends.",
        "clusterctl launch job.yaml --set env.PYTHONFAULTHANDLER=1",
    ),
    "CC-JOB-045": Guidance(
        "asked to end by somebody else",
        "Not by clusterctl: a person, a batch system, systemd at a logout, or a machine that is shut down.",
        "clusterctl exec --nodes {node} -- sh -c 'uptime; journalctl -n 20 --no-pager'",
        related_check="CC-SYS-009",
    ),
    "CC-JOB-046": Guidance(
        "this processor does not know an instruction",
        "A library was built for a newer processor than this node has.",
        "clusterctl exec -- sh -c 'grep -m1 \"model name\" /proc/cpuinfo'",
    ),
    "CC-JOB-050": Guidance(
        "the others waited for a rank that did not come",
        "A rank that never called the collective, hangs before it, or was stopped. The one to look at is "
        "the rank that "
        "does not complain. TORCH_NCCL_DUMP_ON_TIMEOUT and TORCH_FR_BUFFER_SIZE let NCCL write who waited "
        "for what.",
        "clusterctl logs {run} --rank {rank} --tail 50",
    ),
    "CC-JOB-052": Guidance(
        "another rank went away",
        "No rank said why. Look for one that ended without a word, and at the network between the nodes.",
        "clusterctl logs {run} --tail 5",
    ),
    "CC-JOB-053": Guidance(
        "it left without an error while the others still needed it",
        "The ranks do not do the same number of steps: uneven data, a condition on the rank, an early return. "
        "join() of "
        "torch.distributed.algorithms, drop_last=True, or a barrier at the end.",
        "clusterctl logs {run} --tail 5",
    ),
    "CC-JOB-060": Guidance(
        "a program cannot be started on this node",
        "It is looked for on the PATH of a shell that is no login shell, then beside the job's Python. Install it on "
        "every node, write its whole path, or let `activate:` lead to it. A script of yours needs `#!` and chmod +x.",
        "clusterctl exec -- sh -c 'command -v {program}'",
    ),
    "CC-JOB-061": Guidance(
        "the script does not read the rank as its launcher gives it",
        "`launcher: launch` passes --local-rank as torch 2 does, and the script knows --local_rank only, or the other "
        "way round. Let it take both: add_argument('--local-rank', '--local_rank', type=int). Or leave it as it is: "
        '`use_env: true` and `args: ["--local_rank=${local_rank}"]`.',
    ),
    "CC-JOB-062": Guidance(
        "torchvision was built for another torch",
        "Both must be CUDA builds or both CPU builds, of versions that belong together. Install the pair together, or "
        "torchvision alone by `setup:` with system_site_packages and a wheel that fits the node's torch.",
        "clusterctl exec -- python3 -m pip list",
    ),
}
