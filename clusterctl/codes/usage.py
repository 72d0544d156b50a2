"""The command line: CC-USE."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text, same

HOW_TO_SELECT = Text(
    "use names, ranks or ranges such as gpu01, 0-3, gpu[01-04,07] or gpu*, separated by commas",
    "写名称、编号或范围，例如 gpu01、0-3、gpu[01-04,07] 或 gpu*，用逗号分隔",
)
KNOWN_NODES = Text("the nodes are {nodes}", "节点有 {nodes}")
NO_SUCH_RUN = Text("no run {prefix!r} on these nodes", "这些节点上没有任务 {prefix!r}")
NO_SUCH_CODE = Text("no code {word!r}", "没有错误码 {word!r}")

ENTRIES: Mapping[str, Entry] = {
    "CC-USE-001": Entry(
        "error",
        Text(
            "unknown verb or option, or a missing or wrong argument", "未知的命令或选项，或者参数缺失、错误"
        ),
        do=Text(
            "The message suggests the nearest one; see `clusterctl --help`",
            "报错里有最接近的名称；见 `clusterctl --help`",
        ),
        cases={
            "": Case(same("{problem}"), Text("see `{command} --help`", "见 `{command} --help`")),
            "forwarded": Case(
                same("{problem}"),
                Text(
                    "{forwarded}, if it is an option of the {program}; else see `{command} --help`",
                    "{forwarded}（如果是{program}的选项）；否则见 `{command} --help`",
                ),
            ),
            "program": Case(
                same("{problem}"),
                Text(
                    "see `{command} --help`; options for the {program} go after `--`",
                    "见 `{command} --help`；{program}的选项写在 `--` 后面",
                ),
            ),
        },
    ),
    "CC-USE-002": Entry(
        "error",
        Text(
            "no inventory was found; see [which inventory](../command-line.md#which-inventory-is-used)",
            "找不到 inventory；见[使用哪个 inventory](../../en/command-line.md#which-inventory-is-used)",
        ),
        do=Text(
            "Use `-i FILE`, or create one with `clusterctl init`",
            "使用 `-i FILE`，或者用 `clusterctl init` 创建",
        ),
        cases={
            "": Case(
                Text(
                    "no inventory: no -i, no --hosts, no CLUSTERCTL_INVENTORY, no ./inventory.yaml, no running lab",
                    "没有 inventory：没有指定 -i 或 --hosts，没有设置 CLUSTERCTL_INVENTORY，没有 ./inventory.yaml，也没有运行中的 lab",
                ),
                Text(
                    "`clusterctl init HOST...` writes one for your machines; `clusterctl lab up` starts a practice cluster",
                    "`clusterctl init HOST...` 为您的机器写一个；`clusterctl lab up` 在本机启动一个练习集群",
                ),
            ),
            "near": Case(
                Text("no ./inventory.yaml; there is {file}", "没有 ./inventory.yaml；有 {file}"),
                Text(
                    "clusterctl -i {file} ..., or rename it to inventory.yaml",
                    "clusterctl -i {file} ...，或者改名为 inventory.yaml",
                ),
            ),
            "slurm": Case(
                Text(
                    "{file}: `nodes: {nodes}` gives no number, and there is no inventory to count in",
                    "{file}：`nodes: {nodes}` 不是数字，也没有 inventory 可以统计节点数",
                ),
                Text(
                    "give the number, such as `--set nodes=4`, or an inventory with -i FILE",
                    "写明节点数，例如 `--set nodes=4`，或者用 -i FILE 指定 inventory",
                ),
            ),
            "labs": Case(
                Text("{count} labs are running: {names}", "有 {count} 个 lab 在运行：{names}"),
                Text("choose one, for example: {command}", "选择一个，例如：{command}"),
            ),
        },
    ),
    "CC-USE-003": Entry(
        "error",
        Text("`--set` without `KEY=VALUE`", "`--set` 后面不是 `KEY=VALUE`"),
        do=Text(
            "Write `--set KEY=VALUE`, such as `--set nproc_per_node=2`",
            "写成 `--set KEY=VALUE`，例如 `--set nproc_per_node=2`",
        ),
        cases={
            "": Case(
                Text("--set {override}: expected KEY=VALUE", "--set {override}：格式应为 KEY=VALUE"),
                Text("for example --set nodes=2", "例如 --set nodes=2"),
            ),
        },
    ),
    "CC-USE-004": Entry(
        "error",
        Text("`--exclude` leaves no node", "`--exclude` 之后没有剩下节点"),
        do=Text("Exclude fewer nodes", "减少排除的节点"),
        cases={
            "": Case(
                Text(
                    "no node is left: {exclude} excludes all selected nodes",
                    "没有剩下节点：{exclude} 排除了所有选中的节点",
                ),
                Text("the inventory has {nodes}", "inventory 里有 {nodes}"),
            ),
            "spares": Case(
                Text("all remaining nodes are spares: {nodes}", "剩下的节点都是备用节点：{nodes}"),
                Text(
                    "select the nodes that the job should run on, or remove `spare: true` from some of them",
                    "选择作业要使用的节点，或者从部分节点上去掉 `spare: true`",
                ),
            ),
        },
    ),
    "CC-USE-005": Entry(
        "error",
        Text("the job needs more nodes than are available", "作业需要的节点数多于可用的节点数"),
        do=Text(
            "Set a smaller `nodes:`, or add nodes to the inventory",
            "减小 `nodes:`，或者在 inventory 里增加节点",
        ),
        cases={
            "": Case(
                Text(
                    "the job needs {count} nodes, {usable} are available",
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
            "a value that launch needs is unknown, such as the number of GPUs",
            "缺少启动所需的信息，例如 GPU 数",
        ),
        do=Text(
            "Set `gpus:` in the inventory, or a number as `nproc_per_node`",
            "在 inventory 里设置 `gpus:`，或者把 `nproc_per_node` 设为数字",
        ),
        cases={
            "": Case(
                Text("unknown: {names}", "未知：{names}"),
                Text(
                    "set `ip:`, `nic:` or `gpus:` in the inventory, or a number as nproc_per_node",
                    "在 inventory 里设置 `ip:`、`nic:` 或 `gpus:`，或者把 nproc_per_node 设为数字",
                ),
            ),
        },
    ),
    "CC-USE-007": Entry(
        "error",
        Text("a secret of the job is not set in your environment", "作业的 secret 没有在你的环境变量里设置"),
        do=Text(
            "Run `export NAME=...` on the machine where you launch", "在执行启动的机器上先 `export NAME=...`"
        ),
        cases={
            "": Case(
                Text("secrets not set on this machine: {names}", "本机没有设置 secret：{names}"),
                Text(
                    "export {first}=... before `clusterctl launch`",
                    "在 `clusterctl launch` 之前执行 export {first}=...",
                ),
            ),
        },
    ),
    "CC-USE-008": Entry(
        "error",
        Text(
            "cannot write a file or the output of clusterctl on this machine: disk full, or no permission",
            "本机无法写入文件或 clusterctl 的输出：磁盘已满，或者没有权限",
        ),
        what=Text("Exit code 1", "退出码 1"),
        do=Text("Check disk space and permissions on this machine", "检查本机的磁盘空间和权限"),
        cases={
            "": Case(
                Text("{target}: {reason}", "{target}：{reason}"),
                Text("free some space, or get write permission", "腾出空间，或者获取写权限"),
            ),
            "no-folder": Case(
                Text("{target}: {reason}", "{target}：{reason}"),
                Text("create its directory first", "先创建所在目录"),
            ),
        },
    ),
    "CC-USE-009": Entry(
        "error",
        Text("no job file, or no script, was found", "找不到作业文件或脚本"),
        do=Text(
            "Name the job file or the script; `clusterctl init --script FILE` writes a job file",
            "写上作业文件或脚本；`clusterctl init --script FILE` 会写出作业文件",
        ),
        cases={
            "": Case(
                Text(
                    "no job file is named, and there is no ./job.yaml", "没有指定作业文件，也没有 ./job.yaml"
                ),
                Text(
                    "clusterctl launch SCRIPT.py, or `clusterctl init --script SCRIPT.py` to write job.yaml",
                    "clusterctl launch SCRIPT.py，或者用 `clusterctl init --script SCRIPT.py` 写出 job.yaml",
                ),
            ),
            "script": Case(
                Text("there is no script {script}", "没有脚本 {script}"),
                Text("give a path from this directory", "写上从当前目录出发的路径"),
            ),
        },
    ),
    "CC-USE-010": Entry(
        "error",
        Text("no node is selected", "没有选中节点"),
        do=Text(
            "List the nodes with `clusterctl inventory show`", "用 `clusterctl inventory show` 查看有哪些节点"
        ),
        cases={
            "": Case(
                Text("no node is selected", "没有选中节点"),
                HOW_TO_SELECT,
            ),
            "empty": Case(
                Text("the selection of nodes is empty", "节点的选择为空"),
                Text(
                    "use names, ranks or ranges such as gpu01, 0-3, gpu[01-04,07] or gpu*, separated by commas; or all",
                    "写名称、编号或范围，例如 gpu01、0-3、gpu[01-04,07] 或 gpu*，用逗号分隔；或者 all",
                ),
            ),
        },
    ),
    "CC-USE-011": Entry(
        "error",
        Text("the selection of nodes is invalid", "节点的选择写法无效"),
        do=Text(
            "Write `0-3`, `gpu01,gpu02`, `gpu[01-04]` or `gpu*`",
            "写成 `0-3`、`gpu01,gpu02`、`gpu[01-04]` 或 `gpu*`",
        ),
        cases={
            "open": Case(
                Text(
                    "invalid selection of nodes {pattern!r}: '[' is not closed",
                    "节点选择 {pattern!r} 无效：'[' 没有闭合",
                ),
                HOW_TO_SELECT,
            ),
            "character": Case(
                Text(
                    "invalid selection of nodes {pattern!r}: it contains a character that node names cannot have",
                    "节点选择 {pattern!r} 无效：含有节点名不允许的字符",
                ),
                HOW_TO_SELECT,
            ),
            "number": Case(
                Text(
                    "invalid selection of nodes {pattern!r}: {item!r} is not a number or a range such as 01-04",
                    "节点选择 {pattern!r} 无效：{item!r} 不是数字，也不是 01-04 这样的范围",
                ),
                HOW_TO_SELECT,
            ),
            "backwards-item": Case(
                Text(
                    "invalid selection of nodes {pattern!r}: the range {item!r} runs backwards",
                    "节点选择 {pattern!r} 无效：范围 {item!r} 的顺序反了",
                ),
                HOW_TO_SELECT,
            ),
            "many": Case(
                Text(
                    "invalid selection of nodes {pattern!r}: it expands to more than {most} names",
                    "节点选择 {pattern!r} 无效：展开后超过 {most} 个名称",
                ),
                HOW_TO_SELECT,
            ),
            "backwards": Case(
                Text(
                    "invalid selection of nodes {pattern!r}: the range runs backwards",
                    "节点选择 {pattern!r} 无效：范围的顺序反了",
                ),
                HOW_TO_SELECT,
            ),
        },
    ),
    "CC-USE-012": Entry(
        "error",
        Text("no such node; the nearest name is shown", "没有这个节点；会列出最接近的名称"),
        do=Text("`clusterctl inventory show` lists the names", "`clusterctl inventory show` 会列出所有名称"),
        cases={
            "rank": Case(
                Text(
                    "no node with rank {rank}: the last one is {last}",
                    "没有编号为 {rank} 的节点：最后一个是 {last}",
                ),
                KNOWN_NODES,
            ),
            "empty": Case(
                Text(
                    "no node with rank {rank}: the inventory is empty",
                    "没有编号为 {rank} 的节点：inventory 是空的",
                )
            ),
            "": Case(
                Text("no node with the name {name!r}{suggestion}", "没有名为 {name!r} 的节点{suggestion}"),
                KNOWN_NODES,
            ),
            "pattern": Case(
                Text("no node matches {name!r}{suggestion}", "没有节点匹配 {name!r}{suggestion}"),
                KNOWN_NODES,
            ),
            "range": Case(
                Text(
                    "no node with the name {name!r} (from {pattern!r}){suggestion}",
                    "没有名为 {name!r} 的节点（来自 {pattern!r}）{suggestion}",
                ),
                KNOWN_NODES,
            ),
            "pattern-range": Case(
                Text(
                    "no node matches {name!r} (from {pattern!r}){suggestion}",
                    "没有节点匹配 {name!r}（来自 {pattern!r}）{suggestion}",
                ),
                KNOWN_NODES,
            ),
        },
    ),
    "CC-USE-020": Entry(
        "error",
        Text("there are no runs, or none of yours", "没有任务，或者没有你的任务"),
        do=Text(
            "`clusterctl ps` lists all runs; choose one by name",
            "`clusterctl ps` 会列出所有任务；请写上任务名",
        ),
        cases={
            "": Case(
                Text("no run of yours ({user}) on these nodes", "这些节点上没有你（{user}）的任务"),
                Text("choose one by name: {runs}", "请指定一个：{runs}"),
            ),
            "none": Case(
                Text("no runs on these nodes", "这些节点上没有任务"),
                Text("clusterctl launch JOB.yaml starts one", "用 clusterctl launch JOB.yaml 启动任务"),
            ),
        },
    ),
    "CC-USE-021": Entry(
        "error",
        Text("you have no active run", "你没有正在运行的任务"),
        do=Text(
            "`clusterctl ps` lists ended runs; give the name of a run to look at it",
            "`clusterctl ps` 会列出已结束的任务；写上任务名即可查看",
        ),
        cases={
            "": Case(
                Text("no active run of yours ({user})", "没有你（{user}）的正在运行的任务"),
                Text(
                    "runs of other users must be given by name: {runs}", "其他用户的任务必须写出名称：{runs}"
                ),
            ),
            "none": Case(
                Text("no active run of yours ({user})", "没有你（{user}）的正在运行的任务"),
                Text("clusterctl ps lists ended runs", "clusterctl ps 会列出已结束的任务"),
            ),
        },
    ),
    "CC-USE-022": Entry(
        "error",
        Text("several of your runs are active: choose one by name", "你有多个任务正在运行：请指定一个"),
        do=Text("Choose one of those that are listed", "从列出的任务中指定一个"),
        cases={
            "": Case(
                Text("{count} runs are active", "有 {count} 个任务正在运行"),
                Text("choose one by name: {names}", "请指定一个：{names}"),
            ),
        },
    ),
    "CC-USE-023": Entry(
        "error",
        Text("no run name starts with this prefix", "没有以此开头的任务名"),
        do=Text("`clusterctl ps` lists the names", "用 `clusterctl ps` 查看任务名"),
        cases={
            "": Case(
                NO_SUCH_RUN,
                Text("existing runs: {runs}", "现有任务：{runs}"),
            ),
            "none": Case(
                NO_SUCH_RUN,
                Text(
                    "`clusterctl ps` lists the runs that are recorded on the nodes",
                    "`clusterctl ps` 会列出节点上记录的任务",
                ),
            ),
            "folder": Case(
                NO_SUCH_RUN,
                Text(
                    "{way_out}; if it is the directory to pull into: {command}",
                    "{way_out}；如果它是下载目录：{command}",
                ),
            ),
        },
    ),
    "CC-USE-024": Entry(
        "error",
        Text("several run names start with this prefix", "有多个任务名以此开头"),
        do=Text("Type more of the name", "多输入几个字符"),
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
        Text(
            "the run belongs to another user; `-y` confirms that it is to be stopped",
            "任务属于其他用户；确实要停止时加 `-y`",
        ),
        do=Text(
            "Ask its owner first; add `-y` to stop it nevertheless", "先与其所有者确认；确实要停止时加 `-y`"
        ),
        cases={
            "": Case(
                same("{reason}"), Text("{command}  (to stop it nevertheless)", "{command}  （确实要停止时）")
            ),
        },
    ),
    "CC-USE-026": Entry(
        "error",
        Text("`--grep` is not a valid regular expression", "`--grep` 不是有效的正则表达式"),
        do=Text("Put it in quotes, and escape `( [ * ?`", "加上引号，并转义 `( [ * ?`"),
        cases={
            "": Case(
                Text("--grep {grep}: {reason}", "--grep {grep} 不是正则表达式（Python 报告：{reason}）"),
                Text("escape special characters with \\", "用 \\ 转义特殊字符"),
            ),
            "slow": Case(
                Text(
                    "--grep {grep}: a repetition within a repetition can take exponential time",
                    "--grep {grep}：重复中又有重复，匹配时间可能按指数增长",
                ),
                Text(
                    "write it with one repetition, as `a+` for `(a+)+`",
                    "改成只有一层重复，例如把 `(a+)+` 写成 `a+`",
                ),
            ),
        },
    ),
    "CC-USE-027": Entry(
        "error",
        Text("no such rank on these nodes", "这些节点上没有这个 rank"),
        do=Text("`clusterctl status` lists the ranks of a run", "用 `clusterctl status` 查看任务有哪些 rank"),
        cases={
            "": Case(
                Text("no {ranks} on {nodes}", "{nodes} 上没有 {ranks}"),
                Text("{command} shows its ranks", "{command} 显示它的 rank"),
            ),
            "elsewhere": Case(Text("no {ranks} on {nodes}", "{nodes} 上没有 {ranks}"), same("{command}")),
        },
    ),
    "CC-USE-028": Entry(
        "error",
        Text("the run did not use the selected nodes", "任务没有使用选中的节点"),
        do=Text(
            "`clusterctl status` shows the nodes of a run", "用 `clusterctl status` 查看任务使用了哪些节点"
        ),
        cases={
            "": Case(
                Text("{run_id} did not run on {nodes}", "{run_id} 没有在 {nodes} 上运行"),
                Text("{command} shows its nodes", "{command} 显示它的节点"),
            ),
        },
    ),
    "CC-USE-029": Entry(
        "error",
        Text(
            "`pull --job` cannot be combined with a run or `--logs`",
            "`pull --job` 不能与任务名或 `--logs` 同时使用",
        ),
        do=Text("Remove the run or `--logs`", "去掉任务名或 `--logs`"),
        cases={
            "": Case(
                Text("--job downloads the outputs of all runs of a job", "--job 下载一个作业所有任务的输出"),
                Text("remove --job, or RUN, --logs and --all", "去掉 --job，或者去掉 RUN、--logs 和 --all"),
            ),
        },
    ),
    "CC-USE-030": Entry(
        "error",
        Text(
            "`--older-than` is not a time with a unit, such as `12h` or `7d`",
            "`--older-than` 不是带单位的时长，例如 `12h` 或 `7d`",
        ),
        do=Text("Write `12h` or `7d`", "写成 `12h` 或 `7d`"),
        cases={
            "": Case(
                Text("--older-than: {reason}", "--older-than：{reason}"),
                Text("for example --older-than 7d", "例如 --older-than 7d"),
            ),
            "unit": Case(
                Text("--older-than {number}: the unit is missing", "--older-than {number}：缺少单位"),
                Text("for example --older-than {number}d", "例如 --older-than {number}d"),
            ),
        },
    ),
    "CC-USE-031": Entry(
        "error",
        Text("`clean` was not confirmed: nothing was removed", "`clean` 没有得到确认：没有删除任何内容"),
        do=Text(
            "Run `clusterctl clean -y`, or confirm in a terminal",
            "执行 `clusterctl clean -y`，或者在终端里确认",
        ),
        cases={
            "": Case(
                Text("nothing was removed", "没有删除任何内容"),
                Text("add -y to remove what is shown", "加 -y 删除列出的内容"),
            ),
            "json": Case(
                Text("nothing was removed", "没有删除任何内容"),
                Text("check with --dry-run first, then add -y", "先用 --dry-run 查看，再加 -y"),
            ),
        },
    ),
    "CC-USE-032": Entry(
        "error",
        Text(
            "the job needs more [spares](../restarts.md#replace-a-lost-node-by-a-spare) than there are nodes left",
            "作业需要的[备用节点](../../en/restarts.md#replace-a-lost-node-by-a-spare)多于剩余的节点",
        ),
        do=Text("Set a smaller `spares:`, or add nodes", "减小 `spares:`，或者增加节点"),
        cases={
            "": Case(
                Text(
                    "the job needs {spares} in addition to its {nodes}, {available} available",
                    "作业除 {nodes} 外还需要 {spares}，可用的有 {available}",
                ),
                Text(
                    "lower `restart.spares`, select fewer `nodes`, or add nodes with `spare: true` to the inventory",
                    "减小 `restart.spares`，减少 `nodes`，或者在 inventory 里增加 `spare: true` 的节点",
                ),
            ),
        },
    ),
    "CC-USE-033": Entry(
        "error",
        Text(
            "spares would start another number of workers than the nodes that they replace",
            "备用节点与它们所替换的节点启动的 worker 数不同",
        ),
        do=Text(
            "Use nodes with the same number of GPUs, or a number as `nproc_per_node`",
            "使用 GPU 数相同的节点，或者把 `nproc_per_node` 设为数字",
        ),
        cases={
            "": Case(
                Text(
                    "a spare must start as many workers as the node that it replaces",
                    "备用节点启动的 worker 数必须与它所替换的节点相同",
                ),
                Text(
                    "set a number as nproc_per_node, or `gpus:` in the job, or use other nodes",
                    "把 nproc_per_node 设为数字，在作业里设置 `gpus:`，或者换用其他节点",
                ),
            ),
        },
    ),
    "CC-USE-034": Entry(
        "error",
        Text("the run has no such attempt", "任务没有这次尝试"),
        do=Text("`clusterctl status` lists the attempts", "用 `clusterctl status` 查看任务的各次尝试"),
        cases={
            "": Case(
                Text("{run} has no attempt {attempt}", "{run} 没有第 {attempt} 次尝试"),
                Text("it has attempts 1 to {last}", "它有第 1 到 {last} 次尝试"),
            ),
            "one": Case(
                Text("{run} has no attempt {attempt}", "{run} 没有第 {attempt} 次尝试"),
                Text("it has only one attempt", "它只有一次尝试"),
            ),
        },
    ),
    "CC-USE-035": Entry(
        "error",
        Text(
            "`--since` is neither a duration such as `10m` nor a time such as `14:05`",
            "`--since` 既不是时长（例如 `10m`）也不是时间（例如 `14:05`）",
        ),
        do=Text(
            "Use a duration such as `10m`, a time such as `14:05`, or a date such as `2026-11-21T14:05`",
            "写时长（例如 `10m`）、时间（例如 `14:05`）或日期（例如 `2026-11-21T14:05`）",
        ),
        cases={
            "": Case(
                Text(
                    "--since {since}: neither a duration nor a time", "--since {since}：既不是时长也不是时间"
                ),
                Text(
                    "for example 10m, 1h30m, 14:05, 2026-11-21 or 2026-11-21T14:05, in this machine's time",
                    "例如 10m、1h30m、14:05、2026-11-21 或 2026-11-21T14:05；时间以本机为准",
                ),
            ),
        },
    ),
    "CC-USE-036": Entry(
        "error",
        Text("this launcher cannot be exported", "该启动方式不能导出"),
        do=Text("Start it with `clusterctl launch`", "用 `clusterctl launch` 启动"),
        cases={
            "": Case(
                Text(
                    "a job with `launcher: {launcher}` cannot be exported as a script",
                    "`launcher: {launcher}` 的作业不能导出为脚本",
                ),
                Text(
                    "clusterctl launch starts it, also on a Slurm cluster",
                    "用 clusterctl launch 启动，在 Slurm 集群上也可以",
                ),
            ),
        },
    ),
    "CC-USE-040": Entry(
        "error",
        Text(
            "the output file already exists; `--force` replaces it", "要写入的文件已存在；加 `--force` 则替换"
        ),
        do=Text("Choose another name, or add `--force`", "换一个名称，或者加 `--force`"),
        cases={
            "": Case(
                Text("{path} already exists", "{path} 已存在"),
                Text("choose another name, or add --force", "换一个名称，或者加 --force"),
            ),
            "init": Case(
                Text("{path} already exists", "{path} 已存在"),
                Text(
                    "`clusterctl launch` uses it; `init --force` replaces it, `init --dir FOLDER` writes elsewhere",
                    "`clusterctl launch` 会使用它；`init --force` 替换它，`init --dir FOLDER` 写到别处",
                ),
            ),
            "directory": Case(
                Text("{path} is a directory", "{path} 是目录"),
                Text("give the name of a file", "请指定文件名"),
            ),
        },
    ),
    "CC-USE-041": Entry(
        "error",
        Text(
            "the state directory belongs to another account or is writable by others, who could store commands in it that clusterctl runs at the end of a run",
            "状态目录属于其他账号，或者其他用户可写：他们可以在其中写入命令，由 clusterctl 在任务结束时执行",
        ),
        do=Text(
            "Set another `XDG_STATE_HOME`, or run `chmod go-w`; with sudo, use `sudo -H`",
            "换一个 `XDG_STATE_HOME`，或者执行 `chmod go-w`；使用 sudo 时用 `sudo -H`",
        ),
        cases={
            "": Case(
                Text(
                    "{path} {reason}; clusterctl keeps data there that it trusts, and commands that it runs",
                    "{path} {reason}；clusterctl 在该目录保存它信任的数据和要执行的命令",
                ),
                Text(
                    "set XDG_STATE_HOME to a directory of yours that others cannot write to; as another account (sudo): `sudo -H`",
                    "把 XDG_STATE_HOME 设为属于你且其他用户没有写权限的目录；以其他账号执行（sudo）时用 `sudo -H`",
                ),
            ),
        },
    ),
    "CC-USE-042": Entry(
        "error",
        Text(
            "an inventory that was not named, or a file that it names, belongs to another account or is writable by others, who could run commands as you with it",
            "没有指定而自动使用的 inventory，或者其中写的文件，属于其他账号，或者其他用户可写：他们可以借此以你的身份执行命令",
        ),
        do=Text(
            "Read the file; if you trust it, name it with `-i inventory.yaml`",
            "检查这个文件；信任它的话，用 `-i inventory.yaml` 指定它",
        ),
        cases={
            "": Case(
                Text(
                    "{file} is not used, because such a file can run commands on this machine: {path} {reason}",
                    "不使用 {file}，因为这种文件能在本机执行命令：{path} {reason}",
                ),
                Text(
                    "read the file; if you trust it, name the inventory: `clusterctl -i inventory.yaml ...`",
                    "检查这个文件；信任它的话就指定 inventory：`clusterctl -i inventory.yaml ...`",
                ),
            ),
        },
    ),
    "CC-USE-050": Entry(
        "error",
        Text(
            "no such code, family or check; the nearest one is shown",
            "没有这个错误码、类别或检查项；会列出最接近的一个",
        ),
        do=Text(
            "The message suggests the nearest one; `clusterctl explain NET` lists a family",
            "报错里有最接近的一个；`clusterctl explain NET` 列出一个类别",
        ),
        cases={
            "check": Case(
                Text("no check with the name {pattern!r}", "没有名为 {pattern!r} 的检查项"),
                Text(
                    "use codes such as CC-NET-003, families ({families}) or globs",
                    "可以写 CC-NET-003 这样的错误码、类别（{families}）或通配符",
                ),
            ),
            "check-near": Case(
                Text("no check with the name {pattern!r}", "没有名为 {pattern!r} 的检查项"),
                Text(
                    "did you mean {guess}? Use codes such as CC-NET-003, families ({families}) or globs",
                    "是不是 {guess}？可以写 CC-NET-003 这样的错误码、类别（{families}）或通配符",
                ),
            ),
            "waiver": Case(
                Text("{location}: no such finding", "{location}：没有这个检查项"),
                Text("`clusterctl explain` lists all", "`clusterctl explain` 会列出全部"),
            ),
            "waiver-near": Case(
                Text("{location}: no such finding", "{location}：没有这个检查项"),
                Text("did you mean {guess} ({title})?", "是不是 {guess}（{title}）？"),
            ),
            "number": Case(
                NO_SUCH_CODE,
                Text(
                    "the nearest is {nearest}: {title}; `clusterctl explain {family}` lists its family",
                    "最接近的是 {nearest}：{title}；`clusterctl explain {family}` 列出该类别",
                ),
            ),
            "": Case(
                NO_SUCH_CODE,
                Text(
                    "a code looks like CC-NET-003; the families are {families}",
                    "错误码的形式如 CC-NET-003；类别有 {families}",
                ),
            ),
            "near": Case(
                NO_SUCH_CODE,
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
            "a waiver for a problem with which nothing can be launched, such as an unreachable node or a missing torch",
            "不能豁免：存在该问题时无法启动，例如节点无法连接或缺少 torch",
        ),
        do=Text(
            "Fix the problem, or leave the node out with `--exclude`",
            "请解决该问题，或者用 `--exclude` 排除该节点",
        ),
        cases={
            "": Case(
                Text(
                    "{location}: {title}: no launch works with this problem, so it cannot be waived",
                    "{location}：{title}：存在该问题时无法启动，因此不能豁免",
                ),
                Text(
                    "leave the node out with --exclude, and remove the waiver",
                    "用 --exclude 排除该节点，并删除这条豁免",
                ),
            ),
        },
    ),
    "CC-USE-070": Entry(
        "error",
        Text("the folder for the files of `init` does not exist", "`init` 要写的目录不存在"),
        do=Text("Create the folder first", "先创建该目录"),
        cases={
            "": Case(
                Text("{folder} is not a directory", "{folder} 不是目录"), Text("create it first", "先创建它")
            ),
        },
    ),
    "CC-USE-071": Entry(
        "error",
        Text("the machines for `init` are given in more than one way", "用多种方式指定了 `init` 的机器"),
        do=Text("Keep one of them", "只保留一种"),
        cases={
            "": Case(
                Text(
                    "HOST, --from and --from-ssh-config cannot be combined",
                    "HOST、--from 和 --from-ssh-config 不能同时使用",
                ),
                Text("use one of them", "只使用其中一个"),
            ),
        },
    ),
    "CC-USE-072": Entry(
        "error",
        Text(
            "no host of the SSH configuration matches the pattern of `--from-ssh-config`",
            "SSH 配置里没有与 `--from-ssh-config` 匹配的主机",
        ),
        do=Text("Use a wider pattern, such as `'gpu*'`", "使用更宽的模式，例如 `'gpu*'`"),
        cases={
            "": Case(
                Text(
                    "no host of the SSH configuration matches {pattern!r}",
                    "SSH 配置里没有主机匹配 {pattern!r}",
                ),
                Text("its hosts: {known}", "其中的主机：{known}"),
            ),
        },
    ),
    "CC-USE-073": Entry(
        "error",
        Text(
            "`init` got no machines, and there is no terminal to prompt for them",
            "没有给 `init` 指定机器，也没有终端可以输入",
        ),
        do=Text(
            "List the machines: `clusterctl init gpu01 gpu02`", "写出机器：`clusterctl init gpu01 gpu02`"
        ),
        cases={
            "": Case(
                Text("no machines were given", "没有指定机器"),
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
            "this machine's limit of open files is too low for so many nodes",
            "本机打开文件数的上限过低，不足以连接这么多节点",
        ),
        what=Text("Exit code 1", "退出码 1"),
        do=Text(
            "Raise `nofile` in `/etc/security/limits.conf` of this machine and log in again, or use fewer nodes",
            "提高本机 `/etc/security/limits.conf` 的 `nofile` 并重新登录，或者减少节点",
        ),
        cases={
            "": Case(
                Text(
                    "this machine allows {soft} open files, too few for so many nodes",
                    "本机只允许打开 {soft} 个文件，不足以连接这么多节点",
                ),
                Text(
                    "raise `nofile` in /etc/security/limits.conf on this machine and log in again, or use fewer nodes: --nodes 0-499",
                    "提高本机 /etc/security/limits.conf 的 `nofile` 并重新登录，或者减少节点：--nodes 0-499",
                ),
            ),
        },
    ),
    "CC-USE-090": Entry(
        "error",
        Text("`-i`, `--lab` and `--hosts` cannot be combined", "`-i`、`--lab` 和 `--hosts` 不能同时使用"),
        do=Text("Keep one of them", "只保留一个"),
        cases={
            "": Case(
                Text(
                    "{first} and {second} cannot be combined: each selects the machines",
                    "{first} 和 {second} 不能同时使用：两者都指定机器",
                ),
                Text(
                    "remove {first} {value} or {second} {other}", "去掉 {first} {value} 或 {second} {other}"
                ),
            ),
        },
    ),
    "CC-USE-091": Entry(
        "error",
        Text(
            "`stop` or `lab down` without a name was not confirmed; nothing was stopped",
            "`stop` 或 `lab down` 没有写名称，也没有得到确认；没有停止任何内容",
        ),
        do=Text("Give the name of the run or the lab, or add `-y`", "写上任务或 lab 的名称，或者加 `-y`"),
        cases={
            "": Case(Text("nothing was stopped", "没有停止任何内容"), same("{command}")),
            "run": Case(
                Text(
                    "no run was given, and there is no terminal to confirm; active:",
                    "没有指定任务，也没有终端可以确认；现有：",
                ),
                Text("{command}  (or add -y)", "{command}  （或者加 -y）"),
            ),
            "lab": Case(
                Text(
                    "no lab was given, and there is no terminal to confirm; running:",
                    "没有指定 lab，也没有终端可以确认；现有：",
                ),
                Text("{command}  (or add -y)", "{command}  （或者加 -y）"),
            ),
        },
    ),
    "CC-USE-092": Entry(
        "error",
        Text(
            "unexpected arguments; arguments for the script or the command go after `--`",
            "多余的参数；脚本或命令的参数写在 `--` 后面",
        ),
        do=Text(
            "Put `--` before the arguments for the script or the command", "在脚本或命令的参数前面加上 `--`"
        ),
        cases={
            "": Case(
                Text("unexpected arguments: {words}", "多余的参数：{words}"),
                Text("arguments for the script: {command}", "传给脚本的参数：{command}"),
            ),
            "one": Case(
                Text("unexpected argument: {words}", "多余的参数：{words}"),
                Text("arguments for the script: {command}", "传给脚本的参数：{command}"),
            ),
            "option": Case(
                Text("unexpected argument: {words}", "多余的参数：{words}"),
                Text("did you mean: {command}", "是不是：{command}"),
            ),
            "live": Case(
                Text(
                    "--openmetrics writes live samples; with RUN or --since there are none",
                    "--openmetrics 写出实时采样；有 RUN 或 --since 时没有实时采样",
                ),
                Text("live: {command}; as JSON: add --json", "实时采样：{command}；输出 JSON：加 --json"),
            ),
            "options": Case(
                Text(
                    "unexpected options after the command without `--`: {words}",
                    "命令后面有选项，但没有 `--`：{words}",
                ),
                Text(
                    "options for the command: {command}; options for clusterctl go before the --",
                    "命令的选项：{command}；clusterctl 的选项写在 -- 前面",
                ),
            ),
        },
    ),
    "CC-USE-094": Entry(
        "error",
        Text("the port of `forward` cannot be used on this machine", "本机无法使用 `forward` 的端口"),
        do=Text(
            "Choose another one: `clusterctl forward RUN 6006:16006`",
            "换一个本地端口：`clusterctl forward RUN 6006:16006`",
        ),
        cases={
            "": Case(
                Text("cannot listen on {address}: {reason}", "无法监听 {address}：{reason}"),
                Text("choose another port or path here: PORT:LOCAL", "换一个本地端口或路径：PORT:LOCAL"),
            ),
        },
    ),
    "CC-USE-095": Entry(
        "error",
        Text("this node has no part in the run, or did not answer", "该节点不属于该任务，或者没有响应"),
        do=Text("Name a node of the run with `--nodes`", "用 `--nodes` 指定该任务的节点"),
        cases={
            "": Case(
                Text("{name} has no part in {run}, or did not answer", "{name} 不属于 {run}，或者没有响应"),
                Text("its nodes that answered: {nodes}", "有响应的节点：{nodes}"),
            ),
        },
    ),
    "CC-USE-096": Entry(
        "error",
        Text("the run has no such rank", "该任务没有这个 rank"),
        do=Text("`clusterctl status RUN` lists its ranks", "`clusterctl status RUN` 列出它的 rank"),
        cases={
            "": Case(
                Text("{run} has no rank {rank}", "{run} 没有 rank {rank}"),
                Text("its ranks: {ranks}", "它的 rank：{ranks}"),
            ),
        },
    ),
    "CC-USE-097": Entry(
        "error",
        Text("`ssh` needs one node", "`ssh` 只能用于一个节点"),
        do=Text(
            "Name one; `clusterctl exec` runs a command on many",
            "指定一个节点；在多个节点上执行命令用 `clusterctl exec`",
        ),
        cases={
            "": Case(
                Text("{pattern} is more than one node: {nodes}", "{pattern} 不止一个节点：{nodes}"),
                Text("name one of them", "请指定其中一个"),
            ),
        },
    ),
    "CC-USE-098": Entry(
        "error",
        Text("the port of `ui` cannot be used on this machine", "本机无法使用 `ui` 的端口"),
        do=Text(
            "Choose another one, or leave `--port` out: any free port is taken then",
            "换一个端口，或者省略 `--port`，此时自动选用空闲端口",
        ),
        cases={
            "": Case(
                Text("cannot listen on 127.0.0.1:{port}: {reason}", "无法监听 127.0.0.1:{port}：{reason}"),
                Text("run `clusterctl ui` without `--port`", "去掉 `--port`，重新执行 `clusterctl ui`"),
            ),
        },
    ),
    "CC-USE-093": Entry(
        "error",
        Text(
            "`CLUSTERCTL_LANG` is not a supported language",
            "`CLUSTERCTL_LANG` 的值不是支持的语言",
        ),
        do=Text(
            "Set `CLUSTERCTL_LANG=en` or `CLUSTERCTL_LANG=zh`, or unset it",
            "设置 `CLUSTERCTL_LANG=en` 或 `CLUSTERCTL_LANG=zh`，或者取消设置",
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
