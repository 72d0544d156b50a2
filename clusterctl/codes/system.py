"""Disks, the system, clocks: CC-DISK, CC-SYS, CC-TIME."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text, same

ENTRIES: Mapping[str, Entry] = {
    "CC-DISK-001": Entry(
        "error",
        Text("a file or directory cannot be written", "无法写入文件或目录"),
        what=Text(
            "The disk or the quota of the account is full, or the file system has become read-only. The message shows the path.",
            "磁盘或账号的配额已满，或者文件系统变成了只读。报错里有具体路径。",
        ),
        do=Text(
            "Free some space, or set another `workdir:`; the message shows the path",
            "腾出空间，或者换一个 `workdir:`；报错里有具体路径",
        ),
        when=Text("when a run starts or code is sent", "启动任务或发送代码时"),
        cases={
            "reported": Case(
                same("{message}"),
                Text(
                    "free space on the node (`clusterctl clean`), or set another `workdir`",
                    "在节点上腾出空间（`clusterctl clean`），或者换一个 `workdir`",
                ),
            ),
        },
    ),
    "CC-DISK-002": Entry(
        "error",
        Text("the working directory cannot be used", "工作目录无法使用"),
        why=Text("Code, logs and state of a run are written there.", "任务的代码、日志和状态都写在该目录。"),
        what=Text(
            "The directory on the node (`workdir:`, default ~/.clusterctl) cannot be written, is not a directory, belongs to another account, or is writable by others, who could then run code as you.",
            "节点上的工作目录（`workdir:`，默认 ~/.clusterctl）不可写、不是目录、属于其他账号，或者其他用户可写（他们就能以你的身份执行代码）。",
        ),
        do=Text("Set `workdir:` to a directory that belongs to you", "把 `workdir:` 设为属于你自己的目录"),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: workdir: /a/directory/of/your/own",
                    "inventory，节点 {node}：workdir: /a/directory/of/your/own",
                )
            ),
        },
    ),
    "CC-DISK-003": Entry(
        "error",
        Text("the disk is full", "磁盘已满"),
        why=Text("Code and logs cannot be written.", "代码和日志无法写入。"),
        what=Text(
            "The file system of the working directory has less than 100 MB free.",
            "工作目录所在文件系统的剩余空间不足 100 MB。",
        ),
        do=Text(
            "Run `clusterctl clean`, or the `du` that is shown",
            "执行 `clusterctl clean`，或者用提示的 `du` 查找占用空间的目录",
        ),
        cases={
            "": Case(fix=same("$ du -xh --max-depth=3 {mount} | sort -h | tail")),
        },
        texts=("No space left on device",),
    ),
    "CC-DISK-004": Entry(
        "warning",
        Text("the disk is almost full", "磁盘即将用满"),
        why=Text("There may be no room for checkpoints and logs.", "可能没有空间保存检查点和日志。"),
        what=Text(
            "The file system of the working directory has less than 1 GiB free.",
            "工作目录所在文件系统的剩余空间不足 1 GiB。",
        ),
        do=Text("Run `clusterctl clean`: it removes old runs", "执行 `clusterctl clean` 清理旧任务"),
        cases={
            "": Case(fix=Text("{command}  # removes old runs", "{command}  # 清理旧任务")),
        },
    ),
    "CC-DISK-005": Entry(
        "warning",
        Text("almost no inodes are left", "inode 即将用完"),
        why=Text(
            "The file system runs out of inodes before space; the error is the same: `No space left on device`.",
            "文件系统的 inode 会先于空间用完，报错同样是 `No space left on device`。",
        ),
        what=Text(
            "Each file and directory uses an inode, and fewer than 5000 are left. Many small files use them up.",
            "每个文件和目录占用一个 inode，剩余不足 5000 个。大量小文件会耗尽 inode。",
        ),
        do=Text(
            "Find the directories with many small files with the `du --inodes` that is shown",
            "用提示的 `du --inodes` 查找小文件最多的目录",
        ),
        cases={
            "": Case(fix=same("$ du -x --inodes --max-depth=3 {mount} | sort -n | tail")),
        },
    ),
    "CC-DISK-006": Entry(
        "warning",
        Text("/tmp is full", "/tmp 已满"),
        why=Text(
            "torch, compilers and DataLoader write temporary files there.",
            "torch、编译器和 DataLoader 在该目录写临时文件。",
        ),
        what=Text(
            "The file system of /tmp has less than 100 MB free. `env: {TMPDIR: ...}` sets another directory.",
            "/tmp 所在文件系统的剩余空间不足 100 MB。可以用 `env: {TMPDIR: ...}` 指定其他目录。",
        ),
        do=Text("Clear /tmp, or set `env: {TMPDIR: ...}`", "清理 /tmp，或者设置 `env: {TMPDIR: ...}`"),
        cases={
            "": Case(fix=same("$ du -xh --max-depth=2 /tmp | sort -h | tail")),
        },
    ),
    "CC-DISK-007": Entry(
        "warning",
        Text("the home directory is full", "主目录已满"),
        why=Text(
            "Caches of torch, Triton and Hugging Face are below ~/.cache.",
            "torch、Triton 和 Hugging Face 的缓存都在 ~/.cache 下。",
        ),
        what=Text(
            "The file system of the home directory has less than 100 MB or no inodes free; the working directory is on another file system. torch.hub, datasets and compiled kernels are written there by default: `No space left on device` in the middle of a run. `env: {XDG_CACHE_HOME: ..., HF_HOME: ..., TORCH_HOME: ...}` sets other directories.",
            "主目录所在文件系统的剩余空间不足 100 MB，或者没有空闲的 inode；工作目录在另一个文件系统上。torch.hub、数据集和编译的 kernel 默认写在主目录，任务运行中途会报 `No space left on device`。可以用 `env: {XDG_CACHE_HOME: ..., HF_HOME: ..., TORCH_HOME: ...}` 指定其他目录。",
        ),
        do=Text(
            "Clear `~/.cache`, or set `env: {XDG_CACHE_HOME: ..., HF_HOME: ...}`",
            "清理 `~/.cache`，或者设置 `env: {XDG_CACHE_HOME: ..., HF_HOME: ...}`",
        ),
        cases={
            "": Case(fix=same("$ du -xh --max-depth=2 ~ | sort -h | tail")),
            "inodes": Case(fix=same("$ find ~ -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail")),
        },
    ),
    "CC-DISK-008": Entry(
        "info",
        Text("Python is on a network file system", "Python 位于网络文件系统"),
        why=Text(
            "Importing torch reads thousands of files: with a cold cache a start takes half a minute or more.",
            "导入 torch 需要读取几千个文件：缓存失效后的首次启动需要半分钟以上。",
        ),
        what=Text(
            "The environment that runs torch is on NFS or another network file system. If all nodes read it at once, all of them are slow, and a server that hangs blocks every start. `launch` waits up to 5 minutes for the import. A copy of the environment on a local disk starts in seconds.",
            "运行 torch 的环境位于 NFS 或其他网络文件系统。所有节点同时读取时都会变慢，服务端卡住则任何启动都会卡住。`launch` 最多等待导入 5 分钟。把环境复制到本地磁盘后，几秒即可启动。",
        ),
        do=Text(
            "Copy the environment to a local disk, if starts take long", "如果启动很慢，把环境复制到本地磁盘"
        ),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: python: /local/copy/bin/python  # if starting takes long",
                    "inventory，节点 {node}：python: /local/copy/bin/python  # 如果启动很慢",
                )
            ),
        },
    ),
    "CC-DISK-009": Entry(
        "error",
        Text("the working directory does not respond", "工作目录无响应"),
        why=Text(
            "Every process that accesses it hangs, and cannot even be killed while the server is gone.",
            "访问该目录的进程都会卡住，在服务端恢复之前甚至无法终止。",
        ),
        what=Text(
            "The file system of the working directory, or of a directory above it, did not respond within 2 seconds: a mount whose server is gone, or a failing disk. The other checks were completed.",
            "工作目录或其上级目录所在的文件系统 2 秒内没有响应：挂载的服务端不可用，或者磁盘故障。其他检查已完成。",
        ),
        do=Text(
            "The server of that mount is gone: `findmnt -t nfs,nfs4,fuse,cifs; dmesg`",
            "该挂载的服务端不可用：`findmnt -t nfs,nfs4,fuse,cifs; dmesg`",
        ),
        cases={
            "": Case(fix=same("$ findmnt -t nfs,nfs4,fuse,cifs; dmesg | tail")),
        },
    ),
    "CC-DISK-010": Entry(
        "warning",
        Text("parts of the newest checkpoint are on different nodes", "最新的检查点分散在不同的节点上"),
        why=Text(
            "A job that resumes from a distributed checkpoint (DCP) needs all of its parts on every node.",
            "从分布式检查点（DCP）恢复的作业，每个节点都需要检查点的全部文件。",
        ),
        what=Text(
            "Each rank writes its own part, `.metadata` is written on node 0, and the nodes share no disk. The newest directory with such files in `${output_dir}` is compared.",
            "每个 rank 写自己的部分，`.metadata` 写在 0 号节点上，而各节点没有共享磁盘。这里比较 `${output_dir}` 中最新的含有这类文件的目录。",
        ),
        do=Text(
            "Run `clusterctl cp --gather` if the job is to resume from it: [DCP checkpoints](../restarts.md#checkpoints-of-several-nodes-dcp-fsdp-deepspeed)",
            "如果作业要从它恢复，先执行 `clusterctl cp --gather`：[DCP 检查点](../../en/restarts.md#checkpoints-of-several-nodes-dcp-fsdp-deepspeed)",
        ),
        cases={
            "": Case(fix=Text("{command}  # if the job resumes from it", "{command}  # 如果作业要从它恢复")),
        },
    ),
    "CC-SYS-001": Entry(
        "error",
        Text("two nodes are the same machine", "两个节点是同一台机器"),
        why=Text(
            "Both would start processes on the same GPUs, and NCCL refuses that.",
            "两个节点会在相同的 GPU 上启动进程，NCCL 不允许这样做。",
        ),
        what=Text(
            "Two nodes of the inventory report the same boot and the same hostname. One machine may be listed by name and by address. NCCL identifies machines by these two values; if containers share both on purpose, set NCCL_HOSTID to a different value in each: NCCL and this check then treat them as two machines.",
            "inventory 中的两个节点报告了相同的开机标识和主机名。可能同一台机器既按名称又按地址列出。NCCL 用这两个值识别机器；如果容器有意共用两者，请在每个容器中把 NCCL_HOSTID 设为不同的值，NCCL 和本检查会把它们当作两台机器。",
        ),
        do=Text(
            "The inventory lists one machine twice: leave one out",
            "inventory 中同一台机器列出了两次：排除其中一个",
        ),
        cases={
            "": Case(fix=Text("add --exclude {last}", "加 --exclude {last}")),
        },
    ),
    "CC-SYS-002": Entry(
        "warning",
        Text("two nodes of a job on CPUs are the same machine", "在 CPU 上训练的两个节点是同一台机器"),
        why=Text(
            "They share the same processors, so the second one adds no speed.",
            "它们共用处理器，第二个节点不会带来加速。",
        ),
        what=Text(
            "Two nodes of the inventory are one machine: same boot, same hostname. This is fine for a test on CPUs.",
            "inventory 中的两个节点是同一台机器：开机标识和主机名相同。在 CPU 上测试时没有问题。",
        ),
        do=Text("The second node adds no speed: leave one out", "第二个节点不会加快训练：排除其中一个"),
        cases={
            "": Case(fix=Text("add --exclude {last}", "加 --exclude {last}")),
        },
    ),
    "CC-SYS-003": Entry(
        "warning",
        Text("the limit of open files is low", "打开文件数的上限过低"),
        why=Text(
            "Every connection and DataLoader needs some; the job ends with `Too many open files`.",
            "每个连接和 DataLoader 都要占用一些；作业会以 `Too many open files` 结束。",
        ),
        what=Text(
            "The limit `nofile` of an SSH session is low. 65536 is a good value for large jobs.",
            "SSH 会话的 `nofile` 上限过低。大型作业建议设为 65536。",
        ),
        do=Text(
            "Raise `nofile` in `/etc/security/limits.conf`, or run `ulimit -n 65536` in `activate`",
            "提高 `/etc/security/limits.conf` 的 `nofile`，或者在 `activate` 里执行 `ulimit -n 65536`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "/etc/security/limits.conf on {node}: {user} - nofile 65536",
                    "节点 {node} 的 /etc/security/limits.conf：{user} - nofile 65536",
                )
            ),
        },
    ),
    "CC-SYS-004": Entry(
        "warning",
        Text("/dev/shm is too small", "/dev/shm 太小"),
        why=Text(
            "DataLoader and NCCL share memory there; too little ends in a bus error.",
            "DataLoader 和 NCCL 通过它共享内存；空间不足会导致总线错误。",
        ),
        what=Text(
            "The node's shared memory has less than 256 MiB free for each worker. The size in the fix is the memory in use plus 256 MiB for each worker, in whole GiB. Docker gives a container 64 MiB by default: --shm-size=8g or --ipc=host.",
            "节点的共享内存不足每个 worker 256 MiB。修复命令中的大小等于已用空间加上每个 worker 256 MiB，按 GiB 取整。Docker 默认只给容器 64 MiB：请用 --shm-size=8g 或 --ipc=host。",
        ),
        do=Text(
            "Use fewer DataLoader workers, or the `mount -o remount,size=` that is shown; in a container, `--shm-size`",
            "减少 DataLoader 的 worker，或者按提示执行 `mount -o remount,size=`；容器用 `--shm-size`",
        ),
        cases={
            "": Case(
                fix=Text(
                    "# mount -o remount,size={size}G /dev/shm  # {needed}",
                    "# mount -o remount,size={size}G /dev/shm  # 需要 {needed}",
                )
            ),
            "in-use": Case(
                fix=Text(
                    "# mount -o remount,size={size}G /dev/shm  # {used} in use + {needed}",
                    "# mount -o remount,size={size}G /dev/shm  # 已用 {used} + 需要 {needed}",
                )
            ),
            "memory": Case(
                fix=Text(
                    "job: nproc_per_node: {count}  # {needed} is more than the node's memory",
                    "job: nproc_per_node: {count}  # {needed} 超过节点的内存",
                )
            ),
        },
        texts=("Bus error",),
    ),
    "CC-SYS-005": Entry(
        "info",
        Text("environment variables left over from another job", "残留其他作业的环境变量"),
        why=Text(
            "`clusterctl launch` clears them; a torchrun started by hand would use them.",
            "`clusterctl launch` 会清除它们；手工启动的 torchrun 会使用它们。",
        ),
        what=Text(
            "The environment of an SSH session already contains RANK, MASTER_ADDR, PET_* or similar variables. They come from /etc/environment, a profile file or an image. torchrun reads the default of every flag from PET_*, so one of them silently changes a job.",
            "SSH 会话的环境变量中已有 RANK、MASTER_ADDR、PET_* 等。它们来自 /etc/environment、profile 文件或镜像。torchrun 的每个参数都以 PET_* 变量为默认值，因此其中任何一个都会在没有提示的情况下改变作业。",
        ),
        do=Text(
            "Nothing to do for clusterctl; remove them from the node's startup files",
            "使用 clusterctl 时不受影响；建议从节点的启动文件里删除",
        ),
        cases={
            "": Case(
                fix=same("$ grep -rnE '(RANK|MASTER_|PET_|WORLD_SIZE)' /etc/environment /etc/profile.d")
            ),
        },
    ),
    "CC-SYS-006": Entry(
        "warning",
        Text("environment variables differ", "各节点的环境变量不同"),
        why=Text(
            "These variables affect torch, NCCL or Gloo on some nodes only.",
            "这些变量只在部分节点上影响 torch、NCCL 或 Gloo。",
        ),
        what=Text(
            "The environments of SSH sessions differ in variables that affect torch, NCCL or Gloo. `launch` replaces the NIC variables and keeps the others. If all nodes need a variable, set it in the job's `env:`; otherwise remove it from the node's startup files.",
            "各节点 SSH 会话的环境中，影响 torch、NCCL 或 Gloo 的变量不同。`launch` 会替换网卡变量，保留其他变量。如果所有节点都需要某个变量，请写进作业的 `env:`；否则从节点的启动文件中删除。",
        ),
        do=Text(
            "Set the variable in `env:`, so that it is the same on all nodes",
            "在 `env:` 里设置该变量，使所有节点一致",
        ),
        cases={
            "": Case(
                fix=Text(
                    "job: env: {{name}: ...}  # the same on all nodes",
                    "job: env: {{name}: ...}  # 所有节点相同",
                )
            ),
        },
    ),
    "CC-SYS-007": Entry(
        "warning",
        Text("the limit of locked memory is low", "可锁定内存的上限过低"),
        why=Text(
            "InfiniBand and RoCE lock their buffers; NCCL fails with `ibv_reg_mr failed`.",
            "InfiniBand 和 RoCE 需要锁定缓冲区；NCCL 会以 `ibv_reg_mr failed` 失败。",
        ),
        what=Text(
            "The node has InfiniBand or RoCE adapters and the limit `memlock` of an SSH session is not unlimited.",
            "节点有 InfiniBand 或 RoCE 网卡，而 SSH 会话的 `memlock` 上限不是 unlimited。",
        ),
        do=Text(
            "Raise `memlock` in `/etc/security/limits.conf`, then log in again",
            "提高 `/etc/security/limits.conf` 的 `memlock`，然后重新登录",
        ),
        cases={
            "": Case(
                fix=Text(
                    "/etc/security/limits.conf on {node}: {user} - memlock unlimited",
                    "节点 {node} 的 /etc/security/limits.conf：{user} - memlock unlimited",
                )
            ),
        },
    ),
    "CC-SYS-008": Entry(
        "warning",
        Text("the stack size is unlimited", "栈大小为 unlimited"),
        why=Text(
            "glibc then gives every thread 2 MiB of stack, and NCCL's threads can crash while it starts.",
            "此时 glibc 给每个线程 2 MiB 的栈，NCCL 的线程可能在启动时崩溃。",
        ),
        what=Text(
            "`ulimit -s unlimited` makes thread stacks smaller, not larger. 8192 is the usual value.",
            "`ulimit -s unlimited` 会使线程的栈变小，而不是变大。通常的值是 8192。",
        ),
        do=Text("Run `ulimit -s 8192` in `activate`", "在 `activate` 里执行 `ulimit -s 8192`"),
        cases={
            "": Case(
                fix=Text(
                    "inventory, node {node}: activate: ulimit -s 8192",
                    "inventory，节点 {node}：activate: ulimit -s 8192",
                )
            ),
        },
    ),
    "CC-SYS-009": Entry(
        "warning",
        Text("logind ends processes at logout", "logind 会在用户登出时终止进程"),
        why=Text(
            "A run would be killed when the last SSH session of this user ends.",
            "该用户的最后一个 SSH 会话结束时，任务会被终止。",
        ),
        what=Text(
            "KillUserProcesses=yes is set for systemd-logind, and lingering is off for this user.",
            "systemd-logind 设置了 KillUserProcesses=yes，而该用户没有启用 linger。",
        ),
        do=Text(
            "Run `sudo loginctl enable-linger USER` on the node",
            "在节点上执行 `sudo loginctl enable-linger USER`",
        ),
        cases={
            "": Case(fix=same("# loginctl enable-linger {user}")),
        },
    ),
    "CC-SYS-010": Entry(
        "warning",
        Text("processor architectures differ", "各节点的 CPU 架构不同"),
        why=Text(
            "Compiled code works on one of them only, and results may differ in the last digits.",
            "编译的代码不能在不同架构之间通用，计算结果的末位也可能不同。",
        ),
        what=Text(
            "For example, some nodes are x86_64 and some aarch64. torch may work across them; other packages may not.",
            "例如有的节点是 x86_64，有的是 aarch64。torch 或许可以跨架构工作，其他包不一定。",
        ),
        do=Text("Select nodes of one architecture with `--nodes`", "用 `--nodes` 选择同一种架构的节点"),
        cases={
            "": Case(
                fix=Text(
                    "give each node a Python environment of its own architecture, or {exclude}",
                    "为每个节点准备与其架构匹配的 Python 环境，或者 {exclude}",
                )
            ),
        },
    ),
    "CC-SYS-011": Entry(
        "warning",
        Text("a check could not be completed", "有检查项未能完成"),
        why=Text("This item was not checked.", "该项没有检查。"),
        what=Text(
            "The node responded, but one item failed or exceeded its time limit (2 s, 7.5 s for GPUs): a file system hangs, a name server does not respond, a file is not readable, or a tool is broken.",
            "节点有响应，但某一项失败或超过了时限（2 秒，GPU 为 7.5 秒）：文件系统卡住、域名服务器无响应、文件不可读，或者工具损坏。",
        ),
        do=Text(
            "The message shows the item; run its command by hand on the node",
            "报错里写明了是哪一项；在节点上手工执行相应命令",
        ),
        cases={
            "": Case(fix=same("$ uptime; df; dmesg | tail")),
        },
    ),
    "CC-SYS-012": Entry(
        "warning",
        Text("another run uses the node", "节点正被其他任务使用"),
        why=Text(
            "One of the two runs is exclusive: a launch is refused until the other has ended; `launch --wait` waits.",
            "两个任务之一要求独占节点：另一个结束之前启动会被拒绝；加 `launch --wait` 则会等待。",
        ),
        what=Text(
            "A run with `exclusive: true` uses this node, or this job is exclusive and another run uses the node.",
            "带 `exclusive: true` 的任务正在使用该节点，或者本作业要求独占而该节点上有其他任务。",
        ),
        do=Text(
            "Use `clusterctl launch --wait`, or other nodes; see [sharing GPUs](../sharing.md#gpus-that-others-use)",
            "用 `clusterctl launch --wait` 等待，或者换用其他节点；见[共用 GPU](../../en/sharing.md#gpus-that-others-use)",
        ),
        cases={
            "": Case(
                fix=Text(
                    "clusterctl launch --wait, or stop that run, or select other nodes",
                    "clusterctl launch --wait，或者停止该任务，或者换用其他节点",
                )
            ),
        },
    ),
    "CC-SYS-013": Entry(
        "info",
        Text("logind removes shared memory at logout", "logind 会在用户登出时删除共享内存"),
        why=Text(
            "Files of a run in /dev/shm may vanish when the last session of this user ends.",
            "该用户的最后一个会话结束时，任务在 /dev/shm 里的文件可能消失。",
        ),
        what=Text(
            "RemoveIPC is on for systemd-logind, which is its default, and lingering is off for this user. When a user has no session left, logind removes the user's shared memory. NCCL then prints `unlink shared memory /dev/shm/nccl-... failed, error: No such file or directory`. Lingering prevents it.",
            "systemd-logind 启用了 RemoveIPC（默认值），而该用户没有启用 linger。用户没有任何会话后，logind 会删除其共享内存。此时 NCCL 会报 `unlink shared memory /dev/shm/nccl-... failed, error: No such file or directory`。启用 linger 可以避免。",
        ),
        do=Text("Run `sudo loginctl enable-linger USER`", "执行 `sudo loginctl enable-linger USER`"),
        cases={
            "": Case(fix=same("# loginctl enable-linger {user}")),
        },
    ),
    "CC-SYS-014": Entry(
        "warning",
        Text("shared memory left over from dead processes", "/dev/shm 中有已退出的进程残留的文件"),
        why=Text(
            "Their files in /dev/shm use memory until they are removed or the node restarts.",
            "残留在 /dev/shm 的文件会占用内存，直到删除或节点重启。",
        ),
        what=Text(
            "Unused files of this account in /dev/shm use 256 MiB or more: torch_PID_... of processes that no longer exist, and nccl-... older than an hour. A killed DataLoader leaves the former, a killed rank the latter. Newer files of NCCL may be in use and are not counted.",
            "该账号在 /dev/shm 中的无用文件占用 256 MiB 以上：已退出进程的 torch_PID_...，以及超过一小时的 nccl-...。前者由被终止的 DataLoader 留下，后者由被终止的 rank 留下。较新的 NCCL 文件可能仍在使用，不计入。",
        ),
        do=Text(
            "Run the `find` that is shown; add `-delete` only while no run is active",
            "用提示的 `find` 查看；没有任务运行时才能加 `-delete` 删除",
        ),
        cases={
            "": Case(
                fix=Text(
                    "$ find /dev/shm -maxdepth 1 -user $(id -un) -mmin +60 '(' -name 'torch_*' -o -name 'nccl-*' ')' -ls  # -delete instead of -ls, while no run is active",
                    "$ find /dev/shm -maxdepth 1 -user $(id -un) -mmin +60 '(' -name 'torch_*' -o -name 'nccl-*' ')' -ls  # 没有任务运行时把 -ls 换成 -delete",
                )
            ),
        },
    ),
    "CC-SYS-015": Entry(
        "warning",
        Text("the limit of processes is low", "进程数的上限过低"),
        why=Text(
            "Workers, their threads and DataLoader processes fail with `Resource temporarily unavailable`.",
            "worker、其线程和 DataLoader 进程会以 `Resource temporarily unavailable` 失败。",
        ),
        what=Text(
            "Fewer than 256 processes and threads are allowed for each worker. The limit is `ulimit -u` of an SSH session, which does not apply to root, or what the cgroup has left (pids.max, as containers and systemd set it: TasksMax).",
            "每个 worker 可用的进程和线程数不足 256。该限制来自 SSH 会话的 `ulimit -u`（对 root 无效），或者 cgroup 的剩余额度（容器和 systemd 设置的 pids.max：TasksMax）。",
        ),
        do=Text(
            "Raise `nproc` in `/etc/security/limits.conf`", "提高 `/etc/security/limits.conf` 的 `nproc`"
        ),
        cases={
            "": Case(
                fix=Text(
                    "/etc/security/limits.conf on {node}: {user} - nproc 65536",
                    "节点 {node} 的 /etc/security/limits.conf：{user} - nproc 65536",
                )
            ),
            "cgroup": Case(
                fix=Text(
                    "# systemctl set-property user-{uid}.slice TasksMax=infinity  # in a container: --pids-limit",
                    "# systemctl set-property user-{uid}.slice TasksMax=infinity  # 在容器中：--pids-limit",
                )
            ),
        },
    ),
    "CC-SYS-016": Entry(
        "info",
        Text("a cgroup limits memory", "cgroup 限制了内存"),
        why=Text(
            "The kernel kills a process that exceeds the limit, however much memory the machine has.",
            "无论机器有多少内存，超过限制的进程都会被内核终止。",
        ),
        what=Text(
            "A container, a systemd slice or a batch system gives the session less than nine tenths of the memory. A worker that exceeds the limit ends with signal 9, although `free` still shows free memory.",
            "容器、systemd slice 或批处理系统给该会话的内存不足总量的九成。超过限制的 worker 会被信号 9 终止，而 `free` 仍显示有空闲内存。",
        ),
        do=Text(
            "Only be aware of the limit: `systemctl show -p MemoryMax user-UID.slice`",
            "仅供参考：`systemctl show -p MemoryMax user-UID.slice` 显示该限制",
        ),
        cases={
            "": Case(fix=same("$ cat /proc/self/cgroup; systemctl show -p MemoryMax user-$(id -u).slice")),
        },
    ),
    "CC-SYS-017": Entry(
        "warning",
        Text("little memory is free", "空闲内存不足"),
        why=Text(
            "The kernel's OOM killer ends a worker with signal 9, often minutes after the start of a run.",
            "内核的 OOM killer 会用信号 9 终止 worker，常常发生在任务启动几分钟之后。",
        ),
        what=Text(
            "Less than 512 MiB of memory is free for each worker, on the node or in the session's cgroup. `import torch` alone uses about 200 MB in each worker. Check what uses the memory: processes of other users, or leftovers of a run (`clusterctl clean --orphans`).",
            "节点或会话的 cgroup 中，每个 worker 的空闲内存不足 512 MiB。仅 `import torch` 每个 worker 就要占用约 200 MB。请检查占用内存的进程：其他用户的进程，或者任务残留的进程（`clusterctl clean --orphans`）。",
        ),
        do=Text(
            "Find the processes that use it: `ps -eo user,rss,args --sort -rss`",
            "查看占用内存的进程：`ps -eo user,rss,args --sort -rss`",
        ),
        cases={
            "": Case(fix=same("$ free -h; ps -eo user,rss,args --sort -rss | head")),
        },
    ),
    "CC-SYS-018": Entry(
        "warning",
        Text("more workers than processors", "worker 数多于 CPU 核数"),
        why=Text(
            "Workers that share a processor make every all-reduce wait.",
            "多个 worker 共用一个核时，每次 all-reduce 都要等待。",
        ),
        what=Text(
            "The session may use only some of the node's processors, fewer than the number of workers. The reason is a cgroup quota (cpu.max, `docker --cpus`) or a CPU set (cpuset, taskset, a batch system). If all processors may be used, only more than four workers for each processor are reported.",
            "会话只能使用节点的部分处理器，少于 worker 数。原因是 cgroup 配额（cpu.max、`docker --cpus`）或 CPU 集合（cpuset、taskset、批处理系统）。如果可以使用全部处理器，则每个处理器超过四个 worker 时才报告。",
        ),
        do=Text("Set a smaller `nproc_per_node`", "减小 `nproc_per_node`"),
        cases={
            "quota": Case(
                fix=Text(
                    "job: nproc_per_node: {count}  # or a higher quota",
                    "job: nproc_per_node: {count}  # 或者提高配额",
                )
            ),
            "": Case(fix=same("job: nproc_per_node: {count}")),
        },
    ),
    "CC-SYS-019": Entry(
        "warning",
        Text("text encoding is not UTF-8", "文本编码不是 UTF-8"),
        why=Text(
            "A script that prints or reads other characters fails with UnicodeEncodeError or UnicodeDecodeError.",
            "脚本输出或读取其他字符时会报 UnicodeEncodeError 或 UnicodeDecodeError。",
        ),
        what=Text(
            "Python takes the encoding for files and output from the locale of an SSH session, and that locale is not UTF-8. Python treats the locales C and POSIX as UTF-8, but uses the encoding of others, such as zh_CN.GBK. `env: {PYTHONUTF8: 1}` in the job sets UTF-8 on all nodes.",
            "Python 按 SSH 会话的 locale 决定文件和输出的编码，而该 locale 不是 UTF-8。Python 把 locale C 和 POSIX 视为 UTF-8，其他 locale（例如 zh_CN.GBK）则按其编码处理。在作业中写 `env: {PYTHONUTF8: 1}` 可以使所有节点使用 UTF-8。",
        ),
        do=Text('Set `env: {PYTHONUTF8: "1"}`', '设置 `env: {PYTHONUTF8: "1"}`'),
        cases={
            "": Case(fix=same('job: env: {PYTHONUTF8: "1"}')),
        },
    ),
    "CC-SYS-020": Entry(
        "error",
        Text("no Open MPI on a node", "节点上没有 Open MPI"),
        why=Text(
            "`launcher: mpirun` starts mpirun on node 0 and its daemon orted on every node.",
            "`launcher: mpirun` 在 0 号节点上启动 mpirun，在每个节点上启动它的守护进程 orted。",
        ),
        what=Text(
            "The PATH of a non-login shell, after `activate`, has no `mpirun` or no `orted`. Both come with Open MPI; other MPIs have no orted. All nodes need the same version.",
            "非登录 shell 的 PATH（`activate` 之后）中没有 `mpirun` 或 `orted`。两者都属于 Open MPI；其他 MPI 没有 orted。所有节点需要同一版本。",
        ),
        do=Text(
            "Install Open MPI on every node, or add it to the PATH with `activate:`",
            "在每个节点上安装 Open MPI，或者用 `activate:` 把它加入 PATH",
        ),
        cases={"": Case(fix=same("{command}"))},
    ),
    "CC-TIME-001": Entry(
        "warning",
        Text("the node's clock is wrong", "节点的时钟不准"),
        why=Text(
            "Logs and errors of different nodes cannot be sorted by time, and c10d rendezvous fails beyond 15 s.",
            "不同节点的日志和报错无法按时间排序；相差超过 15 秒时 c10d rendezvous 会失败。",
        ),
        what=Text(
            "The node's clock differs from the clock of this machine by more than 2 seconds, beyond the error of measurement. If most nodes agree with each other but not with this machine, they are compared with each other.",
            "节点的时钟与本机相差超过 2 秒（已扣除测量误差）。如果多数节点彼此一致而与本机不一致，则在节点之间比较。",
        ),
        do=Text("Run `sudo chronyc makestep`, or turn on NTP", "执行 `sudo chronyc makestep`，或者启用 NTP"),
        cases={
            "": Case(fix=same("# chronyc makestep")),
        },
    ),
    "CC-TIME-002": Entry(
        "warning",
        Text("the clock of this machine is wrong", "本机的时钟不准"),
        why=Text(
            "Times that are shown here, such as those of log lines, are wrong by the same amount.",
            "本机显示的时间（例如日志行的时间）会有同样的误差。",
        ),
        what=Text(
            "Most nodes agree with each other within 2 seconds, but differ by more from the machine where clusterctl runs.",
            "多数节点之间相差不到 2 秒，但与运行 clusterctl 的机器相差超过 2 秒。",
        ),
        do=Text(
            "Run `sudo chronyc makestep` on this machine, or turn on NTP",
            "在本机执行 `sudo chronyc makestep`，或者启用 NTP",
        ),
        cases={
            "": Case(fix=Text("sudo chronyc makestep  # on this machine", "sudo chronyc makestep  # 在本机")),
        },
    ),
}
