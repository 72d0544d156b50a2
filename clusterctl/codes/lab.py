"""The lab, and bugs: CC-LAB, CC-BUG."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text, same

NO_SUCH_LAB = Text("no lab with the name {name} is running", "没有名为 {name} 的 lab 在运行")

ENTRIES: Mapping[str, Entry] = {
    "CC-LAB-001": Entry(
        "error",
        Text(
            "a program that the lab needs is missing; the message shows its package",
            "缺少 lab 需要的程序；报错里有要安装的软件包",
        ),
        do=Text("Install the package that is shown", "安装提示的软件包"),
        cases={
            "system": Case(
                Text("the lab needs Linux, this is {system}", "lab 需要 Linux，本机是 {system}"),
                Text(
                    "use a Linux machine: jobs run only on Linux",
                    "换一台 Linux 机器：作业只能在 Linux 上运行",
                ),
            ),
            "": Case(
                Text("the lab needs `{name}`, which is not installed", "lab 需要 `{name}`，但没有安装"),
                same("sudo apt-get install {package}"),
            ),
        },
    ),
    "CC-LAB-002": Entry(
        "error",
        Text(
            "this machine does not allow the lab's namespaces; the reason and the fix are shown",
            "本机不允许 lab 使用命名空间；会列出原因和解决办法",
        ),
        do=Text(
            "Use `lab up --backend inproc`, or run the command that is shown",
            "使用 `lab up --backend inproc`，或者执行提示的命令",
        ),
        cases={
            "apparmor": Case(
                Text(
                    "this machine does not allow the lab's namespaces: AppArmor restricts user namespaces",
                    "本机不允许 lab 使用命名空间：AppArmor 限制了用户命名空间",
                ),
                Text(
                    "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0   (or run the lab as root)",
                    "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0   （或者以 root 运行 lab）",
                ),
            ),
            "off": Case(
                Text(
                    "this machine does not allow the lab's namespaces: user namespaces are disabled",
                    "本机不允许 lab 使用命名空间：用户命名空间已禁用",
                ),
                same("sudo sysctl -w kernel.unprivileged_userns_clone=1"),
            ),
            "limit": Case(
                Text(
                    "this machine does not allow the lab's namespaces: user namespaces are limited to 0",
                    "本机不允许 lab 使用命名空间：用户命名空间的上限是 0",
                ),
                same("sudo sysctl -w user.max_user_namespaces=15000"),
            ),
            "container": Case(
                Text(
                    "this machine does not allow the lab's namespaces: it is a container without the required privileges",
                    "本机不允许 lab 使用命名空间：这是权限不足的容器",
                ),
                Text(
                    "start the container with `docker run --privileged`",
                    "用 `docker run --privileged` 启动容器",
                ),
            ),
            "": Case(
                Text(
                    "this machine does not allow the lab's namespaces: the kernel or its security module refused",
                    "本机不允许 lab 使用命名空间：被内核或其安全模块拒绝",
                ),
                Text(
                    "run the lab as root, or on another Linux machine",
                    "以 root 运行 lab，或者换一台 Linux 机器",
                ),
            ),
        },
    ),
    "CC-LAB-003": Entry(
        "error",
        Text(
            "a number, a name or a kind of fault that the lab does not support",
            "lab 不支持的数字、名称或故障类型",
        ),
        do=Text("The message lists the allowed values", "报错里列出了允许的值"),
        cases={
            "gpus": Case(
                Text(
                    "a node of a lab has 0 to {most} GPUs, not {gpus}",
                    "lab 节点的 GPU 数为 0 到 {most}，不能是 {gpus}",
                ),
                Text(
                    "clusterctl lab up --gpus 2, or another number up to {most}",
                    "clusterctl lab up --gpus 2，或者不超过 {most} 的其他数字",
                ),
            ),
            "name": Case(
                Text("{name!r} is not a valid name for a lab", "{name!r} 不能用作 lab 的名称"),
                Text("use letters, digits, dots and dashes", "使用字母、数字、点、短横线"),
            ),
            "nodes": Case(
                Text(
                    "a lab has 1 to {most} nodes, not {count}", "lab 的节点数为 1 到 {most}，不能是 {count}"
                ),
                Text(
                    "clusterctl lab up -n 3, or another number up to {most}",
                    "clusterctl lab up -n 3，或者不超过 {most} 的其他数字",
                ),
            ),
            "no-nic": Case(
                Text("a lab needs the name of a NIC", "lab 需要网卡名"),
                Text(
                    "--nics eth0, or one for each node: --nics ib0,eno1",
                    "--nics eth0，或者每个节点一块：--nics ib0,eno1",
                ),
            ),
            "nics": Case(
                Text("{item!r} is not a valid list of NIC names", "{item!r} 不是有效的网卡名"),
                Text(
                    "1 to 15 letters, digits, dots and dashes each; a+b gives one node two",
                    "每个名称 1 到 15 个字母、数字、点或短横线；a+b 表示一个节点有两块网卡",
                ),
            ),
            "break": Case(
                Text("a lab node has no fault {break_kind}", "lab 节点没有 {break_kind} 这种故障类型"),
                Text("use one of: {names}", "可选：{names}"),
            ),
        },
    ),
    "CC-LAB-004": Entry(
        "error",
        Text("a lab of this name exists already", "已存在同名的 lab"),
        do=Text("Run `lab down` first, or choose another `--name`", "先执行 `lab down`，或者换一个 `--name`"),
        cases={
            "": Case(
                Text("a lab with the name {name} already exists", "名为 {name} 的 lab 已存在"),
                Text(
                    "use it: clusterctl --lab {name} check; or another one: clusterctl lab up --name NAME; or end it: clusterctl lab down --name {name}",
                    "使用它：clusterctl --lab {name} check；或者另建一个：clusterctl lab up --name NAME；或者停止它：clusterctl lab down --name {name}",
                ),
            ),
        },
    ),
    "CC-LAB-005": Entry(
        "error",
        Text(
            "no such lab is running, or several are: choose one with `--name`",
            "没有这个 lab 在运行，或者有多个 lab 在运行：用 `--name` 选择",
        ),
        do=Text(
            "`lab status` lists them; choose one with `--name`", "`lab status` 会列出它们；用 `--name` 选择"
        ),
        cases={
            "no-such": Case(
                NO_SUCH_LAB,
                Text("running: {running}", "正在运行：{running}"),
            ),
            "none": Case(
                NO_SUCH_LAB,
                Text("no lab is running: nothing to stop", "没有 lab 在运行：无需停止"),
            ),
            "several": Case(
                Text("{count} labs are running: {names}", "有 {count} 个 lab 在运行：{names}"),
                Text("choose one, for example: --name {name}", "选择一个，例如：--name {name}"),
            ),
            "none-running": Case(Text("no lab is running", "没有 lab 在运行"), same("clusterctl lab up")),
            "not-running": Case(
                NO_SUCH_LAB,
                same("clusterctl lab up --name {name}"),
            ),
            "others-running": Case(
                NO_SUCH_LAB,
                Text(
                    "running: {names}; or clusterctl lab up --name {name}",
                    "正在运行：{names}；或者 clusterctl lab up --name {name}",
                ),
            ),
        },
    ),
    "CC-LAB-006": Entry(
        "error",
        Text("the lab has no such node", "lab 中没有这个节点"),
        do=Text("`lab status` lists the nodes", "`lab status` 会列出节点"),
        cases={
            "": Case(
                Text("the lab {name} has no node {machine}", "lab {name} 没有节点 {machine}"),
                Text("its nodes: {names}", "它的节点：{names}"),
            ),
        },
    ),
    "CC-LAB-007": Entry(
        "error",
        Text("a lab operation failed, or the lab did not start", "lab 操作失败，或者 lab 没有启动成功"),
        do=Text(
            "The reason is shown; run `lab down --all`, then try again",
            "按显示的原因处理；执行 `lab down --all` 后重试",
        ),
        cases={
            "loopback": Case(
                Text("no loopback address is free for the lab", "没有空闲的回环地址可供 lab 使用")
            ),
            "start": Case(Text("the lab did not start: {reason}", "lab 没有启动：{reason}")),
            "slurm": Case(
                Text(
                    "Slurm did not start on all nodes within {seconds:g} s",
                    "Slurm 在 {seconds:g} 秒 内没有在所有节点上启动",
                )
            ),
            "holder": Case(Text("the lab's supervisor process exited", "lab 的管理进程已退出")),
            "ssh-keygen": Case(Text("ssh-keygen failed", "ssh-keygen 失败")),
            "time": Case(Text("the lab did not start in time", "lab 没有按时启动")),
            "": Case(Text("the lab could not {action}: {reason}", "lab 无法执行 {action}：{reason}")),
        },
    ),
    "CC-LAB-008": Entry(
        "error",
        Text("the lab does not respond or does not stop", "lab 无响应，或者无法停止"),
        do=Text("Run `lab down --all`", "执行 `lab down --all`"),
        cases={
            "end": Case(
                Text("the lab {name} does not stop", "lab {name} 没有停止"),
                Text("check process {pid}: ps {pid}", "检查进程 {pid}：ps {pid}"),
            ),
            "": Case(
                Text("the lab {name} does not respond: {reason}", "lab {name} 无响应：{reason}"),
                same("clusterctl lab down --name {name}"),
            ),
        },
    ),
    "CC-LAB-009": Entry(
        "error",
        Text("the node is powered off", "节点已断电"),
        do=Text("Run `lab heal NODE`", "执行 `lab heal NODE`"),
        cases={
            "": Case(Text("{name} is powered off", "{name} 已断电"), same("clusterctl lab heal {name}")),
        },
    ),
    "CC-LAB-010": Entry(
        "error",
        Text(
            "a lab without namespaces does not support this: its nodes have no NICs of their own",
            "不使用命名空间的 lab 不支持该操作：它的节点没有各自的网卡",
        ),
        do=Text(
            "Use a lab with namespaces, see [a practice cluster](../start.md#no-machines-yet-a-practice-cluster)",
            "使用带命名空间的 lab，见[练习集群](../../en/start.md#no-machines-yet-a-practice-cluster)",
        ),
        cases={
            "nics": Case(
                Text(
                    "nodes without namespaces have no NICs of their own", "不使用命名空间的节点没有各自的网卡"
                ),
                Text("remove --nics, or use --backend netns", "去掉 --nics，或者用 --backend netns"),
            ),
            "slurm": Case(
                Text(
                    "Slurm needs nodes with namespaces: without them all nodes are one machine",
                    "Slurm 需要带命名空间的节点：没有命名空间时，所有节点是同一台机器",
                ),
                Text("remove --slurm, or use --backend netns", "去掉 --slurm，或者用 --backend netns"),
            ),
            "": Case(
                Text(
                    "{name} has no NIC of its own that could go down: all nodes of this lab share lo",
                    "{name} 没有可以断开的网卡：这个 lab 的所有节点共用 lo",
                ),
                Text(
                    "a lab with namespaces supports it: clusterctl lab up --backend netns",
                    "带命名空间的 lab 支持该操作：clusterctl lab up --backend netns",
                ),
            ),
        },
    ),
    "CC-BUG-001": Entry(
        "error",
        Text("a bug in clusterctl", "clusterctl 的 bug"),
        what=Text(
            "Exit code 70; the message shows a file with the details. Please report it",
            "退出码 70；报错里有保存详情的文件。请报告",
        ),
        do=Text(
            "The message shows a file with the details: [please report it](../../../CONTRIBUTING.md#reporting-a-bug)",
            "报错里有保存详情的文件：[请报告](../../../CONTRIBUTING.md#reporting-a-bug)",
        ),
        cases={
            "": Case(
                Text("a bug in clusterctl: {message}", "clusterctl 的 bug：{message}"),
                Text("please report it with the file {file}", "请连同文件 {file} 一起报告"),
            ),
        },
    ),
}
