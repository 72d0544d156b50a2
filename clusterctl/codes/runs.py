"""A run and its results: CC-SYNC, CC-RUN, CC-END, CC-PULL, CC-CLEAN."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text, same

SET_SOURCE = Text(
    "set sync: {source: ...} to the directory that holds the code, relative to the job file",
    "把 sync: {source: ...} 设为代码所在目录，相对于作业文件",
)
STUCK = Text(
    "no progress on the node for a long time: its file system hangs", "节点上长时间没有进展：文件系统卡住"
)
NO_PROGRESS = Text("no progress on the node for {limit:.0f} s", "节点上 {limit:.0f} 秒没有进展")
NO_RESULT = Text("no result for {limit:.0f} h", "{limit:.0f} 小时内没有返回结果")
SHORTEN_RULES = Text(
    "shorten it: ignore a directory with one rule instead of each file with its own",
    "精简规则：用一条规则忽略整个目录，不要逐个文件写",
)
EXCLUDE_DATA = Text(
    "exclude what is not code, here or in .gitignore: sync: {exclude: [{first}]}; `--big` sends it anyway",
    "把不是代码的内容排除，写在这里或 .gitignore 里：sync: {exclude: [{first}]}；加 `--big` 仍然发送",
)
WRITES_ARE_LOST = Text(
    "check the file system of the node's working directory: it does not keep what is written",
    "检查节点工作目录的文件系统：写入的内容没有保存",
)
CHECK_WORKDIR_OR_CHANGE_IT = Text(
    "the file system of the node's working directory hangs; check it, or set another `workdir`",
    "节点工作目录所在的文件系统卡住；检查它，或者换一个 `workdir`",
)
CHECK_WORKDIR = Text(
    "the file system of its working directory hangs; check it on the node",
    "节点工作目录所在的文件系统卡住；请在节点上检查",
)
CHECK_WORKDIR_THEN_CLEAN = Text(
    "the file system of its working directory hangs; check it on the node, then run clean again",
    "节点工作目录所在的文件系统卡住；请在节点上检查，然后重新清理",
)
SLOW_NODE = Text(
    "check whether its disk or file system is slow, or its memory full: run `import torch` on the node by hand",
    "检查节点的磁盘或文件系统是否很慢、内存是否已满：在节点上手工执行 `import torch`",
)
RUN_TOGETHER = Text(
    "read the log of a rank: it may report that GPUs are missing. Lightning needs `devices`, `num_nodes` and `strategy`; accelerate, TRL and DeepSpeed need torchrun (`script:` or `module:`) or the numbers of machines and processes; a script of your own needs `init_process_group`. If each rank is to work alone, write `alone: ok` in the job",
    "查看某个 rank 的日志：它可能报告缺少 GPU。Lightning 需要 `devices`、`num_nodes` 和 `strategy`；accelerate、TRL 和 DeepSpeed 需要由 torchrun 启动（`script:` 或 `module:`），或者写明机器数和进程数；自己的脚本需要 `init_process_group`。如果各 rank 本来就要单独工作，在作业里写 `alone: ok`",
)
PASS_THE_RANK = Text(
    "pass ${node_rank}, ${nnodes} and ${master_addr} to it, or use `launcher: torchrun` to start the workers",
    "把 ${node_rank}、${nnodes} 和 ${master_addr} 传给它，或者用 `launcher: torchrun` 启动 worker",
)
TRIED_AGAIN = Text(
    "{command} tries again; the result of the run does not change", "{command} 会重试；任务的最终结果不变"
)
NOT_SENT = Text("not sent: {notification}: {problem}", "未发送：{notification}：{problem}")
EXIT_1 = Text("Exit code 1", "退出码 1")
SESSION_CLOSED = Text("the node closed the session", "节点关闭了会话")

ENTRIES: Mapping[str, Entry] = {
    "CC-SYNC-001": Entry(
        "error",
        Text(
            "the source directory is wrong: missing, not a directory, `/`, or a whole home directory",
            "代码目录有误：不存在、不是目录，或者是 `/` 或整个主目录",
        ),
        do=Text(
            "Set `sync: {source: ...}` to the folder with the script",
            "把 `sync: {source: ...}` 设为脚本所在的目录",
        ),
        cases={
            "": Case(
                Text(
                    "the source directory {source} cannot be used: {reason}",
                    "源目录 {source} 无法使用：{reason}",
                ),
                SET_SOURCE,
            ),
            "no-directory": Case(
                Text("the source {source} is not a directory", "{source} 不是目录"),
                SET_SOURCE,
            ),
            "root": Case(
                Text(
                    "the source is the root of the file system; it would be sent to every node",
                    "源目录是文件系统的根目录；它会被发送到所有节点",
                ),
                SET_SOURCE,
            ),
            "home": Case(
                Text(
                    "the source {source} is a whole home directory; it would be sent to every node",
                    "源目录 {source} 是整个主目录；它会被发送到所有节点",
                ),
                SET_SOURCE,
            ),
        },
    ),
    "CC-SYNC-002": Entry(
        "error",
        Text(
            "the source is larger than 500 MB or 50 000 files; the largest parts are listed, and `--big` sends it anyway",
            "代码目录超过 500 MB 或 50 000 个文件；会列出最大的部分，加 `--big` 仍然发送",
        ),
        do=Text(
            "Use `.gitignore` or `sync: {exclude: [data/]}`; `--big` sends it anyway",
            "使用 `.gitignore` 或 `sync: {exclude: [data/]}`；加 `--big` 仍然发送",
        ),
        cases={
            "files": Case(
                Text(
                    "the source tree has {count} files; at most {most} can be sent",
                    "源目录有 {count} 个文件，最多能发送 {most} 个",
                ),
                Text(
                    "pack them into archives, or copy them to the nodes by other means",
                    "打包成归档文件，或者用其他方式传到节点",
                ),
            ),
            "": Case(
                Text(
                    "the source tree has {amount}, the limit is {limit}; largest: {largest}",
                    "源目录有 {amount}，上限是 {limit}；最大的是：{largest}",
                ),
                EXCLUDE_DATA,
            ),
            "incomplete": Case(
                Text(
                    "the source tree has at least {amount}, the limit is {limit}; largest: {largest}",
                    "源目录至少有 {amount}，上限是 {limit}；最大的是：{largest}",
                ),
                EXCLUDE_DATA,
            ),
        },
    ),
    "CC-SYNC-003": Entry(
        "error",
        Text(
            "the code on a node differs from the local code; nothing was started",
            "节点上的代码与本机不一致；没有启动任何程序",
        ),
        do=Text("Launch again; if it happens again, report it", "重新启动；如果再次出现，请报告"),
        cases={
            "": Case(
                Text(
                    "the code on the node differs from the local code in: {paths}",
                    "节点上的代码与本机不一致；不同的文件：{paths}",
                ),
                WRITES_ARE_LOST,
            ),
            "unknown": Case(
                Text("the code on the node differs from the local code", "节点上的代码与本机不一致"),
                WRITES_ARE_LOST,
            ),
        },
    ),
    "CC-SYNC-004": Entry(
        "error",
        Text("a file name in the source is not UTF-8", "代码目录中有文件名不是 UTF-8"),
        do=Text("Rename the file", "重命名该文件"),
        cases={
            "": Case(
                Text(
                    "a file name in the source tree is not UTF-8: {shown}",
                    "源目录中有文件名不是 UTF-8：{shown}",
                ),
                Text(
                    "rename it, or list it in .gitignore or sync.exclude if the job does not need it",
                    "重命名它；如果作业不需要它，写进 .gitignore 或 sync.exclude",
                ),
            ),
        },
    ),
    "CC-SYNC-005": Entry(
        "error",
        Text("a file of the source cannot be read", "代码目录中有文件无法读取"),
        do=Text("Change the file's permissions, or exclude it", "修改该文件的权限，或者排除它"),
        cases={
            "": Case(
                Text(
                    "cannot read {path} in the source tree: {reason}", "无法读取源目录里的 {path}：{reason}"
                ),
                Text(
                    "make it readable, or list it in .gitignore or sync.exclude if the job does not need it",
                    "给它读权限；如果作业不需要它，写进 .gitignore 或 sync.exclude",
                ),
            ),
        },
    ),
    "CC-SYNC-006": Entry(
        "error",
        Text(
            "a file changed while it was read or sent: launch again", "读取或发送期间有文件被修改：请重新启动"
        ),
        do=Text("Launch again when no program writes into the source", "等没有程序写入代码目录时重新启动"),
        cases={
            "": Case(
                Text("{path} changed while it was being read", "{path} 在读取过程中发生了变化"),
                Text(
                    "wait until the program that writes it has finished, then launch again; if it is a log or an output, exclude it",
                    "等写入它的程序结束后重新启动；如果是日志或输出文件，请排除它",
                ),
            ),
        },
    ),
    "CC-SYNC-007": Entry(
        "error",
        Text(
            "the node received a malformed request: different versions, or a bug",
            "发给节点的请求格式错误：两端版本不同，或者是 bug",
        ),
        do=Text(
            "Use the same version on both sides: launch again; if it happens again, report it",
            "两端使用相同的版本：重新启动；如果再次出现，请报告",
        ),
    ),
    "CC-SYNC-008": Entry(
        "error",
        Text("the transfer was interrupted", "传输中断"),
        do=Text(
            "Launch again: it continues after the last complete file",
            "重新启动：会从上一个完整的文件之后继续传输",
        ),
        cases={
            "closed": Case(
                Text("the node closed the connection during the sync", "同步过程中节点断开了连接")
            ),
            "answer": Case(
                Text("the node's reply is invalid", "节点返回的内容无效"),
                Text("launch again; if it happens again, please report it", "重新启动；如果再次出现，请报告"),
            ),
        },
    ),
    "CC-SYNC-009": Entry(
        "error",
        Text("a file was corrupted in transfer", "文件在传输中损坏"),
        do=Text(
            "Launch again; if it happens again, memory or disk of the node is faulty",
            "重新启动；如果再次出现，说明节点的内存或磁盘有故障",
        ),
    ),
    "CC-SYNC-010": Entry(
        "error",
        Text("the job's `script` is not among the files that are sent", "作业的 `script` 不在要发送的文件里"),
        do=Text(
            'Check whether `.gitignore` or `exclude` ignores it; `"!name"` keeps it',
            '检查它是否被 `.gitignore` 或 `exclude` 排除；写 `"!name"` 可以保留它',
        ),
        cases={
            "program": Case(
                Text(
                    "{file}: {program} is not in the code that is sent from {root}",
                    "{file}：从 {root} 发送的代码里没有 {program}",
                ),
                Text(
                    "the command runs in the copy of sync.source; check whether .gitignore or sync.exclude excludes it",
                    "命令在 sync.source 的副本里执行；检查它是否被 .gitignore 或 sync.exclude 排除",
                ),
            ),
            "script": Case(
                Text(
                    "{file}: script: {script} not found in {root}", "{file}：script：{root} 中没有 {script}"
                ),
                Text(
                    "give the path of the script relative to sync.source",
                    "请写脚本相对于 sync.source 的路径",
                ),
            ),
            "script-near": Case(
                Text(
                    "{file}: script: {script} not found in {root}; there is {guess}",
                    "{file}：script：{root} 中没有 {script}，有 {guess}",
                ),
                Text(
                    "set `script: {guess}`, or another path relative to sync.source",
                    "写 `script: {guess}`，或者其他相对于 sync.source 的路径",
                ),
            ),
            "script-excluded": Case(
                Text(
                    "{file}: script: {script} is in {root} but is not sent",
                    "{file}：script：{root} 中有 {script}，但不在发送范围内",
                ),
                Text(
                    'it is excluded by .gitignore or sync.exclude; to send it: `sync: {exclude: ["!{script}"]}`',
                    '它被 .gitignore 或 sync.exclude 排除；要发送它，写 `sync: {exclude: ["!{script}"]}`',
                ),
            ),
        },
    ),
    "CC-SYNC-011": Entry(
        "error",
        Text("the run's `code/` already exists with other content", "任务的 `code/` 已存在，且内容不同"),
        do=Text("Launch again: each run has its own directory", "重新启动：每个任务都有自己的目录"),
    ),
    "CC-SYNC-012": Entry(
        "error",
        STUCK,
        do=Text(
            "Run `findmnt` and `dmesg` on the node; set another `workdir:`",
            "在节点上执行 `findmnt`、`dmesg`；换一个 `workdir:`",
        ),
        cases={
            "": Case(
                NO_PROGRESS,
                CHECK_WORKDIR_OR_CHANGE_IT,
            ),
            "unanswered": Case(
                NO_RESULT,
                CHECK_WORKDIR_OR_CHANGE_IT,
            ),
        },
    ),
    "CC-SYNC-013": Entry(
        "error",
        Text(
            "a `.gitignore` or `sync.exclude` has too many rules, or a rule that is too long",
            "`.gitignore` 或 `sync.exclude` 的规则过多，或者某条规则过长",
        ),
        do=Text(
            "Ignore a directory with one rule instead of each file with its own",
            "用一条规则忽略整个目录，不要逐个文件写",
        ),
        cases={
            "file": Case(
                Text("{file} is larger than {mib} MiB", "{file} 超过 {mib} MiB"),
                SHORTEN_RULES,
            ),
            "rules": Case(
                Text(
                    "{count} ignore rules apply at {file}, more than {most}",
                    "{file} 处有 {count} 条忽略规则生效，超过 {most}",
                ),
                SHORTEN_RULES,
            ),
            "rule": Case(
                Text(
                    "the ignore rule at {location} is longer than {most} bytes",
                    "{location} 处的忽略规则超过 {most} 字节",
                ),
                SHORTEN_RULES,
            ),
        },
    ),
    "CC-RUN-001": Entry(
        "error",
        Text("a bug in clusterctl, in the work for one node", "clusterctl 在处理某个节点时出现 bug"),
        what=Text("Please report it", "请报告"),
        do=Text(
            "The message shows the path of a file: please report it",
            "报错里有一个文件的路径：请连同它一起报告",
        ),
        cases={
            "": Case(
                same("{kind}: {failure}"),
                Text(
                    "this is a bug in clusterctl: please report it together with the text above",
                    "这是 clusterctl 的 bug：请连同上面的内容一起报告",
                ),
            ),
        },
    ),
    "CC-RUN-002": Entry(
        "error",
        Text("a step failed on a node with an unexpected error", "某个步骤在节点上出现意外错误"),
        do=Text("The evidence is the node's own error; try again", "显示的是节点返回的报错；请重试"),
    ),
    "CC-RUN-003": Entry(
        "error",
        Text(
            "the process of a step died on a node while the connection was open, possibly because memory ran out",
            "连接未断，但节点上执行该步骤的进程异常退出，可能是内存不足",
        ),
        do=Text("Check the node's memory: `free -h`, `dmesg`", "检查节点的内存：`free -h`、`dmesg`"),
        cases={
            "": Case(
                Text(
                    "`{verb}` {status} on the node, without a result",
                    "`{verb}` 在节点上 {status}，没有返回结果",
                ),
                Text(
                    "it was killed, possibly because memory ran out: check `dmesg` on the node",
                    "进程被终止，可能是内存不足：查看节点上的 `dmesg`",
                ),
            ),
            "ended": Case(SESSION_CLOSED),
        },
    ),
    "CC-RUN-004": Entry(
        "error",
        Text("data from a node is invalid", "节点发来的数据无效"),
        do=Text(
            "Check whether a startup file prints to standard output; otherwise report it",
            "检查是否有启动文件向标准输出打印内容；否则请报告",
        ),
        cases={
            "": Case(
                Text("the data from the node is invalid", "节点发来的数据无效"),
                Text("please report this", "请报告这个问题"),
            ),
            "unsolicited": Case(
                Text(
                    "`{verb}` sends data without a request and does not read",
                    "`{verb}` 未经请求就发送数据，而且不读取",
                ),
                Text("please report this", "请报告这个问题"),
            ),
        },
    ),
    "CC-RUN-010": Entry(
        "error",
        Text("a name cannot be used on a node", "名称无法在节点上使用"),
        do=Text("Choose another name for the job or node", "给作业或节点换一个名称"),
    ),
    "CC-RUN-011": Entry(
        "error",
        Text("the node does not have this run, or no longer has it", "节点上没有该任务（或已被清理）"),
        do=Text(
            "`clusterctl ps` lists the runs; `clean` may have removed it",
            "用 `clusterctl ps` 列出任务；它可能已被 `clean` 删除",
        ),
    ),
    "CC-RUN-012": Entry(
        "error",
        Text(
            "the code of clusterctl itself was corrupted in transfer to the node",
            "clusterctl 自身的代码在传到节点时损坏",
        ),
        do=Text(
            "Launch again; if it happens again, check the node's memory and disk",
            "重新启动；如果再次出现，检查节点的内存和磁盘",
        ),
    ),
    "CC-RUN-013": Entry(
        "error",
        Text("this run was already started on this node", "该任务已在这个节点上启动过"),
        do=Text("Launch again: the run gets a new name", "重新启动：任务会有新的名称"),
    ),
    "CC-RUN-014": Entry(
        "error",
        Text("the agent on the node exited unexpectedly", "节点上的 agent 意外退出"),
        do=Text("Its last output is shown; check the node's memory", "查看它最后的输出；检查节点的内存"),
    ),
    "CC-RUN-015": Entry(
        "error",
        Text(
            "this part of the run is on another machine: the nodes share a home directory, and the inventory's node names differ from those at the launch",
            "任务的这一部分在另一台机器上：各节点共用主目录，而 inventory 里的节点名与启动时不同",
        ),
        do=Text("Give the machines the same names as at the launch", "inventory 里的节点名要与启动时一致"),
    ),
    "CC-RUN-018": Entry(
        "error",
        Text(
            "the run belongs to another account of the node, and only that account can stop it; nothing was changed (exit code 5)",
            "任务属于节点上的另一个账号，只有该账号能停止它；没有改动任何内容（退出码 5）",
        ),
        do=Text(
            "Log in as that account and stop it there, or ask its owner to do so",
            "用该账号登录后停止，或者请其所有者停止",
        ),
        cases={
            "": Case(
                Text(
                    "the run belongs to the account {account}; nothing was changed",
                    "任务属于账号 {account}；没有改动任何内容",
                ),
                Text(
                    "stop it as {account}: set `user: {account}` in an inventory, or ask its owner to stop it",
                    "以 {account} 的身份停止它：在 inventory 里设置 `user: {account}`，或者请其所有者停止",
                ),
            ),
        },
    ),
    "CC-RUN-030": Entry(
        "error",
        Text(
            "the job's Python on the node cannot import torchrun", "节点上作业所用的 Python 无法导入 torchrun"
        ),
        do=Text(
            "Run `clusterctl check job.yaml`; set the right `python:`",
            "执行 `clusterctl check job.yaml`；把 `python:` 设为正确的解释器",
        ),
        cases={
            "environment": Case(
                Text("torchrun cannot be imported on the node", "节点上无法导入 torchrun"),
                Text(
                    "add torch to what `setup` installs, or set `system_site_packages: true` to use the node's torch",
                    "让 `setup` 安装 torch，或者设置 `system_site_packages: true` 以使用节点上的 torch",
                ),
            ),
            "": Case(
                Text("torchrun cannot be imported on the node", "节点上无法导入 torchrun"),
                Text(
                    "make `import torch.distributed.run` work in that Python; `clusterctl check` shows which one it is",
                    "使该 Python 能执行 `import torch.distributed.run`；`clusterctl check` 会显示是哪个 Python",
                ),
            ),
        },
    ),
    "CC-RUN-031": Entry(
        "error",
        Text("the run did not start; the agent reports the reason", "任务没有启动；会列出 agent 报告的原因"),
        do=Text("The agent's reason is shown: fix that", "显示了 agent 报告的原因：先解决它"),
        cases={
            "": Case(Text("the run did not start", "任务没有启动")),
        },
    ),
    "CC-RUN-032": Entry(
        "error",
        SESSION_CLOSED,
        do=Text(
            "Run `clusterctl status`; check whether the agent was killed, or the node ran out of memory",
            "执行 `clusterctl status`；检查 agent 是否被终止，或者节点内存不足",
        ),
        cases={
            "": Case(SESSION_CLOSED),
        },
    ),
    "CC-RUN-033": Entry(
        "error",
        Text("node 0 reported no port for the rendezvous", "0 号节点没有返回 rendezvous 端口"),
        do=Text("Check `ports:` of node 0; launch again", "检查 0 号节点的 `ports:`；重新启动"),
        cases={
            "": Case(Text("the master reported no port", "主节点没有返回端口")),
        },
    ),
    "CC-RUN-034": Entry(
        "error",
        Text(
            "a node took too long to get ready: a slow disk, or memory is full",
            "节点准备时间过长：磁盘慢，或者内存已满",
        ),
        do=Text(
            "Its disk is slow or its memory is full: run `import torch` on the node by hand",
            "该节点磁盘慢或内存已满：在节点上手工执行 `import torch`",
        ),
        cases={
            "": Case(
                Text(
                    "the node did not report {event!r} within {limit:.0f} s",
                    "节点在 {limit:.0f} 秒内没有返回 {event!r}",
                ),
                SLOW_NODE,
            ),
            "import": Case(
                Text("torchrun was not imported within {limit:.0f} s", "{limit:.0f} 秒内没有导入 torchrun"),
                SLOW_NODE,
            ),
        },
    ),
    "CC-RUN-035": Entry(
        "error",
        Text("a node sent invalid data while the run was followed", "持续显示任务期间，节点发来的数据无效"),
        do=Text(
            "Run `clusterctl attach` again; if it happens again, report it",
            "再次执行 `clusterctl attach`；如果再次出现，请报告",
        ),
        cases={
            "port": Case(Text("the node reported no port", "节点没有返回端口")),
            "": Case(Text("the node sent invalid data: {reason}", "节点发来的数据无效：{reason}")),
        },
    ),
    "CC-RUN-036": Entry(
        "error",
        Text(
            "a process of the run has replaced its log by something that is not a file; that log is not read",
            "任务的进程用不是文件的东西替换了自己的日志；不读取这个日志",
        ),
        do=Text(
            "Look at what the script does to its own output; the other logs are complete",
            "检查脚本对自己的输出做了什么；其他日志是完整的",
        ),
        cases={
            "": Case(
                Text(
                    "{file} is a {kind} and not a file any more: it was replaced on the node, and is not read",
                    "{file} 是{kind}，已经不是文件：它在节点上被替换，不会读取",
                ),
            ),
        },
    ),
    "CC-RUN-037": Entry(
        "error",
        Text(
            "a node's stream breaks again and again without anything new",
            "节点的数据流一再中断，而且没有任何新内容",
        ),
        do=Text(
            "Look at the processes of the node: `clusterctl exec --nodes NODE -- ps x`; the run itself goes on",
            "检查节点上的进程：`clusterctl exec --nodes NODE -- ps x`；任务本身会继续",
        ),
        cases={
            "": Case(
                Text(
                    "the stream broke {count} times in a row without anything new",
                    "数据流连续 {count} 次中断，没有任何新内容",
                ),
            ),
        },
    ),
    "CC-RUN-040": Entry(
        "error",
        Text(
            "another run uses the GPUs or the node that this one needs; its name is shown, and nothing was started (exit code 3); [`launch --wait`](../sharing.md#gpus-that-others-use) waits",
            "需要的 GPU 或节点正被另一个任务使用；会列出其名称，没有启动任何程序（退出码 3）；加 [`launch --wait`](../../en/sharing.md#gpus-that-others-use) 则会等待",
        ),
        do=Text(
            "Use `clusterctl launch --wait`, other `gpus:` or other nodes",
            "用 `clusterctl launch --wait` 等待，或者换 `gpus:`、换节点",
        ),
        cases={
            "": Case(
                Text(
                    "another run uses the GPUs or nodes that this one needs",
                    "该任务需要的 GPU 或节点正被另一个任务使用",
                ),
                Text(
                    "`clusterctl launch --wait` waits until they are free; or use other GPUs (`gpus:`) or nodes (--exclude)",
                    "`clusterctl launch --wait` 会等到空闲；或者换 GPU（`gpus:`）、换节点（--exclude）",
                ),
            ),
        },
    ),
    "CC-RUN-050": Entry(
        "warning",
        Text("all nodes would start the same process", "各节点会启动相同的进程"),
        why=Text(
            "Each node may train on its own.",
            "各节点可能各自训练。",
        ),
        what=Text(
            "`launcher: python` and `command` start one process on each node. Neither the job nor the files that it runs use a placeholder such as `${node_rank}`, or one of the variables NODE_RANK, NNODES, MASTER_ADDR, RANK, so nothing shows how the processes find each other.",
            "`launcher: python` 和 `command` 在每个节点上启动一个进程。作业和它运行的文件都没有使用 `${node_rank}` 之类的占位符，也没有使用 NODE_RANK、NNODES、MASTER_ADDR、RANK 等变量，看不出各进程如何找到对方。",
        ),
        do=Text(
            "Use `${node_rank}`, `${nnodes}`, `${master_addr}` in `args` or `command`; or `launcher: torchrun`",
            "在 `args` 或 `command` 里使用 `${node_rank}`、`${nnodes}`、`${master_addr}`；或者用 `launcher: torchrun`",
        ),
        cases={
            "": Case(fix=PASS_THE_RANK),
            "args": Case(fix=Text("in the job: {line}", "写进作业：{line}")),
            "spawn": Case(
                fix=Text(
                    'at the start of the worker function in the script: rank += int(os.environ["NODE_RANK"]) * int(os.environ["NPROC_PER_NODE"]); world_size = int(os.environ["NNODES"]) * int(os.environ["NPROC_PER_NODE"])',
                    '在脚本的 worker 函数开头写：rank += int(os.environ["NODE_RANK"]) * int(os.environ["NPROC_PER_NODE"]); world_size = int(os.environ["NNODES"]) * int(os.environ["NPROC_PER_NODE"])',
                )
            ),
        },
    ),
    "CC-RUN-051": Entry(
        "warning",
        Text(
            "workers started by your program have another WORLD_SIZE than planned; a warning, [where that can be seen](../job.md#other-launchers-mpspawn-torchdistributedlaunch-ray-mpi)",
            "由你的程序启动的 worker，WORLD_SIZE 与计划不一致；这是警告，[可检测的情况](../../en/job.md#other-launchers-mpspawn-torchdistributedlaunch-ray-mpi)",
        ),
        do=Text(
            "With a nested torchrun or accelerate, pass it `${nnodes}`, `${node_rank}`, `${master_addr}`, `${master_port}`",
            "给内层的 torchrun 或 accelerate 传入 `${nnodes}`、`${node_rank}`、`${master_addr}`、`${master_port}`",
        ),
        cases={
            "": Case(
                Text(
                    "workers run with WORLD_SIZE {observed}, planned is {planned}: they do not train together as the job requires",
                    "worker 的 WORLD_SIZE 是 {observed}，计划是 {planned}：它们没有按作业的要求一起训练",
                ),
                PASS_THE_RANK,
            ),
        },
    ),
    "CC-RUN-052": Entry(
        "warning",
        Text(
            "the job's module is in src/, where Python does not look",
            "作业的模块在 src/ 里，而 Python 不会在那里查找",
        ),
        why=Text(
            "Python finds the module only if the package is installed on the nodes.",
            "只有在节点上安装了该包时，Python 才能找到这个模块。",
        ),
        what=Text(
            "`module:` is imported from the folder of the code, which is the working directory; a package below `src/` is not found from there.",
            "`module:` 从代码所在的目录（即工作目录）导入；从那里找不到 `src/` 下的包。",
        ),
        do=Text(
            "Set `env: {PYTHONPATH: src}`; ignore it if the package is installed on the nodes",
            "设置 `env: {PYTHONPATH: src}`；如果节点上已安装该包，可以忽略",
        ),
        cases={
            "": Case(
                fix=Text(
                    "set `env: {PYTHONPATH: src}`, unless the package is installed on the nodes",
                    "设置 `env: {PYTHONPATH: src}`；如果节点上已安装该包，则不需要",
                ),
            ),
        },
    ),
    "CC-RUN-053": Entry(
        "error",
        Text(
            "all ranks ended with exit code 0, but formed no process group of the planned size",
            "所有 rank 的退出码都是 0，但没有形成计划大小的进程组",
        ),
        what=Text(
            "Every rank reports that it was never in a process group of the planned number of ranks. So each has trained a model of its own, or has done nothing.",
            "所有 rank 都报告自己从未加入过计划大小的进程组。也就是说，每个 rank 各训练了一个模型，或者什么都没做。",
        ),
        do=Text(
            "Give the program the numbers of nodes and processes, start it by torchrun, or call `init_process_group`; if each rank is to work alone, `alone: ok` in the job",
            "把节点数和进程数传给程序，用 torchrun 启动它，或者调用 `init_process_group`；如果各 rank 本来就要单独工作，在作业里写 `alone: ok`",
        ),
        cases={
            "": Case(
                Text(
                    "{ranks} ranks ran alone: all ended with exit code 0, and were in no process group of {planned}",
                    "{ranks} 个 rank 各自单独运行：退出码都是 0，但没有加入过 {planned} 个 rank 的进程组",
                ),
                RUN_TOGETHER,
            ),
            "groups": Case(
                Text(
                    "the {ranks} ranks formed process groups of {largest}, {planned} were planned; all ended with exit code 0",
                    "{ranks} 个 rank 形成的进程组大小为 {largest}，计划为 {planned}；退出码都是 0",
                ),
                RUN_TOGETHER,
            ),
            "suspected": Case(
                Text(
                    "the ranks of the {planned} nodes may have run alone: nothing distinguishes the nodes, and no process group of all of them was seen",
                    "{planned} 个节点上的 rank 可能各自单独运行：没有任何内容用来区分各节点，也没有检测到包含所有节点的进程组",
                ),
                PASS_THE_RANK,
            ),
        },
    ),
    "CC-END-001": Entry(
        "error",
        Text(
            "the command of `on_end` cannot be run, failed, or exceeded its `time_limit`",
            "`on_end` 的命令无法执行、失败，或者超过了它的 `time_limit`",
        ),
        do=Text(
            "Run the command by hand; check whether it is executable (`chmod +x`)",
            "手工执行该命令；检查它是否有可执行权限（`chmod +x`）",
        ),
        cases={
            "": Case(
                Text("on_end: {program} {problem}", "on_end：{program} {problem}"),
                Text(
                    "run it by hand; the result of the run does not change", "手工执行它；任务的最终结果不变"
                ),
            ),
        },
    ),
    "CC-END-002": Entry(
        "error",
        Text(
            "a notification could not be sent; the service's response is shown, and the next `attach` tries again",
            "有通知发送失败；会列出服务端的响应，下次 `attach` 会重试",
        ),
        do=Text(
            "The service's response is shown; `clusterctl attach RUN` tries again",
            "显示了服务端的响应；`clusterctl attach RUN` 会重试",
        ),
        cases={
            "not-sent": Case(
                NOT_SENT,
                TRIED_AGAIN,
            ),
        },
    ),
    "CC-END-003": Entry(
        "error",
        Text(
            "the variable for a URL or a signing secret is not set on this machine, or its URL cannot be used",
            "本机没有设置保存 URL 或签名密钥的变量，或者其中的 URL 无法使用",
        ),
        what=Text("Exit code 2 if it stops a launch", "如果因此停止启动，退出码为 2"),
        do=Text("Export the variable with an `https://` URL", "export 该变量，值为 `https://` 开头的 URL"),
        cases={
            "": Case(
                Text("notify: {fault}", "notify：{fault}"),
                Text(
                    "export it before `launch`, or remove the entry",
                    "在 `launch` 之前 export 它，或者删除这一项",
                ),
            ),
            "not-sent": Case(
                NOT_SENT,
                TRIED_AGAIN,
            ),
        },
    ),
    "CC-PULL-001": Entry(
        "error",
        Text(
            "a node has more than 100 000 files or 100 GiB to download; `--no-limit` downloads them",
            "某个节点要下载的内容超过 100 000 个文件或 100 GiB；加 `--no-limit` 仍然下载",
        ),
        do=Text(
            "Use `--no-limit`, or write fewer files to `${output_dir}`",
            "加 `--no-limit`，或者减少 `${output_dir}` 里的文件",
        ),
        cases={
            "": Case(
                Text("{excess} to download", "需要下载 {excess}"),
                Text("--no-limit downloads them anyway", "加 --no-limit 仍然下载"),
            ),
            "total": Case(
                Text("{gib} GiB to download, more than {most}", "需要下载 {gib} GiB，超过 {most}"),
                Text("--no-limit downloads them anyway", "加 --no-limit 仍然下载"),
            ),
        },
    ),
    "CC-PULL-002": Entry(
        "error",
        Text(
            "the local disk is full, or has too little space; downloaded files stay, and the next `pull` continues",
            "本机磁盘已满或空间不足；已下载的文件会保留，下次 `pull` 继续下载",
        ),
        what=EXIT_1,
        do=Text(
            "Free space on this machine, then `pull` again: it continues",
            "在本机腾出空间后再执行 `pull`，会继续下载",
        ),
        cases={
            "write": Case(
                Text("cannot write below {path}: {reason}", "无法写入 {path}：{reason}"),
                Text(
                    "free some space and pull again: downloaded files stay, and the rest continues where it stopped",
                    "腾出空间后再次 pull：已下载的文件会保留，其余从中断处继续",
                ),
            ),
            "room": Case(
                Text(
                    "{size} to download, {missing} more than is free at {folder}",
                    "需要下载 {size}，比 {folder} 的剩余空间多 {missing}",
                ),
                Text("free some space, or give a DIR on another disk", "腾出空间，或者使用其他磁盘上的 DIR"),
            ),
            "interrupted": Case(Text("interrupted", "已中断")),
        },
    ),
    "CC-PULL-003": Entry(
        "error",
        Text(
            "a node sends other data than announced, or closed the connection; no incomplete file got its final name",
            "节点发来的内容与声明的不一致，或者断开了连接；不完整的文件不会使用最终文件名",
        ),
        do=Text("Run `pull` again", "再次执行 `pull`"),
        cases={
            "": Case(Text("the node sent other data than announced", "节点发来的内容与它声明的不一致")),
            "closed": Case(Text("the node closed the connection", "节点断开了连接")),
        },
    ),
    "CC-PULL-004": Entry(
        "error",
        Text("the local directory cannot be used", "本机的目录无法使用"),
        what=EXIT_1,
        do=Text("Check path and permissions of the local directory", "检查本机目录的路径和权限"),
        cases={
            "": Case(
                Text("{name}: {reason}", "{name}：{reason}"),
                Text("give a directory that you may write to", "换一个有写权限的目录"),
            ),
        },
    ),
    "CC-PULL-005": Entry(
        "error",
        Text(
            "not the name of a job, or of a run whose job is known: use `--job`",
            "这不是作业名，也无法从该任务确定作业名：请用 `--job`",
        ),
        do=Text("Use `pull --job NAME`", "使用 `pull --job NAME`"),
        cases={
            "": Case(
                Text("{job!r} is not the name of a job", "{job!r} 不是作业名"),
                Text("the name is in the job file: `name:`", "作业名是作业文件里的 `name:`"),
            ),
        },
    ),
    "CC-PULL-006": Entry(
        "error",
        STUCK,
        do=Text("Run `findmnt` and `dmesg` on the node", "在节点上执行 `findmnt`、`dmesg`"),
        cases={
            "": Case(
                NO_PROGRESS,
                CHECK_WORKDIR,
            ),
            "unanswered": Case(
                NO_RESULT,
                CHECK_WORKDIR,
            ),
            "slow": Case(
                Text(
                    "it sends less than {rate} bytes per second; the download from it was ended",
                    "它每秒发送不到 {rate} 字节，已停止从它下载",
                ),
                Text(
                    "check its network and its disks; the same command again continues where it stopped",
                    "检查它的网络和磁盘；再次执行同一条命令会从中断处继续",
                ),
            ),
        },
    ),
    "CC-PULL-007": Entry(
        "error",
        Text("another `pull` is writing into the same directory", "另一个 `pull` 正在写入同一个目录"),
        what=EXIT_1,
        do=Text("Wait for it, or use another directory", "等它结束，或者换一个目录"),
        cases={
            "": Case(
                Text("another pull is writing below {target}", "另一个 pull 正在写入 {target}"),
                Text(
                    "wait until it ends, and pull again; or give another DIR",
                    "等它结束后再次 pull，或者换一个 DIR",
                ),
            ),
        },
    ),
    "CC-PULL-008": Entry(
        "error",
        Text("no node has outputs of the job in `--job`", "没有节点有 `--job` 指定的作业的输出"),
        do=Text(
            "`clusterctl ps` shows the names of jobs: check the spelling",
            "用 `clusterctl ps` 查看作业名，检查拼写",
        ),
        cases={
            "": Case(
                Text("no node has outputs of job {job!r}", "没有节点有作业 {job!r} 的输出"),
                Text(
                    "see `clusterctl ps`: the name of a run is JOB-TIME-NUMBER",
                    "见 `clusterctl ps`：任务的名称为 JOB-TIME-NUMBER",
                ),
            ),
        },
    ),
    "CC-COPY-001": Entry(
        "error",
        Text(
            "`cp` needs a source and a destination, one of them on a node",
            "`cp` 需要源和目标，其中之一在节点上",
        ),
        do=Text(
            "Write `NODE:PATH` for a path on a node: `clusterctl cp gpu01:ckpt/last.pt .`",
            "节点上的路径写成 `NODE:PATH`：`clusterctl cp gpu01:ckpt/last.pt .`",
        ),
        cases={
            "one": Case(
                Text("cp needs a source and a destination", "cp 需要源和目标"),
                Text(
                    "add the destination: `clusterctl cp gpu01:FILE .`",
                    "加上目标：`clusterctl cp gpu01:FILE .`",
                ),
            ),
            "local": Case(
                Text(
                    "sources and destination are all on this machine: {target}",
                    "源和目标都在本机上：{target}",
                ),
                Text(
                    "write NODE:PATH for a path on a node; a local path with a colon needs a slash before it: ./a:b",
                    "节点上的路径写成 NODE:PATH；本机路径含有冒号时，冒号前要有斜杠：./a:b",
                ),
            ),
            "mixed": Case(
                Text("some sources are on this machine and some on nodes", "有些源在本机上，有些在节点上"),
                Text("copy them with two commands", "请分成两条命令复制"),
            ),
            "gather-here": Case(
                Text("--gather needs a directory on nodes", "--gather 需要节点上的目录"),
                Text(
                    "write NODES:DIR: `clusterctl cp --gather all:ckpt`",
                    "写成 NODES:DIR：`clusterctl cp --gather all:ckpt`",
                ),
            ),
            "gather": Case(
                Text(
                    "--gather needs several nodes, and only {name} is named",
                    "--gather 需要多个节点，而这里只有 {name}",
                ),
                Text(
                    "name all of them: `clusterctl cp --gather all:ckpt`",
                    "写出所有节点：`clusterctl cp --gather all:ckpt`",
                ),
            ),
        },
    ),
    "CC-COPY-002": Entry(
        "error",
        Text("a file or directory to copy does not exist", "要复制的文件或目录不存在"),
        do=Text(
            "Check the path; on a node a relative one begins in the home directory, with `--run` in the run's working directory",
            "检查路径；节点上的相对路径从主目录开始，用 `--run` 时从任务的工作目录开始",
        ),
        cases={
            "here": Case(Text("{path}: {reason}", "{path}：{reason}"), Text("check the path", "检查路径")),
            "reported": Case(
                same("{message}"),
                Text(
                    "relative paths begin in the home directory, with --run in the run's working directory: see `clusterctl ssh NODE`",
                    "相对路径从主目录开始，用 --run 时从任务的工作目录开始：见 `clusterctl ssh NODE`",
                ),
            ),
        },
    ),
    "CC-COPY-003": Entry(
        "error",
        Text("the destination of a copy is not a directory", "复制的目标不是目录"),
        do=Text(
            "Create the directory, or write a `/` at the end of the destination: it is created then",
            "创建该目录，或者在目标末尾写 `/`：这样会自动创建",
        ),
        cases={
            "here": Case(
                Text("{path} is not a directory", "{path} 不是目录"),
                Text("give a directory as destination", "请给出目录作为目标"),
            ),
            "parent": Case(
                Text("{path} does not exist", "{path} 不存在"),
                Text(
                    "create it, or write a / at the end of the destination: it is created then",
                    "创建它，或者在目标末尾写 /：这样会自动创建",
                ),
            ),
            "reported": Case(
                same("{message}"),
                Text(
                    "create the directory on the node, or write a / at the end of the destination: it is created then",
                    "在节点上创建该目录，或者在目标末尾写 /：这样会自动创建",
                ),
            ),
        },
    ),
    "CC-CLEAN-001": Entry(
        "error",
        Text(
            "the directory lacks the file `id` that marks a working directory of clusterctl; nothing was removed in it",
            "该目录没有标识 clusterctl 工作目录的文件 `id`；没有删除任何内容",
        ),
        do=Text(
            "Check `workdir:`; without the mark nothing is removed",
            "检查 `workdir:`；没有该标识时不删除任何内容",
        ),
    ),
    "CC-CLEAN-002": Entry(
        "error",
        Text(
            "a run cannot be removed now: it is running, may be running elsewhere, or contains files of another account",
            "该任务现在不能删除：正在运行、可能在别处运行，或者含有其他账号的文件",
        ),
        do=Text(
            "`clusterctl stop` it first, or let its owner run `clean`",
            "先 `clusterctl stop`，或者由其所有者执行 `clean`",
        ),
    ),
    "CC-CLEAN-003": Entry(
        "error",
        STUCK,
        do=Text("Run `findmnt` and `dmesg` on the node", "在节点上执行 `findmnt`、`dmesg`"),
        cases={
            "": Case(
                NO_PROGRESS,
                CHECK_WORKDIR_THEN_CLEAN,
            ),
            "unanswered": Case(
                NO_RESULT,
                CHECK_WORKDIR_THEN_CLEAN,
            ),
        },
    ),
}
