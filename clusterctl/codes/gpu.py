"""GPUs: CC-GPU."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text, same

ENTRIES: Mapping[str, Entry] = {
    "CC-GPU-001": Entry(
        "error",
        Text("no GPU was found", "未找到 GPU"),
        why=Text(
            "The job needs GPUs: torchrun or NCCL would fail on this node, and all other nodes would wait for it.",
            "作业需要 GPU：torchrun 或 NCCL 会在该节点上失败，其他节点都会等待它。",
        ),
        what=Text(
            "The job needs GPUs (`backend: nccl` or `nproc_per_node: gpu`), but the node has none. If the machine has no GPU, leave the node out (`--exclude`) or train on CPUs: `backend: gloo` and `nproc_per_node: cpu` or a number. If it has one, install the driver, or give the container access to the GPU.",
            "作业需要 GPU（`backend: nccl` 或 `nproc_per_node: gpu`），但节点上没有。如果机器没有 GPU，排除该节点（`--exclude`），或者用 `backend: gloo` 和 `nproc_per_node: cpu`（或数字）在 CPU 上训练。如果有 GPU，请安装驱动，或者允许容器访问 GPU。",
        ),
        do=Text(
            "Install the driver, give the container access to the GPU, leave the node out (`--exclude`), or use `backend: gloo` with a number as `nproc_per_node`",
            "安装驱动；允许容器访问 GPU；用 `--exclude` 排除该节点；或者使用 `backend: gloo` 并把 `nproc_per_node` 设为数字",
        ),
        cases={
            "": Case(fix=Text("add --exclude {node}", "加 --exclude {node}")),
            "no-gpus": Case(fix=Text("job: {changes}  # uses CPUs", "job: {changes}  # 使用 CPU")),
        },
    ),
    "CC-GPU-002": Entry(
        "error",
        Text("fewer GPUs than processes", "GPU 少于进程数"),
        why=Text(
            "NCCL refuses two processes on one GPU, and a process without a GPU ends with `invalid device ordinal`.",
            "NCCL 不允许两个进程使用同一块 GPU；分不到 GPU 的进程以 `invalid device ordinal` 结束。",
        ),
        what=Text(
            "`nproc_per_node` is larger than the number of GPUs that this node has, that the inventory allows on it, or that the job selects. `nproc_per_node: gpu` uses as many as each node has.",
            "`nproc_per_node` 大于该节点的 GPU 数、inventory 允许使用的数量，或者作业选择的数量。`nproc_per_node: gpu` 使用每个节点实际的 GPU 数。",
        ),
        do=Text("Set a smaller `nproc_per_node`, or `gpu`", "减小 `nproc_per_node`，或者设为 `gpu`"),
        cases={
            "": Case(
                fix=Text(
                    "job: nproc_per_node: {usable}  # or gpu", "job: nproc_per_node: {usable}  # 或者 gpu"
                )
            ),
        },
    ),
    "CC-GPU-003": Entry(
        "error",
        Text("GPUs are missing", "缺少 GPU"),
        why=Text(
            "The inventory lists more GPUs than the node has: one may have failed, or the number is wrong.",
            "inventory 中的 GPU 数多于节点上检测到的：可能有 GPU 故障，也可能数字有误。",
        ),
        what=Text(
            "The inventory's `gpus:` is larger than the number that nvidia-smi lists. A GPU that fell off the bus is gone until a reboot; the kernel log then has an `NVRM: Xid` line. If the machine never had that many, correct the inventory.",
            "inventory 的 `gpus:` 大于 nvidia-smi 列出的数量。掉卡的 GPU 在重启之前无法使用，此时内核日志中有 `NVRM: Xid`。如果机器本来就没有这么多 GPU，请修改 inventory。",
        ),
        do=Text(
            "Look for `Xid` in `dmesg`; a GPU that fell off the bus needs a reboot. Otherwise correct `gpus:`",
            "在 `dmesg` 里查找 `Xid`；掉卡的 GPU 需要重启。否则修改 `gpus:`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: gpus: {count}  # or look for Xid in `dmesg`",
                    "inventory，节点 {node}：gpus: {count}  # 或者在 `dmesg` 里查找 Xid",
                )
            ),
        },
    ),
    "CC-GPU-004": Entry(
        "error",
        Text("driver and library versions do not match", "驱动和库的版本不一致"),
        why=Text(
            "The driver was upgraded but the old one is still loaded: no program can use the GPUs until a reboot.",
            "驱动已升级，但旧驱动仍处于加载状态：重启之前任何程序都无法使用 GPU。",
        ),
        what=Text(
            "The kernel runs one version of the NVIDIA driver, and the libraries on disk are of another version. Usually unattended upgrades replaced the driver. Reboot the node, or unload and load the kernel modules while no program uses them. To prevent it, hold the driver's packages.",
            "内核中运行的 NVIDIA 驱动与磁盘上的库版本不同。通常是自动更新替换了驱动。请重启节点，或者在没有程序使用时卸载并重新加载内核模块。为避免再次发生，请锁定驱动包的版本。",
        ),
        do=Text("Reboot the node, and hold the driver's packages", "重启节点，并锁定驱动包的版本（hold）"),
        cases={
            "": Case(fix=same("# reboot")),
        },
        texts=("Failed to initialize NVML: Driver/library version mismatch",),
    ),
    "CC-GPU-005": Entry(
        "error",
        Text("the driver is too old for torch", "驱动版本过低，不支持这个 torch"),
        why=Text(
            "This torch's CUDA needs a newer driver: the first use of a GPU fails with error 35.",
            "这个 torch 的 CUDA 需要更新的驱动：第一次使用 GPU 时报错误 35。",
        ),
        what=Text(
            "The NVIDIA driver is older than the CUDA version of this torch requires. CUDA 12 needs driver 525 or later, CUDA 13 needs 580. Upgrade the driver, or install a torch that was built for an older CUDA.",
            "NVIDIA 驱动低于这个 torch 的 CUDA 版本的要求。CUDA 12 需要 525 或更高版本的驱动，CUDA 13 需要 580。请升级驱动，或者安装为更旧 CUDA 编译的 torch。",
        ),
        do=Text(
            "Upgrade the driver, or install a torch for an older CUDA",
            "升级驱动，或者安装为更旧 CUDA 编译的 torch",
        ),
        cases={
            "": Case(
                fix=Text(
                    "install driver {oldest} or later, or a torch for an older CUDA (its version ends in +cuNNN)",
                    "安装 {oldest} 或更高版本的驱动，或者安装为更旧 CUDA 编译的 torch（版本号以 +cuNNN 结尾）",
                )
            ),
        },
        texts=("CUDA driver version is insufficient for CUDA runtime version",),
    ),
    "CC-GPU-006": Entry(
        "warning",
        Text("driver versions differ", "各节点的驱动版本不同"),
        why=Text(
            "Mixed driver branches are rarely tested together, and problems on one node are hard to explain.",
            "不同分支的驱动很少一起测试，单个节点出现的问题难以解释。",
        ),
        what=Text(
            "The nodes run different branches of the NVIDIA driver (the first number of its version).",
            "各节点运行的 NVIDIA 驱动分支（版本号第一位）不同。",
        ),
        do=Text("Install the same branch on all nodes if possible", "尽量在所有节点上安装同一分支"),
        cases={
            "": Case(
                fix=Text(
                    "install driver {version} there, or {exclude}",
                    "在该节点安装驱动 {version}，或者 {exclude}",
                )
            ),
            "any": Case(
                fix=Text(
                    "install the same driver there, or {exclude}",
                    "在该节点安装相同版本的驱动，或者 {exclude}",
                )
            ),
        },
    ),
    "CC-GPU-007": Entry(
        "warning",
        Text("GPU models differ", "各节点的 GPU 型号不同"),
        why=Text(
            "The slowest GPU sets the speed of all, and the smallest runs out of memory first.",
            "最慢的 GPU 决定整体速度，显存最小的 GPU 最先用完显存。",
        ),
        what=Text(
            "The nodes do not have the same GPU model. This works, at the speed of the slowest GPU.",
            "各节点的 GPU 型号不同。可以工作，但速度取决于最慢的 GPU。",
        ),
        do=Text(
            "Nothing to do; for full speed select nodes of the same model with `--nodes`",
            "无需处理；如需全速，用 `--nodes` 选择型号相同的节点",
        ),
        cases={
            "": Case(
                fix=Text(
                    "use a batch size that fits in the smallest GPU's memory, or {exclude}",
                    "按显存最小的 GPU 设置 batch 大小，或者 {exclude}",
                )
            ),
            "any": Case(
                fix=Text(
                    "use a batch size that fits in the smallest GPU's memory",
                    "按显存最小的 GPU 设置 batch 大小",
                )
            ),
        },
    ),
    "CC-GPU-008": Entry(
        "warning",
        Text("numbers of workers differ", "各节点的 worker 数不同"),
        why=Text(
            "The nodes will run different numbers of processes; code that assumes the same number on all nodes fails.",
            "各节点的进程数会不同；假定所有节点进程数相同的代码会出错。",
        ),
        what=Text(
            "With `nproc_per_node: gpu` each node runs as many processes as it has GPUs that it may use, and these numbers differ. With `cpu` the same applies to CPU cores. torchrun and DDP allow this, and WORLD_SIZE is the sum. Code that computes ranks as node_rank * LOCAL_WORLD_SIZE + local_rank does not work with it.",
            "使用 `nproc_per_node: gpu` 时，每个节点的进程数等于可用的 GPU 数，而各节点的数量不同。使用 `cpu` 时则按 CPU 核数。torchrun 和 DDP 支持这种情况，WORLD_SIZE 为总和。但用 node_rank * LOCAL_WORLD_SIZE + local_rank 计算 rank 的代码会出错。",
        ),
        do=Text(
            "Set `nproc_per_node` to a number that every node has",
            "把 `nproc_per_node` 设为每个节点都能满足的数字",
        ),
        cases={
            "": Case(
                fix=Text(
                    "job: nproc_per_node: N  # a number that every node has",
                    "job: nproc_per_node: N  # 每个节点都能满足的数字",
                )
            ),
        },
    ),
    "CC-GPU-009": Entry(
        "error",
        Text("nvidia-smi failed", "nvidia-smi 失败"),
        why=Text(
            "If nvidia-smi fails or hangs, a GPU or the driver is faulty; training on this node fails or hangs too.",
            "nvidia-smi 失败或卡住说明 GPU 或驱动有故障；在该节点上训练也会失败或卡住。",
        ),
        what=Text(
            'nvidia-smi ended with an error, reported a failing device, or did not respond within 5 seconds. "Unable to determine the device handle" and "GPU is lost" mean that a GPU fell off the bus: reboot, and have the GPU replaced if it happens again. The same applies if nvidia-smi hangs.',
            'nvidia-smi 报错退出、报告设备故障，或者 5 秒内没有返回。"Unable to determine the device handle" 和 "GPU is lost" 表示掉卡：请重启；如果再次发生，请更换 GPU。nvidia-smi 卡住时处理方法相同。',
        ),
        do=Text(
            "Check the Xid lines of `dmesg`, and reboot; if it happens again, replace the GPU",
            "查看 `dmesg` 里的 Xid，并重启；如果再次发生，更换 GPU",
        ),
        cases={
            "": Case(fix=same("$ nvidia-smi; dmesg | grep -i xid | tail")),
        },
        texts=(
            "Unable to determine the device handle",
            "GPU is lost",
        ),
    ),
    "CC-GPU-010": Entry(
        "info",
        Text("more GPUs than the inventory allows", "GPU 多于 inventory 中的数量"),
        why=Text("Only the number of GPUs in the inventory is used.", "只使用 inventory 中写明的数量。"),
        what=Text(
            "The node has more GPUs than the inventory's `gpus:`; the others stay idle.",
            "节点的 GPU 多于 inventory 的 `gpus:`；其余的闲置。",
        ),
        do=Text(
            "Nothing to do, or set a larger `gpus:` in the inventory",
            "无需处理，或者调大 inventory 的 `gpus:`",
        ),
        cases={
            "": Case(
                fix=Text("inventory, node {node}: gpus: {count}", "inventory，节点 {node}：gpus: {count}")
            ),
        },
    ),
    "CC-GPU-011": Entry(
        "error",
        Text("the GPU's compute mode forbids use", "GPU 的计算模式禁止使用"),
        why=Text(
            "In mode Prohibited no process may use the GPU.", "Prohibited 模式下任何进程都不能使用该 GPU。"
        ),
        what=Text(
            "`nvidia-smi -c 0` sets compute mode Default; it needs root and lasts until the next reboot.",
            "`nvidia-smi -c 0` 把计算模式设为 Default；需要 root 权限，重启后失效。",
        ),
        do=Text("Run `sudo nvidia-smi -c 0`, as shown", "按提示执行 `sudo nvidia-smi -c 0`"),
        cases={
            "": Case(fix=same("# nvidia-smi -c 0")),
        },
    ),
    "CC-GPU-012": Entry(
        "warning",
        Text("the GPU allows only one process", "GPU 只允许一个进程使用"),
        why=Text(
            "In an exclusive mode a second process, such as a leftover one, gets the error `busy or unavailable`.",
            "独占模式下，第二个进程（例如残留进程存在时）会得到 `busy or unavailable` 错误。",
        ),
        what=Text(
            "The compute mode is exclusive: one process per GPU works, a second one fails with CUDA error 46.",
            "计算模式为独占：每块 GPU 只能有一个进程，第二个进程会以 CUDA 错误 46 失败。",
        ),
        do=Text(
            "Run `sudo nvidia-smi -c 0`, and check which process uses the GPU",
            "执行 `sudo nvidia-smi -c 0`，并查看是哪个进程占用 GPU",
        ),
        cases={
            "": Case(fix=same("# nvidia-smi -c 0")),
        },
    ),
    "CC-GPU-013": Entry(
        "warning",
        Text("MIG is enabled", "MIG 已启用"),
        why=Text(
            "The GPU is split into instances: torch sees other devices than nvidia-smi lists, and NCCL is limited.",
            "GPU 被切成多个实例：torch 看到的设备与 nvidia-smi 列出的不同，NCCL 也受限。",
        ),
        what=Text(
            "Multi-Instance GPU splits a GPU. A process uses one instance; NCCL between instances is limited.",
            "Multi-Instance GPU（MIG）把一块 GPU 划分为多个实例。一个进程使用一个实例；实例之间的 NCCL 通信受限。",
        ),
        do=Text(
            "Run `sudo nvidia-smi -mig 0`, or select instances by UUID",
            "执行 `sudo nvidia-smi -mig 0`，或者用 UUID 选择实例",
        ),
        cases={
            "": Case(fix=same("# nvidia-smi -mig 0")),
        },
    ),
    "CC-GPU-014": Entry(
        "warning",
        Text("uncorrectable GPU memory errors", "显存有不可纠正的 ECC 错误"),
        why=Text(
            "GPU memory has lost data since the driver was loaded; a job on it may crash or compute wrong results.",
            "驱动加载以来该 GPU 的显存丢失过数据；在上面运行的作业可能崩溃或结果错误。",
        ),
        what=Text(
            "ECC counted errors that it could not correct. A reset of the GPU or a reboot retires the affected pages; if the count rises again, replace the GPU.",
            "ECC 记录到无法纠正的错误。重置 GPU 或重启会停用受影响的页面；如果计数再次增加，应更换 GPU。",
        ),
        do=Text(
            "Reset the GPU or reboot; if the count rises again, replace it",
            "重置 GPU 或重启；如果计数再次增加，更换 GPU",
        ),
        cases={
            "": Case(fix=same("# nvidia-smi --gpu-reset")),
        },
    ),
    "CC-GPU-015": Entry(
        "warning",
        Text("GPU memory is in use", "显存被占用"),
        why=Text(
            "Other processes use these GPUs: the job may run out of memory, or both run slowly.",
            "其他进程正在使用这些 GPU：作业可能显存不足，或者双方都变慢。",
        ),
        what=Text(
            "More than 512 MiB of a GPU's memory is in use before the job starts; with `gpus:` only those GPUs count. The process may be another user's, or left over from a crashed run. Memory that belongs to no listed process is used by a process in another container, or by one that is still exiting.",
            "作业启动前，GPU 显存已被占用超过 512 MiB；设置了 `gpus:` 时只检查这些 GPU。占用者可能是其他用户的进程，也可能是崩溃的任务残留的进程。不属于任何列出进程的显存，由其他容器中的进程或正在退出的进程占用。",
        ),
        do=Text(
            "Find the process: `clusterctl exec -- nvidia-smi`; `clusterctl clean --orphans`",
            "查看是哪个进程：`clusterctl exec -- nvidia-smi`、`clusterctl clean --orphans`",
        ),
        cases={
            "": Case(
                fix=same(
                    "$ nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv"
                )
            ),
        },
    ),
    "CC-GPU-016": Entry(
        "warning",
        Text("a GPU does not respond", "有一块 GPU 无响应"),
        why=Text(
            "The kernel has a device file for a GPU that nvidia-smi does not list: it may have fallen off the bus.",
            "内核中有该 GPU 的设备文件，但 nvidia-smi 没有列出：可能已掉卡。",
        ),
        what=Text(
            "There are more /dev/nvidiaN files than GPUs in the list. The kernel log shows the reason (`NVRM: Xid`).",
            "/dev/nvidiaN 文件多于列出的 GPU。原因见内核日志（`NVRM: Xid`）。",
        ),
        do=Text("Check the Xid lines of `dmesg`, and reboot", "查看 `dmesg` 里的 Xid，并重启"),
        cases={
            "": Case(fix=same("$ dmesg | grep -i xid | tail")),
        },
    ),
    "CC-GPU-017": Entry(
        "warning",
        Text("some GPUs are hidden", "部分 GPU 被隐藏"),
        why=Text(
            "torch sees only the GPUs in this variable, whatever nvidia-smi lists.",
            "无论 nvidia-smi 列出什么，torch 只能看到该变量中的 GPU。",
        ),
        what=Text(
            "The environment of an SSH session on the node already limits the visible GPUs. A process beyond their number ends with `invalid device ordinal`. Remove the variable from the node's startup files, or set it in the job's `env:`.",
            "节点上 SSH 会话的环境变量已经限制了可见的 GPU。超出其数量的进程以 `invalid device ordinal` 结束。请从节点的启动文件中删除该变量，或者在作业的 `env:` 中设置。",
        ),
        do=Text(
            "Remove `CUDA_VISIBLE_DEVICES` from the node's startup files, or set it in `env:`",
            "从节点的启动文件里删除 `CUDA_VISIBLE_DEVICES`，或者在 `env:` 里设置",
        ),
        cases={
            "": Case(fix=same("$ grep -rn VISIBLE_DEVICES ~/.bashrc ~/.profile /etc/environment")),
        },
    ),
    "CC-GPU-018": Entry(
        "error",
        Text("a selected GPU does not exist", "选择的 GPU 不存在"),
        why=Text(
            "CUDA ignores its list of visible devices from the first missing one on: some workers would have no GPU.",
            "CUDA 会忽略可见设备列表中第一个不存在的设备及其后的设备：部分 worker 会没有 GPU。",
        ),
        what=Text(
            "The job's `gpus:` contains an index that nvidia-smi does not list on this node, or one beyond the number that the inventory allows. Indices count from 0 and are the same on all nodes; leave out a node that lacks them (`--exclude`).",
            "作业的 `gpus:` 含有 nvidia-smi 在该节点上没有列出的编号，或者超出 inventory 允许的数量。编号从 0 开始，对所有节点相同；不满足的节点请用 `--exclude` 排除。",
        ),
        do=Text(
            "Correct `gpus:` of the job, or leave the node out with `--exclude`",
            "修改作业的 `gpus:`，或者用 `--exclude` 排除该节点",
        ),
        cases={
            "": Case(fix=Text("add --exclude {node}", "加 --exclude {node}")),
            "count": Case(
                fix=Text("inventory, node {node}: gpus: {count}", "inventory，节点 {node}：gpus: {count}")
            ),
        },
    ),
    "CC-GPU-019": Entry(
        "warning",
        Text("another run uses the GPUs", "GPU 正被其他任务使用"),
        why=Text(
            "A launch on these GPUs is refused until that run has ended; `launch --wait` waits for it.",
            "该任务结束之前，使用这些 GPU 的启动会被拒绝；加 `launch --wait` 则会等待。",
        ),
        what=Text(
            "A run of clusterctl, of any account on the node, has locked these GPUs; the record of the lock shows the owner. `clusterctl ps` lists runs of this account, `stop RUN` stops one. If the holder does not respond, it is a frozen agent or not a clusterctl process at all; its pid and account then come from the kernel.",
            "节点上某个账号的 clusterctl 任务锁定了这些 GPU，报告中写明了所有者。`clusterctl ps` 列出本账号的任务，`stop RUN` 停止任务。如果持有者无响应，它是已冻结的 agent，或者根本不是 clusterctl 的进程；这时的 pid 和账号来自内核。",
        ),
        do=Text(
            "Use `clusterctl launch --wait`, other GPUs or nodes, or `stop` that run; see [sharing GPUs](../sharing.md#gpus-that-others-use)",
            "用 `clusterctl launch --wait` 等待，换用其他 GPU 或节点，或者 `stop` 该任务；见[共用 GPU](../../en/sharing.md#gpus-that-others-use)",
        ),
        cases={
            "": Case(
                fix=Text(
                    "clusterctl launch --wait, or stop that run, or select other GPUs or nodes",
                    "clusterctl launch --wait，或者停止该任务，或者换用其他 GPU 或节点",
                )
            ),
        },
    ),
    "CC-GPU-020": Entry(
        "warning",
        Text("the kernel has reported GPU errors", "内核报告过 GPU 错误"),
        why=Text(
            "The hardware has failed since the last boot, and may fail again during a run.",
            "上次开机以来硬件出过错，任务运行过程中可能再次出错。",
        ),
        what=Text(
            "Since boot, the kernel log has Xid reports of kinds that hardware causes. 79 and 119 need a reboot, memory errors a reset of the GPU; if they come back, replace the GPU. Reports that programs cause (such as 13, 31, 43) are ignored. If an ordinary user may not read the log, nothing is reported: use `sudo dmesg | grep -i xid`.",
            "开机以来，内核日志中有由硬件引起的 Xid。79 和 119 需要重启，显存错误需要重置 GPU；如果再次出现，应更换 GPU。由程序引起的 Xid（例如 13、31、43）不计。如果普通用户无权读取日志，则不会报告：请用 `sudo dmesg | grep -i xid` 查看。",
        ),
        do=Text(
            "Check the lines: 79 and 119 need a reboot, memory errors a reset",
            "查看这些行：79、119 需要重启，显存错误需要重置 GPU",
        ),
        cases={
            "": Case(fix=same("$ dmesg | grep -i xid | tail")),
        },
    ),
    "CC-GPU-021": Entry(
        "warning",
        Text("GPU memory needs a reset to replace bad rows", "显存有坏行，需重置 GPU 才能替换"),
        why=Text(
            "Bad rows of memory are replaced at the next reset; until then an error in them ends the job.",
            "坏的显存行在下次重置时才会替换；在此之前，这些行出错会使作业终止。",
        ),
        what=Text(
            "The GPU has found bad rows of memory and replaces them with spare ones when it is reset, or at a reboot.",
            "GPU 检测到坏的显存行，会在重置或重启时用备用行替换。",
        ),
        do=Text(
            "Run `sudo nvidia-smi --gpu-reset` while no process uses the GPU, or reboot",
            "在没有进程使用 GPU 时执行 `sudo nvidia-smi --gpu-reset`，或者重启",
        ),
        cases={
            "": Case(fix=same("# nvidia-smi --gpu-reset")),
        },
    ),
    "CC-GPU-022": Entry(
        "error",
        Text("GPU memory cannot be repaired", "显存无法修复"),
        why=Text(
            "No spare rows are left for the bad ones: jobs on this GPU crash, or compute wrong results.",
            "没有备用的显存行可以替换坏行：该 GPU 上的作业会崩溃或结果错误。",
        ),
        what=Text(
            "A bad row of memory could not be replaced (Xid 64). The GPU must be replaced; use the others with `gpus:`.",
            "有坏的显存行无法替换（Xid 64）。该 GPU 需要更换；可以用 `gpus:` 选择其他 GPU。",
        ),
        do=Text(
            "Select the other GPUs with `gpus:`, and replace this one",
            "用 `gpus:` 选择其他 GPU，并更换这一块",
        ),
        cases={
            "": Case(
                fix=Text(
                    "add --exclude {node}, or select other GPUs with `gpus:` in the job",
                    "加 --exclude {node}，或者在作业里用 `gpus:` 选择其他 GPU",
                )
            ),
        },
    ),
    "CC-GPU-023": Entry(
        "warning",
        Text("GPU clocks are throttled", "GPU 被降频"),
        why=Text(
            "The GPU runs below its normal clock, and the slowest GPU sets the speed of all.",
            "该 GPU 低于正常频率运行，而最慢的 GPU 决定整体速度。",
        ),
        what=Text(
            "The GPU's clocks are lowered right now, because it is too hot or because of the power supply. Check fans, air flow, water cooling and power supplies. A power cap set by software is not reported: GPUs under load normally run at it.",
            "GPU 当前被降频，原因是温度过高或供电问题。请检查风扇、风道、水冷和电源。由软件设置的功耗上限不在此列：GPU 在负载下通常就运行在该上限。",
        ),
        do=Text(
            "Check fans, air flow and power supply: `nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE`",
            "检查风扇、风道和电源：`nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE`",
        ),
        cases={
            "": Case(fix=same("$ nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE")),
        },
    ),
    "CC-GPU-024": Entry(
        "error",
        Text("the NVSwitch fabric is not ready", "NVSwitch 未就绪"),
        why=Text(
            "CUDA fails with error 802, system not yet initialized, until the Fabric Manager has set up the switches.",
            "在 Fabric Manager 完成交换芯片的设置之前，CUDA 报错误 802（system not yet initialized）。",
        ),
        what=Text(
            "The GPUs are connected by NVSwitches, and the Fabric Manager has not finished or is not running. Its version must match the driver: upgrade both together.",
            "GPU 通过 NVSwitch 连接，而 Fabric Manager 尚未完成或没有运行。它的版本必须与驱动一致：请同时升级两者。",
        ),
        do=Text(
            "Run `sudo systemctl restart nvidia-fabricmanager`; its version must match the driver",
            "执行 `sudo systemctl restart nvidia-fabricmanager`；它的版本必须与驱动一致",
        ),
        cases={
            "": Case(fix=same("# systemctl restart nvidia-fabricmanager")),
        },
        texts=("CUDA error 802: system not yet initialized",),
    ),
    "CC-GPU-025": Entry(
        "warning",
        Text("NVLinks are down", "有 NVLink 断开"),
        why=Text(
            "Data for NVLink goes over PCIe instead, many times slower, or NCCL fails.",
            "本应走 NVLink 的数据改走 PCIe，速度慢很多倍，或者 NCCL 失败。",
        ),
        what=Text(
            "Only some of a GPU's NVLinks are active, or a GPU has fewer active ones than other GPUs of the same model. If no GPU has an active link, the node has no NVLink bridge or switch, and nothing is reported.",
            "GPU 只有部分 NVLink 处于激活状态，或者激活数少于同型号的其他 GPU。如果所有 GPU 都没有激活的链路，说明节点没有 NVLink 桥接器或交换芯片，不会报告。",
        ),
        do=Text(
            "Check `nvidia-smi nvlink -s`; reseat the bridge, or have it repaired",
            "查看 `nvidia-smi nvlink -s`；重新插拔桥接器，或者报修",
        ),
        cases={
            "": Case(fix=same("$ nvidia-smi nvlink -s; nvidia-smi nvlink -e")),
        },
    ),
    "CC-GPU-026": Entry(
        "warning",
        Text("a GPU uses fewer PCIe lanes than possible", "GPU 的 PCIe 通道数不足"),
        why=Text(
            "Transfers between this GPU and memory or network reach only a part of the speed.",
            "该 GPU 与内存、网络之间的传输达不到全速。",
        ),
        what=Text(
            "The link between the GPU and the board is narrower than both support: the card or a riser is not seated well. Some boards are designed this way: then waive this finding.",
            "GPU 与主板之间的链路宽度低于双方所支持的宽度：显卡或转接板没有插好。有的主板设计如此：这时可以豁免该检查项。",
        ),
        do=Text(
            "Reseat the card or the riser; if the board is designed this way, `waive` it",
            "重新插好显卡或转接板；如果主板设计如此，用 `waive` 忽略",
        ),
        cases={
            "": Case(fix=same("$ nvidia-smi --query-gpu=index,pcie.link.width.current --format=csv")),
        },
    ),
    "CC-GPU-027": Entry(
        "error",
        Text("torch has no code for this GPU", "torch 不包含这种 GPU 的代码"),
        why=Text(
            "The first kernel ends with `no kernel image is available for execution on the device`.",
            "第一个 kernel 会以 `no kernel image is available for execution on the device` 结束。",
        ),
        what=Text(
            "torch's wheels contain code for some generations of GPUs: those for CUDA 13 none before Turing (7.5), and only those for CUDA 12.8 and later have Blackwell (10.0, 12.0). Install a torch for another CUDA, or build it for this GPU.",
            "torch 的 wheel 只包含部分代次 GPU 的代码：CUDA 13 的 wheel 不支持 Turing（7.5）之前的 GPU，只有 CUDA 12.8 及更高版本的 wheel 支持 Blackwell（10.0、12.0）。请安装其他 CUDA 版本的 torch，或者为该 GPU 自行编译。",
        ),
        do=Text(
            "Install a torch for another CUDA (12.8 or later for Blackwell), or build it",
            "安装其他 CUDA 版本的 torch（Blackwell 需要 12.8 或更高），或者自行编译",
        ),
        cases={
            "": Case(
                fix=Text(
                    "install a torch whose CUDA supports this GPU: pip install torch --index-url .../whl/cuNNN",
                    "安装支持该 GPU 的 CUDA 版 torch：pip install torch --index-url .../whl/cuNNN",
                )
            ),
        },
    ),
    "CC-GPU-028": Entry(
        "info",
        Text("persistence mode is off", "未启用 persistence mode"),
        why=Text(
            "The driver unloads when no process uses the GPU: every start, and every nvidia-smi, then takes seconds.",
            "没有进程使用 GPU 时驱动会卸载：之后每次启动程序、每次执行 nvidia-smi 都需要几秒。",
        ),
        what=Text(
            "With persistence mode the driver stays loaded. It needs root, and lasts until the next boot; nvidia-persistenced makes it permanent.",
            "启用 persistence mode 后驱动保持加载。需要 root 权限，重启后失效；nvidia-persistenced 可以使其长期生效。",
        ),
        do=Text("Run `sudo nvidia-smi -pm 1`", "执行 `sudo nvidia-smi -pm 1`"),
        cases={
            "": Case(fix=same("# nvidia-smi -pm 1")),
        },
    ),
}
