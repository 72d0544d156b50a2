"""What a rank ended with: CC-JOB. By which texts it is known stands in `protocol/known_errors.py`."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-JOB-001": Entry(
        "error",
        Text("the GPU is out of memory", "GPU 显存不足"),
        do=Text(
            "The batch or the model is too large for this GPU, or another process uses part of its memory. If only one rank runs out of memory, look for another process on its node first.",
            "batch 或模型超出这块 GPU 的显存，或者其他进程占用了一部分。如果只有一个 rank 显存不足，先检查该节点上是否有其他进程在使用 GPU。",
        ),
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
        Text(
            "a GPU kernel got an invalid value, usually an index out of range",
            "GPU kernel 遇到无效值，通常是索引越界",
        ),
        do=Text(
            "In the data of this rank, a label is not below the number of classes or a token is not in the vocabulary. Kernels run asynchronously, so the traceback points to the wrong line; with CUDA_LAUNCH_BLOCKING it is exact.",
            "该 rank 的数据中，标签超出类别数，或者 token 超出词表。kernel 异步执行，traceback 指向的位置不准确；设置 CUDA_LAUNCH_BLOCKING 后才准确。",
        ),
        texts=("device-side assert triggered",),
        command="clusterctl launch job.yaml --set env.CUDA_LAUNCH_BLOCKING=1",
    ),
    "CC-JOB-003": Entry(
        "error",
        Text("a GPU kernel accessed an invalid memory address", "GPU kernel 访问了非法内存地址"),
        do=Text(
            "There is a bug in a CUDA extension, or the GPU is failing. If it happens only on one node, suspect its GPU.",
            "CUDA 扩展有 bug，或者 GPU 出现故障。如果只在同一个节点上出现，应怀疑该节点的 GPU。",
        ),
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
        Text("uncorrectable error in GPU memory or NVLink", "GPU 显存或 NVLink 出现不可纠正的错误"),
        do=Text(
            "Leave the node out with --exclude. A GPU reset or a reboot may help; if it happens again, the card is broken.",
            "用 --exclude 排除该节点。重置 GPU 或重启可能有效；如果再次出现，说明卡已损坏。",
        ),
        texts=(
            "uncorrectable ECC error encountered",
            "NVRM: Xid (PCI:0000:41:00): 48",
        ),
        command="clusterctl exec --nodes {node} -- nvidia-smi -q -d ECC,ROW_REMAPPER",
        related="CC-GPU-014",
    ),
    "CC-JOB-005": Entry(
        "error",
        Text("the GPU no longer responds", "GPU 无响应（掉卡）"),
        do=Text(
            "The cause is a hardware fault, heat or the power supply. Leave the node out with --exclude and reboot it.",
            "原因是硬件故障、过热或供电问题。用 --exclude 排除该节点，然后重启它。",
        ),
        texts=(
            "GPU has fallen off the bus",
            "Unable to determine the device handle for GPU",
        ),
        command="clusterctl exec --nodes {node} -- 'nvidia-smi; dmesg | grep -i xid | tail'",
        related="CC-GPU-016",
    ),
    "CC-JOB-006": Entry(
        "error",
        Text("this torch or an extension was not built for this GPU", "torch 或扩展不是为这种 GPU 编译的"),
        do=Text(
            "The GPU is newer or older than those the wheel was compiled for. Install the wheel for your CUDA version; build extensions with TORCH_CUDA_ARCH_LIST.",
            "GPU 比 wheel 编译时支持的型号更新或更旧。安装与 CUDA 版本对应的 wheel；扩展用 TORCH_CUDA_ARCH_LIST 重新编译。",
        ),
        texts=("no kernel image is available for execution on the device",),
        command="clusterctl check job.yaml",
    ),
    "CC-JOB-007": Entry(
        "error",
        Text("the rank selected a GPU that is not visible to it", "rank 选择了对它不可见的 GPU"),
        do=Text(
            "There are more workers than GPUs, the script selects GPUs by the global rank instead of LOCAL_RANK, or `gpus:` in the job or CUDA_VISIBLE_DEVICES hides some GPUs.",
            "worker 数多于 GPU 数；脚本按全局 rank 而不是 LOCAL_RANK 选择 GPU；或者作业的 `gpus:` 或 CUDA_VISIBLE_DEVICES 隐藏了一部分 GPU。",
        ),
        texts=("invalid device ordinal",),
        command="clusterctl exec --nodes {node} -- nvidia-smi -L",
        related="CC-GPU-002",
    ),
    "CC-JOB-008": Entry(
        "error",
        Text("the GPU accepts no more processes", "GPU 不再接受新进程"),
        do=Text(
            "It is in exclusive mode, or a leftover process still uses it.",
            "GPU 处于独占模式，或者残留进程仍在占用。",
        ),
        texts=("CUDA-capable device(s) is/are busy or unavailable",),
        command="clusterctl exec --nodes {node} -- nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
        related="CC-GPU-011",
    ),
    "CC-JOB-009": Entry(
        "error",
        Text("torch does not work with this node's driver", "torch 与该节点的驱动不兼容"),
        do=Text(
            "The driver is missing, too old for this torch, or was updated without a reboot, or torch is a CPU build.",
            "没有驱动；驱动版本对这个 torch 过旧；驱动升级后没有重启；或者安装的是 CPU 版 torch。",
        ),
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
        Text("a module cannot be imported on this node", "该节点上有模块无法导入"),
        do=Text(
            "If it is missing on all nodes, install it, or let `setup:` install it on every node. Otherwise the environments differ, or the module is not in the code that is sent; a package below src/ needs `env: {PYTHONPATH: src}`. The command repeats the import on this node with the job's Python.",
            "如果所有节点都缺少该模块：安装它，或者用 `setup:` 在每个节点上安装。否则是各节点的环境不同，或者模块不在发送的代码中；包在 src/ 下时需要 `env: {PYTHONPATH: src}`。下面的命令在该节点上用作业的 Python 重新导入该模块。",
        ),
        texts=("ModuleNotFoundError: No module named 'timm'",),
        command='clusterctl ssh {node} --run {run} -- sh -c \'"$CLUSTERCTL_PYTHON" -c "import {module}"\'',
    ),
    "CC-JOB-011": Entry(
        "error",
        Text(
            "circular import, or a file of yours has the name of another module",
            "循环导入，或者你的文件与其他模块同名",
        ),
        do=Text(
            "A file named like a Python module (types.py, random.py, logging.py) or torch.py is imported instead of that module: rename it.",
            "与 Python 自带模块同名的文件（types.py、random.py、logging.py）或 torch.py 会代替原模块被导入：请重命名。",
        ),
        texts=("(most likely due to a circular import)",),
    ),
    "CC-JOB-012": Entry(
        "error",
        Text(
            "a compiled library does not match what is installed on this node",
            "编译的库与该节点上安装的软件不匹配",
        ),
        do=Text(
            "It was built for another torch, CUDA or system, or LD_LIBRARY_PATH finds another version first.",
            "它是为其他版本的 torch、CUDA 或系统编译的，或者 LD_LIBRARY_PATH 先找到了其他版本。",
        ),
        texts=(
            "undefined symbol: _ZN3c10",
            "cannot open shared object file: No such file or directory",
            "version `GLIBCXX_3.4.30' not found",
        ),
        command="clusterctl check job.yaml",
    ),
    "CC-JOB-013": Entry(
        "error",
        Text("a DataLoader worker process died", "DataLoader 的 worker 进程异常退出"),
        do=Text(
            "If it was killed, usually memory ran out. If it was a segmentation fault, the cause is a library used by the dataset. With num_workers=0 you see its own error.",
            "如果是被终止（killed），多半是内存不足；如果是段错误，原因是数据集使用的某个库。设置 num_workers=0 可以看到它自身的报错。",
        ),
        texts=(
            "DataLoader worker (pid 4711) is killed by signal: Killed",
            "DataLoader worker (pid(s) 4711) exited unexpectedly",
        ),
        command="clusterctl exec --nodes {node} -- 'free -h; dmesg | grep -i \"out of memory\" | tail'",
    ),
    "CC-JOB-014": Entry(
        "error",
        Text(
            "the ranks ran different operations: another collective, or other shapes",
            "各 rank 执行的操作不一致：集合通信不同，或张量形状不同",
        ),
        do=Text(
            "Only some ranks reach a collective, batches are uneven, or the models were built differently. With TORCH_DISTRIBUTED_DEBUG torch reports which ranks differ.",
            "有的集合通信只有部分 rank 执行到、batch 大小不一致，或者各 rank 构造的模型不同。设置 TORCH_DISTRIBUTED_DEBUG 后，torch 会列出不一致的 rank。",
        ),
        texts=(
            "Detected mismatch between collectives on ranks",
            "DDP expects same model across all ranks",
        ),
        command="clusterctl launch job.yaml --set env.TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    "CC-JOB-015": Entry(
        "error",
        Text(
            "some parameters got no gradient in this step, or got it twice",
            "这一步有参数没有梯度，或者梯度计算了两次",
        ),
        do=Text(
            "Pass find_unused_parameters=True to DistributedDataParallel, or use every output in the loss.",
            "给 DistributedDataParallel 传入 find_unused_parameters=True，或者让每个输出都参与 loss 计算。",
        ),
        texts=(
            "Expected to have finished reduction in the prior iteration",
            "Expected to mark a variable ready only once",
        ),
        command="clusterctl launch job.yaml --set env.TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    "CC-JOB-016": Entry(
        "error",
        Text("this account lacks a permission on this node", "该账号在这个节点上没有所需的权限"),
        do=Text(
            "The owner or the user IDs differ from the other nodes, NFS uses root squash, or the cache belongs to another user.",
            "属主或用户 ID 与其他节点不同、NFS 启用了 root squash，或者缓存属于其他用户。",
        ),
        texts=("PermissionError: [Errno 13] Permission denied: '/data/images'",),
        command="clusterctl exec -- ls -ld {path}",
    ),
    "CC-JOB-017": Entry(
        "error",
        Text("a file is missing on this node", "该节点上缺少某个文件"),
        do=Text(
            "Data is not sent with the code: it must be at the same path on every node. A relative path starts in the copy of the code; write outputs below CLUSTERCTL_OUTPUT_DIR.",
            "数据不会随代码发送：每个节点上都要放在相同的路径。相对路径从代码副本算起；rank 的输出请写到 CLUSTERCTL_OUTPUT_DIR 下。",
        ),
        texts=("FileNotFoundError: [Errno 2] No such file or directory: '/data/images'",),
        command="clusterctl exec -- ls -ld {path}",
    ),
    "CC-JOB-018": Entry(
        "error",
        Text(
            "the node is out of memory, or the account reached its memory limit",
            "节点内存不足，或者该账号达到内存上限",
        ),
        do=Text(
            "Use fewer DataLoader workers or smaller batches, or raise the limit (ulimit -v, the cgroup's memory.max).",
            "减少 DataLoader 的 worker，减小 batch，或者提高上限（ulimit -v、cgroup 的 memory.max）。",
        ),
        texts=(
            "MemoryError",
            "Cannot allocate memory",
            "DefaultCPUAllocator: can't allocate memory",
        ),
        command="clusterctl exec --nodes {node} -- free -h",
    ),
    "CC-JOB-019": Entry(
        "error",
        Text(
            "a process or server that the rank was connected to went away", "与该 rank 通信的进程或服务器断开"
        ),
        do=Text(
            "The error comes from Python's own sockets, not from torch's: usually a DataLoader worker was killed, for example because memory ran out, or a download was interrupted.",
            "报错来自 Python 自身的 socket，不是 torch 的：多半是 DataLoader 的 worker 被终止（例如内存不足），或者下载中断。",
        ),
        texts=("ConnectionResetError: [Errno 104] Connection reset by peer",),
        command="clusterctl exec --nodes {node} -- 'free -h; dmesg | grep -i \"out of memory\" | tail'",
    ),
    "CC-JOB-020": Entry(
        "error",
        Text(
            "the shared memory of this node, /dev/shm, is full or too small",
            "该节点的共享内存 /dev/shm 已满或太小",
        ),
        do=Text(
            "DataLoader and NCCL use it. Use fewer workers, enlarge /dev/shm (--shm-size or --ipc=host in a container), and remove files that dead processes left in it.",
            "DataLoader 和 NCCL 都使用它。减少 worker，增大 /dev/shm（容器用 --shm-size 或 --ipc=host），并删除已退出的进程残留的文件。",
        ),
        texts=(
            "insufficient shared memory (shm)",
            "failed to extend /dev/shm/nccl-x",
        ),
        command="clusterctl exec --nodes {node} -- 'df -h /dev/shm; ls -l /dev/shm | tail'",
        related="CC-SYS-004",
    ),
    "CC-JOB-021": Entry(
        "error",
        Text("a disk of this node is full", "该节点有一块磁盘已满"),
        do=Text(
            "It may not be the disk you expect: /tmp, the cache below ~/.cache and the directory of the checkpoints are often on different disks. torch.save reports it with a message of a different kind. A disk can also run out of inodes.",
            "不一定是你以为的那块磁盘：/tmp、~/.cache 下的缓存和检查点目录往往在不同的磁盘上。torch.save 的报错文字与此不同。inode 也可能耗尽。",
        ),
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
        Text("the account's disk quota is used up", "账号的磁盘配额已用完"),
        do=Text(
            "The disk has free space, but this account has reached its quota. Remove old runs with clean, or write the outputs to another place.",
            "磁盘还有空间，但该账号已达到配额。用 clean 清理旧任务，或者把输出写到其他位置。",
        ),
        texts=("Disk quota exceeded",),
        command="clusterctl exec --nodes {node} -- quota -s",
    ),
    "CC-JOB-023": Entry(
        "error",
        Text("a process reached its limit of open files", "进程打开的文件数达到上限"),
        do=Text(
            "DataLoader shares tensors through file descriptors. Raise the limit in `activate:` (ulimit -n 65536), or call torch.multiprocessing.set_sharing_strategy('file_system').",
            "DataLoader 通过文件描述符共享张量。在 `activate:` 里提高上限（ulimit -n 65536），或者调用 torch.multiprocessing.set_sharing_strategy('file_system')。",
        ),
        texts=(
            "Too many open files",
            "received 0 items of ancdata",
        ),
        command="clusterctl exec --nodes {node} -- 'ulimit -n; ulimit -Hn'",
        related="CC-SYS-003",
    ),
    "CC-JOB-024": Entry(
        "error",
        Text(
            "a port that the script opens is already in use on this node",
            "脚本要使用的端口在该节点上已被占用",
        ),
        do=Text(
            "The script chose this port: several ranks of one node open the same port, an earlier run is still alive, or the script opens MASTER_PORT itself, which torchrun's store already uses. In that case use init_method env://.",
            "该端口由脚本选定：同一节点上的多个 rank 打开同一个端口、之前的任务仍在运行，或者脚本自行监听 MASTER_PORT（已被 torchrun 的 store 占用），此时请改用 init_method env://。",
        ),
        texts=(
            "EADDRINUSE",
            "Address already in use",
        ),
        command="clusterctl exec --nodes {node} -- ss -ltnp",
    ),
    "CC-JOB-025": Entry(
        "error",
        Text("no more processes or threads can be started", "无法再启动进程或线程"),
        do=Text(
            "The process limit (ulimit -u) or the cgroup's limit (pids.max) is reached. Use fewer DataLoader workers, and set OMP_NUM_THREADS.",
            "达到进程数上限（ulimit -u）或 cgroup 的上限（pids.max）。减少 DataLoader 的 worker，并设置 OMP_NUM_THREADS。",
        ),
        texts=(
            "can't start new thread",
            "fork: retry: Resource temporarily unavailable",
        ),
        command="clusterctl exec --nodes {node} -- 'ulimit -u; ps -u $(id -un) | wc -l'",
    ),
    "CC-JOB-026": Entry(
        "error",
        Text("the network card cannot lock memory", "网卡无法锁定内存"),
        do=Text(
            "Raise memlock in /etc/security/limits.conf (sshd reads it at the next login), or LimitMEMLOCK of a service.",
            "在 /etc/security/limits.conf 中提高 memlock（下次登录生效）；对服务则提高 LimitMEMLOCK。",
        ),
        texts=(
            "ibv_reg_mr failed",
            "ibv_create_qp failed",
        ),
        command="clusterctl exec --nodes {node} -- 'ulimit -l'",
        related="CC-SYS-007",
    ),
    "CC-JOB-027": Entry(
        "error",
        Text("a file system of this node has failed", "该节点的一个文件系统出错"),
        do=Text(
            "A network file system was remounted or its server is gone, or a disk has errors.",
            "网络文件系统被重新挂载或其服务端不可用，或者磁盘有错误。",
        ),
        texts=(
            "Stale file handle",
            "Input/output error",
            "Read-only file system",
        ),
        command="clusterctl exec --nodes {node} -- 'df -h; dmesg | tail'",
    ),
    "CC-JOB-030": Entry(
        "error",
        Text(
            "this node does not have the NIC that Gloo or NCCL should use",
            "该节点没有为 Gloo 或 NCCL 指定的网卡",
        ),
        do=Text(
            "`nic:` in the inventory is wrong for this node, or a variable in `env:` overrides it. Names may differ between nodes.",
            "inventory 中该节点的 `nic:` 有误，或者被 `env:` 中的变量覆盖。各节点的网卡名可以不同。",
        ),
        texts=(
            "Unable to find address for: eth1",
            "NCCL WARN Bootstrap : no socket interface found",
        ),
        command="clusterctl check job.yaml",
        related="CC-NET-001",
    ),
    "CC-JOB-031": Entry(
        "error",
        Text(
            "the rank could not connect to another rank over the training network",
            "rank 无法通过训练网络连接另一个 rank",
        ),
        do=Text(
            "If another rank has an error of its own, that is the cause. Otherwise check the addresses: remote=[127.0.0.1] means that a node's name resolves to itself; other causes are NICs in different networks and closed ports.",
            "如果其他 rank 有自身的报错，那才是原因。否则检查地址：remote=[127.0.0.1] 表示某个节点的主机名解析到了本机；其他原因有网卡不在同一网络、端口未放通。",
        ),
        texts=(
            "Gloo connectFullMesh failed",
            "SO_ERROR: No route to host",
        ),
        command="clusterctl check job.yaml",
        related="CC-NET-010",
    ),
    "CC-JOB-032": Entry(
        "error",
        Text(
            "the rank could not connect to the store on the first node", "rank 无法连接第一个节点上的 store"
        ),
        do=Text(
            "If the first node has an error of its own, that is the cause. Otherwise check for a firewall, a wrong training address, or an address written in the script.",
            "如果第一个节点有自身的报错，那才是原因。否则检查防火墙、训练地址，以及脚本中写死的地址。",
        ),
        texts=(
            "client socket has timed out after 60000ms while trying to connect to",
            "client socket has failed to connect",
        ),
        command="clusterctl logs {run} --nodes 0 --tail 30",
    ),
    "CC-JOB-033": Entry(
        "error",
        Text("not all ranks connected to the store in time", "部分 rank 未按时连接到 store"),
        do=Text(
            "Look at the ranks that report no timeout: they had not started, or hang before they create their process group.",
            "检查没有报超时的 rank：它们尚未启动，或者卡在创建进程组之前。",
        ),
        texts=(
            "Timed out after 61 seconds waiting for clients. 1/2 clients joined",
            "Socket Timeout",
            "JaxRuntimeError: Gloo context initialization failed: DEADLINE_EXCEEDED: GetKeyValue() timed out",
        ),
        command="clusterctl logs {run} --tail 3",
    ),
    "CC-JOB-034": Entry(
        "error",
        Text("InfiniBand or RoCE between the nodes does not work", "节点之间的 InfiniBand 或 RoCE 不通"),
        do=Text(
            "A port is down, or subnet, GID or MTU differ. To test: `env: {NCCL_IB_DISABLE: 1}` uses TCP instead.",
            "端口未激活，或者子网、GID、MTU 不一致。测试方法：`env: {NCCL_IB_DISABLE: 1}` 会改用 TCP。",
        ),
        texts=(
            "Got completion from peer 10.0.0.2<40000> with status=12",
            "ibv_modify_qp failed",
        ),
        command="clusterctl exec -- 'grep . /sys/class/infiniband/*/ports/*/state'",
    ),
    "CC-JOB-035": Entry(
        "error",
        Text("two ranks use the same GPU", "两个 rank 使用了同一块 GPU"),
        do=Text(
            "The script does not select its GPU by LOCAL_RANK: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])).",
            "脚本没有按 LOCAL_RANK 选择 GPU：torch.cuda.set_device(int(os.environ['LOCAL_RANK']))。",
        ),
        texts=("Duplicate GPU detected",),
    ),
    "CC-JOB-036": Entry(
        "error",
        Text("the nodes have different NCCL versions", "各节点的 NCCL 版本不同"),
        do=Text(
            "Install the same torch on every node, and let no LD_LIBRARY_PATH or LD_PRELOAD load another NCCL.",
            "每个节点安装相同的 torch，并确保 LD_LIBRARY_PATH 或 LD_PRELOAD 不会加载其他 NCCL。",
        ),
        texts=("Mismatched NCCL version detected",),
        command="clusterctl check job.yaml",
        related="CC-TORCH-004",
    ),
    "CC-JOB-037": Entry(
        "error",
        Text(
            "a system call of NCCL failed, usually because the network or a peer is gone",
            "NCCL 的系统调用失败，通常是网络中断或对端已退出",
        ),
        do=Text(
            "If another rank has an error of its own, that is the cause. Otherwise NCCL's own lines show what failed.",
            "如果其他 rank 有自身的报错，那才是原因。否则查看 NCCL 的日志，其中指出了失败的操作。",
        ),
        texts=(
            "ncclSystemError",
            "unhandled system error",
            "ncclInternalError",
        ),
        command="clusterctl launch job.yaml --set env.NCCL_DEBUG=INFO",
    ),
    "CC-JOB-038": Entry(
        "error",
        Text("NCCL cannot use the GPU, or is used wrongly", "NCCL 无法使用 GPU，或者用法有误"),
        do=Text(
            "NCCL's own lines show what failed; NCCL_DEBUG turns them on.",
            "NCCL 的日志会指出失败的操作；设置 NCCL_DEBUG 后才会输出。",
        ),
        texts=(
            "ncclUnhandledCudaError",
            "ncclInvalidUsage",
            "ncclInvalidArgument",
        ),
        command="clusterctl launch job.yaml --set env.NCCL_DEBUG=INFO",
    ),
    "CC-JOB-039": Entry(
        "error",
        Text(
            "this node lacks something the script needs: a name that resolves, or a torch build with MPI",
            "该节点缺少脚本需要的条件：可解析的主机名，或者带 MPI 的 torch",
        ),
        do=Text(
            "Use an address instead of a name, no downloads on nodes without internet access, and NCCL or Gloo instead of MPI.",
            "用地址代替主机名；不要在无法访问互联网的节点上下载；用 NCCL 或 Gloo 代替 MPI。",
        ),
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
        Text("killed by the kernel because memory ran out", "内存不足，被内核终止（OOM）"),
        do=Text(
            "The node's OOM kill counter rose while the rank was running. The limit is the node's memory or that of a cgroup or container: use fewer DataLoader workers or smaller batches on the CPU, or raise the limit.",
            "该 rank 运行期间，节点的 OOM 计数增加。受限的是节点内存，或者 cgroup、容器的配额：减少 DataLoader 的 worker，减小 CPU 上的 batch，或者提高上限。",
        ),
        texts=("killed by SIGKILL",),
        command="clusterctl exec --nodes {node} -- 'free -h; dmesg -T | grep -iE \"out of memory|oom\" | tail -3'",
    ),
    "CC-JOB-041": Entry(
        "error",
        Text("killed by a signal from outside the run", "被任务之外的信号终止"),
        do=Text(
            "A process that is killed this way cannot print an error. It was killed by a person, a batch system, a watchdog, or the kernel because memory ran out; the kernel log then has an entry.",
            "以这种方式终止的进程无法输出报错。来源可能是人工操作、批处理系统、看门狗，或者内核因内存不足而终止（此时内核日志中有记录）。",
        ),
        texts=("killed by SIGKILL",),
        command="clusterctl exec --nodes {node} -- 'dmesg -T | grep -iE \"out of memory|oom\" | tail -3; free -h'",
    ),
    "CC-JOB-042": Entry(
        "error",
        Text(
            "segmentation fault: native code (a C or C++ extension) accessed invalid memory",
            "段错误：本地代码（C/C++ 扩展）访问了非法内存",
        ),
        do=Text(
            "Usually an extension was built for another torch or CUDA; if it happens when NCCL starts, ulimit -s unlimited can also be the cause. With PYTHONFAULTHANDLER the Python line is shown.",
            "通常是扩展为其他版本的 torch 或 CUDA 编译；如果在 NCCL 启动时出现，也可能是 ulimit -s unlimited 导致。设置 PYTHONFAULTHANDLER 可以看到对应的 Python 代码行。",
        ),
        texts=("killed by SIGSEGV",),
        command="clusterctl launch job.yaml --set env.PYTHONFAULTHANDLER=1",
        related="CC-SYS-008",
    ),
    "CC-JOB-043": Entry(
        "error",
        Text(
            "bus error: the file behind a memory mapping is no longer available",
            "总线错误：映射到内存的文件已不可用",
        ),
        do=Text(
            "/dev/shm is full, a file was truncated while it was read, or a network file system failed.",
            "/dev/shm 已满、文件在读取过程中被截断，或者网络文件系统出错。",
        ),
        texts=("killed by SIGBUS",),
        command="clusterctl exec --nodes {node} -- df -h /dev/shm",
        related="CC-SYS-004",
    ),
    "CC-JOB-044": Entry(
        "error",
        Text("native code (a C or C++ extension) aborted", "本地代码（C/C++ 扩展）异常中止"),
        do=Text(
            "The reason is in the last lines before it, often after `what():`. With PYTHONFAULTHANDLER the Python line is shown. `terminate called without an active exception` after the script's last line: call torch.distributed.destroy_process_group() before the script ends.",
            "原因在它之前的几行，通常在 `what():` 之后。设置 PYTHONFAULTHANDLER 可以看到对应的 Python 代码行。如果脚本执行完最后一行才出现 `terminate called without an active exception`：请在脚本结束前调用 torch.distributed.destroy_process_group()。",
        ),
        texts=("killed by SIGABRT",),
        command="clusterctl launch job.yaml --set env.PYTHONFAULTHANDLER=1",
    ),
    "CC-JOB-045": Entry(
        "error",
        Text("terminated (SIGTERM) from outside the run", "被任务之外的 SIGTERM 终止"),
        do=Text(
            "The signal did not come from clusterctl: it was a person, a batch system, systemd at logout, or a shutdown of the machine.",
            "信号不是 clusterctl 发出的：可能是人工操作、批处理系统、用户登出时的 systemd，或者机器正在关机。",
        ),
        texts=("killed by SIGTERM",),
        command="clusterctl exec --nodes {node} -- 'uptime; journalctl -n 20 --no-pager'",
        related="CC-SYS-009",
    ),
    "CC-JOB-046": Entry(
        "error",
        Text("this processor does not support an instruction", "处理器不支持某条指令"),
        do=Text(
            "A library was built for a newer processor than this node has.",
            "某个库是为比该节点更新的处理器编译的。",
        ),
        texts=("killed by SIGILL",),
        command="clusterctl exec -- 'grep -m1 \"model name\" /proc/cpuinfo'",
    ),
    "CC-JOB-050": Entry(
        "error",
        Text(
            "other ranks timed out waiting for a rank that did not take part", "其他 rank 等待某个 rank 超时"
        ),
        do=Text(
            "A rank never called the collective, hangs before it, or was paused. Look at the rank that reports no timeout. With TORCH_NCCL_DUMP_ON_TIMEOUT and TORCH_FR_BUFFER_SIZE NCCL records which rank waited for what.",
            "有 rank 没有调用该集合通信、卡在它之前，或者被暂停。检查没有报超时的那个 rank。设置 TORCH_NCCL_DUMP_ON_TIMEOUT 和 TORCH_FR_BUFFER_SIZE 后，NCCL 会记录各 rank 在等待什么。",
        ),
        texts=(
            "Watchdog caught collective operation timeout",
            "Timed out waiting 1800000ms for recv operation to complete",
        ),
        command="clusterctl logs {run} --rank {rank} --tail 50",
    ),
    "CC-JOB-052": Entry(
        "error",
        Text("the connection to another rank was lost", "与另一个 rank 的连接断开"),
        do=Text(
            "No rank reported a cause. Look for a rank that ended with no message, and check the network between the nodes.",
            "没有 rank 报告原因。查找没有任何报错就结束的 rank，并检查节点之间的网络。",
        ),
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
        Text(
            "exited without an error while other ranks still needed it",
            "其他 rank 仍需要它时，它已退出且没有报错",
        ),
        do=Text(
            "The ranks run different numbers of steps: uneven data, a condition on the rank, or an early return. Use join() of torch.distributed.algorithms, drop_last=True, or a barrier at the end.",
            "各 rank 的步数不同：数据不均、按 rank 判断的条件或提前 return。使用 torch.distributed.algorithms 的 join()、drop_last=True，或者在最后加 barrier。",
        ),
        command="clusterctl logs {run} --tail 5",
    ),
    "CC-JOB-060": Entry(
        "error",
        Text("a program cannot be started on this node", "该节点上无法启动某个程序"),
        do=Text(
            "The program is searched on the PATH of a non-login shell, then in the directory of the job's Python. Install it on every node, write its full path, or add it to the PATH with `activate:`. A script of yours needs `#!` and chmod +x.",
            "先在非登录 shell 的 PATH 中查找，再到作业所用 Python 所在的目录查找。在每个节点上安装它、写完整路径，或者用 `activate:` 把它加入 PATH。自己的脚本需要 `#!` 和 chmod +x。",
        ),
        texts=(
            "cannot start accelerate: [Errno 2] No such file or directory",
            "train.sh: line 3: torchrun: command not found",
        ),
        command="clusterctl exec -- 'command -v {program}'",
    ),
    "CC-JOB-061": Entry(
        "error",
        Text(
            "the script does not accept the rank argument that its launcher passes",
            "脚本不接受启动方式传入的 rank 参数",
        ),
        do=Text(
            "The script accepts only one spelling, and gets the other one: `launcher: launch` passes --local-rank, as torch 2 does. Accept both: add_argument('--local-rank', '--local_rank', type=int). Or without a change of the script: remove `launcher`, and write the script's own spelling: `args: [\"--local_rank=${local_rank}\"]` or `args: [\"--local-rank=${local_rank}\"]`.",
            "脚本只接受一种拼写，得到的却是另一种：`launcher: launch` 与 torch 2 一样传入 --local-rank。让脚本两种都接受：add_argument('--local-rank', '--local_rank', type=int)。不修改脚本时，删去 `launcher`，按脚本的拼写写 `args: [\"--local_rank=${local_rank}\"]` 或者 `args: [\"--local-rank=${local_rank}\"]`。",
        ),
        texts=("error: unrecognized arguments: --local-rank=0",),
    ),
    "CC-JOB-062": Entry(
        "error",
        Text("torchvision was built for another torch", "torchvision 是为其他版本的 torch 编译的"),
        do=Text(
            "Both must be CUDA builds or both CPU builds, of matching versions. Install the two together, or only torchvision with `setup:`, system_site_packages and a wheel that matches the node's torch.",
            "两者必须同为 CUDA 版或同为 CPU 版，且版本对应。同时安装两者，或者用 `setup:`（system_site_packages）只安装与节点的 torch 匹配的 torchvision。",
        ),
        texts=("RuntimeError: operator torchvision::nms does not exist",),
        command="clusterctl exec -- python3 -m pip list",
    ),
    "CC-JOB-063": Entry(
        "error",
        Text("the code is written for a torch older than 2.0", "代码是为 2.0 之前的 torch 编写的"),
        do=Text(
            "torch 2.0 removed `torch._six`. If the traceback names a package (often an old apex, timm or DeepSpeed), update it. In your own code replace the name where it is used: `torch._six.string_classes` by `str`, `torch._six.int_classes` by `int`, `torch._six.inf` by `math.inf`, `torch._six.container_abcs` by `collections.abc`; then remove the import, if there is one.",
            "torch 2.0 删除了 `torch._six`。如果 traceback 指向某个包（常见的是旧版 apex、timm 或 DeepSpeed），请升级它。自己的代码里，在使用处替换：`torch._six.string_classes` 换成 `str`，`torch._six.int_classes` 换成 `int`，`torch._six.inf` 换成 `math.inf`，`torch._six.container_abcs` 换成 `collections.abc`；如果有对应的 import，再把它删掉。",
        ),
        texts=(
            "ModuleNotFoundError: No module named 'torch._six'",
            "AttributeError: module 'torch' has no attribute '_six'",
        ),
        command="clusterctl exec -- python3 -m pip list",
    ),
    "CC-JOB-064": Entry(
        "error",
        Text(
            "parts of a distributed checkpoint (DCP) are on other nodes",
            "分布式检查点（DCP）的一部分在其他节点上",
        ),
        do=Text(
            "Without a shared disk each node holds only what its own ranks have saved, and `.metadata` is on node 0; loading needs all of it on every node. `clusterctl cp --gather` lets every node fetch the parts of the others: [DCP checkpoints](../restarts.md#checkpoints-of-several-nodes-dcp-fsdp-deepspeed).",
            "没有共享磁盘时，每个节点只有自己的 rank 保存的部分，`.metadata` 在 0 号节点上；而加载时每个节点都需要全部文件。用 `clusterctl cp --gather` 让每个节点取回其他节点上的部分：[DCP 检查点](../../en/restarts.md#checkpoints-of-several-nodes-dcp-fsdp-deepspeed)。",
        ),
        texts=("FileNotFoundError: [Errno 2] No such file or directory: '/out/step-100/.metadata'",),
        command="clusterctl cp --run {run} --gather all:{folder}",
    ),
    "CC-JOB-065": Entry(
        "error",
        Text("`breakpoint()` without a debugger", "执行到 `breakpoint()`，但没有调试器"),
        do=Text(
            "A rank has no terminal, so pdb reads the end of its input and ends the rank. Start the run with `clusterctl launch --debug`: a rank at `breakpoint()` then waits for `clusterctl debug`. Else remove the call.",
            "rank 没有终端，pdb 读到输入结束就会结束该 rank。用 `clusterctl launch --debug` 启动：执行到 `breakpoint()` 的 rank 会等待 `clusterctl debug`。否则请删除该调用。",
        ),
        texts=("bdb.BdbQuit",),
        command="clusterctl launch job.yaml --debug",
    ),
    "CC-JOB-066": Entry(
        "error",
        Text("Ray ended on a node, or did not start", "某个节点上的 Ray 退出了，或者没有启动"),
        do=Text(
            "One of Ray's own processes ended: the lines before say which one and its exit code. Signal 9, unless someone sent it, is usually from the kernel: memory ran out. Ray's logs of the node are in `attempt-1/ray/` of the run.",
            "Ray 自身的某个进程退出了：前面的几行写明是哪个进程及其退出码。信号 9 若非人为发送，通常来自内核（内存不足）。该节点上 Ray 的日志在任务的 `attempt-1/ray/` 目录里。",
        ),
        texts=("clusterctl: Ray ended with exit code 1 on gpu02 (10.0.0.2)",),
        command="clusterctl pull {run} ./logs",
    ),
    "CC-JOB-067": Entry(
        "error",
        Text("a Ray node was lost", "一个 Ray 节点失联"),
        do=Text(
            "A task or actor of Ray was on a node whose Ray has ended. Look for what ended on that node.",
            "Ray 的某个 task 或 actor 所在的节点上，Ray 已经退出。请查看该节点上退出的进程。",
        ),
        texts=("The actor died because its node has died.", "ray.exceptions.NodeDiedError"),
        command="clusterctl logs {run} --tail 5",
    ),
    "CC-JOB-068": Entry(
        "error",
        Text("mpirun's daemon (orted) ended on a node", "某个节点上 mpirun 的守护进程（orted）退出了"),
        do=Text(
            "Its ranks end with it, and mpirun then ends those of all nodes. A negative number is the signal that ended it: -9, unless someone sent it, is usually from the kernel: memory ran out.",
            "该节点的 rank 随之结束，mpirun 再结束所有节点的 rank。负数是使它结束的信号：-9 若非人为发送，通常来自内核（内存不足）。",
        ),
        texts=("clusterctl: orted on gpu02 ended: -9",),
        command="clusterctl exec --nodes {node} -- 'uptime; dmesg | tail'",
    ),
    "CC-JOB-069": Entry(
        "error",
        Text(
            "the script uses NCCL, and this rank has no GPU for it",
            "脚本使用 NCCL，但这个 rank 没有可用的 GPU",
        ),
        do=Text(
            "NCCL needs a GPU for each rank, and a CUDA build of torch. To train on CPUs, let the script choose nccl or gloo by `torch.cuda.is_available()`, and write `backend: gloo` in the job, so that `check` looks for what the script uses. If the node has GPUs, `check` shows why torch does not see them.",
            "NCCL 要求每个 rank 都有 GPU，并且 torch 是 CUDA 版。在 CPU 上训练时，让脚本按 `torch.cuda.is_available()` 选择 nccl 或 gloo，并在作业里写 `backend: gloo`，使 `check` 检查的内容与脚本一致。如果节点有 GPU，`check` 会指出 torch 为什么看不到它们。",
        ),
        texts=(
            "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
            "Distributed package doesn't have NCCL built in",
        ),
        command="clusterctl check job.yaml --set backend=gloo",
        related="CC-TORCH-006",
    ),
    "CC-JOB-070": Entry(
        "error",
        Text(
            "torch.distributed is used before init_process_group",
            "在 init_process_group 之前使用了 torch.distributed",
        ),
        do=Text(
            "Call `torch.distributed.init_process_group(...)` before the line that is shown: `get_world_size()`, `get_rank()`, `barrier()`, DistributedSampler and DDP need the group. With torchrun the numbers are also in the environment variables WORLD_SIZE, RANK and LOCAL_RANK.",
            "在上面显示的那一行之前调用 `torch.distributed.init_process_group(...)`：`get_world_size()`、`get_rank()`、`barrier()`、DistributedSampler 和 DDP 都需要进程组。使用 torchrun 时，这些数值也在环境变量 WORLD_SIZE、RANK、LOCAL_RANK 里。",
        ),
        texts=(
            "ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
        ),
    ),
    "CC-JOB-071": Entry(
        "error",
        Text(
            "the address given to init_process_group has no scheme, or an unknown one",
            "传给 init_process_group 的地址没有协议前缀，或者前缀未知",
        ),
        do=Text(
            '`init_method` is a URL: write `tcp://` before the address, such as tcp://10.0.0.1:23456. In a job for a script with `--tcp` and `--rank`: `launcher: python` and `args: [--tcp, "tcp://${master_addr}:${master_port}", --rank, "${node_rank}"]`.',
            '`init_method` 是 URL：地址前面要写 `tcp://`，例如 tcp://10.0.0.1:23456。如果脚本接受 `--tcp` 和 `--rank`，作业里写 `launcher: python` 和 `args: [--tcp, "tcp://${master_addr}:${master_port}", --rank, "${node_rank}"]`。',
        ),
        texts=("RuntimeError: No rendezvous handler for ://",),
    ),
    "CC-JOB-072": Entry(
        "error",
        Text("SyncBatchNorm works on GPUs only", "SyncBatchNorm 只能在 GPU 上使用"),
        do=Text(
            "Convert only where there are GPUs: `if torch.cuda.is_available(): model = nn.SyncBatchNorm.convert_sync_batchnorm(model)`. With GPUs move the model to its GPU before DDP: `model.to(local_rank)`.",
            "只在有 GPU 时转换：`if torch.cuda.is_available(): model = nn.SyncBatchNorm.convert_sync_batchnorm(model)`。有 GPU 时，先把模型移到 GPU 再包装成 DDP：`model.to(local_rank)`。",
        ),
        texts=(
            "ValueError: SyncBatchNorm layers only work with GPU modules",
            "ValueError: SyncBatchNorm expected input tensor to be on GPU",
        ),
    ),
    "CC-JOB-073": Entry(
        "error",
        Text(
            "the script waits for an argument --local_rank that it was not given",
            "脚本需要参数 --local_rank，但没有收到",
        ),
        do=Text(
            'torchrun passes the number in the environment variable LOCAL_RANK, not as an argument. Without a change of the script write in the job: `args: ["--local_rank=${local_rank}"]`, with a dash if the script has --local-rank. Or in the script: `local_rank = int(os.environ["LOCAL_RANK"])`.',
            'torchrun 通过环境变量 LOCAL_RANK 传递该数值，而不是参数。不修改脚本时，在作业里写：`args: ["--local_rank=${local_rank}"]`（脚本里是 --local-rank 时写成 --local-rank）。或者在脚本里写：`local_rank = int(os.environ["LOCAL_RANK"])`。',
        ),
        texts=(
            "TypeError: int() argument must be a string, a bytes-like object or a real number, not 'NoneType'",
        ),
    ),
    "CC-JOB-074": Entry(
        "error",
        Text(
            "the script divides by the number of GPUs, and this rank sees none",
            "脚本除以 GPU 数量，而这个 rank 看不到 GPU",
        ),
        do=Text(
            '`torch.cuda.device_count()` is 0 without GPUs, or where none is visible. To train on CPUs, read LOCAL_RANK instead of dividing: `local_rank = int(os.environ["LOCAL_RANK"])`. If the node has GPUs, `check` shows why torch does not see them.',
            '没有 GPU，或者 GPU 不可见时，`torch.cuda.device_count()` 是 0。在 CPU 上训练时，直接读取 LOCAL_RANK，不要用除法或取余计算：`local_rank = int(os.environ["LOCAL_RANK"])`。如果节点有 GPU，`check` 会指出 torch 为什么看不到它们。',
        ),
        texts=("ZeroDivisionError: integer modulo by zero",),
        command="clusterctl check job.yaml",
        related="CC-GPU-001",
    ),
}
