"""What a rank ended with: CC-JOB. By which texts it is known stands in `protocol/known_errors.py`."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-JOB-001": Entry(
        "error",
        Text("the GPU's memory is full", "显存不够了"),
        do=Text(
            "Either the batch or the model is too large for this GPU, or somebody else's process holds a part of it. If only one rank runs out, look for another process on its node first.",
            "batch 或模型对这块卡太大，或者别人的进程占了一部分。只有一个 rank 不够时，先检查那个节点上还有没有其他进程在用",
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
            "a kernel on the GPU found a value that must not be, nearly always an index out of range",
            "GPU 上的 kernel 遇到了不该有的值，几乎总是下标越界",
        ),
        do=Text(
            "Labels outside of the number of classes, or tokens outside of the vocabulary, in the data of this rank. The traceback points elsewhere, because kernels run later than they are called; with CUDA_LAUNCH_BLOCKING it is exact.",
            "这个 rank 的数据里，标签超出类别数，或者 token 超出词表。kernel 是异步执行的，traceback 指的位置不准；加上 CUDA_LAUNCH_BLOCKING 才准",
        ),
        texts=("device-side assert triggered",),
        command="clusterctl launch job.yaml --set env.CUDA_LAUNCH_BLOCKING=1",
    ),
    "CC-JOB-003": Entry(
        "error",
        Text("a kernel on the GPU read or wrote where it must not", "GPU 上的 kernel 读写了不该碰的地方"),
        do=Text(
            "A bug in a CUDA extension, or a GPU that fails. If it comes back on the same node only, suspect the GPU.",
            "CUDA 扩展有 bug，或者卡坏了。总在同一个节点出现，就怀疑卡",
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
        Text(
            "the GPU's memory or its links have a fault that cannot be corrected",
            "显存或 NVLink 有无法纠正的错误",
        ),
        do=Text(
            "Take the node out with --exclude; a reset or reboot may help, a second time means that the card is broken.",
            "用 `--exclude` 跳过这个节点；重置或重启可能管用，再犯就是卡坏了",
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
        Text("the GPU does not answer any more", "GPU 无响应（掉卡）"),
        do=Text(
            "A hardware fault, or heat, or power. Take the node out with --exclude and reboot it.",
            "硬件故障、过热或供电。用 `--exclude` 跳过这个节点，然后重启它",
        ),
        texts=(
            "GPU has fallen off the bus",
            "Unable to determine the device handle for GPU",
        ),
        command="clusterctl exec --nodes {node} -- sh -c 'nvidia-smi; dmesg | grep -i xid | tail'",
        related="CC-GPU-016",
    ),
    "CC-JOB-006": Entry(
        "error",
        Text("this torch, or an extension, was not built for this GPU", "torch 或扩展不是为这种 GPU 编译的"),
        do=Text(
            "The GPU is newer or older than what the wheel was compiled for. Install the wheel for your CUDA version; build extensions with TORCH_CUDA_ARCH_LIST.",
            "卡比编译时支持的更新或更旧。装对应 CUDA 版本的 wheel；扩展用 TORCH_CUDA_ARCH_LIST 重新编译",
        ),
        texts=("no kernel image is available for execution on the device",),
        command="clusterctl check job.yaml",
    ),
    "CC-JOB-007": Entry(
        "error",
        Text("the rank asked for a GPU that it does not see", "rank 要用的 GPU，它看不见"),
        do=Text(
            "More workers than GPUs, a script that counts GPUs by the global rank instead of LOCAL_RANK, or gpus: in the job or CUDA_VISIBLE_DEVICES hiding some.",
            "worker 比 GPU 多；脚本用全局 rank 而不是 LOCAL_RANK 选卡；或者作业的 `gpus:`、CUDA_VISIBLE_DEVICES 隐藏了一部分",
        ),
        texts=("invalid device ordinal",),
        command="clusterctl exec --nodes {node} -- nvidia-smi -L",
        related="CC-GPU-002",
    ),
    "CC-JOB-008": Entry(
        "error",
        Text("the GPU takes no further process", "GPU 不再接受新进程"),
        do=Text(
            "It is in exclusive mode, or a process that should be gone still holds it.",
            "处于独占模式，或者本该退出的进程仍在占用",
        ),
        texts=("CUDA-capable device(s) is/are busy or unavailable",),
        command="clusterctl exec --nodes {node} -- nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
        related="CC-GPU-011",
    ),
    "CC-JOB-009": Entry(
        "error",
        Text("torch and the driver of this node do not come together", "torch 和这个节点的驱动配不上"),
        do=Text(
            "No driver, one that is too old for this torch, one that was updated without a reboot, or a CPU build of torch.",
            "没有驱动；驱动对这个 torch 太旧；升级了驱动没重启；或者装的是 CPU 版 torch",
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
        Text("a module cannot be imported on this node", "这个节点上有模块 import 不了"),
        do=Text(
            "If it is missing everywhere: install it, or let `setup:` do that on every node. Else the environments differ, or the module lies outside of what is sent as code; a package below src/ needs `env: {PYTHONPATH: src}`. The command shows where it is missing; take the job's own Python.",
            "所有节点都缺：安装它，或者用 `setup:` 在每个节点上安装。否则就是各节点环境不同，或者模块不在发送的代码里；包在 src/ 下面时要写 `env: {PYTHONPATH: src}`。用命令看哪些节点缺；请换成作业使用的 Python",
        ),
        texts=("ModuleNotFoundError: No module named 'timm'",),
        command="clusterctl exec -- python3 -c 'import {module}'",
    ),
    "CC-JOB-011": Entry(
        "error",
        Text(
            "two modules import each other, or a file of yours has the name of another module",
            "两个模块互相 import，或者你有文件和别的模块同名",
        ),
        do=Text(
            "A file called like a module of Python (types.py, random.py, logging.py) or torch.py takes its place: rename it.",
            "和 Python 自带模块（types.py、random.py、logging.py）或 torch.py 同名的文件会顶替它：改名",
        ),
        texts=("(most likely due to a circular import)",),
    ),
    "CC-JOB-012": Entry(
        "error",
        Text(
            "a compiled library does not fit what is installed on this node",
            "编译好的库和这个节点上装的东西对不上",
        ),
        do=Text(
            "It was built for another torch, CUDA or system, or LD_LIBRARY_PATH finds another one first.",
            "它是为别的 torch、CUDA 或系统编译的，或者 LD_LIBRARY_PATH 先找到了别的",
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
        Text("a process of the data loader died", "DataLoader 的一个进程意外退出"),
        do=Text(
            "Killed: mostly memory. Segmentation fault: a library in the dataset. With num_workers=0 its own error is seen.",
            "被杀：多半是内存。段错误：数据集里用的某个库。设 num_workers=0 就能看到它自己的报错",
        ),
        texts=(
            "DataLoader worker (pid 4711) is killed by signal: Killed",
            "DataLoader worker (pid(s) 4711) exited unexpectedly",
        ),
        command="clusterctl exec --nodes {node} -- sh -c 'free -h; dmesg | grep -i \"out of memory\" | tail'",
    ),
    "CC-JOB-014": Entry(
        "error",
        Text(
            "the ranks did different things: another collective, or other shapes",
            "各 rank 做的事不一样：集合操作不同，或者形状不同",
        ),
        do=Text(
            "A collective that only some ranks reach, uneven batches, or models that were built differently. With TORCH_DISTRIBUTED_DEBUG torch says which ranks differ.",
            "有的 rank 才会走到的集合操作、大小不齐的 batch、构造不同的模型。打开 TORCH_DISTRIBUTED_DEBUG，torch 会列出哪些 rank 不同",
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
            "some parameters got no gradient in this step, or one twice", "这一步有参数没有梯度，或者算了两次"
        ),
        do=Text(
            "Give DistributedDataParallel find_unused_parameters=True, or let every output take part in the loss.",
            "给 DistributedDataParallel 加 find_unused_parameters=True，或者让每个输出都参与 loss",
        ),
        texts=(
            "Expected to have finished reduction in the prior iteration",
            "Expected to mark a variable ready only once",
        ),
        command="clusterctl launch job.yaml --set env.TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    "CC-JOB-016": Entry(
        "error",
        Text(
            "this account may not read or write something on this node",
            "这个账号无权读写这个节点上的某个东西",
        ),
        do=Text(
            "Other owners or numbers of users than on the other nodes, root squash on NFS, or a cache of somebody else.",
            "属主或用户编号和其他节点不同、NFS 的 root squash，或者是别人的缓存",
        ),
        texts=("PermissionError: [Errno 13] Permission denied: '/data/images'",),
        command="clusterctl exec -- ls -ld {path}",
    ),
    "CC-JOB-017": Entry(
        "error",
        Text("a file is not there on this node", "这个节点上没有某个文件"),
        do=Text(
            "Data is not sent with the code: it must lie at the same path on every node. A relative path begins in the copy of the code; what a rank writes belongs below CLUSTERCTL_OUTPUT_DIR.",
            "数据不会随代码发送：每个节点的同一路径上都要有。相对路径从代码副本算起；rank 写出的东西放在 CLUSTERCTL_OUTPUT_DIR 下面",
        ),
        texts=("FileNotFoundError: [Errno 2] No such file or directory: '/data/images'",),
        command="clusterctl exec -- ls -ld {path}",
    ),
    "CC-JOB-018": Entry(
        "error",
        Text(
            "the node, or what this account may use of it, has no memory left",
            "节点（或这个账号能用的部分）没有内存了",
        ),
        do=Text(
            "Fewer data loader workers, smaller batches, or a higher limit (ulimit -v, the cgroup's memory.max).",
            "减少 DataLoader 的 worker，减小 batch，或者提高上限（ulimit -v、cgroup 的 memory.max）",
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
            "a process or server that the rank spoke to went away", "这个 rank 正在与之通信的进程或服务器没了"
        ),
        do=Text(
            "This comes from Python's own sockets, not from torch's: mostly a process of the data loader was killed, for its memory say, or a download broke off.",
            "这来自 Python 自己的 socket，不是 torch 的：多半是 DataLoader 的一个进程被杀了（比如内存不够），或者下载断了",
        ),
        texts=("ConnectionResetError: [Errno 104] Connection reset by peer",),
        command="clusterctl exec --nodes {node} -- sh -c 'free -h; dmesg | grep -i \"out of memory\" | tail'",
    ),
    "CC-JOB-020": Entry(
        "error",
        Text(
            "the shared memory of this node, /dev/shm, is full or small",
            "这个节点的共享内存 /dev/shm 满了或太小",
        ),
        do=Text(
            "Data loaders and NCCL use it. Fewer workers, a larger /dev/shm (--shm-size or --ipc=host in a container), and files in it that dead processes left.",
            "DataLoader 和 NCCL 都要用它。减少 worker，把 /dev/shm 调大（容器用 --shm-size 或 --ipc=host），清掉死进程留在里面的文件",
        ),
        texts=(
            "insufficient shared memory (shm)",
            "failed to extend /dev/shm/nccl-x",
        ),
        command="clusterctl exec --nodes {node} -- sh -c 'df -h /dev/shm; ls -l /dev/shm | tail'",
        related="CC-SYS-004",
    ),
    "CC-JOB-021": Entry(
        "error",
        Text("a disk of this node is full", "这个节点有一个盘满了"),
        do=Text(
            "Not always the one you think: /tmp, the cache below ~/.cache and the place of the checkpoints are often others. torch.save says it in words of its own. A disk can also run out of inodes.",
            "不一定是你以为的那个：/tmp、~/.cache、放检查点的地方往往不在一个盘上。torch.save 的报错文字不同。inode 也会用完",
        ),
        texts=(
            "No space left on device",
            "PytorchStreamWriter failed writing file",
            "unexpected pos 64 vs 0",
        ),
        command="clusterctl exec --nodes {node} -- sh -c 'df -h . /tmp /dev/shm; df -i . /tmp'",
        related="CC-DISK-003",
    ),
    "CC-JOB-022": Entry(
        "error",
        Text("the account's disk quota is used up", "账号的磁盘配额用完了"),
        do=Text(
            "There is space, and you have had your share. Old runs go with clean; results can lie elsewhere.",
            "盘上有空间，但你的份额没了。旧任务用 clean 清掉；结果可以放到别处",
        ),
        texts=("Disk quota exceeded",),
        command="clusterctl exec --nodes {node} -- quota -s",
    ),
    "CC-JOB-023": Entry(
        "error",
        Text("a process has as many files open as it may", "进程打开的文件数到了上限"),
        do=Text(
            "Data loaders share tensors by file descriptors. Raise the limit in activate: (ulimit -n 65536), or call torch.multiprocessing.set_sharing_strategy('file_system').",
            "DataLoader 用文件描述符共享张量。在 activate 里调高上限（ulimit -n 65536），或者调用 torch.multiprocessing.set_sharing_strategy('file_system')",
        ),
        texts=(
            "Too many open files",
            "received 0 items of ancdata",
        ),
        command="clusterctl exec --nodes {node} -- sh -c 'ulimit -n; ulimit -Hn'",
        related="CC-SYS-003",
    ),
    "CC-JOB-024": Entry(
        "error",
        Text("the script wants a port that is taken on this node", "脚本要用的端口在这个节点上被占了"),
        do=Text(
            "A port of the script's own choice: several ranks of one node want the same, an earlier run lives, or the script opens MASTER_PORT itself, which torchrun's store holds: use init_method env://.",
            "是脚本自己选的端口：同一节点的几个 rank 要同一个，以前的任务还在，或者脚本自己去监听 MASTER_PORT（那是 torchrun 的 store 占着的）：改用 init_method env://",
        ),
        texts=(
            "EADDRINUSE",
            "Address already in use",
        ),
        command="clusterctl exec --nodes {node} -- ss -ltnp",
    ),
    "CC-JOB-025": Entry(
        "error",
        Text("no further process or thread may be started", "不能再启动进程或线程了"),
        do=Text(
            "The limit of processes (ulimit -u) or of the cgroup (pids.max) is reached. Fewer loader workers; OMP_NUM_THREADS.",
            "到了进程数上限（ulimit -u）或 cgroup 上限（pids.max）。减少 DataLoader 的 worker；设 OMP_NUM_THREADS",
        ),
        texts=(
            "can't start new thread",
            "fork: retry: Resource temporarily unavailable",
        ),
        command="clusterctl exec --nodes {node} -- sh -c 'ulimit -u; ps -u $(id -un) | wc -l'",
    ),
    "CC-JOB-026": Entry(
        "error",
        Text("the network card may not lock memory", "网卡不能锁定内存"),
        do=Text(
            "Raise memlock in /etc/security/limits.conf (sshd reads it at the next login), or LimitMEMLOCK of a service.",
            "在 /etc/security/limits.conf 调高 memlock（下次登录才生效），服务则改 LimitMEMLOCK",
        ),
        texts=(
            "ibv_reg_mr failed",
            "ibv_create_qp failed",
        ),
        command="clusterctl exec --nodes {node} -- sh -c 'ulimit -l'",
        related="CC-SYS-007",
    ),
    "CC-JOB-027": Entry(
        "error",
        Text("a file system of this node has failed", "这个节点的一个文件系统出错了"),
        do=Text(
            "A network file system that was remounted or whose server is gone, or a disk with errors.",
            "网络文件系统重新挂载过或服务端没了，或者磁盘坏了",
        ),
        texts=(
            "Stale file handle",
            "Input/output error",
            "Read-only file system",
        ),
        command="clusterctl exec --nodes {node} -- sh -c 'df -h; dmesg | tail'",
    ),
    "CC-JOB-030": Entry(
        "error",
        Text(
            "this node does not have the NIC that Gloo or NCCL was told to use",
            "这个节点上没有给 Gloo 或 NCCL 指定的那块网卡",
        ),
        do=Text(
            "nic: in the inventory is wrong for this node, or a variable in env: overrides it. Names may differ per node.",
            "inventory 里这个节点的 nic: 写错了，或者 env: 里的变量盖掉了它。各节点的网卡名可以不同",
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
            "the rank did not reach another rank on the training network",
            "这个 rank 在训练网络上连不到另一个 rank",
        ),
        do=Text(
            "If another rank has its own error, that is the cause. Otherwise the addresses: remote=[127.0.0.1] means that a node's name resolves to itself; else NICs of different nets, or closed ports.",
            "如果别的 rank 有自己的报错，那才是原因。否则看地址：remote=[127.0.0.1] 说明某个节点的主机名解析到了自己；或者网卡不在同一个网，或者端口没放通",
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
        Text("the rank did not reach the store on the first node", "这个 rank 连不到第一个节点上的 store"),
        do=Text(
            "If the first node has its own error, that is the cause. Otherwise: a firewall, a wrong training address, or a script with an address of its own.",
            "如果第一个节点有自己的报错，那才是原因。否则：防火墙、训练地址不对，或者脚本里写了自己的地址",
        ),
        texts=(
            "client socket has timed out after 60000ms while trying to connect to",
            "client socket has failed to connect",
        ),
        command="clusterctl logs {run} --node 0 --tail 30",
    ),
    "CC-JOB-033": Entry(
        "error",
        Text("not all ranks came to the store in time", "有 rank 没有按时到达 store"),
        do=Text(
            "Look at the ranks that do not complain: they had not started, or hang before their process group.",
            "看那些没有报错的 rank：它们还没启动，或者卡在建进程组之前",
        ),
        texts=(
            "Timed out after 61 seconds waiting for clients. 1/2 clients joined",
            "Socket Timeout",
        ),
        command="clusterctl logs {run} --tail 3",
    ),
    "CC-JOB-034": Entry(
        "error",
        Text("InfiniBand or RoCE between the nodes does not work", "节点之间的 InfiniBand 或 RoCE 不通"),
        do=Text(
            "A port that is down, another subnet, GID or MTU. As a test: env: {NCCL_IB_DISABLE: 1} goes over TCP.",
            "端口没激活，子网、GID 或 MTU 不对。试一试：env: {NCCL_IB_DISABLE: 1} 会改走 TCP",
        ),
        texts=(
            "Got completion from peer 10.0.0.2<40000> with status=12",
            "ibv_modify_qp failed",
        ),
        command="clusterctl exec -- sh -c 'grep . /sys/class/infiniband/*/ports/*/state'",
    ),
    "CC-JOB-035": Entry(
        "error",
        Text("two ranks use the same GPU", "两个 rank 用了同一块 GPU"),
        do=Text(
            "The script does not choose its GPU by LOCAL_RANK: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])).",
            "脚本没有按 LOCAL_RANK 选卡：torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
        ),
        texts=("Duplicate GPU detected",),
    ),
    "CC-JOB-036": Entry(
        "error",
        Text("the nodes have different versions of NCCL", "各节点的 NCCL 版本不同"),
        do=Text(
            "The same torch on every node, and no LD_LIBRARY_PATH or LD_PRELOAD that brings another NCCL.",
            "每个节点装同样的 torch，不要让 LD_LIBRARY_PATH 或 LD_PRELOAD 带进另一个 NCCL",
        ),
        texts=("Mismatched NCCL version detected",),
        command="clusterctl check job.yaml",
        related="CC-TORCH-004",
    ),
    "CC-JOB-037": Entry(
        "error",
        Text(
            "a system call of NCCL failed, mostly because the network or a peer is gone",
            "NCCL 的一个系统调用失败了，多半是网络断了或对方没了",
        ),
        do=Text(
            "If another rank has its own error, that is the cause. Otherwise NCCL's own lines name what failed.",
            "如果别的 rank 有自己的报错，那才是原因。否则看 NCCL 自己的日志里是哪里失败",
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
        Text("NCCL cannot use the GPU, or is used wrongly", "NCCL 用不了 GPU，或者用法不对"),
        do=Text(
            "NCCL's own lines name what failed; they come with NCCL_DEBUG.",
            "NCCL 自己的日志会指出哪里失败；要打开 NCCL_DEBUG 才有",
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
            "this node lacks what the script asks for: a build of torch with that backend, or a name that resolves",
            "节点缺脚本要的东西：带这个后端的 torch，或者一个解析得出的名字",
        ),
        do=Text(
            "backend: gloo for a CPU build; an address instead of a name; no downloads from nodes without a way out.",
            "CPU 版 torch 用 backend: gloo；名字换成地址；不能上网的节点不要在训练时下载",
        ),
        texts=(
            "Distributed package doesn't have NCCL built in",
            "Name or service not known",
            "Temporary failure in name resolution",
        ),
        command="clusterctl check job.yaml",
        related="CC-TORCH-006",
    ),
    "CC-JOB-040": Entry(
        "error",
        Text("the kernel killed it because memory ran out", "内存不够，被内核杀了"),
        do=Text(
            "The node's count of such kills rose while the rank lived. The node's own memory, or what a cgroup or container grants: fewer data loader workers, smaller batches on the CPU, a higher limit.",
            "这个 rank 运行期间，节点的 OOM 计数涨了。节点的内存，或者 cgroup、容器给的份额：减少 DataLoader 的 worker，减小 CPU 上的 batch，调高上限",
        ),
        texts=("killed by SIGKILL",),
        command="clusterctl exec --nodes {node} -- sh -c 'free -h; dmesg -T | grep -iE \"out of memory|oom\" | tail -3'",
    ),
    "CC-JOB-041": Entry(
        "error",
        Text("killed from outside", "被别人杀了"),
        do=Text(
            "Who is killed so cannot say anything. It was a person, a batch system, a watchdog, or the kernel for want of memory: then its log says so.",
            "这样被终止的进程来不及输出报错。可能是人、批处理系统、看门狗，也可能是内核因为内存不够：那样内核日志里有记录",
        ),
        texts=("killed by SIGKILL",),
        command="clusterctl exec --nodes {node} -- sh -c 'dmesg -T | grep -iE \"out of memory|oom\" | tail -3; free -h'",
    ),
    "CC-JOB-042": Entry(
        "error",
        Text(
            "a segmentation fault: compiled code read where it must not",
            "段错误：编译好的代码读了不该读的地方",
        ),
        do=Text(
            "Mostly an extension built for another torch or CUDA; at the start of NCCL also ulimit -s unlimited. With PYTHONFAULTHANDLER the line of Python is shown.",
            "多半是为别的 torch 或 CUDA 编译的扩展；NCCL 启动时出现的，还可能是 ulimit -s unlimited。打开 PYTHONFAULTHANDLER 能看到是哪一行 Python",
        ),
        texts=("killed by SIGSEGV",),
        command="clusterctl launch job.yaml --set env.PYTHONFAULTHANDLER=1",
        related="CC-SYS-008",
    ),
    "CC-JOB-043": Entry(
        "error",
        Text(
            "a bus error: a file that was mapped into memory lost its ground",
            "总线错误：映射到内存的文件已经不在",
        ),
        do=Text(
            "A full /dev/shm, a file that was truncated while it was read, or a network file system that failed.",
            "/dev/shm 满了，文件在读的时候被截短，或者网络文件系统出错",
        ),
        texts=("killed by SIGBUS",),
        command="clusterctl exec --nodes {node} -- df -h /dev/shm",
        related="CC-SYS-004",
    ),
    "CC-JOB-044": Entry(
        "error",
        Text("compiled code gave up", "编译好的代码异常中止"),
        do=Text(
            "Its reason stands in the last lines before, often after `what():`. With PYTHONFAULTHANDLER the line of Python is shown. `terminate called without an active exception` after the script's last line: call torch.distributed.destroy_process_group() before the script ends.",
            "原因在它前面几行，常在 `what():` 后面。打开 PYTHONFAULTHANDLER 能看到是哪一行 Python。如果脚本已经执行完最后一行才出现 `terminate called without an active exception`：在脚本结束前调用 torch.distributed.destroy_process_group()",
        ),
        texts=("killed by SIGABRT",),
        command="clusterctl launch job.yaml --set env.PYTHONFAULTHANDLER=1",
    ),
    "CC-JOB-045": Entry(
        "error",
        Text("asked to end by somebody else", "别人让它退出"),
        do=Text(
            "Not by clusterctl: a person, a batch system, systemd at a logout, or a machine that is shut down.",
            "不是 clusterctl：人、批处理系统、退出登录时的 systemd，或者机器在关机",
        ),
        texts=("killed by SIGTERM",),
        command="clusterctl exec --nodes {node} -- sh -c 'uptime; journalctl -n 20 --no-pager'",
        related="CC-SYS-009",
    ),
    "CC-JOB-046": Entry(
        "error",
        Text("this processor does not know an instruction", "处理器不支持这条指令"),
        do=Text(
            "A library was built for a newer processor than this node has.", "某个库是为更新的处理器编译的"
        ),
        texts=("killed by SIGILL",),
        command="clusterctl exec -- sh -c 'grep -m1 \"model name\" /proc/cpuinfo'",
    ),
    "CC-JOB-050": Entry(
        "error",
        Text("the others waited for a rank that did not come", "其他 rank 都在等一个没有到达的 rank"),
        do=Text(
            "A rank that never called the collective, hangs before it, or was stopped. The one to look at is the rank that does not complain. TORCH_NCCL_DUMP_ON_TIMEOUT and TORCH_FR_BUFFER_SIZE let NCCL write who waited for what.",
            "有 rank 根本没调用这个集合操作、卡在它前面，或者被暂停了。该看的是那个没有报超时的 rank。设 TORCH_NCCL_DUMP_ON_TIMEOUT 和 TORCH_FR_BUFFER_SIZE，NCCL 会写下谁在等什么",
        ),
        texts=(
            "Watchdog caught collective operation timeout",
            "Timed out waiting 1800000ms for recv operation to complete",
        ),
        command="clusterctl logs {run} --rank {rank} --tail 50",
    ),
    "CC-JOB-052": Entry(
        "error",
        Text("another rank went away", "另一个 rank 已退出"),
        do=Text(
            "No rank said why. Look for one that ended without a word, and at the network between the nodes.",
            "没有 rank 报出原因。找那个没有任何报错就结束的，再看节点之间的网络",
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
            "it left without an error while the others still needed it",
            "其他 rank 还需要它，它却没有报错就退出了",
        ),
        do=Text(
            "The ranks do not do the same number of steps: uneven data, a condition on the rank, an early return. join() of torch.distributed.algorithms, drop_last=True, or a barrier at the end.",
            "各 rank 的步数不一样：数据不齐、按 rank 判断的条件、提前 return。用 torch.distributed.algorithms 的 join()、drop_last=True，或者在最后加 barrier",
        ),
        command="clusterctl logs {run} --tail 5",
    ),
    "CC-JOB-060": Entry(
        "error",
        Text("a program cannot be started on this node", "这个节点上无法启动某个程序"),
        do=Text(
            "It is looked for on the PATH of a shell that is no login shell, then beside the job's Python. Install it on every node, write its whole path, or let `activate:` lead to it. A script of yours needs `#!` and chmod +x.",
            "先在非登录 shell 的 PATH 里找，再在作业所用 Python 的目录里查找。在每个节点上安装它、写完整路径，或者用 `activate:` 把它加进 PATH。自己的脚本要有 `#!` 和 chmod +x",
        ),
        texts=(
            "cannot start accelerate: [Errno 2] No such file or directory",
            "train.sh: line 3: torchrun: command not found",
        ),
        command="clusterctl exec -- sh -c 'command -v {program}'",
    ),
    "CC-JOB-061": Entry(
        "error",
        Text(
            "the script does not read the rank as its launcher gives it", "脚本不接受启动方式传入的 rank 参数"
        ),
        do=Text(
            "`launcher: launch` passes --local-rank as torch 2 does, and the script knows --local_rank only, or the other way round. Let it take both: add_argument('--local-rank', '--local_rank', type=int). Or leave it as it is: `use_env: true` and `args: [\"--local_rank=${local_rank}\"]`.",
            "`launcher: launch` 和 torch 2 一样传 --local-rank，而脚本只认 --local_rank（或者反过来）。让脚本两种都接受：`add_argument('--local-rank', '--local_rank', type=int)`；不改脚本就写 `use_env: true` 和 `args: [\"--local_rank=${local_rank}\"]`",
        ),
        texts=("error: unrecognized arguments: --local-rank=0",),
    ),
    "CC-JOB-062": Entry(
        "error",
        Text("torchvision was built for another torch", "torchvision 是为另一个 torch 编译的"),
        do=Text(
            "Both must be CUDA builds or both CPU builds, of versions that belong together. Install the pair together, or torchvision alone by `setup:` with system_site_packages and a wheel that fits the node's torch.",
            "CUDA 版和 CPU 版不能混用，版本也要和 torch 对应。两个一起装，或者用 `setup:`（system_site_packages）只装与节点的 torch 匹配的 torchvision",
        ),
        texts=("RuntimeError: operator torchvision::nms does not exist",),
        command="clusterctl exec -- python3 -m pip list",
    ),
}
