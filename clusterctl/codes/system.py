"""Disks, the system, clocks: CC-DISK, CC-SYS, CC-TIME."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-DISK-001": Entry(
        "error",
        Text("something could not be written", "写不进去"),
        what=Text(
            "The disk or the quota of the account is full, or the file system has become read-only. The message names the place."
        ),
        do=Text(
            "Free some room, or another `workdir:`; the message names the place",
            "腾出空间，或者换 `workdir:`；报错里写了是哪里",
        ),
        when=Text("when a run starts or code is sent", "run 启动或发送代码时"),
        cases={
            "reported": Case(
                Text("{message}"),
                Text(
                    "free space on the node (`clusterctl clean`), or set another `workdir`",
                    "在节点上腾出空间（`clusterctl clean`），或者换一个 `workdir`",
                ),
            ),
        },
    ),
    "CC-DISK-002": Entry(
        "error",
        Text("the working directory cannot be used", "工作目录不能用"),
        why=Text("Code, logs and state of a run are written there.", "run 的代码、日志和状态都写在那里。"),
        what=Text(
            "The directory on the node (`workdir:`, default ~/.clusterctl) cannot be written, is not a directory,\nbelongs to another account, or may be written by others, who could then run code as you."
        ),
        do=Text("A directory of your own as `workdir:`", "`workdir:` 写一个属于你自己的目录"),
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
        Text("the disk is full", "磁盘满了"),
        why=Text("Code and logs could not be written.", "代码和日志无法写入。"),
        what=Text("The file system of the working directory has less than 100 MB left."),
        do=Text(
            "`clusterctl clean`, or the `du` that is shown", "`clusterctl clean`，或者用给出的 `du` 找大文件"
        ),
        cases={
            "": Case(fix=Text("$ du -xh --max-depth=3 {mount} | sort -h | tail")),
        },
        texts=("No space left on device",),
    ),
    "CC-DISK-004": Entry(
        "warning",
        Text("the disk is nearly full", "磁盘快满了"),
        why=Text("Checkpoints and logs may not fit.", "检查点和日志可能写不下。"),
        what=Text("The file system of the working directory has less than 1 GiB left."),
        do=Text("`clusterctl clean`: old runs go first", "`clusterctl clean` 先清旧任务"),
        cases={
            "": Case(fix=Text("{command}  # old runs go first", "{command}  # 先清理旧的 run")),
        },
    ),
    "CC-DISK-005": Entry(
        "warning",
        Text("few files can still be made", "能建的文件不多了（inode 快用完）"),
        why=Text(
            "The file system runs out of inodes before it runs out of bytes, with the same `No space left on device`.",
            "文件系统的 inode 会先于空间用完，报错同样是 `No space left on device`。",
        ),
        what=Text(
            "Each file and directory takes an inode, and fewer than 5000 are left. Many small files use them up."
        ),
        do=Text(
            "Find the many small files: the `du --inodes` that is shown",
            "用给出的 `du --inodes` 找小文件最多的地方",
        ),
        cases={
            "": Case(fix=Text("$ du -x --inodes --max-depth=3 {mount} | sort -n | tail")),
        },
    ),
    "CC-DISK-006": Entry(
        "warning",
        Text("/tmp is full", "/tmp 满了"),
        why=Text(
            "torch, compilers and data loaders keep temporary files there.",
            "torch、编译器和 DataLoader 的临时文件都在那里。",
        ),
        what=Text(
            "The file system of /tmp has less than 100 MB left. `env: {TMPDIR: ...}` names another place."
        ),
        do=Text("Clear /tmp, or `env: {TMPDIR: ...}`", "清理 /tmp，或者写 `env: {TMPDIR: ...}`"),
        cases={
            "": Case(fix=Text("$ du -xh --max-depth=2 /tmp | sort -h | tail")),
        },
    ),
    "CC-DISK-007": Entry(
        "warning",
        Text("the home directory is full", "家目录满了"),
        why=Text(
            "Caches of torch, Triton and Hugging Face lie below ~/.cache.",
            "torch、Triton 和 Hugging Face 的缓存都在 ~/.cache 下。",
        ),
        what=Text(
            "The file system of the home has less than 100 MB or no inodes left; the working directory is on another one.\nTorch.hub, datasets and compiled kernels are written there by default: `No space left on device` in the middle of a run. `env: {XDG_CACHE_HOME: ..., HF_HOME: ..., TORCH_HOME: ...}` names other places."
        ),
        do=Text(
            "Clear `~/.cache`, or `env: {XDG_CACHE_HOME: ..., HF_HOME: ...}`",
            "清理 `~/.cache`，或者写 `env: {XDG_CACHE_HOME: ..., HF_HOME: ...}`",
        ),
        cases={
            "": Case(fix=Text("$ du -xh --max-depth=2 ~ | sort -h | tail")),
            "inodes": Case(fix=Text("$ find ~ -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail")),
        },
    ),
    "CC-DISK-008": Entry(
        "info",
        Text("Python lies on a network file system", "Python 在网络文件系统上"),
        why=Text(
            "Importing torch reads thousands of files: the first start after a while takes half a minute or more.",
            "导入 torch 要读几千个文件：隔一段时间后的第一次启动要半分钟以上。",
        ),
        what=Text(
            "The environment that runs torch is on NFS or another network file system.\nAll nodes reading it at once are slow together, and a server that hangs stops every start. The launch waits up to 5 minutes for the import. A copy of the environment on a local disk starts in seconds."
        ),
        do=Text(
            "A copy of the environment on a local disk, if starts take long",
            "启动太慢的话，把环境复制一份到本地盘",
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
        Text("the working directory does not answer", "工作目录无响应"),
        why=Text(
            "Whatever touches it hangs, and cannot even be killed while the server is gone.",
            "访问它的程序都会卡住，服务端恢复之前甚至无法杀死。",
        ),
        what=Text(
            "The file system of the working directory, or of a directory above it, gave no answer within 2 seconds.\nA mount whose server is gone, or a disk that is failing. The other questions were answered all the same."
        ),
        do=Text(
            "The server of that mount is gone: `findmnt -t nfs,nfs4,fuse,cifs; dmesg`",
            "挂载的服务端没了：`findmnt -t nfs,nfs4,fuse,cifs; dmesg`",
        ),
        cases={
            "": Case(fix=Text("$ findmnt -t nfs,nfs4,fuse,cifs; dmesg | tail")),
        },
    ),
    "CC-SYS-001": Entry(
        "error",
        Text("two nodes are one machine", "两个节点其实是同一台机器"),
        why=Text(
            "Both would start processes on the same GPUs, and NCCL refuses that.",
            "两个节点会在同样的 GPU 上启动进程，NCCL 会拒绝。",
        ),
        what=Text(
            "Two nodes of the inventory report the same boot and the same hostname.\nPerhaps one machine is listed by name and by address. NCCL tells machines apart by exactly these two values; for containers that share both on purpose, set NCCL_HOSTID to a different value in each, and this check takes them for two as NCCL does."
        ),
        do=Text(
            "The inventory names one machine twice: leave one out", "inventory 里同一台机器写了两次：去掉一个"
        ),
        cases={
            "": Case(fix=Text("add --exclude {last}", "加 --exclude {last}")),
        },
    ),
    "CC-SYS-002": Entry(
        "warning",
        Text("two nodes are one machine", "两个节点其实是同一台机器（CPU）"),
        why=Text(
            "They share its processors, so nothing becomes faster by the second one.",
            "它们共用处理器，第二个节点不会带来加速。",
        ),
        what=Text(
            "Two nodes of the inventory are one machine: same boot, same hostname. Fine for a trial on CPUs."
        ),
        do=Text("Nothing becomes faster by it: leave one out", "这样不会更快：去掉一个"),
        cases={
            "": Case(fix=Text("add --exclude {last}", "加 --exclude {last}")),
        },
    ),
    "CC-SYS-003": Entry(
        "warning",
        Text("few open files are allowed", "能打开的文件太少"),
        why=Text(
            "Every connection and data loader needs some; the job ends with `Too many open files`.",
            "每个连接和 DataLoader 都要占用一些；作业会以 `Too many open files` 结束。",
        ),
        what=Text("The limit `nofile` of an SSH session is small. 65536 is a good value for large jobs."),
        do=Text(
            "`nofile` in `/etc/security/limits.conf`, or `ulimit -n 65536` in `activate`",
            "改 `/etc/security/limits.conf` 的 `nofile`，或者在 `activate` 里 `ulimit -n 65536`",
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
        Text("/dev/shm is small", "/dev/shm 太小"),
        why=Text(
            "Data loaders and NCCL share memory there; too little ends in a bus error.",
            "DataLoader 和 NCCL 用它共享内存；不够会导致总线错误。",
        ),
        what=Text(
            "The shared memory of the node has less room than 256 MiB for each worker. The size in the fix is what is in use and 256 MiB for each worker, in whole GiB.\nDocker gives a container 64 MiB unless told otherwise: --shm-size=8g or --ipc=host."
        ),
        do=Text(
            "Fewer data loader workers, or the `mount -o remount,size=` that is shown; `--shm-size` in a container",
            "减少 DataLoader 的 worker，或者照提示 `mount -o remount,size=`；容器里用 `--shm-size`",
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
                    "job: nproc_per_node: {count}  # {needed} are more than the node's memory",
                    "job: nproc_per_node: {count}  # {needed} 超过节点的内存",
                )
            ),
        },
        texts=("Bus error",),
    ),
    "CC-SYS-005": Entry(
        "info",
        Text("leftover variables of another job", "残留其他作业的环境变量"),
        why=Text(
            "A launch by clusterctl clears them; a torchrun started by hand would obey them.",
            "clusterctl 启动时会清除它们；手工启动的 torchrun 会使用它们。",
        ),
        what=Text(
            "The environment of an SSH session already holds RANK, MASTER_ADDR, PET_* or the like.\nThey come from /etc/environment, a profile file or an image. torchrun takes the default of every flag from PET_*, so one of them silently changes a job."
        ),
        do=Text(
            "Nothing for our launches; take them out of the node's start-up files",
            "用 clusterctl 启动不受影响；最好从节点的启动文件里删掉",
        ),
        cases={
            "": Case(
                fix=Text("$ grep -rnE '(RANK|MASTER_|PET_|WORLD_SIZE)' /etc/environment /etc/profile.d")
            ),
        },
    ),
    "CC-SYS-006": Entry(
        "warning",
        Text("the nodes' environments differ", "各节点环境变量不同"),
        why=Text(
            "Such a variable steers torch, NCCL or Gloo on some nodes and not on others.",
            "这样的变量会影响 torch、NCCL 或 Gloo，而且只在部分节点上。",
        ),
        what=Text(
            "The environments of SSH sessions differ in variables that change what torch, NCCL or Gloo do.\nA launch replaces the NIC variables and leaves the others. If all nodes should have one, write it in the job's `env:`; otherwise remove it from the node's start files."
        ),
        do=Text(
            "Set the variable in `env:`, then it is the same everywhere", "在 `env:` 里设置，各节点就一样了"
        ),
        cases={
            "": Case(
                fix=Text(
                    "job: env: {{name}: ...}  # the same everywhere",
                    "job: env: {{name}: ...}  # 所有节点相同",
                )
            ),
        },
    ),
    "CC-SYS-007": Entry(
        "warning",
        Text("little memory may be locked", "可锁定的内存太少"),
        why=Text(
            "InfiniBand and RoCE lock their buffers; NCCL fails with `ibv_reg_mr failed`.",
            "InfiniBand 和 RoCE 要锁定缓冲区；NCCL 会以 `ibv_reg_mr failed` 失败。",
        ),
        what=Text(
            "The node has InfiniBand or RoCE adapters and the limit `memlock` of an SSH session is not unlimited."
        ),
        do=Text(
            "`memlock` in `/etc/security/limits.conf`, then a new login",
            "改 `/etc/security/limits.conf` 的 `memlock`，重新登录",
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
        Text("the stack is unlimited", "栈大小是 unlimited"),
        why=Text(
            "glibc then gives every thread 2 MiB of stack, and NCCL's threads can crash while it starts.",
            "此时 glibc 给每个线程 2 MiB 的栈，NCCL 的线程可能在启动时崩溃。",
        ),
        what=Text("`ulimit -s unlimited` makes thread stacks smaller, not larger. 8192 is the usual value."),
        do=Text("`ulimit -s 8192` in `activate`", "在 `activate` 里 `ulimit -s 8192`"),
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
        Text("logind ends processes at logout", "logind 在退出登录时会杀进程"),
        why=Text(
            "A run would be killed when the last SSH session of this user ends.",
            "该用户的最后一个 SSH 会话结束时，run 会被杀死。",
        ),
        what=Text("KillUserProcesses=yes is set for systemd-logind, and lingering is off for this user."),
        do=Text(
            "`sudo loginctl enable-linger USER` on the node", "在节点上 `sudo loginctl enable-linger 用户名`"
        ),
        cases={
            "": Case(fix=Text("# loginctl enable-linger {user}")),
        },
    ),
    "CC-SYS-010": Entry(
        "warning",
        Text("the processor architectures differ", "CPU 架构不同"),
        why=Text(
            "Compiled code does not move between them, and results may differ in the last digits.",
            "编译好的代码不能在它们之间通用，计算结果的末位也可能不同。",
        ),
        what=Text(
            "Some nodes are x86_64 and some aarch64, say. torch may work across them; other packages may not."
        ),
        do=Text("Choose nodes of one kind by `--nodes`", "用 `--nodes` 选同一种架构的节点"),
        cases={
            "": Case(
                fix=Text(
                    "give each node a Python environment of its own architecture, or {exclude}",
                    "每个节点使用与自己架构匹配的 Python 环境，或者 {exclude}",
                )
            ),
        },
    ),
    "CC-SYS-011": Entry(
        "warning",
        Text("a question was not answered", "有一项没有查到"),
        why=Text("What could not be asked was not checked.", "无法查询的内容没有检查。"),
        what=Text(
            "The node answered, but one of the questions failed or took longer than its own limit (2 s, 7.5 s for GPUs).\nA file system hangs, a name server is silent, a file may not be read, a tool is broken."
        ),
        do=Text(
            "The message says what was not answered; try the command by hand there",
            "报错里写了是哪一项；在节点上手工试那条命令",
        ),
        cases={
            "": Case(fix=Text("$ uptime; df; dmesg | tail")),
        },
    ),
    "CC-SYS-012": Entry(
        "warning",
        Text("another run is in the way", "有别的任务在这个节点上"),
        why=Text(
            "One of the two wants the node alone: a launch is refused until the other has ended, or waits for it.",
            "其中一个要独占节点：在另一个结束之前启动会被拒绝；加 `launch --wait` 则会等待。",
        ),
        what=Text(
            "A run with `exclusive: true` has this node, or this job wants it alone and another run is there."
        ),
        do=Text(
            "`clusterctl launch --wait`, or other nodes; see [sharing GPUs](sharing-gpus.md)",
            "`clusterctl launch --wait`，或者换节点；见[共用 GPU](sharing-gpus.md)",
        ),
        cases={
            "": Case(
                fix=Text(
                    "clusterctl launch --wait, or stop that run, or choose other nodes",
                    "clusterctl launch --wait，或者停止那个 run，或者换节点",
                )
            ),
        },
    ),
    "CC-SYS-013": Entry(
        "info",
        Text("logind removes shared memory at logout", "logind 在退出登录时会删共享内存"),
        why=Text(
            "Files of a run in /dev/shm may vanish when the last session of this user ends.",
            "该用户的最后一个会话结束时，run 在 /dev/shm 里的文件可能消失。",
        ),
        what=Text(
            "RemoveIPC is on for systemd-logind, which is its default, and lingering is off for this user.\nWhen a user has no session and no process of a session left, logind removes the user's shared memory. NCCL says `unlink shared memory /dev/shm/nccl-... failed, error: No such file or directory`. Lingering prevents it."
        ),
        do=Text("`sudo loginctl enable-linger USER`", "`sudo loginctl enable-linger 用户名`"),
        cases={
            "": Case(fix=Text("# loginctl enable-linger {user}")),
        },
    ),
    "CC-SYS-014": Entry(
        "warning",
        Text("dead processes left shared memory", "/dev/shm 里有已退出的进程残留的内容"),
        why=Text(
            "What they left in /dev/shm takes memory until it is removed or the node restarts.",
            "残留在 /dev/shm 里的内容会占用内存，直到删除或节点重启。",
        ),
        what=Text(
            "Files of this account in /dev/shm that nobody can need any more take 256 MiB or more.\ntorch_PID_... of a process that is gone, and nccl-... that are older than an hour. A killed data loader leaves the former, a killed rank the latter. Newer files of NCCL may be in use and are not counted."
        ),
        do=Text(
            "The `find` that is shown; with `-delete` while no run is there",
            "用给出的 `find` 查看；没有任务在跑时加 `-delete` 删掉",
        ),
        cases={
            "": Case(
                fix=Text(
                    "$ find /dev/shm -maxdepth 1 -user $(id -un) -mmin +60 '(' -name 'torch_*' -o -name 'nccl-*' ')' -ls  # -delete in place of -ls, while no run is there",
                    "$ find /dev/shm -maxdepth 1 -user $(id -un) -mmin +60 '(' -name 'torch_*' -o -name 'nccl-*' ')' -ls  # 没有 run 时把 -ls 换成 -delete",
                )
            ),
        },
    ),
    "CC-SYS-015": Entry(
        "warning",
        Text("few processes may be started", "能启动的进程太少"),
        why=Text(
            "Workers, their threads and data loaders end with `Resource temporarily unavailable`.",
            "worker、线程和 DataLoader 会以 `Resource temporarily unavailable` 结束。",
        ),
        what=Text(
            "Fewer processes and threads are allowed than 256 for each worker.\nThe limit is `ulimit -u` of an SSH session, which does not hold for root, or what the control group has left (pids.max, as containers and systemd set it: TasksMax)."
        ),
        do=Text("`nproc` in `/etc/security/limits.conf`", "改 `/etc/security/limits.conf` 的 `nproc`"),
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
                    "# systemctl set-property user-{uid}.slice TasksMax=infinity  # 在容器里：--pids-limit",
                )
            ),
        },
    ),
    "CC-SYS-016": Entry(
        "info",
        Text("a control group limits memory", "cgroup 限制了内存"),
        why=Text(
            "The kernel ends a process that goes beyond it, however much memory the machine has.",
            "超过限制的进程会被内核结束，无论机器有多少内存。",
        ),
        what=Text(
            "A container, a systemd slice or a batch system grants the session less than nine tenths of the memory.\nA worker that goes beyond it ends by signal 9, and `free` shows nothing of it."
        ),
        do=Text(
            "Know the limit; `systemctl show -p MemoryMax user-UID.slice`",
            "仅供参考；`systemctl show -p MemoryMax user-UID.slice` 能看到上限",
        ),
        cases={
            "": Case(fix=Text("$ cat /proc/self/cgroup; systemctl show -p MemoryMax user-$(id -u).slice")),
        },
    ),
    "CC-SYS-017": Entry(
        "warning",
        Text("little memory is free", "空闲内存很少"),
        why=Text(
            "The kernel's OOM killer ends a worker with signal 9, often minutes into a run.",
            "内核的 OOM killer 会用信号 9 结束 worker，常常在 run 开始几分钟之后。",
        ),
        what=Text(
            "Less memory is free than 512 MiB for each worker, on the node or in the session's control group.\n`import torch` alone takes some 200 MB in each worker. See who has it: other people's processes, or a run that was left behind (`clusterctl ps --orphans`)."
        ),
        do=Text(
            "See who uses it: `ps -eo user,rss,args --sort -rss`",
            "查看占用内存的进程：`ps -eo user,rss,args --sort -rss`",
        ),
        cases={
            "": Case(fix=Text("$ free -h; ps -eo user,rss,args --sort -rss | head")),
        },
    ),
    "CC-SYS-018": Entry(
        "warning",
        Text("more workers than processors", "worker 比 CPU 核多"),
        why=Text(
            "Workers that take turns make every all-reduce wait.",
            "轮流占用处理器的 worker 会使每次 all-reduce 都要等待。",
        ),
        what=Text(
            "The session may use only some of the node's processors, and fewer than there would be workers.\nThe reason is a control group's quota (cpu.max, `docker --cpus`), or a set of processors (cpuset, taskset, a batch system). Where all of them may be used, more than four workers for each processor are reported."
        ),
        do=Text("A smaller `nproc_per_node`", "把 `nproc_per_node` 改小"),
        cases={
            "quota": Case(
                fix=Text(
                    "job: nproc_per_node: {count}  # or a higher quota",
                    "job: nproc_per_node: {count}  # 或者调高配额",
                )
            ),
            "": Case(fix=Text("job: nproc_per_node: {count}")),
        },
    ),
    "CC-SYS-019": Entry(
        "warning",
        Text("text is not read as UTF-8", "文本不按 UTF-8 读"),
        why=Text(
            "A script that prints or reads other letters fails with UnicodeEncodeError or UnicodeDecodeError.",
            "脚本输出或读取其他字符时会报 UnicodeEncodeError 或 UnicodeDecodeError。",
        ),
        what=Text(
            "Python takes its encoding for files and output from the locale of an SSH session, and that is another one.\nPython reads the locales C and POSIX as UTF-8; others, such as zh_CN.GBK, it obeys. `env: {PYTHONUTF8: 1}` in the job settles it for all nodes."
        ),
        do=Text('`env: {PYTHONUTF8: "1"}`', '写 `env: {PYTHONUTF8: "1"}`'),
        cases={
            "": Case(fix=Text('job: env: {PYTHONUTF8: "1"}')),
        },
    ),
    "CC-TIME-001": Entry(
        "warning",
        Text("the clock is wrong", "节点的时钟不准"),
        why=Text(
            "Logs and errors of different nodes cannot be put in order, and c10d rendezvous fails beyond 15 s.",
            "不同节点的日志和报错无法按时间排序，相差超过 15 秒时 c10d rendezvous 会失败。",
        ),
        what=Text(
            "The node's clock differs from the one here by more than 2 seconds, beyond the error of measuring.\nWhere most nodes agree with each other and not with this machine, they are compared with each other."
        ),
        do=Text("`sudo chronyc makestep`, or switch NTP on", "`sudo chronyc makestep`，或者打开 NTP"),
        cases={
            "": Case(fix=Text("# chronyc makestep")),
        },
    ),
    "CC-TIME-002": Entry(
        "warning",
        Text("the clock of this machine is wrong", "本机的时钟不准"),
        why=Text(
            "Times that are shown here, such as those of log lines, are off by as much.",
            "这里显示的时间（例如日志行的时间）会有同样的误差。",
        ),
        what=Text(
            "Most nodes agree with each other within 2 seconds, and differ from the machine where clusterctl runs by more."
        ),
        do=Text(
            "`sudo chronyc makestep` on this machine, or switch NTP on",
            "在本机上 `sudo chronyc makestep`，或者打开 NTP",
        ),
        cases={
            "": Case(fix=Text("sudo chronyc makestep  # here", "sudo chronyc makestep  # 在本机")),
        },
    ),
}
