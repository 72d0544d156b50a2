"""Slurm clusters: CC-SLURM."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-SLURM-001": Entry(
        "error",
        Text(
            "the job file uses something that a run on Slurm does not support",
            "作业文件要求了 Slurm 任务做不到的事",
        ),
        why=Text(
            "On a Slurm cluster Slurm chooses the nodes and their GPUs; some features of runs over SSH do not exist "
            "there",
            "在 Slurm 集群上，节点和 GPU 由 Slurm 分配；通过 SSH 运行时的部分功能在这里不可用",
        ),
        do=Text("Change the job file, or the value with --set", "修改作业文件，或用 --set 修改对应的值"),
        cases={
            "all": Case(
                Text("nodes: all means nothing on a Slurm cluster", "nodes: all 在 Slurm 集群上没有意义"),
                Text(
                    "give a number in {file}, or on the command line: --set nodes=4",
                    "在 {file} 里写节点数，或在命令行上写 --set nodes=4",
                ),
            ),
            "spares": Case(
                Text(
                    "{names}: no node is left besides {spares} spares",
                    "{names}：扣除 {spares} 个备用节点后没有剩余节点",
                ),
                Text("name more nodes, or lower restart.spares", "写出更多节点，或减小 restart.spares"),
            ),
            "pattern": Case(
                Text(
                    "{pattern}: only names and ranges can be given to Slurm",
                    "{pattern}：只能把节点名和范围交给 Slurm",
                ),
                Text("write them as gpu01,gpu[03-08], or give a number", "写成 gpu01,gpu[03-08]，或写节点数"),
            ),
            "deep-setup": Case(
                Text(
                    "--deep: the job's `setup` makes its environment only when the job starts",
                    "--deep：作业的 `setup` 在作业启动时才创建环境",
                ),
                Text(
                    "give a Python with torch: --set setup=null --set python=PATH",
                    "指定带 torch 的 Python：--set setup=null --set python=PATH",
                ),
            ),
            "gpus": Case(
                Text("gpus: Slurm chooses the GPUs of a job", "gpus：作业使用哪些 GPU 由 Slurm 分配"),
                Text(
                    "remove gpus from {file}, and set nproc_per_node to their number",
                    "从 {file} 里删除 gpus，把 nproc_per_node 设为 GPU 数量",
                ),
            ),
            "gpus-per-node": Case(
                Text(
                    "nproc_per_node: gpu needs the number of GPUs to ask Slurm for",
                    "nproc_per_node: gpu 需要知道向 Slurm 申请多少块 GPU",
                ),
                Text(
                    "set slurm.gpus_per_node in the inventory, or a number: --set nproc_per_node=8",
                    "在 inventory 里设置 slurm.gpus_per_node，或写数字：--set nproc_per_node=8",
                ),
            ),
            "wait": Case(
                Text(
                    "--wait: on a Slurm cluster every job waits for its nodes",
                    "--wait：Slurm 集群上的作业总会排队等待节点",
                ),
                Text("remove --wait", "去掉 --wait"),
            ),
            "skip": Case(
                Text(
                    "--skip: on a Slurm cluster the nodes of the job make the checks",
                    "--skip：Slurm 集群上由作业的节点执行检查",
                ),
                Text("write the codes as `waive` in the job file", "把这些代码写进作业文件的 `waive`"),
            ),
        },
    ),
    "CC-SLURM-002": Entry(
        "error",
        Text("`slurm` in the inventory is wrong", "inventory 里的 `slurm` 有误"),
        do=Text("Correct the value that is shown", "改正提示的值"),
        cases={
            "name": Case(
                Text("{word!r} is not a name of Slurm's", "{word!r} 不是 Slurm 的名称"),
                Text(
                    "use letters, digits, '.', '_', '-', '@', '+', ':' and ','",
                    "只能使用字母、数字、'.'、'_'、'-'、'@'、'+'、':' 和 ','",
                ),
            ),
            "option": Case(
                Text("{word!r} is not an option of sbatch in one word", "{word!r} 不是单个 sbatch 选项"),
                Text("write it as --constraint=a100", "写成 --constraint=a100 的形式"),
            ),
            "own-option": Case(
                Text("clusterctl sets {name} itself", "{name} 由 clusterctl 自己设置"),
                Text(
                    "remove it; partition, account, qos and time are keys of `slurm`, the number of nodes is the job's",
                    "删除它；partition、account、qos 和 time 是 `slurm` 的键，节点数由作业文件决定",
                ),
            ),
            "both": Case(
                Text(
                    "an inventory has either nodes or slurm, not both",
                    "inventory 里 nodes 和 slurm 只能有一个",
                ),
                Text("keep one; use another file for the other cluster", "保留一个；另一个集群用另一个文件"),
            ),
        },
    ),
    "CC-SLURM-003": Entry(
        "error",
        Text("Slurm's programs are not found on the login node", "登录节点上找不到 Slurm 的程序"),
        do=Text(
            "Check that `slurm.login` is a login node of the cluster, and that `ssh LOGIN sbatch --version` works",
            "确认 `slurm.login` 是该集群的登录节点，并且 `ssh LOGIN sbatch --version` 可用",
        ),
    ),
    "CC-SLURM-004": Entry(
        "error",
        Text("a program of Slurm's did not answer in time", "Slurm 的程序没有及时返回"),
        do=Text("Look whether the controller is up: `scontrol ping`", "检查控制器是否正常：`scontrol ping`"),
    ),
    "CC-SLURM-005": Entry(
        "error",
        Text("Slurm did not take the job", "Slurm 没有接受作业"),
        why=Text(
            "sbatch reports why: an unknown partition or account, more nodes or time than the partition allows, a "
            "controller that is away",
            "sbatch 会给出原因：分区或账号不存在、节点数或时间超出分区限制、控制器无响应",
        ),
        do=Text(
            "Correct partition, account, qos, time or gpus_per_node in the inventory; `sinfo` shows what there is",
            "改正 inventory 里的 partition、account、qos、time 或 gpus_per_node；`sinfo` 列出可用资源",
        ),
    ),
    "CC-SLURM-006": Entry(
        "error",
        Text("Slurm did not cancel the job", "Slurm 没有取消作业"),
        do=Text("Run `scancel` on the login node", "在登录节点上执行 `scancel`"),
    ),
    "CC-SLURM-007": Entry(
        "error",
        Text("this verb does not work on a Slurm cluster", "该命令不支持 Slurm 集群"),
        do=Text(
            "Use Slurm's own programs on the login node, or an inventory with `nodes`",
            "在登录节点上使用 Slurm 自己的程序，或使用带 `nodes` 的 inventory",
        ),
        cases={
            "": Case(
                Text(
                    "`{verb}` does not work on a Slurm cluster ({file})",
                    "`{verb}` 不支持 Slurm 集群（{file}）",
                ),
                Text(
                    "use Slurm's own programs on the login node, or an inventory with nodes",
                    "在登录节点上使用 Slurm 自己的程序，或使用带 nodes 的 inventory",
                ),
            ),
            "nodes": Case(
                Text(
                    "`clean` on a Slurm cluster removes a run on all its nodes, not on some",
                    "Slurm 集群上的 `clean` 会删除任务在所有节点上的内容，不能只删除部分节点的",
                ),
                Text("remove --nodes and --exclude", "去掉 --nodes 和 --exclude"),
            ),
        },
    ),
    "CC-SLURM-008": Entry(
        "error",
        Text("no node of this run has begun", "该任务还没有任何节点开始运行"),
        why=Text(
            "A run on a Slurm cluster has output only when Slurm has given it nodes",
            "Slurm 分配节点之后任务才会有输出",
        ),
        do=Text("Wait for it with `clusterctl attach`", "用 `clusterctl attach` 等待"),
        cases={
            "": Case(
                Text(
                    "{verb}: no node of {run} has begun; {reason}",
                    "{verb}：{run} 还没有节点开始运行；{reason}",
                ),
                Text("{command}", "{command}"),
            ),
        },
    ),
    "CC-SLURM-009": Entry(
        "error",
        Text("no run of yours has nodes now", "当前没有占用节点的任务"),
        why=Text(
            "The nodes of a Slurm cluster can be reached only while Slurm has given them to a run",
            "只有在 Slurm 把节点分配给任务期间，才能连接这些节点",
        ),
        do=Text("Launch a run, or wait for one that is in the queue", "启动一个任务，或等待排队中的任务开始"),
        cases={
            "": Case(
                Text(
                    "no run of yours has nodes of this Slurm cluster now ({file})",
                    "你当前没有占用该 Slurm 集群节点的任务（{file}）",
                ),
                Text(
                    "launch a run, or wait for one with `attach`",
                    "启动一个任务，或用 `attach` 等待排队中的任务",
                ),
            ),
            "ended": Case(
                Text(
                    "{verb}: {run} has ended, and its nodes are Slurm's again",
                    "{verb}：{run} 已结束，节点已归还 Slurm",
                ),
                Text("what is on record: {command}", "已有的记录：{command}"),
            ),
        },
    ),
    "CC-SLURM-010": Entry(
        "error",
        Text("the job is of another Slurm cluster", "作业属于另一个 Slurm 集群"),
        why=Text(
            "Two Slurm clusters use the same work directory; numbers of their jobs repeat, so nothing is cancelled from "
            "the wrong login node",
            "两个 Slurm 集群使用同一个工作目录；它们的作业编号会重复，因此不会从另一个集群的登录节点取消作业",
        ),
        do=Text(
            "Use the inventory whose `slurm.login` is of that cluster, and give each cluster its own `slurm.workdir`",
            "使用 `slurm.login` 属于该集群的 inventory，并为每个集群设置各自的 `slurm.workdir`",
        ),
    ),
}
