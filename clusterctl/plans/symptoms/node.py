"""What a node runs out of."""

from __future__ import annotations

from clusterctl.plans.symptoms.symptom import Symptom

NODE = (
    Symptom(
        "CC-JOB-020",
        r"insufficient shared memory|out of shared memory|failed to extend /dev/shm"
        r"|unable to allocate shared memory"
        r"|unable to (open|write to|mmap) (shared memory|.*<?/torch_)|/dev/shm.*No space left",
        "the shared memory of this node, /dev/shm, is full or small",
        "Data loaders and NCCL use it. Fewer workers, a larger /dev/shm (--shm-size or --ipc=host in a "
        "container), and "
        "files in it that dead processes left.",
        "clusterctl exec --nodes {node} -- sh -c 'df -h /dev/shm; ls -l /dev/shm | tail'",
        see="CC-SYS-004",
    ),
    Symptom(
        "CC-JOB-021",
        r"No space left on device|\[Errno 28\]|PytorchStreamWriter failed writing|file write failed"
        r"|unexpected pos \d+ vs \d+|\[enforce fail at inline_container",
        "a disk of this node is full",
        "Not always the one you think: /tmp, the cache below ~/.cache and the place of the checkpoints are "
        "often others. "
        "torch.save says it in words of its own. A disk can also run out of inodes.",
        "clusterctl exec --nodes {node} -- sh -c 'df -h . /tmp /dev/shm; df -i . /tmp'",
        see="CC-DISK-003",
    ),
    Symptom(
        "CC-JOB-022",
        r"Disk quota exceeded|\[Errno 122\]",
        "the account's disk quota is used up",
        "There is space, and you have had your share. Old runs go with clean; results can lie elsewhere.",
        "clusterctl exec --nodes {node} -- quota -s",
    ),
    Symptom(
        "CC-JOB-023",
        r"Too many open files|received 0 items of ancdata|\[Errno 24\]",
        "a process has as many files open as it may",
        "Data loaders share tensors by file descriptors. Raise the limit in activate: (ulimit -n 65536), or "
        "call "
        "torch.multiprocessing.set_sharing_strategy('file_system').",
        "clusterctl exec --nodes {node} -- sh -c 'ulimit -n; ulimit -Hn'",
        see="CC-SYS-003",
    ),
    Symptom(
        "CC-JOB-024",
        r"EADDRINUSE|Address already in use",
        "the script wants a port that is taken on this node",
        "A port of the script's own choice: several ranks of one node want the same, an earlier run lives, "
        "or the script "
        "opens MASTER_PORT itself, which torchrun's store holds: use init_method env://.",
        "clusterctl exec --nodes {node} -- ss -ltnp",
        restart="port_taken",
    ),
    Symptom(
        "CC-JOB-025",
        r"can't start new thread|BlockingIOError: \[Errno 11\]"
        r"|fork: (retry: )?Resource temporarily unavailable",
        "no further process or thread may be started",
        "The limit of processes (ulimit -u) or of the cgroup (pids.max) is reached. Fewer loader workers; "
        "OMP_NUM_THREADS.",
        "clusterctl exec --nodes {node} -- sh -c 'ulimit -u; ps -u $(id -un) | wc -l'",
    ),
    Symptom(
        "CC-JOB-026",
        r"ibv_(reg_mr|create_qp|create_cq)\w* failed",
        "the network card may not lock memory",
        "Raise memlock in /etc/security/limits.conf (sshd reads it at the next login), or LimitMEMLOCK of a "
        "service.",
        "clusterctl exec --nodes {node} -- sh -c 'ulimit -l'",
        see="CC-SYS-007",
    ),
    Symptom(
        "CC-JOB-027",
        r"Stale file handle|\[Errno 116\]|Input/output error|\[Errno 5\]|Read-only file system|\[Errno 30\]"
        r"|Transport endpoint is not connected",
        "a file system of this node has failed",
        "A network file system that was remounted or whose server is gone, or a disk with errors.",
        "clusterctl exec --nodes {node} -- sh -c 'df -h; dmesg | tail'",
    ),
)
