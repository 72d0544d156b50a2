"""What a rank ended with, and why ranks make no progress: CC-JOB, CC-HANG.

By which texts an end is known stands in `protocol/known_errors.py`; `diagnose` reports the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

ALL_STACKS = "all stacks: `clusterctl diagnose --stacks`; why this matters: `clusterctl explain CC-HANG-004`"
COMPARE = "compare all stacks: `clusterctl diagnose --stacks`"
IN_C = "look at the call on that line: a regular expression, or an extension that does not release the GIL"
SAME_STEPS = "give every rank the same number of steps, or use `torch.distributed.algorithms.join.Join`"
SEE_KERNEL = "see what the kernel reports: `clusterctl exec --nodes {node} -- 'dmesg | tail -30'`"

ENTRIES: Mapping[str, Entry] = {
    "CC-JOB-001": Entry(
        "error",
        "the GPU is out of memory",
        do="The batch or the model is too large for this GPU, or another process uses part of its memory. If only one rank runs out of memory, look for another process on its node first.",
        texts=(
            "CUDA out of memory. Tried to allocate 2.00 GiB",
            "CUDA error: out of memory",
            "CUBLAS_STATUS_ALLOC_FAILED",
        ),
        command="clusterctl exec --nodes {node} -- nvidia-smi",
        related="CC-GPU-015",
    ),
    "CC-JOB-002": Entry(
        "error",
        "a GPU kernel got an invalid value, usually an index out of range",
        do="In the data of this rank, a label is not below the number of classes or a token is not in the vocabulary. Kernels run asynchronously, so the traceback points to the wrong line; with CUDA_LAUNCH_BLOCKING it is exact.",
        texts=("device-side assert triggered",),
        command="clusterctl launch job.yaml --set env.CUDA_LAUNCH_BLOCKING=1",
    ),
    "CC-JOB-003": Entry(
        "error",
        "a GPU kernel accessed an invalid memory address",
        do="There is a bug in a CUDA extension, or the GPU is failing. If it happens only on one node, suspect its GPU.",
        texts=(
            "an illegal memory access was encountered",
            "unspecified launch failure",
            "CUBLAS_STATUS_EXECUTION_FAILED",
        ),
        command="clusterctl exec --nodes {node} -- nvidia-smi --query-gpu=index,ecc.errors.uncorrected.volatile.total --format=csv",
        related="CC-GPU-014",
    ),
    "CC-JOB-004": Entry(
        "error",
        "uncorrectable error in GPU memory or NVLink",
        do="Leave the node out with --exclude. A GPU reset or a reboot may help; if it happens again, the card is broken.",
        texts=(
            "uncorrectable ECC error encountered",
            "NVRM: Xid (PCI:0000:41:00): 48",
        ),
        command="clusterctl exec --nodes {node} -- nvidia-smi -q -d ECC,ROW_REMAPPER",
        related="CC-GPU-014",
    ),
    "CC-JOB-005": Entry(
        "error",
        "the GPU no longer responds",
        do="The cause is a hardware fault, heat or the power supply. Leave the node out with --exclude and reboot it.",
        texts=(
            "GPU has fallen off the bus",
            "Unable to determine the device handle for GPU",
        ),
        command="clusterctl exec --nodes {node} -- 'nvidia-smi; dmesg | grep -i xid | tail'",
        related="CC-GPU-016",
    ),
    "CC-JOB-006": Entry(
        "error",
        "this torch or an extension was not built for this GPU",
        do="The GPU is newer or older than those the wheel was compiled for. Install the wheel for your CUDA version; build extensions with TORCH_CUDA_ARCH_LIST.",
        texts=("no kernel image is available for execution on the device",),
        command="clusterctl check job.yaml",
    ),
    "CC-JOB-007": Entry(
        "error",
        "the rank selected a GPU that is not visible to it",
        do="There are more workers than GPUs, the script selects GPUs by the global rank instead of LOCAL_RANK, or `gpus:` in the job or CUDA_VISIBLE_DEVICES hides some GPUs.",
        texts=("invalid device ordinal",),
        command="clusterctl exec --nodes {node} -- nvidia-smi -L",
        related="CC-GPU-002",
    ),
    "CC-JOB-008": Entry(
        "error",
        "the GPU accepts no more processes",
        do="It is in exclusive mode, or a leftover process still uses it.",
        texts=("CUDA-capable device(s) is/are busy or unavailable",),
        command="clusterctl exec --nodes {node} -- nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
        related="CC-GPU-011",
    ),
    "CC-JOB-009": Entry(
        "error",
        "torch does not work with this node's driver",
        do="The driver is missing, too old for this torch, or was updated without a reboot, or torch is a CPU build.",
        texts=(
            "Found no NVIDIA driver on your system",
            "No CUDA GPUs are available",
            "Torch not compiled with CUDA enabled",
            "CUDA error: system not yet initialized",
        ),
        command="clusterctl check job.yaml",
        related="CC-GPU-005",
    ),
    "CC-JOB-010": Entry(
        "error",
        "a module cannot be imported on this node",
        do="If it is missing on all nodes, install it, or let `setup:` install it on every node. Otherwise the environments differ, or the module is not in the code that is sent; a package below src/ needs `env: {PYTHONPATH: src}`. The command repeats the import on this node with the job's Python.",
        texts=("ModuleNotFoundError: No module named 'timm'",),
        command='clusterctl ssh {node} --run {run} -- sh -c \'"$CLUSTERCTL_PYTHON" -c "import {module}"\'',
    ),
    "CC-JOB-011": Entry(
        "error",
        "circular import, or a file of yours has the name of another module",
        do="A file named like a Python module (types.py, random.py, logging.py) or torch.py is imported instead of that module: rename it.",
        texts=("(most likely due to a circular import)",),
    ),
    "CC-JOB-012": Entry(
        "error",
        "a compiled library does not match what is installed on this node",
        do="It was built for another torch, CUDA or system, or LD_LIBRARY_PATH finds another version first.",
        texts=(
            "undefined symbol: _ZN3c10",
            "cannot open shared object file: No such file or directory",
            "version `GLIBCXX_3.4.30' not found",
        ),
        command="clusterctl check job.yaml",
    ),
    "CC-JOB-013": Entry(
        "error",
        "a DataLoader worker process died",
        do="If it was killed, usually memory ran out. If it was a segmentation fault, the cause is a library used by the dataset. With num_workers=0 you see its own error.",
        texts=(
            "DataLoader worker (pid 4711) is killed by signal: Killed",
            "DataLoader worker (pid(s) 4711) exited unexpectedly",
        ),
        command="clusterctl exec --nodes {node} -- 'free -h; dmesg | grep -i \"out of memory\" | tail'",
    ),
    "CC-JOB-014": Entry(
        "error",
        "the ranks ran different operations: another collective, or other shapes",
        do="Only some ranks reach a collective, batches are uneven, or the models were built differently. With TORCH_DISTRIBUTED_DEBUG torch reports which ranks differ.",
        texts=(
            "Detected mismatch between collectives on ranks",
            "DDP expects same model across all ranks",
        ),
        command="clusterctl launch job.yaml --set env.TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    "CC-JOB-015": Entry(
        "error",
        "some parameters got no gradient in this step, or got it twice",
        do="Pass find_unused_parameters=True to DistributedDataParallel, or use every output in the loss.",
        texts=(
            "Expected to have finished reduction in the prior iteration",
            "Expected to mark a variable ready only once",
        ),
        command="clusterctl launch job.yaml --set env.TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    "CC-JOB-016": Entry(
        "error",
        "this account lacks a permission on this node",
        do="The owner or the user IDs differ from the other nodes, NFS uses root squash, or the cache belongs to another user.",
        texts=("PermissionError: [Errno 13] Permission denied: '/data/images'",),
        command="clusterctl exec -- ls -ld {path}",
    ),
    "CC-JOB-017": Entry(
        "error",
        "a file is missing on this node",
        do="Data is not sent with the code: it must be at the same path on every node. A relative path starts in the copy of the code; write outputs below CLUSTERCTL_OUTPUT_DIR.",
        cases={
            "output": Case(
                "a file of the output directory is missing on {nodes}",
                "Each node has its own output directory; the ranks on {owner} did not miss the file there. Copy it, or save and load it on every node.",
            ),
        },
        texts=("FileNotFoundError: [Errno 2] No such file or directory: '/data/images'",),
        command="clusterctl exec -- ls -ld {path}",
    ),
    "CC-JOB-018": Entry(
        "error",
        "the node is out of memory, or the account reached its memory limit",
        do="Use fewer DataLoader workers or smaller batches, or raise the limit (ulimit -v, the cgroup's memory.max).",
        texts=(
            "MemoryError",
            "Cannot allocate memory",
            "DefaultCPUAllocator: can't allocate memory",
        ),
        command="clusterctl exec --nodes {node} -- free -h",
    ),
    "CC-JOB-019": Entry(
        "error",
        "a process or server that the rank was connected to went away",
        do="The error comes from Python's own sockets, not from torch's: usually a DataLoader worker was killed, for example because memory ran out, or a download was interrupted.",
        texts=("ConnectionResetError: [Errno 104] Connection reset by peer",),
        command="clusterctl exec --nodes {node} -- 'free -h; dmesg | grep -i \"out of memory\" | tail'",
    ),
    "CC-JOB-020": Entry(
        "error",
        "the shared memory of this node, /dev/shm, is full or too small",
        do="DataLoader and NCCL use it. Use fewer workers, enlarge /dev/shm (--shm-size or --ipc=host in a container), and remove files that dead processes left in it.",
        texts=(
            "insufficient shared memory (shm)",
            "failed to extend /dev/shm/nccl-x",
        ),
        command="clusterctl exec --nodes {node} -- 'df -h /dev/shm; ls -l /dev/shm | tail'",
        related="CC-SYS-004",
    ),
    "CC-JOB-021": Entry(
        "error",
        "a disk of this node is full",
        do="It may not be the disk you expect: /tmp, the cache below ~/.cache and the directory of the checkpoints are often on different disks. torch.save reports it with a message of a different kind. A disk can also run out of inodes.",
        texts=(
            "No space left on device",
            "PytorchStreamWriter failed writing file",
            "unexpected pos 64 vs 0",
        ),
        command="clusterctl exec --nodes {node} -- 'df -h . /tmp /dev/shm; df -i . /tmp'",
        related="CC-DISK-003",
    ),
    "CC-JOB-022": Entry(
        "error",
        "the account's disk quota is used up",
        do="The disk has free space, but this account has reached its quota. Remove old runs with clean, or write the outputs to another place.",
        texts=("Disk quota exceeded",),
        command="clusterctl exec --nodes {node} -- quota -s",
    ),
    "CC-JOB-023": Entry(
        "error",
        "a process reached its limit of open files",
        do="DataLoader shares tensors through file descriptors. Raise the limit in `activate:` (ulimit -n 65536), or call torch.multiprocessing.set_sharing_strategy('file_system').",
        texts=(
            "Too many open files",
            "received 0 items of ancdata",
        ),
        command="clusterctl exec --nodes {node} -- 'ulimit -n; ulimit -Hn'",
        related="CC-SYS-003",
    ),
    "CC-JOB-024": Entry(
        "error",
        "a port that the script opens is already in use on this node",
        do="The script chose this port: several ranks of one node open the same port, an earlier run is still alive, or the script opens MASTER_PORT itself, which torchrun's store already uses. In that case use init_method env://.",
        texts=(
            "EADDRINUSE",
            "Address already in use",
        ),
        command="clusterctl exec --nodes {node} -- ss -ltnp",
    ),
    "CC-JOB-025": Entry(
        "error",
        "no more processes or threads can be started",
        do="The process limit (ulimit -u) or the cgroup's limit (pids.max) is reached. Use fewer DataLoader workers, and set OMP_NUM_THREADS.",
        texts=(
            "can't start new thread",
            "fork: retry: Resource temporarily unavailable",
        ),
        command="clusterctl exec --nodes {node} -- 'ulimit -u; ps -u $(id -un) | wc -l'",
    ),
    "CC-JOB-026": Entry(
        "error",
        "the network card cannot lock memory",
        do="Raise memlock in /etc/security/limits.conf (sshd reads it at the next login), or LimitMEMLOCK of a service.",
        texts=(
            "ibv_reg_mr failed",
            "ibv_create_qp failed",
        ),
        command="clusterctl exec --nodes {node} -- 'ulimit -l'",
        related="CC-SYS-007",
    ),
    "CC-JOB-027": Entry(
        "error",
        "a file system of this node has failed",
        do="A network file system was remounted or its server is gone, or a disk has errors.",
        texts=(
            "Stale file handle",
            "Input/output error",
            "Read-only file system",
        ),
        command="clusterctl exec --nodes {node} -- 'df -h; dmesg | tail'",
    ),
    "CC-JOB-030": Entry(
        "error",
        "this node does not have the NIC that Gloo or NCCL should use",
        do="`nic:` in the inventory is wrong for this node, or a variable in `env:` overrides it. Names may differ between nodes.",
        texts=(
            "Unable to find address for: eth1",
            "NCCL WARN Bootstrap : no socket interface found",
        ),
        command="clusterctl check job.yaml",
        related="CC-NET-001",
    ),
    "CC-JOB-031": Entry(
        "error",
        "the rank could not connect to another rank over the training network",
        do="If another rank has an error of its own, that is the cause. Otherwise check the addresses: remote=[127.0.0.1] means that a node's name resolves to itself; other causes are NICs in different networks and closed ports.",
        texts=(
            "Gloo connectFullMesh failed",
            "SO_ERROR: No route to host",
        ),
        command="clusterctl check job.yaml",
        related="CC-NET-010",
    ),
    "CC-JOB-032": Entry(
        "error",
        "the rank could not connect to the store on the first node",
        do="If the first node has an error of its own, that is the cause. Otherwise check for a firewall, a wrong training address, or an address written in the script.",
        texts=(
            "client socket has timed out after 60000ms while trying to connect to",
            "client socket has failed to connect",
        ),
        command="clusterctl logs {run} --nodes 0 --tail 30",
    ),
    "CC-JOB-033": Entry(
        "error",
        "not all ranks connected to the store in time",
        do="Look at the ranks that report no timeout: they had not started, or hang before they create their process group.",
        texts=(
            "Timed out after 61 seconds waiting for clients. 1/2 clients joined",
            "Socket Timeout",
            "JaxRuntimeError: Gloo context initialization failed: DEADLINE_EXCEEDED: GetKeyValue() timed out",
        ),
        command="clusterctl logs {run} --tail 3",
    ),
    "CC-JOB-034": Entry(
        "error",
        "InfiniBand or RoCE between the nodes does not work",
        do="A port is down, or subnet, GID or MTU differ. To test: `env: {NCCL_IB_DISABLE: 1}` uses TCP instead.",
        texts=(
            "Got completion from peer 10.0.0.2<40000> with status=12",
            "ibv_modify_qp failed",
        ),
        command="clusterctl exec -- 'grep . /sys/class/infiniband/*/ports/*/state'",
    ),
    "CC-JOB-035": Entry(
        "error",
        "two ranks use the same GPU",
        do="The script does not select its GPU by LOCAL_RANK: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])).",
        texts=("Duplicate GPU detected",),
    ),
    "CC-JOB-036": Entry(
        "error",
        "the nodes have different NCCL versions",
        do="Install the same torch on every node, and let no LD_LIBRARY_PATH or LD_PRELOAD load another NCCL.",
        texts=("Mismatched NCCL version detected",),
        command="clusterctl check job.yaml",
        related="CC-TORCH-004",
    ),
    "CC-JOB-037": Entry(
        "error",
        "a system call of NCCL failed, usually because the network or a peer is gone",
        do="If another rank has an error of its own, that is the cause. Otherwise NCCL's own lines show what failed.",
        texts=(
            "ncclSystemError",
            "unhandled system error",
            "ncclInternalError",
        ),
        command="clusterctl launch job.yaml --set env.NCCL_DEBUG=INFO",
    ),
    "CC-JOB-038": Entry(
        "error",
        "NCCL cannot use the GPU, or is used wrongly",
        do="NCCL's own lines show what failed; NCCL_DEBUG turns them on.",
        texts=(
            "ncclUnhandledCudaError",
            "ncclInvalidUsage",
            "ncclInvalidArgument",
        ),
        command="clusterctl launch job.yaml --set env.NCCL_DEBUG=INFO",
    ),
    "CC-JOB-039": Entry(
        "error",
        "this node lacks something the script needs: a name that resolves, or a torch build with MPI",
        do="Use an address instead of a name, no downloads on nodes without internet access, and NCCL or Gloo instead of MPI.",
        texts=(
            "Distributed package doesn't have MPI built in",
            "Name or service not known",
            "Temporary failure in name resolution",
        ),
        command="clusterctl check job.yaml",
        related="CC-TORCH-006",
    ),
    "CC-JOB-040": Entry(
        "error",
        "killed by the kernel because memory ran out",
        do="The node's OOM kill counter rose while the rank was running. The limit is the node's memory or that of a cgroup or container: use fewer DataLoader workers or smaller batches on the CPU, or raise the limit.",
        texts=("killed by SIGKILL",),
        command="clusterctl exec --nodes {node} -- 'free -h; dmesg -T | grep -iE \"out of memory|oom\" | tail -3'",
    ),
    "CC-JOB-041": Entry(
        "error",
        "killed by a signal from outside the run",
        do="A process that is killed this way cannot print an error. It was killed by a person, a batch system, a watchdog, or the kernel because memory ran out; the kernel log then has an entry.",
        texts=("killed by SIGKILL",),
        command="clusterctl exec --nodes {node} -- 'dmesg -T | grep -iE \"out of memory|oom\" | tail -3; free -h'",
    ),
    "CC-JOB-042": Entry(
        "error",
        "segmentation fault: native code (a C or C++ extension) accessed invalid memory",
        do="Usually an extension was built for another torch or CUDA; if it happens when NCCL starts, ulimit -s unlimited can also be the cause. With PYTHONFAULTHANDLER the Python line is shown.",
        texts=("killed by SIGSEGV",),
        command="clusterctl launch job.yaml --set env.PYTHONFAULTHANDLER=1",
        related="CC-SYS-008",
    ),
    "CC-JOB-043": Entry(
        "error",
        "bus error: the file behind a memory mapping is no longer available",
        do="/dev/shm is full, a file was truncated while it was read, or a network file system failed.",
        texts=("killed by SIGBUS",),
        command="clusterctl exec --nodes {node} -- df -h /dev/shm",
        related="CC-SYS-004",
    ),
    "CC-JOB-044": Entry(
        "error",
        "native code (a C or C++ extension) aborted",
        do="The reason is in the last lines before it, often after `what():`. With PYTHONFAULTHANDLER the Python line is shown. `terminate called without an active exception` after the script's last line: call torch.distributed.destroy_process_group() before the script ends.",
        texts=("killed by SIGABRT",),
        command="clusterctl launch job.yaml --set env.PYTHONFAULTHANDLER=1",
    ),
    "CC-JOB-045": Entry(
        "error",
        "terminated (SIGTERM) from outside the run",
        do="The signal did not come from clusterctl: it was a person, a batch system, systemd at logout, or a shutdown of the machine.",
        texts=("killed by SIGTERM",),
        command="clusterctl exec --nodes {node} -- 'uptime; journalctl -n 20 --no-pager'",
        related="CC-SYS-009",
    ),
    "CC-JOB-046": Entry(
        "error",
        "this processor does not support an instruction",
        do="A library was built for a newer processor than this node has.",
        texts=("killed by SIGILL",),
        command="clusterctl exec -- 'grep -m1 \"model name\" /proc/cpuinfo'",
    ),
    "CC-JOB-050": Entry(
        "error",
        "other ranks timed out waiting for a rank that did not take part",
        do="A rank never called the collective, hangs before it, or was paused. Look at the rank that reports no timeout. With TORCH_NCCL_DUMP_ON_TIMEOUT and TORCH_FR_BUFFER_SIZE NCCL records which rank waited for what.",
        texts=(
            "Watchdog caught collective operation timeout",
            "Timed out waiting 1800000ms for recv operation to complete",
        ),
        command="clusterctl logs {run} --rank {rank} --tail 50",
    ),
    "CC-JOB-052": Entry(
        "error",
        "the connection to another rank was lost",
        do="No rank reported a cause. Look for a rank that ended with no message, and check the network between the nodes.",
        texts=(
            "Connection closed by peer",
            "Connection reset by peer",
            "Broken pipe",
            "ncclRemoteError",
            "NCCL communicator was aborted",
        ),
        command="clusterctl logs {run} --tail 5",
    ),
    "CC-JOB-053": Entry(
        "error",
        "exited without an error while other ranks still needed it",
        do="The ranks run different numbers of steps (uneven data, a condition on the rank, an early return), or the script ends while its last collectives are still queued on the GPU. Use join() of torch.distributed.algorithms or drop_last=True, and end with a barrier and destroy_process_group().",
        command="clusterctl logs {run} --tail 5",
    ),
    "CC-JOB-060": Entry(
        "error",
        "a program cannot be started on this node",
        do="The program is searched on the PATH of a non-login shell, then in the directory of the job's Python. Install it on every node, write its full path, or add it to the PATH with `activate:`. A script of yours needs `#!` and chmod +x.",
        texts=(
            "cannot start accelerate: [Errno 2] No such file or directory",
            "train.sh: line 3: torchrun: command not found",
        ),
        command="clusterctl exec -- 'command -v {program}'",
    ),
    "CC-JOB-061": Entry(
        "error",
        "the script does not accept the rank argument that its launcher passes",
        do="The script accepts only one spelling, and gets the other one: `launcher: launch` passes --local-rank, as torch 2 does. Accept both: add_argument('--local-rank', '--local_rank', type=int). Or without a change of the script: remove `launcher`, and write the script's own spelling: `args: [\"--local_rank=${local_rank}\"]` or `args: [\"--local-rank=${local_rank}\"]`.",
        texts=("error: unrecognized arguments: --local-rank=0",),
    ),
    "CC-JOB-062": Entry(
        "error",
        "torchvision was built for another torch",
        do="Both must be CUDA builds or both CPU builds, of matching versions. Install the two together, or only torchvision with `setup:`, system_site_packages and a wheel that matches the node's torch.",
        texts=("RuntimeError: operator torchvision::nms does not exist",),
        command="clusterctl exec -- python3 -m pip list",
    ),
    "CC-JOB-063": Entry(
        "error",
        "the code is written for a torch older than 2.0",
        do="torch 2.0 removed `torch._six`. If the traceback names a package (often an old apex, timm or DeepSpeed), update it. In your own code replace the name where it is used: `torch._six.string_classes` by `str`, `torch._six.int_classes` by `int`, `torch._six.inf` by `math.inf`, `torch._six.container_abcs` by `collections.abc`; then remove the import, if there is one.",
        texts=(
            "ModuleNotFoundError: No module named 'torch._six'",
            "AttributeError: module 'torch' has no attribute '_six'",
        ),
        command="clusterctl exec -- python3 -m pip list",
    ),
    "CC-JOB-064": Entry(
        "error",
        "parts of a distributed checkpoint (DCP) are on other nodes",
        do="Without a shared disk each node holds only what its own ranks have saved, and `.metadata` is on node 0; loading needs all of it on every node. `clusterctl cp --gather` lets every node fetch the parts of the others: [DCP checkpoints](../restarts.md#checkpoints-of-several-nodes-dcp-fsdp-deepspeed).",
        texts=("FileNotFoundError: [Errno 2] No such file or directory: '/out/step-100/.metadata'",),
        command="clusterctl cp --run {run} --gather all:{folder}",
    ),
    "CC-JOB-065": Entry(
        "error",
        "`breakpoint()` without a debugger",
        do="A rank has no terminal, so pdb reads the end of its input and ends the rank. Start the run with `clusterctl launch --debug`: a rank at `breakpoint()` then waits for `clusterctl debug`. Else remove the call.",
        texts=("bdb.BdbQuit",),
        command="clusterctl launch job.yaml --debug",
    ),
    "CC-JOB-066": Entry(
        "error",
        "Ray ended on a node, or did not start",
        do="One of Ray's own processes ended: the lines before say which one and its exit code. Signal 9, unless someone sent it, is usually from the kernel: memory ran out. Ray's logs of the node are in `attempt-1/ray/` of the run.",
        texts=("clusterctl: Ray ended with exit code 1 on gpu02 (10.0.0.2)",),
        command="clusterctl pull {run} ./logs",
    ),
    "CC-JOB-067": Entry(
        "error",
        "a Ray node was lost",
        do="A task or actor of Ray was on a node whose Ray has ended. Look for what ended on that node.",
        texts=("The actor died because its node has died.", "ray.exceptions.NodeDiedError"),
        command="clusterctl logs {run} --tail 5",
    ),
    "CC-JOB-068": Entry(
        "error",
        "mpirun's daemon (orted) ended on a node",
        do="Its ranks end with it, and mpirun then ends those of all nodes. A negative number is the signal that ended it: -9, unless someone sent it, is usually from the kernel: memory ran out.",
        texts=("clusterctl: orted on gpu02 ended: -9",),
        command="clusterctl exec --nodes {node} -- 'uptime; dmesg | tail'",
    ),
    "CC-JOB-069": Entry(
        "error",
        "the script uses NCCL, and this rank has no GPU for it",
        do="NCCL needs a GPU for each rank, and a CUDA build of torch. To train on CPUs, let the script choose nccl or gloo by `torch.cuda.is_available()`, and write `backend: gloo` in the job, so that `check` looks for what the script uses. If the node has GPUs, `check` shows why torch does not see them.",
        texts=(
            "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
            "Distributed package doesn't have NCCL built in",
        ),
        command="clusterctl check job.yaml --set backend=gloo",
        related="CC-TORCH-006",
    ),
    "CC-JOB-070": Entry(
        "error",
        "torch.distributed is used before init_process_group",
        do="Call `torch.distributed.init_process_group(...)` before the line that is shown: `get_world_size()`, `get_rank()`, `barrier()`, DistributedSampler and DDP need the group. With torchrun the numbers are also in the environment variables WORLD_SIZE, RANK and LOCAL_RANK.",
        texts=(
            "ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
        ),
    ),
    "CC-JOB-071": Entry(
        "error",
        "the address given to init_process_group has no scheme, or an unknown one",
        do='`init_method` is a URL: write `tcp://` before the address, such as tcp://10.0.0.1:23456. In a job for a script with `--tcp` and `--rank`: `launcher: python` and `args: [--tcp, "tcp://${master_addr}:${master_port}", --rank, "${node_rank}"]`.',
        texts=("RuntimeError: No rendezvous handler for ://",),
    ),
    "CC-JOB-072": Entry(
        "error",
        "SyncBatchNorm works on GPUs only",
        do="Convert only where there are GPUs: `if torch.cuda.is_available(): model = nn.SyncBatchNorm.convert_sync_batchnorm(model)`. With GPUs move the model to its GPU before DDP: `model.to(local_rank)`.",
        texts=(
            "ValueError: SyncBatchNorm layers only work with GPU modules",
            "ValueError: SyncBatchNorm expected input tensor to be on GPU",
        ),
    ),
    "CC-JOB-073": Entry(
        "error",
        "the script waits for an argument --local_rank that it was not given",
        do='torchrun passes the number in the environment variable LOCAL_RANK, not as an argument. Without a change of the script write in the job: `args: ["--local_rank=${local_rank}"]`, with a dash if the script has --local-rank. Or in the script: `local_rank = int(os.environ["LOCAL_RANK"])`.',
        texts=(
            "TypeError: int() argument must be a string, a bytes-like object or a real number, not 'NoneType'",
        ),
    ),
    "CC-JOB-074": Entry(
        "error",
        "the script divides by the number of GPUs, and this rank sees none",
        do='`torch.cuda.device_count()` is 0 without GPUs, or where none is visible. To train on CPUs, read LOCAL_RANK instead of dividing: `local_rank = int(os.environ["LOCAL_RANK"])`. If the node has GPUs, `check` shows why torch does not see them.',
        texts=("ZeroDivisionError: integer modulo by zero",),
        command="clusterctl check job.yaml",
        related="CC-GPU-001",
    ),
    "CC-HANG-001": Entry(
        "error",
        "a rank is stopped",
        do="SIGSTOP, Ctrl-Z or a debugger has stopped the process. It continues after SIGCONT, or when the debugger detaches.",
        cases={
            "": Case("{ranks} is stopped by a signal; {waiting}", Same("$ kill -CONT {pid}")),
            "several": Case("{ranks} are stopped by a signal; {waiting}", Same("$ kill -CONT {pid}")),
            "traced": Case(
                "{ranks} is stopped by a debugger; {waiting}", "detach the debugger from process {pid}"
            ),
        },
    ),
    "CC-HANG-002": Entry(
        "error",
        "a rank waits in the kernel for a file system or a device",
        do="The process is in state D: no signal can end it until the kernel gets an answer. Most often a network file system does not respond, else a disk or a driver.",
        cases={
            "": Case(
                "{ranks} waits in the kernel (state D, in {waits_in}), usually for a network file system; {waiting}",
                SEE_KERNEL,
            ),
            "several": Case(
                "{ranks} wait in the kernel (state D, in {waits_in}), usually for a network file system; {waiting}",
                SEE_KERNEL,
            ),
        },
    ),
    "CC-HANG-003": Entry(
        "error",
        "a rank has failed or finished, but its process does not exit",
        do="The script is over, and the interpreter waits while it shuts down: for a thread or a process that is not a daemon, or in a destructor that waits for other ranks. After a traceback fix the exception first.",
        cases={
            "": Case(
                "{ranks} has failed with {exception}, but its process does not exit; {waiting}",
                "read its traceback: `clusterctl logs --rank {number}`",
            ),
            "thread": Case(
                "{ranks} has left its script and waits for the thread {name}, which is not a daemon; {waiting}",
                "end the thread before the script ends, or start it with `daemon=True`",
            ),
            "process": Case(
                "{ranks} has left its script and waits for the process {name}, which is not a daemon; {waiting}",
                "end the process before the script ends, or start it with `daemon=True`",
            ),
        },
    ),
    "CC-HANG-004": Entry(
        "error",
        "a rank has not entered the collective that others wait in",
        do="Every rank of a process group must call the same collectives in the same order, all ranks init_process_group and new_group, and every recv needs a send. Look at the line of the rank that is missing: does it wait for data, loop, or take another branch?",
        cases={
            "": Case("{ranks} has not entered {operation}; it is at {where}; {waiting}", ALL_STACKS),
            "several": Case(
                "{ranks} have not entered {operation}; they are at {where}; {waiting}", ALL_STACKS
            ),
            "busy": Case(
                "{ranks} has not entered {operation}; it is at {where} and uses a processor: it may evaluate, load or save; {waiting}",
                ALL_STACKS,
            ),
            "several-busy": Case(
                "{ranks} have not entered {operation}; they are at {where} and use processors: they may evaluate, load or save; {waiting}",
                ALL_STACKS,
            ),
            "locked": Case(
                "{ranks} has not entered {operation}; C code holds the GIL at {where}; {waiting}", IN_C
            ),
            "several-locked": Case(
                "{ranks} have not entered {operation}; C code holds the GIL at {where}; {waiting}", IN_C
            ),
            "silent": Case(
                "no answer from {ranks}, and others wait in {operation}; {waiting}",
                "see whether its node is overloaded: `clusterctl top`",
            ),
            "ended": Case("{ranks} has exited and will not enter {operation}; {waiting}", SAME_STEPS),
            "several-ended": Case(
                "{ranks} have exited and will not enter {operation}; {waiting}", SAME_STEPS
            ),
            "unreachable": Case(
                "no answer about {ranks} ({nodes}), for which others wait in {operation}; {waiting}",
                "check the node: `clusterctl check --nodes {nodes}`",
            ),
            "unknown": Case(
                "{ranks} in {operation} at {where} for {duration}; torch does not report for which ranks; not in it: {others}",
                ALL_STACKS,
            ),
        },
    ),
    "CC-HANG-005": Entry(
        "error",
        "ranks are in different collectives",
        do="Operation, size and data type must be the same on all ranks of a process group, and ranks that share several groups must use them in the same order. Every send needs its recv.",
        cases={
            "": Case(
                "different operations as #{number} of group {group}: {operations}",
                "make these lines call the same operation with the same shape and data type",
            ),
            "order": Case(
                "{parts}: they wait for each other in a circle",
                "use the process groups in the same order on all ranks",
            ),
            "pairs": Case(
                "{parts}: they wait for each other in a circle",
                "for every recv let the other rank send first, or use `torch.distributed.batch_isend_irecv`",
            ),
            "peer": Case(
                "all ranks have entered {operation}, but with different src or dst: {parts}",
                "pass the same src or dst on all ranks",
            ),
        },
    ),
    "CC-HANG-006": Entry(
        "error",
        "all ranks are in the same collective, and it does not complete",
        do="The program is right as far as it is recorded: the network between the nodes or a GPU is the next suspect. `check --deep` tests both with small collectives; end the run first, or test other nodes.",
        cases={
            "": Case(
                "all ranks ({ranks}) have entered {operation} at {where}, and it has not completed for {duration}",
                "test the network and the GPUs: `clusterctl check --deep`",
            ),
            "root": Case(
                "all ranks ({ranks}) have entered {operation} at {where}, and it has not completed for {duration}; whether all name the same src or dst is not recorded",
                "compare src and dst on all ranks, then test the network and the GPUs: `clusterctl check --deep`",
            ),
            "splits": Case(
                "all ranks ({ranks}) have entered {operation} at {where}, and it has not completed for {duration}; the sizes that ranks send to each other are not recorded",
                "compare the split sizes of all ranks, then test the network and the GPUs: `clusterctl check --deep`",
            ),
        },
    ),
    "CC-HANG-007": Entry(
        "warning",
        "a rank is at another line than most, and nothing is recorded",
        do="No rank waits in a collective that torch has recorded. Where one rank is at another line than most, look there first: a lock, a queue, a file, or a send without its receive.",
        cases={
            "": Case(
                "{ranks} at {where}, while {others} are at {elsewhere}; no rank waits in a recorded collective",
                COMPARE,
            ),
        },
    ),
    "CC-HANG-008": Entry(
        "warning",
        "a node does not answer",
        do="It is unknown what its ranks do. If the agent there is gone, the other nodes stop the run.",
        cases={
            "": Case(
                "{nodes} does not answer, and the other ranks do not show why there is no progress",
                "check the node: `clusterctl check --nodes {nodes}`",
            )
        },
    ),
    "CC-HANG-009": Entry(
        "info",
        "the ranks make progress",
        do="The last collective began within the usual interval of this run, so nothing hangs.",
        cases={"": Case("not hung: {ranks} make progress, the last collective began {duration} s ago")},
    ),
    "CC-HANG-010": Entry(
        "info",
        "nothing shows a hang",
        do="The ranks compute, load or start, or cannot be queried: with `diagnose: false` in the job, or without Python. What they wait for besides collectives is not recorded: look at the lines that are shown, and at what else changes: the log, the output directory, the GPUs.",
        cases={
            "": Case(
                "no rank waits in a collective ({recorded}), and {busy} of {count} use a processor: {positions}",
                "see whether the log and the GPUs show progress: `clusterctl top`; all stacks: `clusterctl diagnose --stacks`",
            ),
            "idle": Case(
                "no rank waits in a collective ({recorded}) or uses a processor: {positions}",
                "find out what these calls wait for, such as a file, a lock or a key that no rank sets; all stacks: `clusterctl diagnose --stacks`",
            ),
            "partly": Case(
                "no full answer from {ranks}, and no other rank waits in a collective ({recorded}): {positions}",
                "see whether its node is overloaded: `clusterctl top`",
            ),
            "nothing": Case(
                "no stacks and no records: {reason}",
                "see the ranks and their last lines: `clusterctl status`",
            ),
        },
    ),
    "CC-HANG-011": Entry(
        "warning",
        "a rank arrives last in most collectives",
        do="All other ranks wait for it in each step. Usual reasons: its data loader or disk, another program on the node, a hot or slow processor. GPU time after the launch of a kernel is not included.",
        cases={
            "": Case(
                "{ranks} arrives last in {share} of {count} collectives, {delay} ms behind the median ({loss} of the time)",
                "compare the nodes: `clusterctl top`; see what the rank does: `clusterctl diagnose --stacks`",
            )
        },
    ),
    "CC-HANG-012": Entry(
        "info",
        "no rank is late in most collectives",
        do="By the times at which Python enters collectives no rank makes the others wait. GPU time after the launch of a kernel is not included.",
        cases={
            "": Case(
                "no rank is late: of {count} collectives {ranks} is last most often, in {share}, {delay} ms behind the median ({loss} of the time)"
            ),
            "nothing": Case(
                "the times of collectives cannot be compared: {reason}", "run it again after some steps"
            ),
            "clocks": Case(
                "the clocks of the nodes are not compared yet, or a node does not answer",
                "run it again after 20 seconds",
            ),
        },
    ),
    "CC-HANG-013": Entry(
        "error",
        "torchrun, the agent or the guardian of a node is halted, or torchrun does not exit",
        do="A halted process does nothing until it gets SIGCONT, or its debugger detaches: torchrun then does not notice that its ranks have ended, and the run does not end. Continue it on its node, or stop the run.",
        cases={
            "": Case(
                "{process} on {node} (pid {pid}) is halted by a signal or a debugger",
                "continue it: `clusterctl exec --nodes {node} -- kill -CONT {pid}`",
            ),
            "remains": Case(
                "all ranks have ended, and {process} on {node} (pid {pid}) has not exited",
                "stop the run: `clusterctl stop`",
            ),
        },
    ),
}
