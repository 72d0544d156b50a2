"""The lab, and bugs: CC-LAB, CC-BUG."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-LAB-001": Entry(
        "error",
        Text(
            "a program that the lab needs is missing; the package is named",
            "缺少 lab 需要的程序；会给出要安装的软件包",
        ),
        do=Text("Install the package that is named", "装上指出的包"),
        cases={
            "system": Case(
                Text("the lab needs Linux, this is {system}", "lab 需要 Linux，本机是 {system}"),
                Text(
                    "use a Linux machine: jobs run on Linux only",
                    "换一台 Linux 机器：作业只能在 Linux 上运行",
                ),
            ),
            "": Case(
                Text("the lab needs `{name}`, which is not installed", "lab 需要 `{name}`，但没有安装"),
                Text("sudo apt-get install {package}"),
            ),
        },
    ),
    "CC-LAB-002": Entry(
        "error",
        Text(
            "this machine does not allow the lab's namespaces; the reason and the remedy are named",
            "本机不允许 lab 使用命名空间；会给出原因和解决办法",
        ),
        do=Text("`lab up --backend inproc`, or what is shown", "`lab up --backend inproc`，或者照提示做"),
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
                    "this machine does not allow the lab's namespaces: user namespaces are switched off",
                    "本机不允许 lab 使用命名空间：用户命名空间已关闭",
                ),
                Text("sudo sysctl -w kernel.unprivileged_userns_clone=1"),
            ),
            "limit": Case(
                Text(
                    "this machine does not allow the lab's namespaces: user namespaces are limited to 0",
                    "本机不允许 lab 使用命名空间：用户命名空间的上限是 0",
                ),
                Text("sudo sysctl -w user.max_user_namespaces=15000"),
            ),
            "container": Case(
                Text(
                    "this machine does not allow the lab's namespaces: it is a container without the needed rights",
                    "本机不允许 lab 使用命名空间：这是权限不足的容器",
                ),
                Text(
                    "start the container with `docker run --privileged`",
                    "用 `docker run --privileged` 启动容器",
                ),
            ),
            "": Case(
                Text(
                    "this machine does not allow the lab's namespaces: the kernel or its security module said no",
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
            "a number, a name or a way to break that the lab does not know",
            "lab 不支持的数字、名字或故障类型",
        ),
        do=Text("The ways that there are stand in the message", "报错里列出了可用的"),
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
                Text("{name!r} cannot name a lab", "{name!r} 不能用作 lab 的名字"),
                Text("letters, digits, dots, dashes", "字母、数字、点、短横线"),
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
                Text("{item!r} cannot name NICs", "{item!r} 不能用作网卡名"),
                Text(
                    "1 to 15 letters, digits, dots and dashes each; a+b gives one node two",
                    "每个名字 1 到 15 个字母、数字、点或短横线；a+b 表示一个节点有两块",
                ),
            ),
            "break": Case(
                Text("a lab node cannot break by {break_kind}", "lab 节点没有 {break_kind} 这种故障方式"),
                Text("one of: {names}", "可选：{names}"),
            ),
        },
    ),
    "CC-LAB-004": Entry(
        "error",
        Text("a lab of this name exists already", "同名的 lab 已经有了"),
        do=Text("`lab down` first, or another `--name`", "先 `lab down`，或者换个 `--name`"),
        cases={
            "": Case(
                Text("a lab called {name} exists already", "名为 {name} 的 lab 已经存在"),
                Text("clusterctl lab down --name {name}"),
            ),
        },
    ),
    "CC-LAB-005": Entry(
        "error",
        Text("no such lab is running, or several are: `--name` chooses", "没有这个 lab 在跑，或者有好几个"),
        do=Text("`lab status` lists them; `--name` chooses", "`lab status` 会列出来；用 `--name` 选"),
        cases={
            "no-such": Case(
                Text("no lab called {name} is running", "没有名为 {name} 的 lab 在运行"),
                Text("running: {running}", "正在运行：{running}"),
            ),
            "none": Case(
                Text("no lab called {name} is running", "没有名为 {name} 的 lab 在运行"),
                Text("no lab is running: nothing to end", "没有 lab 在运行：不需要停止"),
            ),
            "several": Case(
                Text("{count} labs are running: {names}", "有 {count} 个 lab 在运行：{names}"),
                Text("choose one, as in: --name {name}", "选一个，例如：--name {name}"),
            ),
            "none-running": Case(Text("no lab is running", "没有 lab 在运行"), Text("clusterctl lab up")),
            "not-running": Case(
                Text("no lab called {name} is running", "没有名为 {name} 的 lab 在运行"),
                Text("clusterctl lab up --name {name}"),
            ),
            "others-running": Case(
                Text("no lab called {name} is running", "没有名为 {name} 的 lab 在运行"),
                Text(
                    "running: {names}; or clusterctl lab up --name {name}",
                    "正在运行：{names}；或者 clusterctl lab up --name {name}",
                ),
            ),
        },
    ),
    "CC-LAB-006": Entry(
        "error",
        Text("the lab has no such node", "lab 里没有这个节点"),
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
        Text(
            "the lab could not do what it was asked, or did not come up",
            "lab 无法完成该操作，或者没有启动成功",
        ),
        do=Text("The reason is shown; `lab down --all`, then again", "看原因；`lab down --all` 之后再来"),
        cases={
            "loopback": Case(
                Text("no loopback address is free for the lab", "没有空闲的回环地址可供 lab 使用")
            ),
            "start": Case(Text("the lab did not come up: {reason}", "lab 没有启动：{reason}")),
            "holder": Case(Text("the lab's holder ended", "lab 的管理进程已结束")),
            "ssh-keygen": Case(Text("ssh-keygen failed", "ssh-keygen 失败")),
            "time": Case(Text("the lab did not come up in time", "lab 没有按时启动")),
            "": Case(Text("the lab could not {action}: {reason}", "lab 无法执行 {action}：{reason}")),
        },
    ),
    "CC-LAB-008": Entry(
        "error",
        Text("the lab does not answer or does not end", "lab 无响应，或者无法结束"),
        do=Text("`lab down --all`", "`lab down --all`"),
        cases={
            "end": Case(
                Text("the lab {name} does not end", "lab {name} 没有结束"),
                Text("look at process {pid}: ps {pid}", "查看进程 {pid}：ps {pid}"),
            ),
            "": Case(
                Text("the lab {name} does not answer: {reason}", "lab {name} 没有响应：{reason}"),
                Text("clusterctl lab down --name {name}"),
            ),
        },
    ),
    "CC-LAB-009": Entry(
        "error",
        Text("the node is powered off", "节点断电了"),
        do=Text("`lab heal NODE`", "`lab heal NODE`"),
        cases={
            "": Case(Text("{name} is powered off", "{name} 已断电"), Text("clusterctl lab heal {name}")),
        },
    ),
    "CC-LAB-010": Entry(
        "error",
        Text(
            "a lab without namespaces cannot do that: its nodes have no NICs of their own",
            "没有命名空间的 lab 做不到：它的节点没有自己的网卡",
        ),
        do=Text(
            "A lab with namespaces, see [the quickstart](quickstart.md#if-the-lab-does-not-come-up)",
            "要有命名空间的 lab，见[快速上手](quickstart.md#lab-起不来怎么办)",
        ),
        cases={
            "nics": Case(
                Text(
                    "nodes without namespaces have no NICs of their own", "没有命名空间的节点没有自己的网卡"
                ),
                Text("leave --nics out, or use --backend netns", "去掉 --nics，或者用 --backend netns"),
            ),
            "": Case(
                Text(
                    "{name} has no NIC of its own that could go down: all nodes of this lab share lo",
                    "{name} 没有可以断开的网卡：这个 lab 的节点共用 lo",
                ),
                Text(
                    "a lab of namespaces can: clusterctl lab up --backend netns",
                    "带命名空间的 lab 可以：clusterctl lab up --backend netns",
                ),
            ),
        },
    ),
    "CC-BUG-001": Entry(
        "error",
        Text("a bug in clusterctl", "clusterctl 自己的 bug"),
        what=Text("Exit code 70; the message names a file with the details. Please report it"),
        do=Text(
            "The message names a file with the details: [please report it](../../CONTRIBUTING.md#reporting-a-bug)",
            "报错里写了详情文件：[请报告](../../CONTRIBUTING.md#reporting-a-bug)",
        ),
        cases={
            "": Case(
                Text("a bug in clusterctl: {message}", "clusterctl 的 bug：{message}"),
                Text("please report it with the file {file}", "请连同文件 {file} 一起报告"),
            ),
        },
    ),
}
