"""The command line: CC-USE."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-USE-001": Entry(
        "error",
        Text(
            "an unknown verb or option, or an argument that is missing or wrong",
            "未知的命令或选项，或者参数缺失、错误",
        ),
        do=Text("The nearest one is named; `clusterctl --help`", "报错里有最接近的；看 `clusterctl --help`"),
        cases={
            "": Case(Text("{problem}"), Text("see `{command} --help`", "见 `{command} --help`")),
            "forwarded": Case(
                Text("{problem}"),
                Text(
                    "see `{command} --help`; the {program}'s own options go behind `--`",
                    "见 `{command} --help`；{program}自己的选项写在 `--` 后面",
                ),
            ),
        },
    ),
    "CC-USE-002": Entry(
        "error",
        Text(
            "no inventory was found; see [which inventory](command-line.md#which-inventory)",
            "找不到 inventory",
        ),
        do=Text(
            "`-i FILE`, or `clusterctl init` to make one", "用 `-i FILE`，或者用 `clusterctl init` 建一个"
        ),
        cases={
            "": Case(
                Text(
                    "no inventory: no -i, no CLUSTERCTL_INVENTORY, no running lab, no ./inventory.yaml",
                    "没有 inventory：没有 -i，没有 CLUSTERCTL_INVENTORY，没有运行中的 lab，也没有 ./inventory.yaml",
                ),
                Text(
                    "clusterctl -i FILE ..., or `clusterctl lab up` for a cluster on this machine",
                    "clusterctl -i FILE ...，或者用 `clusterctl lab up` 在本机启动一个集群",
                ),
            ),
            "labs": Case(
                Text("{count} labs are running: {names}", "有 {count} 个 lab 在运行：{names}"),
                Text("choose one, as in: {command}", "选一个，例如：{command}"),
            ),
        },
    ),
    "CC-USE-003": Entry(
        "error",
        Text("`--set` without `KEY=VALUE`", "`--set` 后面不是 `KEY=VALUE`"),
        do=Text("`--set KEY=VALUE`, such as `--set nproc_per_node=2`", "写成 `--set nproc_per_node=2` 这样"),
        cases={
            "": Case(
                Text("--set {override}: expected KEY=VALUE", "--set {override}：格式应为 KEY=VALUE"),
                Text("e.g. --set nodes=2", "例如 --set nodes=2"),
            ),
        },
    ),
    "CC-USE-004": Entry(
        "error",
        Text("`--exclude` leaves no node", "`--exclude` 之后一个节点都不剩"),
        do=Text("Exclude fewer", "少排除一些"),
        cases={
            "": Case(
                Text(
                    "no node is left: {exclude} excludes all that was chosen",
                    "没有剩下的节点：{exclude} 排除了所有选中的节点",
                ),
                Text("the inventory has {nodes}", "inventory 里有 {nodes}"),
            ),
            "spares": Case(
                Text("every node that is left is a spare: {nodes}", "剩下的节点都是备用节点：{nodes}"),
                Text(
                    "name those that the job shall run on, or drop `spare: true` from some of them",
                    "写出作业要用的节点，或者从部分节点上去掉 `spare: true`",
                ),
            ),
        },
    ),
    "CC-USE-005": Entry(
        "error",
        Text("the job wants more nodes than there are", "作业需要的节点数多于现有的"),
        do=Text(
            "A smaller `nodes:`, or more in the inventory", "把 `nodes:` 改小，或者在 inventory 里加节点"
        ),
        cases={
            "": Case(
                Text(
                    "the job wants {count} nodes, {usable} can be used",
                    "作业需要 {count} 个节点，可用的有 {usable} 个",
                ),
                Text(
                    "set `nodes: {usable}` in the job, or add nodes to {file}",
                    "在作业里写 `nodes: {usable}`，或者在 {file} 里增加节点",
                ),
            ),
        },
    ),
    "CC-USE-006": Entry(
        "error",
        Text(
            "something that the launch needs is not known, such as the number of GPUs",
            "缺少启动需要的信息，例如 GPU 数",
        ),
        do=Text(
            "Write `gpus:` into the inventory, or a number as `nproc_per_node`",
            "在 inventory 里写 `gpus:`，或者 `nproc_per_node` 写数字",
        ),
        cases={
            "": Case(
                Text("not known: {names}", "未知：{names}"),
                Text(
                    "give `ip:`, `nic:` or `gpus:` in the inventory, or a number as nproc_per_node",
                    "在 inventory 里写 `ip:`、`nic:` 或 `gpus:`，或者给 nproc_per_node 写数字",
                ),
            ),
        },
    ),
    "CC-USE-007": Entry(
        "error",
        Text("a secret of the job is not set in your environment", "作业的 secret 没有在你的环境变量里设置"),
        do=Text("`export NAME=...` where you launch", "启动前在本机 `export NAME=...`"),
        cases={
            "": Case(
                Text("secrets not set here: {names}", "本机没有设置 secrets：{names}"),
                Text(
                    "export {first}=... before `clusterctl launch`",
                    "在 `clusterctl launch` 之前 export {first}=...",
                ),
            ),
        },
    ),
    "CC-USE-008": Entry(
        "error",
        Text(
            "this machine refused a file or the output of clusterctl: disk full, no permission",
            "本机拒绝写文件或 clusterctl 的输出：磁盘已满，或者没有权限",
        ),
        what=Text("Exit code 1"),
        do=Text("Disk and permissions of this machine", "看本机的磁盘和权限"),
        cases={
            "": Case(
                Text("{target}: {reason}", "{target}：{reason}"),
                Text("make room there, or permission to write", "腾出空间，或者给写权限"),
            ),
            "no-folder": Case(
                Text("{target}: {reason}", "{target}：{reason}"),
                Text("make its directory first", "先创建所在目录"),
            ),
        },
    ),
    "CC-USE-010": Entry(
        "error",
        Text("the choice of nodes is empty", "一个节点也没选中"),
        do=Text(
            "The nodes that there are: `clusterctl inventory show`",
            "用 `clusterctl inventory show` 看有哪些节点",
        ),
        cases={
            "": Case(
                Text("no node is selected", "没有选中节点"),
                Text(
                    "write names, ranks or ranges such as gpu01, 0-3, gpu[01-04,07] or gpu*, separated by commas",
                    "写名字、编号或范围，例如 gpu01、0-3、gpu[01-04,07] 或 gpu*，用逗号分隔",
                ),
            ),
            "empty": Case(
                Text("the choice of nodes is empty", "没有选择节点"),
                Text(
                    "write names, ranks or ranges such as gpu01, 0-3, gpu[01-04,07] or gpu*, separated by commas; or all",
                    "写名字、编号或范围，例如 gpu01、0-3、gpu[01-04,07] 或 gpu*，用逗号分隔；或者 all",
                ),
            ),
        },
    ),
    "CC-USE-011": Entry(
        "error",
        Text("the choice of nodes cannot be read", "无法解析节点选择"),
        do=Text(
            "Write `0-3`, `gpu01,gpu02`, `gpu[01-04]` or `gpu*`",
            "写成 `0-3`、`gpu01,gpu02`、`gpu[01-04]` 或 `gpu*`",
        ),
        cases={
            "open": Case(
                Text(
                    "cannot read the choice of nodes {pattern!r}: the '[' is never closed",
                    "无法解析节点选择 {pattern!r}：'[' 没有闭合",
                ),
                Text(
                    "write names, ranks or ranges such as gpu01, 0-3, gpu[01-04,07] or gpu*, separated by commas",
                    "写名字、编号或范围，例如 gpu01、0-3、gpu[01-04,07] 或 gpu*，用逗号分隔",
                ),
            ),
            "character": Case(
                Text(
                    "cannot read the choice of nodes {pattern!r}: it holds a character that no node name has",
                    "无法解析节点选择 {pattern!r}：含有节点名不能用的字符",
                ),
                Text(
                    "write names, ranks or ranges such as gpu01, 0-3, gpu[01-04,07] or gpu*, separated by commas",
                    "写名字、编号或范围，例如 gpu01、0-3、gpu[01-04,07] 或 gpu*，用逗号分隔",
                ),
            ),
            "number": Case(
                Text(
                    "cannot read the choice of nodes {pattern!r}: {item!r} is not a number or a range such as 01-04",
                    "无法解析节点选择 {pattern!r}：{item!r} 不是数字，也不是 01-04 这样的范围",
                ),
                Text(
                    "write names, ranks or ranges such as gpu01, 0-3, gpu[01-04,07] or gpu*, separated by commas",
                    "写名字、编号或范围，例如 gpu01、0-3、gpu[01-04,07] 或 gpu*，用逗号分隔",
                ),
            ),
            "backwards-item": Case(
                Text(
                    "cannot read the choice of nodes {pattern!r}: the range {item!r} runs backwards",
                    "无法解析节点选择 {pattern!r}：范围 {item!r} 的顺序反了",
                ),
                Text(
                    "write names, ranks or ranges such as gpu01, 0-3, gpu[01-04,07] or gpu*, separated by commas",
                    "写名字、编号或范围，例如 gpu01、0-3、gpu[01-04,07] 或 gpu*，用逗号分隔",
                ),
            ),
            "many": Case(
                Text(
                    "cannot read the choice of nodes {pattern!r}: it stands for more than {most} names",
                    "无法解析节点选择 {pattern!r}：展开后超过 {most} 个名字",
                ),
                Text(
                    "write names, ranks or ranges such as gpu01, 0-3, gpu[01-04,07] or gpu*, separated by commas",
                    "写名字、编号或范围，例如 gpu01、0-3、gpu[01-04,07] 或 gpu*，用逗号分隔",
                ),
            ),
            "backwards": Case(
                Text(
                    "cannot read the choice of nodes {pattern!r}: the range runs backwards",
                    "无法解析节点选择 {pattern!r}：范围的顺序反了",
                ),
                Text(
                    "write names, ranks or ranges such as gpu01, 0-3, gpu[01-04,07] or gpu*, separated by commas",
                    "写名字、编号或范围，例如 gpu01、0-3、gpu[01-04,07] 或 gpu*，用逗号分隔",
                ),
            ),
        },
    ),
    "CC-USE-012": Entry(
        "error",
        Text("there is no such node; the nearest name is shown", "没有这个节点；会给出最接近的名字"),
        do=Text(
            "`clusterctl inventory show` lists the names",
            "报错里有最接近的名字；`clusterctl inventory show` 列出所有名字",
        ),
        cases={
            "rank": Case(
                Text(
                    "there is no node with rank {rank}: the last one is {last}",
                    "没有编号为 {rank} 的节点：最后一个是 {last}",
                ),
                Text("the nodes are {nodes}", "节点有 {nodes}"),
            ),
            "empty": Case(
                Text(
                    "there is no node with rank {rank}: the inventory is empty",
                    "没有编号为 {rank} 的节点：inventory 是空的",
                )
            ),
            "": Case(
                Text("no node is called {name!r}{suggestion}", "没有节点叫 {name!r}{suggestion}"),
                Text("the nodes are {nodes}", "节点有 {nodes}"),
            ),
            "pattern": Case(
                Text("no node matches {name!r}{suggestion}", "没有节点匹配 {name!r}{suggestion}"),
                Text("the nodes are {nodes}", "节点有 {nodes}"),
            ),
            "range": Case(
                Text(
                    "no node is called {name!r} (from {pattern!r}){suggestion}",
                    "没有节点叫 {name!r}（来自 {pattern!r}）{suggestion}",
                ),
                Text("the nodes are {nodes}", "节点有 {nodes}"),
            ),
            "pattern-range": Case(
                Text(
                    "no node matches {name!r} (from {pattern!r}){suggestion}",
                    "没有节点匹配 {name!r}（来自 {pattern!r}）{suggestion}",
                ),
                Text("the nodes are {nodes}", "节点有 {nodes}"),
            ),
        },
    ),
    "CC-USE-020": Entry(
        "error",
        Text("there is no run, or none of yours", "没有任务，或者没有你的任务"),
        do=Text("`clusterctl ps` lists all of them; name one", "`clusterctl ps` 会列出所有任务；写上名字"),
        cases={
            "": Case(
                Text("no run of yours ({user}) on these nodes", "这些节点上没有你（{user}）的 run"),
                Text("name one: {runs}", "指定一个：{runs}"),
            ),
            "none": Case(
                Text("no runs on these nodes", "这些节点上没有 run"),
                Text("clusterctl launch JOB.yaml starts one", "用 clusterctl launch JOB.yaml 启动一个"),
            ),
        },
    ),
    "CC-USE-021": Entry(
        "error",
        Text("none of your runs is live", "你没有正在跑的任务"),
        do=Text(
            "`clusterctl ps` shows what has ended; name a run to look at it",
            "`clusterctl ps` 能看到已经结束的；写上名字来查看",
        ),
        cases={
            "": Case(
                Text("no live run of yours ({user})", "你（{user}）没有正在运行的 run"),
                Text("others' runs must be named: {runs}", "别人的 run 必须指定名字：{runs}"),
            ),
            "none": Case(
                Text("no live run of yours ({user})", "你（{user}）没有正在运行的 run"),
                Text("clusterctl ps lists what there was", "clusterctl ps 列出有过的 run"),
            ),
        },
    ),
    "CC-USE-022": Entry(
        "error",
        Text("several of your runs are live: name one", "你有多个任务正在运行：请指定一个"),
        do=Text("Name one of those that are listed", "从列出的里面写一个"),
        cases={
            "": Case(
                Text("{count} runs are live", "有 {count} 个 run 正在运行"),
                Text("name one: {names}", "指定一个：{names}"),
            ),
        },
    ),
    "CC-USE-023": Entry(
        "error",
        Text("no run begins like that", "没有任务以此开头"),
        do=Text("`clusterctl ps` shows the names", "用 `clusterctl ps` 看名字"),
        cases={
            "": Case(
                Text("no run {prefix!r} on these nodes", "这些节点上没有 run {prefix!r}"),
                Text("there are: {runs}", "现有：{runs}"),
            ),
            "none": Case(
                Text("no run {prefix!r} on these nodes", "这些节点上没有 run {prefix!r}"),
                Text(
                    "`clusterctl ps` lists the runs that the nodes remember",
                    "`clusterctl ps` 会列出节点上记录的 run",
                ),
            ),
            "folder": Case(
                Text("no run {prefix!r} on these nodes", "这些节点上没有 run {prefix!r}"),
                Text(
                    "{way_out}; if it is the directory to pull into: {command}",
                    "{way_out}；如果它是下载目录：{command}",
                ),
            ),
        },
    ),
    "CC-USE-024": Entry(
        "error",
        Text("several runs begin like that: write more of the name", "有多个任务以此开头：请多写几个字符"),
        do=Text("Write more of the name", "名字多写几个字"),
        cases={
            "": Case(
                Text("{prefix!r} matches {count} runs", "有 {count} 个任务以 {prefix!r} 开头"),
                Text("one of: {names}", "可选：{names}"),
            ),
            "newest": Case(
                Text("{prefix!r} matches {count} runs", "有 {count} 个任务以 {prefix!r} 开头"),
                Text("the newest: {command}", "最新的一个：{command}"),
            ),
        },
    ),
    "CC-USE-025": Entry(
        "error",
        Text("the run is somebody else's: `-y` stops it all the same", "这是其他用户的任务：`-y` 仍然停止它"),
        do=Text("Ask them; `-y` stops it all the same", "先与启动它的用户确认；`-y` 可以照样停"),
        cases={
            "": Case(Text("{reason}"), Text("{command}  (stops it all the same)", "{command}  （强制停止）")),
        },
    ),
    "CC-USE-026": Entry(
        "error",
        Text("`--grep` is not a regular expression", "`--grep` 不是正则表达式"),
        do=Text("Put it in quotes, and escape `( [ * ?`", "加上引号，转义 `( [ * ?`"),
        cases={
            "": Case(
                Text("--grep {grep}: {reason}"),
                Text("quote special characters with \\", "用 \\ 转义特殊字符"),
            ),
        },
    ),
    "CC-USE-027": Entry(
        "error",
        Text("no such rank on these nodes", "这些节点上没有这个 rank"),
        do=Text("`clusterctl status` shows which ranks there are", "用 `clusterctl status` 看有哪些 rank"),
        cases={
            "": Case(
                Text("no {ranks} on {nodes}", "{nodes} 上没有 {ranks}"),
                Text("{command} shows its ranks", "{command} 显示它的 rank"),
            ),
            "elsewhere": Case(Text("no {ranks} on {nodes}", "{nodes} 上没有 {ranks}"), Text("{command}")),
        },
    ),
    "CC-USE-028": Entry(
        "error",
        Text("the run had no part on the chosen nodes", "任务没有用到选的节点"),
        do=Text(
            "`clusterctl status` shows on which nodes it ran", "用 `clusterctl status` 查看它在哪些节点上运行"
        ),
        cases={
            "": Case(
                Text("{run_id} had no part on {nodes}", "{run_id} 没有在 {nodes} 上运行"),
                Text("{command} shows its nodes", "{command} 显示它的节点"),
            ),
        },
    ),
    "CC-USE-029": Entry(
        "error",
        Text("`pull --job` takes neither a run nor `--logs`", "`pull --job` 不能再写任务或 `--logs`"),
        do=Text("Leave the run or `--logs` out", "去掉其中一个"),
        cases={
            "": Case(
                Text("--job brings what all runs of a job have put out", "--job 下载一个作业所有 run 的输出"),
                Text(
                    "leave out --job, or RUN, --logs and --all", "去掉 --job，或者去掉 RUN、--logs 和 --all"
                ),
            ),
        },
    ),
    "CC-USE-030": Entry(
        "error",
        Text("`--older-than` is no time with a unit, such as `12h` or `7d`", "`--older-than` 没有写单位"),
        do=Text("Write `12h` or `7d`", "写成 `12h` 或 `7d`"),
        cases={
            "": Case(Text("--older-than: {reason}"), Text("e.g. --older-than 7d", "例如 --older-than 7d")),
            "unit": Case(
                Text("--older-than {number}: of what?", "--older-than {number}：缺少单位"),
                Text("e.g. --older-than {number}d", "例如 --older-than {number}d"),
            ),
        },
    ),
    "CC-USE-031": Entry(
        "error",
        Text(
            "`clean` was not told to remove what it has shown: nothing was removed",
            "没有确认删除列出的内容：`clean` 什么也没有删除",
        ),
        do=Text("`clusterctl clean -y`, or answer at a terminal", "`clusterctl clean -y`，或者在终端里确认"),
        cases={
            "": Case(
                Text("nothing was removed", "没有删除任何内容"),
                Text("add -y to remove what is shown", "加 -y 删除列出的内容"),
            ),
            "json": Case(
                Text("nothing was removed", "没有删除任何内容"),
                Text("look at --dry-run first, then add -y", "先用 --dry-run 查看，再加 -y"),
            ),
        },
    ),
    "CC-USE-032": Entry(
        "error",
        Text(
            "the job wants more [spares](job.md#restarts) than there are nodes left",
            "作业要的备用节点多于剩余的节点",
        ),
        do=Text("A smaller `spares:`, or more nodes", "把 `spares:` 改小，或者加节点"),
        cases={
            "": Case(
                Text(
                    "the job wants {spares} beside its {nodes}, {available} can be had",
                    "作业除 {nodes} 外还需要 {spares}，可用的有 {available}",
                ),
                Text(
                    "set `restart.spares` lower, choose fewer `nodes`, or add nodes with `spare: true` to the inventory",
                    "调小 `restart.spares`，减少 `nodes`，或者在 inventory 里增加 `spare: true` 的节点",
                ),
            ),
        },
    ),
    "CC-USE-033": Entry(
        "error",
        Text(
            "spares, or the nodes whose place they would take, would not start the same number of workers",
            "备用节点与它们可能替换的节点启动的 worker 数不同",
        ),
        do=Text(
            "The same number of GPUs on all of them, or a number as `nproc_per_node`",
            "选 GPU 数相同的节点，或者 `nproc_per_node` 写数字",
        ),
        cases={
            "": Case(
                Text(
                    "a spare must start as many workers as the node whose place it takes",
                    "备用节点启动的 worker 数必须与它替换的节点相同",
                ),
                Text(
                    "a number as nproc_per_node, `gpus:` in the job, or other nodes",
                    "给 nproc_per_node 写数字，在作业里写 `gpus:`，或者换节点",
                ),
            ),
        },
    ),
    "CC-USE-034": Entry(
        "error",
        Text("the run has not had so many attempts", "任务没有跑过这么多次"),
        do=Text("`clusterctl status` lists the attempts", "用 `clusterctl status` 看跑过几次"),
        cases={
            "": Case(
                Text("{run} has no attempt {attempt}", "{run} 没有第 {attempt} 次尝试"),
                Text("it has attempts 1 to {last}", "它有第 1 到 {last} 次尝试"),
            ),
            "one": Case(
                Text("{run} has no attempt {attempt}", "{run} 没有第 {attempt} 次尝试"),
                Text("it has one attempt only", "它只有一次尝试"),
            ),
        },
    ),
    "CC-USE-035": Entry(
        "error",
        Text(
            "`--since` is neither a span such as `10m` nor a time such as `14:05`",
            "`--since` 后面既不是时长也不是时刻",
        ),
        do=Text(
            "A span such as `10m`, a time such as `14:05`, or a date such as `2026-11-21T14:05`",
            "写时长（`10m`）、时刻（`14:05`）或者日期（`2026-11-21T14:05`）",
        ),
        cases={
            "": Case(
                Text("--since {since}: neither a span nor a time", "--since {since}：既不是时长也不是时间"),
                Text(
                    "such as 10m, 1h30m, 14:05, 2026-11-21 or 2026-11-21T14:05; a time is that of this machine",
                    "例如 10m、1h30m、14:05、2026-11-21 或 2026-11-21T14:05；时间以本机为准",
                ),
            ),
        },
    ),
    "CC-USE-040": Entry(
        "error",
        Text(
            "the file to be written is there already; `--force` replaces it",
            "要写的文件已经存在；`--force` 替换它",
        ),
        do=Text("Another name, or `--force`", "换个名字，或者加 `--force`"),
        cases={
            "": Case(
                Text("{path} is there already", "{path} 已经存在"),
                Text("another name, or --force", "换个名字，或者加 --force"),
            ),
            "directory": Case(
                Text("{path} is a directory", "{path} 是目录"), Text("name a file", "写文件名")
            ),
        },
    ),
    "CC-USE-041": Entry(
        "error",
        Text(
            "the state directory belongs to another account, or others can write to it: they could have put commands there that clusterctl runs at the end of a run",
            "状态目录属于另一个账户，或者其他用户可以写入：他们可能在里面放了 clusterctl 会在 run 结束时执行的命令",
        ),
        do=Text(
            "Another `XDG_STATE_HOME`, or `chmod go-w`; with sudo, `sudo -H`",
            "换一个 `XDG_STATE_HOME`，或者 `chmod go-w`；用 sudo 时加 `-H`",
        ),
        cases={
            "": Case(
                Text(
                    "{path} {reason}; clusterctl keeps there what it runs and believes",
                    "{path} {reason}；clusterctl 在那里保存它要执行和信任的内容",
                ),
                Text(
                    "set XDG_STATE_HOME to a directory of yours that others cannot write to; as another account (sudo): `sudo -H`",
                    "把 XDG_STATE_HOME 设为别人没有写权限的目录；以其他账号执行（sudo）时用 `sudo -H`",
                ),
            ),
        },
    ),
    "CC-USE-050": Entry(
        "error",
        Text(
            "there is no such code, family or check; the nearest is named",
            "没有这个错误码、类别或检查项；会给出最接近的一个",
        ),
        do=Text(
            "The nearest is named; `clusterctl explain NET` lists a family",
            "报错里有最接近的；`clusterctl explain NET` 列出一类",
        ),
        cases={
            "check": Case(
                Text("no check is called {pattern!r}", "没有检查项叫 {pattern!r}"),
                Text(
                    "Codes such as CC-NET-003, families ({families}) and globs can be chosen",
                    "可以写 CC-NET-003 这样的错误码、类别（{families}）和通配符",
                ),
            ),
            "check-near": Case(
                Text("no check is called {pattern!r}", "没有检查项叫 {pattern!r}"),
                Text(
                    "did you mean {guess}? Codes such as CC-NET-003, families ({families}) and globs can be chosen",
                    "是不是 {guess}？可以写 CC-NET-003 这样的错误码、类别（{families}）和通配符",
                ),
            ),
            "waiver": Case(
                Text("{location}: there is no such finding", "{location}：没有这个检查项"),
                Text("`clusterctl explain` lists all", "`clusterctl explain` 会列出全部"),
            ),
            "waiver-near": Case(
                Text("{location}: there is no such finding", "{location}：没有这个检查项"),
                Text("did you mean {guess} ({title})?", "是不是 {guess}（{title}）？"),
            ),
            "number": Case(
                Text("there is no code {word!r}", "没有错误码 {word!r}"),
                Text(
                    "the nearest is {nearest}: {title}; `clusterctl explain {family}` lists its family",
                    "最接近的是 {nearest}：{title}；`clusterctl explain {family}` 列出该类别",
                ),
            ),
            "": Case(
                Text("there is no code {word!r}", "没有错误码 {word!r}"),
                Text(
                    "A code looks like CC-NET-003; the families are {families}",
                    "错误码的形式如 CC-NET-003；类别有 {families}",
                ),
            ),
            "near": Case(
                Text("there is no code {word!r}", "没有错误码 {word!r}"),
                Text(
                    "did you mean {guess}? A code looks like CC-NET-003; the families are {families}",
                    "是不是 {guess}？错误码的形式如 CC-NET-003；类别有 {families}",
                ),
            ),
        },
    ),
    "CC-USE-051": Entry(
        "error",
        Text(
            "a waiver for a finding with which no launch could work, such as a node that is not reached or a missing torch",
            "不能豁免的检查结果：有它就无法启动，例如节点无法连接或缺少 torch",
        ),
        do=Text("Mend it: no launch could work with it", "只能修好：带着它不可能跑起来"),
        cases={
            "": Case(
                Text(
                    "{location}: {title}: no launch could work, so this cannot be waived",
                    "{location}：{title}：这种情况无法启动，不能豁免",
                ),
                Text(
                    "leave the node out with --exclude, and drop the waiver",
                    "用 --exclude 跳过该节点，并去掉这条豁免",
                ),
            ),
        },
    ),
    "CC-USE-070": Entry(
        "error",
        Text("the folder in which `init` was to write is not there", "`init` 要写的目录不存在"),
        do=Text("Make the folder first", "先建目录"),
        cases={
            "": Case(
                Text("{folder} is not a directory", "{folder} 不是目录"), Text("make it first", "先创建它")
            ),
        },
    ),
    "CC-USE-071": Entry(
        "error",
        Text("the machines for `init` are given in two ways", "给 `init` 的机器用了两种写法"),
        do=Text("Keep one of the two ways", "只留一种"),
        cases={
            "": Case(
                Text(
                    "HOST, --from and --from-ssh-config all say which machines",
                    "HOST、--from 和 --from-ssh-config 同时指定了机器",
                ),
                Text("give one of them", "只写其中一个"),
            ),
        },
    ),
    "CC-USE-072": Entry(
        "error",
        Text(
            "no host of the SSH configuration fits the pattern of `--from-ssh-config`",
            "SSH 配置里没有符合 `--from-ssh-config` 的主机",
        ),
        do=Text("A wider pattern, such as `'gpu*'`", "模式放宽，例如 `'gpu*'`"),
        cases={
            "": Case(
                Text(
                    "no host of the SSH configuration fits {pattern!r}", "SSH 配置里没有主机匹配 {pattern!r}"
                ),
                Text("it names: {known}", "其中有：{known}"),
            ),
        },
    ),
    "CC-USE-073": Entry(
        "error",
        Text(
            "`init` was told no machines, and there is no terminal to ask at",
            "没有给 `init` 机器，也没有终端可以询问",
        ),
        do=Text(
            "Name the machines: `clusterctl init gpu01 gpu02`", "直接写出来：`clusterctl init gpu01 gpu02`"
        ),
        cases={
            "": Case(
                Text("which machines?", "要用哪些机器？"),
                Text(
                    "clusterctl init HOST..., or --from FILE, or --from-ssh-config 'PAT'",
                    "clusterctl init HOST...，或者 --from FILE，或者 --from-ssh-config 'PAT'",
                ),
            ),
        },
    ),
    "CC-USE-080": Entry(
        "error",
        Text(
            "this machine allows too few open files for so many nodes", "节点太多，本机允许打开的文件数不够"
        ),
        what=Text("Exit code 1"),
        do=Text(
            "Raise `nofile` in `/etc/security/limits.conf` of this machine and log in again, or take fewer nodes",
            "在本机 `/etc/security/limits.conf` 里调大 `nofile` 再重新登录，或者少选些节点",
        ),
        cases={
            "": Case(
                Text(
                    "this machine allows {soft} open files, too few for so many nodes",
                    "本机只允许打开 {soft} 个文件，不足以连接这么多节点",
                ),
                Text(
                    "raise `nofile` in /etc/security/limits.conf here and log in again, or take fewer nodes: --nodes 0-499",
                    "在本机的 /etc/security/limits.conf 里调高 `nofile` 并重新登录，或者减少节点：--nodes 0-499",
                ),
            ),
        },
    ),
    "CC-USE-090": Entry(
        "error",
        Text("`-i` and `--lab` are both given", "`-i` 和 `--lab` 同时给了"),
        do=Text("Leave one of them out", "去掉其中一个"),
        cases={
            "": Case(
                Text("-i and --lab both say which nodes", "-i 和 --lab 都指定了节点"),
                Text("leave -i {inventory} or --lab {lab} out", "去掉 -i {inventory} 或 --lab {lab}"),
            ),
        },
    ),
    "CC-USE-091": Entry(
        "error",
        Text(
            "`stop` or `lab down` without a name was not confirmed; nothing was stopped",
            "`stop` 或 `lab down` 没写名字，也没有人确认",
        ),
        do=Text("Name the run or the lab, or add `-y`", "写上任务或 lab 的名字，或者加 `-y`"),
        cases={
            "": Case(Text("nothing was ended", "没有停止任何内容"), Text("{command}")),
            "run": Case(
                Text(
                    "no run was named, and there is no terminal to ask at; there is:",
                    "没有指定 run，也没有终端可以确认；现有：",
                ),
                Text("{command}  (or add -y)", "{command}  （或者加 -y）"),
            ),
            "lab": Case(
                Text(
                    "no lab was named, and there is no terminal to ask at; there is:",
                    "没有指定 lab，也没有终端可以确认；现有：",
                ),
                Text("{command}  (or add -y)", "{command}  （或者加 -y）"),
            ),
        },
    ),
    "CC-USE-092": Entry(
        "error",
        Text(
            "unexpected arguments; arguments of the script or the command stand after `--`",
            "出现意外的参数；脚本或命令的参数要写在 `--` 后面",
        ),
        do=Text(
            "Put `--` before the arguments of the script or the command", "在脚本或命令的参数前面加上 `--`"
        ),
        cases={
            "": Case(
                Text("unexpected arguments: {words}", "多余的参数：{words}"),
                Text("arguments of the script: {command}", "脚本的参数：{command}"),
            ),
            "one": Case(
                Text("unexpected argument: {words}", "多余的参数：{words}"),
                Text("arguments of the script: {command}", "脚本的参数：{command}"),
            ),
            "option": Case(
                Text("unexpected argument: {words}", "多余的参数：{words}"),
                Text("did you mean: {command}", "是不是：{command}"),
            ),
            "options": Case(
                Text(
                    "unexpected options after the command without `--`: {words}",
                    "命令后面有选项，但没有 `--`：{words}",
                ),
                Text(
                    "options of the command: {command}; options of clusterctl stand before the --",
                    "命令的选项：{command}；clusterctl 的选项写在 -- 前面",
                ),
            ),
        },
    ),
    "CC-USE-093": Entry(
        "error",
        Text(
            "`CLUSTERCTL_LANG` names a language that clusterctl does not have",
            "`CLUSTERCTL_LANG` 的值不是支持的语言",
        ),
        do=Text(
            "`CLUSTERCTL_LANG=en` or `CLUSTERCTL_LANG=zh`, or unset it", "设为 `en` 或 `zh`，或者取消设置"
        ),
        cases={
            "": Case(
                Text("CLUSTERCTL_LANG={value}: unknown language", "CLUSTERCTL_LANG={value}：不支持的语言"),
                Text(
                    "use CLUSTERCTL_LANG=en or CLUSTERCTL_LANG=zh",
                    "使用 CLUSTERCTL_LANG=en 或 CLUSTERCTL_LANG=zh",
                ),
            ),
        },
    ),
}
