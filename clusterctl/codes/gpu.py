"""GPUs: CC-GPU."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-GPU-001": Entry(
        "error",
        Text("no GPU was found", "没有 GPU"),
        why=Text(
            "The job asks for GPUs: torchrun or NCCL would fail on this node, and all others would wait for it.",
            "作业需要 GPU：torchrun 或 NCCL 会在该节点上失败，其他节点都会等待它。",
        ),
        what=Text(
            "The job needs GPUs (`backend: nccl` or `nproc_per_node: gpu`) and the node shows none.\nWithout a GPU in this machine, leave the node out (`--exclude`) or train on CPUs: `backend: gloo` and `nproc_per_node: cpu` or a number. With one, install the driver, or give the container access to it."
        ),
        do=Text(
            "Install the driver, give the container access, leave the node out (`--exclude`), or `backend: gloo` with a number as `nproc_per_node`",
            "装驱动；给容器开放 GPU；用 `--exclude` 跳过该节点；或者 `backend: gloo` 并给 `nproc_per_node` 一个数字",
        ),
        cases={
            "": Case(fix=Text("add --exclude {node}", "加 --exclude {node}")),
            "no-gpus": Case(fix=Text("job: {changes}  # uses CPUs", "job: {changes}  # 使用 CPU")),
        },
    ),
    "CC-GPU-002": Entry(
        "error",
        Text("fewer GPUs than processes", "GPU 比进程少"),
        why=Text(
            "NCCL refuses two processes on one GPU, and a process beyond the last GPU ends with `invalid device ordinal`.",
            "NCCL 不允许两个进程用同一块 GPU；超出 GPU 数量的进程以 `invalid device ordinal` 结束。",
        ),
        what=Text(
            "`nproc_per_node` is larger than the number of GPUs that this node has or lends, or that the job chooses.\n`nproc_per_node: gpu` takes as many as there are on each node."
        ),
        do=Text("A smaller `nproc_per_node`, or `gpu`", "把 `nproc_per_node` 改小，或者写 `gpu`"),
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
        Text("GPUs are missing", "少了 GPU"),
        why=Text(
            "The inventory promises more GPUs than the node shows: one may have failed, or the number is wrong.",
            "inventory 里的 GPU 比节点上的多：可能有 GPU 坏了，也可能数字写错了。",
        ),
        what=Text(
            "The inventory's `gpus:` is larger than what nvidia-smi lists.\nA GPU that fell off the bus is gone until a reboot; the kernel's log then holds an `NVRM: Xid` line. If the machine never had that many, correct the inventory."
        ),
        do=Text(
            "Look for `Xid` in `dmesg`; a GPU that fell off the bus needs a reboot. Otherwise correct `gpus:`",
            "在 `dmesg` 里找 `Xid`；掉卡了要重启。本来就没那么多，就改 `gpus:`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: gpus: {count}  # or look for Xid in `dmesg`",
                    "inventory，节点 {node}：gpus: {count}  # 或者在 `dmesg` 里找 Xid",
                )
            ),
        },
    ),
    "CC-GPU-004": Entry(
        "error",
        Text("driver and library do not match", "驱动和库的版本不一致"),
        why=Text(
            "The driver was upgraded and the old one is still loaded: no program can use the GPUs until a reboot.",
            "驱动已升级，而旧驱动仍在运行：重启之前任何程序都不能使用 GPU。",
        ),
        what=Text(
            "The kernel runs one version of the NVIDIA driver and the libraries on disk are of another.\nUsually unattended upgrades replaced the driver. Reboot the node, or unload and load the kernel modules while nothing uses them. To keep it from happening again, hold the driver's packages."
        ),
        do=Text("Reboot the node, and hold the driver's packages", "重启节点，并锁住驱动包，不让自动升级"),
        cases={
            "": Case(fix=Text("# reboot")),
        },
        texts=("Failed to initialize NVML: Driver/library version mismatch",),
    ),
    "CC-GPU-005": Entry(
        "error",
        Text("the driver is too old for torch", "驱动版本太旧，不支持这个 torch"),
        why=Text(
            "This torch's CUDA needs a newer driver: the first use of a GPU fails with error 35.",
            "这个 torch 的 CUDA 需要更新的驱动：第一次使用 GPU 就会报错 35。",
        ),
        what=Text(
            "The NVIDIA driver is older than the CUDA version of this torch allows.\nCUDA 12 needs driver 525 or later, CUDA 13 needs 580. Upgrade the driver, or install a torch that was built for an older CUDA."
        ),
        do=Text(
            "Upgrade the driver, or install a torch for an older CUDA",
            "升级驱动，或者装为更旧 CUDA 编译的 torch",
        ),
        cases={
            "": Case(
                fix=Text(
                    "install driver {oldest} or later, or a torch for an older CUDA (its version ends in +cuNNN)",
                    "安装 {oldest} 或更新的驱动，或者为更旧 CUDA 编译的 torch（版本号以 +cuNNN 结尾）",
                )
            ),
        },
        texts=("CUDA driver version is insufficient for CUDA runtime version",),
    ),
    "CC-GPU-006": Entry(
        "warning",
        Text("the drivers differ", "各节点驱动版本不同"),
        why=Text(
            "Mixed driver branches are rarely tested together; a slow or failing node is then hard to explain.",
            "不同分支的驱动很少一起测试；出现慢或失败的节点时很难解释。",
        ),
        what=Text("The nodes run different branches of the NVIDIA driver (the first number of its version)."),
        do=Text("Install the same branch where you can", "尽量装同一个大版本"),
        cases={
            "": Case(
                fix=Text(
                    "install driver {version} there, or {exclude}",
                    "在该节点安装驱动 {version}，或者 {exclude}",
                )
            ),
            "any": Case(
                fix=Text("install one driver there, or {exclude}", "安装同一个版本的驱动，或者 {exclude}")
            ),
        },
    ),
    "CC-GPU-007": Entry(
        "warning",
        Text("the GPU models differ", "GPU 型号不同"),
        why=Text(
            "The slowest GPU sets the pace of all, and the smallest runs out of memory first.",
            "最慢的 GPU 决定整体速度，显存最小的最先用完。",
        ),
        what=Text("The nodes do not have the same kind of GPU. This works; expect the speed of the slowest."),
        do=Text(
            "Nothing needs to be done; choose like nodes by `--nodes` for full speed",
            "可以不管；想要全速，用 `--nodes` 选型号相同的节点",
        ),
        cases={
            "": Case(
                fix=Text(
                    "take batches that fit the smallest GPU, or {exclude}",
                    "按显存最小的 GPU 设置 batch 大小，或者 {exclude}",
                )
            ),
            "any": Case(
                fix=Text("take batches that fit the smallest GPU", "按显存最小的 GPU 设置 batch 大小")
            ),
        },
    ),
    "CC-GPU-008": Entry(
        "warning",
        Text("the numbers of workers differ", "各节点的 worker 数不同"),
        why=Text(
            "The nodes will run different numbers of processes; code that assumes the same number everywhere breaks.",
            "各节点的进程数会不同；假设各处数量相同的代码会出错。",
        ),
        what=Text(
            "With `nproc_per_node: gpu` each node runs as many processes as it has or lends GPUs, and these numbers differ.\nWith `cpu` the same is said of the cores. torchrun and DDP allow this, and WORLD_SIZE is the sum. Code that computes ranks as node_rank * LOCAL_WORLD_SIZE + local_rank does not."
        ),
        do=Text(
            "A number as `nproc_per_node` that every node has", "`nproc_per_node` 写一个每个节点都够的数字"
        ),
        cases={
            "": Case(
                fix=Text(
                    "job: nproc_per_node: N  # a number that every node has",
                    "job: nproc_per_node: N  # 每个节点都够的数字",
                )
            ),
        },
    ),
    "CC-GPU-009": Entry(
        "error",
        Text("nvidia-smi failed", "nvidia-smi 失败"),
        why=Text(
            "A node whose nvidia-smi fails or hangs has a sick GPU or driver; training there fails or hangs too.",
            "nvidia-smi 失败或卡住，说明 GPU 或驱动有问题；在该节点上训练也会失败或卡住。",
        ),
        what=Text(
            'nvidia-smi ended with an error, complained about a device, or gave no answer within 5 seconds.\n"Unable to determine the device handle" and "GPU is lost" mean a GPU that fell off the bus: reboot, and have it replaced if it happens again. A hanging nvidia-smi has the same remedy.'
        ),
        do=Text(
            "`dmesg` and its Xid lines, a reboot; after a second time a new GPU",
            "看 `dmesg` 里的 Xid，重启；再犯就要换卡",
        ),
        cases={
            "": Case(fix=Text("$ nvidia-smi; dmesg | grep -i xid | tail")),
        },
        texts=(
            "Unable to determine the device handle",
            "GPU is lost",
        ),
    ),
    "CC-GPU-010": Entry(
        "info",
        Text("more GPUs than the inventory lends", "GPU 比 inventory 写的多"),
        why=Text("Only as many as the inventory says are used.", "只使用 inventory 里写的数量。"),
        what=Text("The node has more GPUs than the inventory's `gpus:` says; the others stay idle."),
        do=Text("Nothing, or a larger `gpus:` in the inventory", "不用管，或者把 inventory 的 `gpus:` 改大"),
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
            "`nvidia-smi -c 0` sets compute mode Default; it needs root and lasts until the next reboot."
        ),
        do=Text("`sudo nvidia-smi -c 0`, as shown", "照提示 `sudo nvidia-smi -c 0`"),
        cases={
            "": Case(fix=Text("# nvidia-smi -c 0")),
        },
    ),
    "CC-GPU-012": Entry(
        "warning",
        Text("the GPU admits one process only", "GPU 只许一个进程用"),
        why=Text(
            "In an exclusive mode a second process, such as a leftover one, makes the GPU `busy or unavailable`.",
            "独占模式下，第二个进程（例如残留进程）会使 GPU 报 `busy or unavailable`。",
        ),
        what=Text(
            "The compute mode is exclusive: one process per GPU works, one more fails with CUDA error 46."
        ),
        do=Text(
            "`sudo nvidia-smi -c 0`, and see who holds it", "`sudo nvidia-smi -c 0`，并查看哪个进程占用它"
        ),
        cases={
            "": Case(fix=Text("# nvidia-smi -c 0")),
        },
    ),
    "CC-GPU-013": Entry(
        "warning",
        Text("MIG is on", "开着 MIG"),
        why=Text(
            "The GPU is cut into slices: torch sees other devices than nvidia-smi lists, and NCCL is limited.",
            "GPU 被切成多个实例：torch 看到的设备与 nvidia-smi 列出的不同，NCCL 也受限。",
        ),
        what=Text(
            "Multi-Instance GPU splits a GPU. A process uses one instance; NCCL between instances is limited."
        ),
        do=Text(
            "`sudo nvidia-smi -mig 0`, or name the slices by UUID",
            "`sudo nvidia-smi -mig 0`，或者用 UUID 指定切片",
        ),
        cases={
            "": Case(fix=Text("# nvidia-smi -mig 0")),
        },
    ),
    "CC-GPU-014": Entry(
        "warning",
        Text("uncorrectable memory errors", "显存有无法纠正的 ECC 错误"),
        why=Text(
            "The GPU's memory has lost data since the driver was loaded; a job on it may crash or compute nonsense.",
            "驱动加载以来该 GPU 的显存丢失过数据；在上面运行的作业可能崩溃或结果错误。",
        ),
        what=Text(
            "ECC counted errors that it could not correct.\nA reset of the GPU or a reboot clears the pages; if the count returns, the GPU should be replaced."
        ),
        do=Text(
            "Reset the GPU or reboot; if the count comes back, have it replaced",
            "重置 GPU 或重启；计数又涨就换卡",
        ),
        cases={
            "": Case(fix=Text("# nvidia-smi --gpu-reset")),
        },
    ),
    "CC-GPU-015": Entry(
        "warning",
        Text("GPU memory is in use", "显存被占用"),
        why=Text(
            "Another process has these GPUs: the job may run out of memory, or both run slowly.",
            "另一个进程在用这些 GPU：作业可能显存不足，或者双方都变慢。",
        ),
        what=Text(
            "More than 512 MiB of a GPU's memory are taken before the job starts; with `gpus:` only those GPUs count.\nIt may be someone else's work, or what a crashed run left behind. Memory that no listed process owns belongs to a process of another container, or to one that is dying."
        ),
        do=Text(
            "See whose it is: `clusterctl exec -- nvidia-smi`; `clusterctl ps --orphans`",
            "查看是哪个进程：`clusterctl exec -- nvidia-smi`、`clusterctl ps --orphans`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "$ nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv"
                )
            ),
        },
    ),
    "CC-GPU-016": Entry(
        "warning",
        Text("a GPU does not answer", "有一块 GPU 无响应"),
        why=Text(
            "The kernel has a device file for a GPU that nvidia-smi does not list: it may have fallen off the bus.",
            "内核里有该 GPU 的设备文件，nvidia-smi 却没有列出：它可能掉卡了。",
        ),
        what=Text(
            "There are more /dev/nvidiaN files than GPUs in the list. The kernel's log tells why (`NVRM: Xid`)."
        ),
        do=Text("`dmesg` and its Xid lines; a reboot", "看 `dmesg` 里的 Xid；重启"),
        cases={
            "": Case(fix=Text("$ dmesg | grep -i xid | tail")),
        },
    ),
    "CC-GPU-017": Entry(
        "warning",
        Text("some GPUs are hidden", "有 GPU 被隐藏了"),
        why=Text(
            "torch sees only the GPUs that this variable names, whatever nvidia-smi lists.",
            "无论 nvidia-smi 列出什么，torch 只能看到该变量里的 GPU。",
        ),
        what=Text(
            "The environment of an SSH session already limits the visible GPUs, on the node itself.\nA process beyond their number ends with `invalid device ordinal`. Remove the variable from the node's start files, or set it in the job's `env:`."
        ),
        do=Text(
            "Take `CUDA_VISIBLE_DEVICES` out of the node's start-up files, or set it in `env:`",
            "从节点的启动文件里删掉 `CUDA_VISIBLE_DEVICES`，或者在 `env:` 里设置",
        ),
        cases={
            "": Case(fix=Text("$ grep -rn VISIBLE_DEVICES ~/.bashrc ~/.profile /etc/environment")),
        },
    ),
    "CC-GPU-018": Entry(
        "error",
        Text("a chosen GPU does not exist", "选的 GPU 不存在"),
        why=Text(
            "CUDA stops reading its list of visible devices at the first that is not there: workers would lack a GPU.",
            "CUDA 读到可见设备列表里第一个不存在的设备就停止：有的 worker 会没有 GPU。",
        ),
        what=Text(
            "The job's `gpus:` names an index that nvidia-smi does not show on this node, or more than the node lends.\nIndices count from 0 and are the same on all nodes; leave out a node that lacks them (`--exclude`)."
        ),
        do=Text(
            "Correct `gpus:` of the job, or leave the node out: `--exclude`",
            "修改作业的 `gpus:`，或者用 `--exclude` 跳过该节点",
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
        Text("another run has the GPUs", "GPU 被别的任务占用"),
        why=Text(
            "A launch on these GPUs is refused until that run has ended, or waits for it with `launch --wait`.",
            "在那个 run 结束之前，使用这些 GPU 的启动会被拒绝；加 `launch --wait` 则会等待。",
        ),
        what=Text(
            "A run of clusterctl holds these GPUs, of whichever account on the node; the run says whose it is.\n`clusterctl ps` shows runs of this account, `stop RUN` ends one. A holder that does not answer is a frozen agent, or no clusterctl at all; its pid and account are the kernel's word."
        ),
        do=Text(
            "`clusterctl launch --wait`, other GPUs or nodes, or `stop` of that run; see [sharing GPUs](sharing-gpus.md)",
            "`clusterctl launch --wait` 等它，换 GPU 或节点，或者 `stop` 那个任务；见[共用 GPU](sharing-gpus.md)",
        ),
        cases={
            "": Case(
                fix=Text(
                    "clusterctl launch --wait, or stop that run, or choose other GPUs or nodes",
                    "clusterctl launch --wait，或者停止那个 run，或者换 GPU、换节点",
                )
            ),
        },
    ),
    "CC-GPU-020": Entry(
        "warning",
        Text("the kernel has reported GPU errors", "内核报过 GPU 错误"),
        why=Text(
            "The hardware has failed before since the last boot, and may do so again in the middle of a run.",
            "上次启动以来硬件出过错，run 的过程中可能再次出错。",
        ),
        what=Text(
            "The kernel's log has Xid reports of a kind that hardware causes, since the machine was started.\n79 and 119 want a reboot, memory errors a reset of the GPU; what comes back wants a new GPU. Reports that programs cause (such as 13, 31, 43) are left out. Where an ordinary user may not read the log nothing is said: see `sudo dmesg | grep -i xid`."
        ),
        do=Text(
            "Look at the lines: 79 and 119 want a reboot, memory errors a reset",
            "看那几行：79、119 要重启，显存错误要重置 GPU",
        ),
        cases={
            "": Case(fix=Text("$ dmesg | grep -i xid | tail")),
        },
    ),
    "CC-GPU-021": Entry(
        "warning",
        Text("GPU memory waits to be mended", "有显存等待修复（重置后生效）"),
        why=Text(
            "Bad rows of memory are taken out at the next reset; until then an error there ends the job.",
            "坏的显存行要到下次重置才会替换；在此之前，那里出错就会终止作业。",
        ),
        what=Text(
            "The GPU has found bad rows of memory and will replace them by spare ones when it is reset, or at a reboot."
        ),
        do=Text(
            "`sudo nvidia-smi --gpu-reset` while nobody uses it, or a reboot",
            "没人用的时候 `sudo nvidia-smi --gpu-reset`，或者重启",
        ),
        cases={
            "": Case(fix=Text("# nvidia-smi --gpu-reset")),
        },
    ),
    "CC-GPU-022": Entry(
        "error",
        Text("GPU memory cannot be mended", "显存已修不好"),
        why=Text(
            "There are no spare rows left for the bad ones: jobs on this GPU crash, or compute nonsense.",
            "没有备用的显存行可以替换坏行：该 GPU 上的作业会崩溃或结果错误。",
        ),
        what=Text(
            "A bad row of memory could not be replaced (Xid 64). The GPU has to be exchanged; use the others by `gpus:`."
        ),
        do=Text("Use the other GPUs by `gpus:`, and have this one replaced", "用 `gpus:` 选别的卡，这块报修"),
        cases={
            "": Case(
                fix=Text(
                    "add --exclude {node}, or choose other GPUs by `gpus:` in the job",
                    "加 --exclude {node}，或者在作业里用 `gpus:` 选别的 GPU",
                )
            ),
        },
    ),
    "CC-GPU-023": Entry(
        "warning",
        Text("a GPU is held back", "GPU 被降频"),
        why=Text(
            "It runs below its clock, and the slowest GPU sets the pace of all.",
            "它的频率低于标称，而最慢的 GPU 决定整体速度。",
        ),
        what=Text(
            "The GPU's clocks are lowered right now, because it is too hot, or because the power supply asked for it.\nLook at fans, air flow, water, and power supplies. A cap on power that software has set is not meant: under load that is how GPUs work."
        ),
        do=Text(
            "Fans, air flow, power supply: `nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE`",
            "看风扇、风道、电源：`nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE`",
        ),
        cases={
            "": Case(fix=Text("$ nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE")),
        },
    ),
    "CC-GPU-024": Entry(
        "error",
        Text("the NVSwitch fabric is not ready", "NVSwitch 没有就绪"),
        why=Text(
            "CUDA ends with error 802, system not yet initialized, until the Fabric Manager has set up the switches.",
            "在 Fabric Manager 设置好交换芯片之前，CUDA 报错 802：system not yet initialized。",
        ),
        what=Text(
            "The GPUs sit on NVSwitches, and the Fabric Manager has not finished or does not run.\nIts version must be that of the driver: after an upgrade of one, upgrade the other."
        ),
        do=Text(
            "`sudo systemctl restart nvidia-fabricmanager`; its version must be the driver's",
            "`sudo systemctl restart nvidia-fabricmanager`；它的版本必须和驱动一致",
        ),
        cases={
            "": Case(fix=Text("# systemctl restart nvidia-fabricmanager")),
        },
        texts=("CUDA error 802: system not yet initialized",),
    ),
    "CC-GPU-025": Entry(
        "warning",
        Text("NVLinks are down", "有 NVLink 断了"),
        why=Text(
            "What should go over NVLink goes over PCIe, many times slower, or NCCL fails.",
            "本应走 NVLink 的数据改走 PCIe，慢很多倍，或者 NCCL 失败。",
        ),
        what=Text(
            "Some of a GPU's NVLinks are active and some are not, or a GPU has fewer active ones than GPUs of its model have.\nA GPU without any active link has no bridge or switch, if that is so for all of them."
        ),
        do=Text(
            "`nvidia-smi nvlink -s`; reseat the bridge, or have it looked at",
            "`nvidia-smi nvlink -s` 看看；重插桥接器，或者报修",
        ),
        cases={
            "": Case(fix=Text("$ nvidia-smi nvlink -s; nvidia-smi nvlink -e")),
        },
    ),
    "CC-GPU-026": Entry(
        "warning",
        Text("a GPU has fewer PCIe lanes than it could", "GPU 的 PCIe 通道数不足"),
        why=Text(
            "Data to and from this GPU, and to the network, moves at a part of the speed.",
            "该 GPU 与内存、网络之间的传输只有一部分速度。",
        ),
        what=Text(
            "The link between the GPU and the board is narrower than both can do: a card that is not seated well, or a riser.\nIn some boards it is meant to be so: then waive this finding."
        ),
        do=Text(
            "Reseat the card or the riser; where it is meant to be so, `waive`",
            "重插显卡或转接板；本来就是这样设计的就写 `waive`",
        ),
        cases={
            "": Case(fix=Text("$ nvidia-smi --query-gpu=index,pcie.link.width.current --format=csv")),
        },
    ),
    "CC-GPU-027": Entry(
        "error",
        Text("torch has no code for this GPU", "torch 里没有这种 GPU 的代码"),
        why=Text(
            "The first kernel ends with `no kernel image is available for execution on the device`.",
            "第一个 kernel 会以 `no kernel image is available for execution on the device` 结束。",
        ),
        what=Text(
            "torch's wheels hold code for some generations of GPUs: those for CUDA 13 none before Turing (7.5), and only those for CUDA 12.8 and later have Blackwell (10.0, 12.0).\nInstall a torch for another CUDA, or build it for this GPU."
        ),
        do=Text(
            "A torch for another CUDA (12.8 or later for Blackwell), or build it",
            "换一个 CUDA 版本的 torch（Blackwell 要 12.8 以上），或者自己编译",
        ),
        cases={
            "": Case(
                fix=Text(
                    "install a torch whose CUDA knows this GPU: pip install torch --index-url .../whl/cuNNN",
                    "安装支持该 GPU 的 CUDA 版 torch：pip install torch --index-url .../whl/cuNNN",
                )
            ),
        },
    ),
    "CC-GPU-028": Entry(
        "info",
        Text("persistence mode is off", "没有打开 persistence mode"),
        why=Text(
            "The driver leaves the GPU whenever nobody uses it: every start, and every nvidia-smi, then takes seconds.",
            "没有程序使用时驱动会释放 GPU：每次启动、每次 nvidia-smi 都要几秒。",
        ),
        what=Text(
            "With persistence mode the driver stays loaded. It needs root, and lasts until the next boot; nvidia-persistenced makes it lasting."
        ),
        do=Text("`sudo nvidia-smi -pm 1`", "`sudo nvidia-smi -pm 1`"),
        cases={
            "": Case(fix=Text("# nvidia-smi -pm 1")),
        },
    ),
}
