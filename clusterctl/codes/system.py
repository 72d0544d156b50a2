"""Disks, the system, clocks: CC-DISK, CC-SYS, CC-TIME."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

ENTRIES: Mapping[str, Entry] = {
    "CC-DISK-001": Entry(
        "error",
        "a file or directory cannot be written",
        what="The disk or the quota of the account is full, or the file system has become read-only. The message shows the path.",
        do="Free some space, or set another `workdir:`; the message shows the path",
        when="when a run starts or code is sent",
        cases={
            "reported": Case(
                Same("{message}"), "free space on the node (`clusterctl clean`), or set another `workdir`"
            ),
        },
    ),
    "CC-DISK-002": Entry(
        "error",
        "the working directory cannot be used",
        why="Code, logs and state of a run are written there.",
        what="The directory on the node (`workdir:`, default ~/.clusterctl) cannot be written, is not a directory, belongs to another account, or is writable by others, who could then run code as you.",
        do="Set `workdir:` to a directory that belongs to you",
        cases={
            "": Case(fix="inventory, node {node}: workdir: /a/directory/of/your/own"),
        },
    ),
    "CC-DISK-003": Entry(
        "error",
        "the disk is full",
        why="Code and logs cannot be written.",
        what="The file system of the working directory has less than 100 MB free.",
        do="Run `clusterctl clean`, or the `du` that is shown",
        cases={
            "": Case(fix=Same("$ du -xh --max-depth=3 {mount} | sort -h | tail")),
        },
        texts=("No space left on device",),
    ),
    "CC-DISK-004": Entry(
        "warning",
        "the disk is almost full",
        why="There may be no room for checkpoints and logs.",
        what="The file system of the working directory has less than 1 GiB free.",
        do="Run `clusterctl clean`: it removes old runs",
        cases={
            "": Case(fix="{command}  # removes old runs"),
        },
    ),
    "CC-DISK-005": Entry(
        "warning",
        "almost no inodes are left",
        why="The file system runs out of inodes before space; the error is the same: `No space left on device`.",
        what="Each file and directory uses an inode, and fewer than 5000 are left. Many small files use them up.",
        do="Find the directories with many small files with the `du --inodes` that is shown",
        cases={
            "": Case(fix=Same("$ du -x --inodes --max-depth=3 {mount} | sort -n | tail")),
        },
    ),
    "CC-DISK-006": Entry(
        "warning",
        "/tmp is full",
        why="torch, compilers and DataLoader write temporary files there.",
        what="The file system of /tmp has less than 100 MB free. `env: {TMPDIR: ...}` sets another directory.",
        do="Clear /tmp, or set `env: {TMPDIR: ...}`",
        cases={
            "": Case(fix=Same("$ du -xh --max-depth=2 /tmp | sort -h | tail")),
        },
    ),
    "CC-DISK-007": Entry(
        "warning",
        "the home directory is full",
        why="Caches of torch, Triton and Hugging Face are below ~/.cache.",
        what="The file system of the home directory has less than 100 MB or no inodes free; the working directory is on another file system. torch.hub, datasets and compiled kernels are written there by default: `No space left on device` in the middle of a run. `env: {XDG_CACHE_HOME: ..., HF_HOME: ..., TORCH_HOME: ...}` sets other directories.",
        do="Clear `~/.cache`, or set `env: {XDG_CACHE_HOME: ..., HF_HOME: ...}`",
        cases={
            "": Case(fix=Same("$ du -xh --max-depth=2 ~ | sort -h | tail")),
            "inodes": Case(fix=Same("$ find ~ -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail")),
        },
    ),
    "CC-DISK-008": Entry(
        "info",
        "Python is on a network file system",
        why="Importing torch reads thousands of files: with a cold cache a start takes half a minute or more.",
        what="The environment that runs torch is on NFS or another network file system. If all nodes read it at once, all of them are slow, and a server that hangs blocks every start. `launch` waits up to 5 minutes for the import. A copy of the environment on a local disk starts in seconds.",
        do="Copy the environment to a local disk, if starts take long",
        cases={
            "": Case(fix="inventory, node {node}: python: /local/copy/bin/python  # if starting takes long"),
        },
    ),
    "CC-DISK-009": Entry(
        "error",
        "the working directory does not respond",
        why="Every process that accesses it hangs, and cannot even be killed while the server is gone.",
        what="The file system of the working directory, or of a directory above it, did not respond within 2 seconds: a mount whose server is gone, or a failing disk. The other checks were completed.",
        do="The server of that mount is gone: `findmnt -t nfs,nfs4,fuse,cifs; dmesg`",
        cases={
            "": Case(fix=Same("$ findmnt -t nfs,nfs4,fuse,cifs; dmesg | tail")),
        },
    ),
    "CC-DISK-010": Entry(
        "warning",
        "parts of the newest checkpoint are on different nodes",
        why="A job that resumes from a distributed checkpoint (DCP) needs all of its parts on every node.",
        what="Each rank writes its own part, `.metadata` is written on node 0, and the nodes share no disk. The newest directory with such files in `${output_dir}` is compared.",
        do="Run `clusterctl cp --gather` if the job is to resume from it: [DCP checkpoints](../restarts.md#checkpoints-of-several-nodes-dcp-fsdp-deepspeed)",
        cases={
            "": Case(fix="{command}  # if the job resumes from it"),
        },
    ),
    "CC-DISK-011": Entry(
        "warning",
        "the job may restart, and its checkpoints are on the disk of one node each",
        why="A lost node takes its files along: a spare that replaces it has none of them, and the run starts from the beginning or fails.",
        what="The job has `restart` for lost nodes, uses `${output_dir}`, and that is on a local disk. With `checkpoints:` the nodes keep copies for each other while the job runs, and a restart resumes from the newest one that is whole.",
        do="Add `checkpoints:` to the job: [Checkpoints that survive a lost node](../restarts.md#checkpoints-that-survive-a-lost-node); if the script writes them elsewhere, `waive` this finding",
        cases={
            "": Case(fix=Same('checkpoints: {path: "{path}"}')),
        },
    ),
    "CC-SYS-001": Entry(
        "error",
        "two nodes are the same machine",
        why="Both would start processes on the same GPUs, and NCCL refuses that; ranks of Open MPI use the same shared memory and crash (SIGSEGV).",
        what="Two nodes of the inventory report the same boot and the same hostname. One machine may be listed by name and by address. NCCL identifies machines by these two values; if containers share both on purpose, set NCCL_HOSTID to a different value in each: NCCL and this check then treat them as two machines.",
        do="The inventory lists one machine twice: leave one out",
        cases={
            "": Case(fix="add --exclude {last}"),
            "mpirun": Case(fix="add --exclude {last}, or for a test --set env.OMPI_MCA_btl=self,tcp"),
        },
    ),
    "CC-SYS-002": Entry(
        "warning",
        "two nodes of a job on CPUs are the same machine",
        why="They share the same processors, so the second one adds no speed.",
        what="Two nodes of the inventory are one machine: same boot, same hostname. This is fine for a test on CPUs.",
        do="The second node adds no speed: leave one out",
        cases={
            "": Case(fix="add --exclude {last}"),
        },
    ),
    "CC-SYS-003": Entry(
        "warning",
        "the limit of open files is low",
        why="Every connection and DataLoader needs some; the job ends with `Too many open files`.",
        what="The limit `nofile` of an SSH session is low. 65536 is a good value for large jobs.",
        do="Raise `nofile` in `/etc/security/limits.conf`, or run `ulimit -n 65536` in `activate`",
        cases={
            "": Case(fix="/etc/security/limits.conf on {node}: {user} - nofile 65536"),
        },
    ),
    "CC-SYS-004": Entry(
        "warning",
        "/dev/shm is too small",
        why="DataLoader and NCCL share memory there; too little ends in a bus error.",
        what="The node's shared memory has less than 256 MiB free for each worker. The size in the fix is the memory in use plus 256 MiB for each worker, in whole GiB. Docker gives a container 64 MiB by default: --shm-size=8g or --ipc=host.",
        do="Use fewer DataLoader workers, or the `mount -o remount,size=` that is shown; in a container, `--shm-size`",
        cases={
            "": Case(fix="# mount -o remount,size={size}G /dev/shm  # {needed}"),
            "in-use": Case(fix="# mount -o remount,size={size}G /dev/shm  # {used} in use + {needed}"),
            "memory": Case(fix="job: nproc_per_node: {count}  # {needed} is more than the node's memory"),
        },
        texts=("Bus error",),
    ),
    "CC-SYS-005": Entry(
        "info",
        "environment variables left over from another job",
        why="`clusterctl launch` clears them; a torchrun started by hand would use them.",
        what="The environment of an SSH session already contains RANK, MASTER_ADDR, PET_* or similar variables. They come from /etc/environment, a profile file or an image. torchrun reads the default of every flag from PET_*, so one of them silently changes a job.",
        do="Nothing to do for clusterctl; remove them from the node's startup files",
        cases={
            "": Case(
                fix=Same(
                    "$ grep -rnE '(RANK|MASTER_|PET_|WORLD_SIZE|ROLE_NAME|TORCHELASTIC_)' /etc/environment /etc/profile.d"
                )
            ),
        },
    ),
    "CC-SYS-006": Entry(
        "warning",
        "environment variables differ",
        why="These variables affect torch, NCCL or Gloo on some nodes only.",
        what="The environments of SSH sessions differ in variables that affect torch, NCCL or Gloo. `launch` replaces the NIC variables and keeps the others. If all nodes need a variable, set it in the job's `env:`; otherwise remove it from the node's startup files.",
        do="Set the variable in `env:`, so that it is the same on all nodes",
        cases={
            "": Case(fix="job: env: {{name}: ...}  # the same on all nodes"),
        },
    ),
    "CC-SYS-007": Entry(
        "warning",
        "the limit of locked memory is low",
        why="InfiniBand and RoCE lock their buffers; NCCL fails with `ibv_reg_mr failed`.",
        what="The node has InfiniBand or RoCE adapters and the limit `memlock` of an SSH session is not unlimited.",
        do="Raise `memlock` in `/etc/security/limits.conf`, then log in again",
        cases={
            "": Case(fix="/etc/security/limits.conf on {node}: {user} - memlock unlimited"),
        },
    ),
    "CC-SYS-008": Entry(
        "warning",
        "the stack size is unlimited",
        why="glibc then gives every thread 2 MiB of stack, and NCCL's threads can crash while it starts.",
        what="`ulimit -s unlimited` makes thread stacks smaller, not larger. 8192 is the usual value.",
        do="Run `ulimit -s 8192` in `activate`",
        cases={
            "": Case(fix="inventory, node {node}: activate: ulimit -s 8192"),
        },
    ),
    "CC-SYS-009": Entry(
        "warning",
        "logind ends processes at logout",
        why="A run would be killed when the last SSH session of this user ends.",
        what="KillUserProcesses=yes is set for systemd-logind, and lingering is off for this user.",
        do="Run `sudo loginctl enable-linger USER` on the node",
        cases={
            "": Case(fix=Same("# loginctl enable-linger {user}")),
        },
    ),
    "CC-SYS-010": Entry(
        "warning",
        "processor architectures differ",
        why="Compiled code works on one of them only, and results may differ in the last digits.",
        what="For example, some nodes are x86_64 and some aarch64. torch may work across them; other packages may not.",
        do="Select nodes of one architecture with `--nodes`",
        cases={
            "": Case(fix="give each node a Python environment of its own architecture, or {exclude}"),
        },
    ),
    "CC-SYS-011": Entry(
        "warning",
        "a check could not be completed",
        why="This item was not checked.",
        what="The node responded, but one item failed or exceeded its time limit (2 s, 7.5 s for GPUs): a file system hangs, a name server does not respond, a file is not readable, or a tool is broken.",
        do="The message shows the item; run its command by hand on the node",
        cases={
            "": Case(fix=Same("$ uptime; df; dmesg | tail")),
        },
    ),
    "CC-SYS-012": Entry(
        "warning",
        "another run uses the node",
        why="One of the two runs is exclusive: a launch is refused until the other has ended; `launch --wait` waits.",
        what="A run with `exclusive: true` uses this node, or this job is exclusive and another run uses the node.",
        do="Use `clusterctl launch --wait`, or other nodes; see [sharing GPUs](../sharing.md#gpus-that-others-use)",
        cases={
            "": Case(fix="clusterctl launch --wait, or stop that run, or select other nodes"),
        },
    ),
    "CC-SYS-013": Entry(
        "info",
        "logind removes shared memory at logout",
        why="Files of a run in /dev/shm may vanish when the last session of this user ends.",
        what="RemoveIPC is on for systemd-logind, which is its default, and lingering is off for this user. When a user has no session left, logind removes the user's shared memory. NCCL then prints `unlink shared memory /dev/shm/nccl-... failed, error: No such file or directory`. Lingering prevents it.",
        do="Run `sudo loginctl enable-linger USER`",
        cases={
            "": Case(fix=Same("# loginctl enable-linger {user}")),
        },
    ),
    "CC-SYS-014": Entry(
        "warning",
        "shared memory left over from dead processes",
        why="Their files in /dev/shm use memory until they are removed or the node restarts.",
        what="Unused files of this account in /dev/shm use 256 MiB or more: torch_PID_... of processes that no longer exist, and nccl-... older than an hour. A killed DataLoader leaves the former, a killed rank the latter. Newer files of NCCL may be in use and are not counted.",
        do="Run the `find` that is shown; add `-delete` only while no run is active",
        cases={
            "": Case(
                fix="$ find /dev/shm -maxdepth 1 -user $(id -un) -mmin +60 '(' -name 'torch_*' -o -name 'nccl-*' ')' -ls  # -delete instead of -ls, while no run is active"
            ),
        },
    ),
    "CC-SYS-015": Entry(
        "warning",
        "the limit of processes is low",
        why="Workers, their threads and DataLoader processes fail with `Resource temporarily unavailable`.",
        what="Fewer than 256 processes and threads are allowed for each worker. The limit is `ulimit -u` of an SSH session, which does not apply to root, or what the cgroup has left (pids.max, as containers and systemd set it: TasksMax).",
        do="Raise `nproc` in `/etc/security/limits.conf`",
        cases={
            "": Case(fix="/etc/security/limits.conf on {node}: {user} - nproc 65536"),
            "cgroup": Case(
                fix="# systemctl set-property user-{uid}.slice TasksMax=infinity  # in a container: --pids-limit"
            ),
        },
    ),
    "CC-SYS-016": Entry(
        "info",
        "a cgroup limits memory",
        why="The kernel kills a process that exceeds the limit, however much memory the machine has.",
        what="A container, a systemd slice or a batch system gives the session less than nine tenths of the memory. A worker that exceeds the limit ends with signal 9, although `free` still shows free memory.",
        do="Only be aware of the limit: `systemctl show -p MemoryMax user-UID.slice`",
        cases={
            "": Case(fix=Same("$ cat /proc/self/cgroup; systemctl show -p MemoryMax user-$(id -u).slice")),
        },
    ),
    "CC-SYS-017": Entry(
        "warning",
        "little memory is free",
        why="The kernel's OOM killer ends a worker with signal 9, often minutes after the start of a run.",
        what="Less than 512 MiB of memory is free for each worker, on the node or in the session's cgroup. `import torch` alone uses about 200 MB in each worker. Check what uses the memory: processes of other users, or leftovers of a run (`clusterctl clean --orphans`).",
        do="Find the processes that use it: `ps -eo user,rss,args --sort -rss`",
        cases={
            "": Case(fix=Same("$ free -h; ps -eo user,rss,args --sort -rss | head")),
        },
    ),
    "CC-SYS-018": Entry(
        "warning",
        "more workers than processors",
        why="Workers that share a processor make every all-reduce wait.",
        what="The session may use only some of the node's processors, fewer than the number of workers. The reason is a cgroup quota (cpu.max, `docker --cpus`) or a CPU set (cpuset, taskset, a batch system). If all processors may be used, only more than four workers for each processor are reported.",
        do="Set a smaller `nproc_per_node`",
        cases={
            "quota": Case(fix="job: nproc_per_node: {count}  # or a higher quota"),
            "": Case(fix=Same("job: nproc_per_node: {count}")),
        },
    ),
    "CC-SYS-019": Entry(
        "warning",
        "text encoding is not UTF-8",
        why="A script that prints or reads other characters fails with UnicodeEncodeError or UnicodeDecodeError.",
        what="Python takes the encoding for files and output from the locale of an SSH session, and that locale is not UTF-8. Python treats the locales C and POSIX as UTF-8, but uses the encoding of others, such as zh_CN.GBK. `env: {PYTHONUTF8: 1}` in the job sets UTF-8 on all nodes.",
        do='Set `env: {PYTHONUTF8: "1"}`',
        cases={
            "": Case(fix=Same('job: env: {PYTHONUTF8: "1"}')),
        },
    ),
    "CC-SYS-020": Entry(
        "error",
        "no Open MPI on a node",
        why="`launcher: mpirun` starts mpirun on node 0 and its daemon orted on every node.",
        what="The PATH of a non-login shell, after `activate`, has no `mpirun` or no `orted`. Both come with Open MPI 4; Open MPI 5 and other MPIs have no orted. All nodes need the same version.",
        do="Install Open MPI on every node, or add it to the PATH with `activate:`",
        cases={"": Case(fix=Same("{command}"))},
    ),
    "CC-TIME-001": Entry(
        "warning",
        "the node's clock is wrong",
        why="Logs and errors of different nodes cannot be sorted by time, and c10d rendezvous fails beyond 15 s.",
        what="The node's clock differs from the clock of this machine by more than 2 seconds, beyond the error of measurement. If most nodes agree with each other but not with this machine, they are compared with each other.",
        do="Run `sudo chronyc makestep`, or turn on NTP",
        cases={
            "": Case(fix=Same("# chronyc makestep")),
        },
    ),
    "CC-TIME-002": Entry(
        "warning",
        "the clock of this machine is wrong",
        why="Times that are shown here, such as those of log lines, are wrong by the same amount.",
        what="Most nodes agree with each other within 2 seconds, but differ by more from the machine where clusterctl runs.",
        do="Run `sudo chronyc makestep` on this machine, or turn on NTP",
        cases={
            "": Case(fix="sudo chronyc makestep  # on this machine"),
        },
    ),
}
