"""A run and its results: CC-SYNC, CC-RUN, CC-END, CC-PULL, CC-CLEAN."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-SYNC-001": Entry(
        "error",
        Text(
            "the source cannot be meant: missing, no directory, `/`, or a whole home",
            "代码目录不对：不存在，不是目录，是 `/` 或整个家目录",
        ),
        do=Text(
            "`sync: {source: ...}` of the folder with the script", "`sync: {source: ...}` 写脚本所在的目录"
        ),
        cases={
            "": Case(
                Text(
                    "the source directory {source} cannot be used: {reason}",
                    "源目录 {source} 不能用：{reason}",
                ),
                Text(
                    "set sync: {source: ...} to the directory that holds the code, relative to the job file",
                    "把 sync: {source: ...} 设为代码所在目录，相对于作业文件",
                ),
            ),
            "no-directory": Case(
                Text("the source {source} is not a directory", "{source} 不是目录"),
                Text(
                    "set sync: {source: ...} to the directory that holds the code, relative to the job file",
                    "把 sync: {source: ...} 设为代码所在目录，相对于作业文件",
                ),
            ),
            "root": Case(
                Text(
                    "the source is the root of the file system; it would be sent to every node",
                    "源目录是文件系统的根目录；它会被发送到所有节点",
                ),
                Text(
                    "set sync: {source: ...} to the directory that holds the code, relative to the job file",
                    "把 sync: {source: ...} 设为代码所在目录，相对于作业文件",
                ),
            ),
            "home": Case(
                Text(
                    "the source {source} is a whole home directory; it would be sent to every node",
                    "源目录 {source} 是整个家目录；它会被发送到所有节点",
                ),
                Text(
                    "set sync: {source: ...} to the directory that holds the code, relative to the job file",
                    "把 sync: {source: ...} 设为代码所在目录，相对于作业文件",
                ),
            ),
        },
    ),
    "CC-SYNC-002": Entry(
        "error",
        Text(
            "the source is larger than 500 MB or 50 000 files; the largest parts are named, and `--big` sends it all the same",
            "代码目录超过 500 MB 或 50 000 个文件；会列出最大的部分，`--big` 仍然发送",
        ),
        do=Text(
            "`.gitignore` or `sync: {exclude: [data/]}`; `--big` sends it all the same",
            "写 `.gitignore` 或 `sync: {exclude: [data/]}`；`--big` 表示照样发送",
        ),
        cases={
            "files": Case(
                Text(
                    "the source tree has {count} files, the most that can be sent is {most}",
                    "源目录有 {count} 个文件，最多能发送 {most} 个",
                ),
                Text(
                    "pack them into archives, or bring them to the nodes by other means",
                    "打包成归档文件，或者用其他方式传到节点",
                ),
            ),
            "": Case(
                Text(
                    "the source tree has {amount}, the limit is {limit}; largest: {largest}",
                    "源目录有 {amount}，上限是 {limit}；最大的是：{largest}",
                ),
                Text(
                    "keep what is not code out, here or in .gitignore: sync: {exclude: [{first}]}; `--big` sends it all the same",
                    "把不是代码的内容排除，写在这里或 .gitignore 里：sync: {exclude: [{first}]}；`--big` 则照样发送",
                ),
            ),
            "incomplete": Case(
                Text(
                    "the source tree has at least {amount}, the limit is {limit}; largest: {largest}",
                    "源目录至少有 {amount}，上限是 {limit}；最大的是：{largest}",
                ),
                Text(
                    "keep what is not code out, here or in .gitignore: sync: {exclude: [{first}]}; `--big` sends it all the same",
                    "把不是代码的内容排除，写在这里或 .gitignore 里：sync: {exclude: [{first}]}；`--big` 则照样发送",
                ),
            ),
        },
    ),
    "CC-SYNC-003": Entry(
        "error",
        Text(
            "the code on a node is not the code that is here; nothing was started",
            "节点上的代码与本机不一致；没有启动任何东西",
        ),
        do=Text("Launch again; if it comes back, report it", "再启动一次；反复出现请报告"),
        cases={
            "": Case(
                Text(
                    "the code on the node is not the code that is here; it differs in: {paths}",
                    "节点上的代码与本机不一致；不同的文件：{paths}",
                ),
                Text(
                    "look at the file system of the node's work directory: it does not keep what is written",
                    "检查节点工作目录的文件系统：写入的内容没有保存",
                ),
            ),
            "unknown": Case(
                Text("the code on the node is not the code that is here", "节点上的代码与本机不一致"),
                Text(
                    "look at the file system of the node's work directory: it does not keep what is written",
                    "检查节点工作目录的文件系统：写入的内容没有保存",
                ),
            ),
        },
    ),
    "CC-SYNC-004": Entry(
        "error",
        Text("a name in the source is not UTF-8", "有文件名不是 UTF-8"),
        do=Text("Rename the file", "给文件改名"),
        cases={
            "": Case(
                Text("a name in the source tree is not UTF-8: {shown}", "源目录里有名字不是 UTF-8：{shown}"),
                Text(
                    "rename it, or name it in .gitignore or sync.exclude if the job does not need it",
                    "改名；如果作业不需要它，写进 .gitignore 或 sync.exclude",
                ),
            ),
        },
    ),
    "CC-SYNC-005": Entry(
        "error",
        Text("a file of the source cannot be read", "有文件读不了"),
        do=Text("Permissions of the file, or exclude it", "改权限，或者排除它"),
        cases={
            "": Case(
                Text(
                    "{path} in the source tree cannot be read: {reason}",
                    "无法读取源目录里的 {path}：{reason}",
                ),
                Text(
                    "make it readable, or name it in .gitignore or sync.exclude if the job does not need it",
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
        do=Text("Launch again when nothing writes into the source", "等没有东西再写代码目录时重新启动"),
        cases={
            "": Case(
                Text("{path} changed while it was being read", "{path} 在读取时发生了变化"),
                Text(
                    "let whatever writes it finish, then launch again; exclude it if it is a log or an output",
                    "等写入它的程序结束后再启动；如果是日志或输出文件，把它排除",
                ),
            ),
        },
    ),
    "CC-SYNC-007": Entry(
        "error",
        Text(
            "the node was asked for something malformed: different versions, or a bug",
            "发给节点的请求格式错误：两边版本不同，或者是 bug",
        ),
        do=Text(
            "The same version here and there: launch again; else report it", "再启动一次；反复出现请报告"
        ),
    ),
    "CC-SYNC-008": Entry(
        "error",
        Text("the transfer broke off", "传输中断"),
        do=Text(
            "Launch again: it goes on from the last whole file", "再启动一次，会从上一个完整的文件接着传"
        ),
        cases={
            "closed": Case(Text("the node hung up during the sync", "同步过程中节点断开了连接")),
            "answer": Case(
                Text("the node's answer makes no sense", "节点的返回内容没有意义"),
                Text("launch again; if it stays so, please report it", "重新启动；如果仍然出现，请报告"),
            ),
        },
    ),
    "CC-SYNC-009": Entry(
        "error",
        Text("a content changed on its way", "内容在路上变了"),
        do=Text(
            "Launch again; if it comes back, memory or disk of the node is bad",
            "再启动一次；反复出现就查节点的内存和磁盘",
        ),
    ),
    "CC-SYNC-010": Entry(
        "error",
        Text("the job's `script` is not among the files that are sent", "`script` 不在要发送的文件里"),
        do=Text(
            'Is it ignored by `.gitignore` or `exclude`? `"!name"` keeps it',
            '是不是被 `.gitignore` 或 `exclude` 排除了？写 `"!name"` 保留它',
        ),
        cases={
            "program": Case(
                Text(
                    "{file}: {program} is not in the code that is sent from {root}",
                    "{file}：从 {root} 发送的代码里没有 {program}",
                ),
                Text(
                    "the command runs in the copy of sync.source; is it excluded by .gitignore or sync.exclude?",
                    "命令在 sync.source 的副本里执行；是不是被 .gitignore 或 sync.exclude 排除了？",
                ),
            ),
            "script": Case(
                Text(
                    "{file}: script: {script} not found in {root}", "{file}：script：{root} 中没有 {script}"
                ),
                Text(
                    "give the path of the script relative to sync.source",
                    "写脚本相对于 sync.source 的路径",
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
        Text("the run's `code/` exists already and holds something else", "任务的 `code/` 里已有其他内容"),
        do=Text("Launch again: each run has a directory of its own", "再启动一次，每个任务都有自己的目录"),
    ),
    "CC-SYNC-012": Entry(
        "error",
        Text(
            "nothing moved on the node for a long time: its file system hangs",
            "节点上的操作长时间没有进展：文件系统卡住了",
        ),
        do=Text(
            "`findmnt` and `dmesg` there; another `workdir:`",
            "在节点上看 `findmnt`、`dmesg`；换一个 `workdir:`",
        ),
        cases={
            "": Case(
                Text("nothing moved on the node for {limit:.0f} s", "节点上 {limit:.0f} 秒没有进展"),
                Text(
                    "the file system of the node's work directory hangs; look at it, or set another `workdir`",
                    "节点工作目录所在文件系统卡住了；检查它，或者换一个 `workdir`",
                ),
            ),
            "unanswered": Case(
                Text("no answer came for {limit:.0f} h", "{limit:.0f} 小时内没有返回结果"),
                Text(
                    "the file system of the node's work directory hangs; look at it, or set another `workdir`",
                    "节点工作目录所在文件系统卡住了；检查它，或者换一个 `workdir`",
                ),
            ),
        },
    ),
    "CC-SYNC-013": Entry(
        "error",
        Text(
            "a `.gitignore` or `sync.exclude` has more rules, or a longer one, than any real tree needs: who wrote it?",
            "`.gitignore` 太大，或者其中某条规则太长",
        ),
        do=Text(
            "Ignore a directory by one rule instead of its files by many",
            "用一条规则忽略整个目录，不要逐个文件写",
        ),
        cases={
            "file": Case(
                Text("{file} is larger than {mib} MiB", "{file} 超过 {mib} MiB"),
                Text(
                    "cut it down: ignore a directory by one rule instead of its files by many",
                    "精简规则：用一条规则忽略整个目录，不要逐个文件写",
                ),
            ),
            "rules": Case(
                Text(
                    "{count} ignore rules hold at {file}, more than {most}",
                    "{file} 处有 {count} 条忽略规则，超过 {most}",
                ),
                Text(
                    "cut it down: ignore a directory by one rule instead of its files by many",
                    "精简规则：用一条规则忽略整个目录，不要逐个文件写",
                ),
            ),
            "rule": Case(
                Text(
                    "the ignore rule at {location} is longer than {most} bytes",
                    "{location} 处的忽略规则超过 {most} 字节",
                ),
                Text(
                    "cut it down: ignore a directory by one rule instead of its files by many",
                    "精简规则：用一条规则忽略整个目录，不要逐个文件写",
                ),
            ),
        },
    ),
    "CC-RUN-001": Entry(
        "error",
        Text("a bug in clusterctl, in the work for one node", "处理某个节点时遇到了 clusterctl 自己的 bug"),
        what=Text("Please report it"),
        do=Text("The message names a file: please report it", "报错里写了一个文件，请报告"),
        cases={
            "": Case(
                Text("{kind}: {failure}"),
                Text(
                    "this is a bug in clusterctl: please report it together with the text above",
                    "这是 clusterctl 的 bug：请连同上面的内容一起报告",
                ),
            ),
        },
    ),
    "CC-RUN-002": Entry(
        "error",
        Text("a step failed on a node in a way that nobody foresaw", "某一步在节点上意外失败"),
        do=Text("The evidence is the node's own words; try again", "查看报错里节点返回的内容；再试一次"),
    ),
    "CC-RUN-003": Entry(
        "error",
        Text(
            "a step's process on a node died while the connection lives, perhaps for want of memory",
            "节点上执行该步骤的进程意外退出，可能是内存不足",
        ),
        do=Text("Memory of the node: `free -h`, `dmesg`", "看节点的内存：`free -h`、`dmesg`"),
        cases={
            "": Case(
                Text(
                    "`{verb}` {status} on the node, without an answer",
                    "`{verb}` 在节点上 {status}，没有返回结果",
                ),
                Text(
                    "it was killed, perhaps for want of memory: look at `dmesg` on the node",
                    "进程被杀死，可能是内存不足：查看节点上的 `dmesg`",
                ),
            ),
            "ended": Case(Text("the node ended the conversation", "节点结束了会话")),
        },
    ),
    "CC-RUN-004": Entry(
        "error",
        Text("what a node sent cannot be understood", "无法解析节点发来的内容"),
        do=Text(
            "Does a start-up file print into everything? Else report it", "是不是启动文件乱打印？不是就请报告"
        ),
        cases={
            "": Case(
                Text("what the node sent cannot be understood", "无法解析节点发来的内容"),
                Text("please report this", "请报告这个问题"),
            ),
            "unsolicited": Case(
                Text(
                    "`{verb}` sends without being asked and does not read",
                    "`{verb}` 未经请求就发送数据，而且不读取",
                ),
                Text("please report this", "请报告这个问题"),
            ),
        },
    ),
    "CC-RUN-010": Entry(
        "error",
        Text("a name that cannot be used on a node", "名字在节点上不能用"),
        do=Text("Another name for the job or node", "给作业或节点换个名字"),
    ),
    "CC-RUN-011": Entry(
        "error",
        Text("the node does not have this run, or not any more", "节点上没有这个任务（或已被清理）"),
        do=Text(
            "`clusterctl ps` shows what there is; `clean` may have removed it",
            "`clusterctl ps` 看有哪些；可能被 `clean` 删了",
        ),
    ),
    "CC-RUN-012": Entry(
        "error",
        Text(
            "clusterctl's own part did not arrive on the node as it was sent",
            "clusterctl 自己的部分在路上坏了",
        ),
        do=Text(
            "Launch again; memory or disk of the node, if it comes back",
            "再启动一次；反复出现就查节点的内存和磁盘",
        ),
    ),
    "CC-RUN-013": Entry(
        "error",
        Text("this run was started on this node before", "这个任务在该节点上已经启动过"),
        do=Text("Launch again: it gets a new name", "再启动一次，会有新的名字"),
    ),
    "CC-RUN-014": Entry(
        "error",
        Text("the agent on the node ended before its time", "节点上的 agent 提前退出"),
        do=Text("Its last words are shown; memory of the node", "查看它最后的输出；检查节点的内存"),
    ),
    "CC-RUN-015": Entry(
        "error",
        Text(
            "this part of the run is on another machine: with a home that nodes share, the inventory gives the machines other names than at the launch",
            "run 的这一部分在另一台机器上：节点共用家目录时，inventory 里的节点名与启动时不同",
        ),
        do=Text(
            "Give the machines the names that they had at the launch", "inventory 里的节点名要和启动时一样"
        ),
    ),
    "CC-RUN-018": Entry(
        "error",
        Text(
            "the run lives under another account of the node, which alone can stop it; nothing was touched (exit code 5)",
            "任务属于节点上的另一个账户，只有该账户能停止它；没有改动任何东西（退出码 5）",
        ),
        do=Text(
            "Log in as that account and stop it there, or ask its owner",
            "用那个账户登录后再停，或者请启动它的用户停止",
        ),
        cases={
            "": Case(
                Text(
                    "the run lives under the account {account}, and nothing of it was touched",
                    "run 属于账号 {account}，没有改动任何内容",
                ),
                Text(
                    "stop it as {account}: with `user: {account}` in an inventory, or let its owner do that",
                    "以 {account} 的身份停止它：在 inventory 里写 `user: {account}`，或者由它的所有者停止",
                ),
            ),
        },
    ),
    "CC-RUN-030": Entry(
        "error",
        Text(
            "torchrun cannot be imported by the job's Python on the node",
            "作业的 Python 无法 import torchrun",
        ),
        do=Text(
            "`clusterctl check job.yaml`; the right `python:`",
            "`clusterctl check job.yaml`；`python:` 指到正确的解释器",
        ),
        cases={
            "environment": Case(
                Text("torchrun cannot be loaded there", "节点上无法加载 torchrun"),
                Text(
                    "add torch to what `setup` installs, or `system_site_packages: true` for the torch of the node",
                    "让 `setup` 安装 torch，或者用 `system_site_packages: true` 使用节点上的 torch",
                ),
            ),
            "": Case(
                Text("torchrun cannot be loaded there", "节点上无法加载 torchrun"),
                Text(
                    "make `import torch.distributed.run` work in that Python; `clusterctl check` shows which one it is",
                    "让该 Python 能执行 `import torch.distributed.run`；`clusterctl check` 会显示是哪个 Python",
                ),
            ),
        },
    ),
    "CC-RUN-031": Entry(
        "error",
        Text("the run did not start; the agent's reason is shown", "run 没有启动；会列出 agent 给出的原因"),
        do=Text("The agent's reason is shown: mend that", "显示了 agent 给出的原因：先解决它"),
        cases={
            "": Case(Text("the run did not start", "run 没有启动")),
        },
    ),
    "CC-RUN-032": Entry(
        "error",
        Text("the node ended the conversation", "节点关闭了连接"),
        do=Text(
            "`clusterctl status`; was the agent killed, or the node short of memory?",
            "看 `clusterctl status`；agent 被杀了，还是节点内存不够？",
        ),
        cases={
            "": Case(Text("the node ended the conversation", "节点结束了会话")),
        },
    ),
    "CC-RUN-033": Entry(
        "error",
        Text("node 0 named no port for the rendezvous", "0 号节点没有报出 rendezvous 端口"),
        do=Text("`ports:` of node 0; launch again", "看 0 号节点的 `ports:`；再启动一次"),
        cases={
            "": Case(Text("the master named no port", "主节点没有返回端口")),
        },
    ),
    "CC-RUN-034": Entry(
        "error",
        Text(
            "a node took too long to get ready: a slow disk, a full memory",
            "节点准备的时间过长：磁盘慢，或者内存已满",
        ),
        do=Text(
            "A slow disk or a full memory there: `import torch` by hand",
            "那里磁盘慢或者内存满：手工 `import torch` 试试",
        ),
        cases={
            "": Case(
                Text(
                    "the node did not say {event!r} within {limit:.0f} s",
                    "节点在 {limit:.0f} 秒内没有返回 {event!r}",
                ),
                Text(
                    "is its disk or file system slow, or its memory full? Try `import torch` there by hand",
                    "节点的磁盘或文件系统慢吗，内存满了吗？在节点上手工执行 `import torch` 试试",
                ),
            ),
            "import": Case(
                Text("torchrun was not imported within {limit:.0f} s", "{limit:.0f} 秒内没有导入 torchrun"),
                Text(
                    "is its disk or file system slow, or its memory full? Try `import torch` there by hand",
                    "节点的磁盘或文件系统慢吗，内存满了吗？在节点上手工执行 `import torch` 试试",
                ),
            ),
        },
    ),
    "CC-RUN-035": Entry(
        "error",
        Text(
            "what a node sent while it was followed cannot be understood", "跟踪期间，节点发来的内容无法解析"
        ),
        do=Text("`clusterctl attach` again; else report it", "再 `clusterctl attach`；反复出现请报告"),
        cases={
            "port": Case(Text("the node named no port", "节点没有返回端口")),
            "": Case(
                Text("the node sent what cannot be understood: {reason}", "无法解析节点发来的内容：{reason}")
            ),
        },
    ),
    "CC-RUN-040": Entry(
        "error",
        Text(
            "another run has the GPUs, or the node, that this one needs; it is named, and nothing was started (exit code 3); [`launch --wait`](sharing-gpus.md) waits",
            "需要的 GPU 或节点被另一个任务占用；会给出它的名字，没有启动任何东西（退出码 3）；`launch --wait` 会等待",
        ),
        do=Text(
            "`clusterctl launch --wait`, other `gpus:` or nodes",
            "`clusterctl launch --wait`，或者换 `gpus:`、换节点",
        ),
        cases={
            "": Case(
                Text("another run has what this one needs", "这个 run 需要的资源被另一个 run 占用"),
                Text(
                    "`clusterctl launch --wait` waits until it is free; or take other GPUs (`gpus:`) or nodes (--exclude)",
                    "`clusterctl launch --wait` 会等到空闲；或者换 GPU（`gpus:`）、换节点（--exclude）",
                ),
            ),
        },
    ),
    "CC-RUN-050": Entry(
        "warning",
        Text(
            "all nodes would start the same process, and nothing in the job or its script tells them apart; a warning before the start, for `launcher: python` and `command`",
            "启动前的警告：几个节点会启动同样的进程，作业和脚本里没有区分它们的内容",
        ),
        do=Text(
            "`${node_rank}`, `${nnodes}`, `${master_addr}` in `args` or `command`; or `launcher: torchrun`",
            "在 `args` 或 `command` 里写 `${node_rank}`、`${nnodes}`、`${master_addr}`；或者用 `launcher: torchrun`",
        ),
        cases={
            "": Case(
                Text(
                    "{nodes} nodes would each start the same process, and neither the job nor {scripts} uses ${node_rank}, NODE_RANK, MASTER_ADDR or the like: each may train by itself",
                    "{nodes} 个节点会启动相同的进程，作业和 {scripts} 都没有使用 ${node_rank}、NODE_RANK、MASTER_ADDR 等：各节点可能各自训练",
                ),
                Text(
                    "pass ${node_rank}, ${nnodes} and ${master_addr} on to it, or let `launcher: torchrun` start the workers",
                    "把 ${node_rank}、${nnodes} 和 ${master_addr} 传给它，或者让 `launcher: torchrun` 启动 worker",
                ),
            ),
        },
    ),
    "CC-RUN-051": Entry(
        "warning",
        Text(
            "workers that a program of yours started have another WORLD_SIZE than planned; a warning, [where that can be seen](job.md#launchers)",
            "警告：你的程序启动的 worker 的 WORLD_SIZE 和计划不一致",
        ),
        do=Text(
            "Nested torchrun or accelerate: give it `${nnodes}`, `${node_rank}`, `${master_addr}`, `${master_port}`",
            "给内层的 torchrun 或 accelerate 传 `${nnodes}`、`${node_rank}`、`${master_addr}`、`${master_port}`",
        ),
        cases={
            "": Case(
                Text(
                    "workers run with WORLD_SIZE {observed}, planned are {planned}: they do not train together as the job says",
                    "worker 的 WORLD_SIZE 是 {observed}，计划是 {planned}：它们没有按作业要求一起训练",
                ),
                Text(
                    "pass ${node_rank}, ${nnodes} and ${master_addr} on to it, or let `launcher: torchrun` start the workers",
                    "把 ${node_rank}、${nnodes} 和 ${master_addr} 传给它，或者让 `launcher: torchrun` 启动 worker",
                ),
            ),
        },
    ),
    "CC-END-001": Entry(
        "error",
        Text(
            "the command of `on_end` cannot be run, failed, or took longer than its `time_limit`",
            "`on_end` 的命令失败、超时，或者跑不起来",
        ),
        do=Text(
            "Run the command by hand; is it executable (`chmod +x`)?",
            "手工执行一遍；有可执行权限吗（`chmod +x`）？",
        ),
        cases={
            "": Case(
                Text("on_end: {program} {problem}"),
                Text("run it by hand; the verdict stays", "手工执行一遍；最终结果不变"),
            ),
        },
    ),
    "CC-END-002": Entry(
        "error",
        Text(
            "a message could not be sent; the service's answer is shown, and the next `attach` tries again",
            "有通知没有发出去；会列出服务端的响应，下次 `attach` 会重试",
        ),
        do=Text(
            "The service's answer is shown; `clusterctl attach RUN` tries again",
            "查看显示的服务端响应；`clusterctl attach RUN` 会再试",
        ),
        cases={
            "not-sent": Case(
                Text("not sent: {notification}: {problem}", "没有发送：{notification}：{problem}"),
                Text("{command} tries again; the verdict stays", "{command} 会重试；最终结果不变"),
            ),
        },
    ),
    "CC-END-003": Entry(
        "error",
        Text(
            "the variable for a URL or a signing secret is not set here, or holds no URL that can be used",
            "本机没有设置保存 URL 或签名密钥的变量，或者其中的 URL 不能用",
        ),
        what=Text("Exit code 2 where it stops a launch"),
        do=Text("Export the variable with an `https://` URL", "export 这个变量，值是 `https://` 的 URL"),
        cases={
            "": Case(
                Text("notify: {fault}"),
                Text(
                    "export it before `launch`, or drop the entry",
                    "在 `launch` 之前 export 它，或者删掉这一项",
                ),
            ),
            "not-sent": Case(
                Text("not sent: {notification}: {problem}", "没有发送：{notification}：{problem}"),
                Text("{command} tries again; the verdict stays", "{command} 会重试；最终结果不变"),
            ),
        },
    ),
    "CC-PULL-001": Entry(
        "error",
        Text(
            "a node has more than 100 000 files or 100 GiB to bring; `--no-limit` brings them",
            "某个节点要下载的内容超过 100 000 个文件或 100 GiB；`--no-limit` 仍然下载",
        ),
        do=Text(
            "`--no-limit`, or fewer files in `${output_dir}`",
            "加 `--no-limit`，或者让 `${output_dir}` 里少些文件",
        ),
        cases={
            "": Case(
                Text("there are {excess} to bring", "需要下载 {excess}"),
                Text("--no-limit brings them all the same", "加 --no-limit 就全部下载"),
            ),
            "total": Case(
                Text("there are {gib} GiB to bring, more than {most}", "需要下载 {gib} GiB，超过 {most}"),
                Text("--no-limit brings them all the same", "加 --no-limit 就全部下载"),
            ),
        },
    ),
    "CC-PULL-002": Entry(
        "error",
        Text(
            "the disk here is full, or has too little room; what arrived stays, the next `pull` goes on there",
            "本机磁盘已满或空间不足；已下载的保留，下次 `pull` 从那里继续",
        ),
        what=Text("Exit code 1"),
        do=Text("Free room here, then `pull` again: it goes on", "在本机腾出空间再 `pull`，会接着传"),
        cases={
            "write": Case(
                Text("cannot write below {path}: {reason}", "无法写入 {path}：{reason}"),
                Text(
                    "make room and pull again: what has arrived stays, and the rest is taken up where it stopped",
                    "腾出空间后再 pull：已下载的会保留，从中断处继续",
                ),
            ),
            "room": Case(
                Text(
                    "{size} to bring, {missing} more than are free at {folder}",
                    "需要下载 {size}，比 {folder} 的剩余空间多 {missing}",
                ),
                Text("make room, or give a DIR on another disk", "腾出空间，或者把 DIR 放在别的磁盘上"),
            ),
            "interrupted": Case(Text("interrupted", "已中断")),
        },
    ),
    "CC-PULL-003": Entry(
        "error",
        Text(
            "a node does not send what it announced, or hung up; no file of doubtful content got its name",
            "节点没有发完应发的内容，或者断开了连接；内容不完整的文件不会使用最终文件名",
        ),
        do=Text("`pull` again", "再 `pull` 一次"),
        cases={
            "": Case(Text("what the node sends is not what it announced", "节点发来的内容与它声明的不一致")),
            "closed": Case(Text("the node hung up", "节点断开了连接")),
        },
    ),
    "CC-PULL-004": Entry(
        "error",
        Text("the directory here cannot be used", "本机的目录不能用"),
        what=Text("Exit code 1"),
        do=Text("Path and permissions of the directory here", "看路径和权限"),
        cases={
            "": Case(
                Text("{name}: {reason}", "{name}：{reason}"),
                Text("give a directory that you may write", "换一个有写权限的目录"),
            ),
        },
    ),
    "CC-PULL-005": Entry(
        "error",
        Text(
            "that is not the name of a job, or of a run from which the job can be told: use `--job`",
            "这不是作业名，也不是能看出作业名的 run：请用 `--job`",
        ),
        do=Text("`pull --job NAME`", "用 `pull --job NAME`"),
        cases={
            "": Case(
                Text("{job!r} is not the name of a job", "{job!r} 不是作业名"),
                Text("it stands in the job file: `name:`", "作业名是作业文件里的 `name:`"),
            ),
        },
    ),
    "CC-PULL-006": Entry(
        "error",
        Text(
            "nothing moved on the node for a long time: its file system hangs",
            "节点上的操作长时间没有进展：文件系统卡住了",
        ),
        do=Text("`findmnt` and `dmesg` there", "在节点上看 `findmnt`、`dmesg`"),
        cases={
            "": Case(
                Text("nothing moved on the node for {limit:.0f} s", "节点上 {limit:.0f} 秒没有进展"),
                Text(
                    "the file system of its work directory hangs; look at it there",
                    "它的工作目录所在文件系统卡住了；在节点上检查",
                ),
            ),
            "unanswered": Case(
                Text("no answer came for {limit:.0f} h", "{limit:.0f} 小时内没有返回结果"),
                Text(
                    "the file system of its work directory hangs; look at it there",
                    "它的工作目录所在文件系统卡住了；在节点上检查",
                ),
            ),
        },
    ),
    "CC-PULL-007": Entry(
        "error",
        Text("another `pull` is writing into the same directory", "另一个 `pull` 正在写同一个目录"),
        what=Text("Exit code 1"),
        do=Text("Wait for it, or another directory", "等它结束，或者换个目录"),
        cases={
            "": Case(
                Text("another pull is writing below {target}", "另一个 pull 正在写入 {target}"),
                Text("let it end, and pull again; or give another DIR", "等它结束再 pull，或者换一个 DIR"),
            ),
        },
    ),
    "CC-PULL-008": Entry(
        "error",
        Text(
            "no node has outputs of the job that `--job` names: is it misspelled?",
            "没有节点有 `--job` 指定的作业的输出：名字写错了吗？",
        ),
        do=Text("`clusterctl ps` shows the names of jobs", "用 `clusterctl ps` 查看作业名"),
        cases={
            "": Case(
                Text("no node has outputs of a job {job!r}", "没有节点有作业 {job!r} 的输出"),
                Text(
                    "see `clusterctl ps`: a run is called JOB-TIME-NUMBER",
                    "见 `clusterctl ps`：run 的名字为“作业-时间-编号”",
                ),
            ),
        },
    ),
    "CC-CLEAN-001": Entry(
        "error",
        Text(
            "the directory lacks the file `id` that marks a work directory of clusterctl; nothing is removed there",
            "该目录没有标识 clusterctl 工作目录的文件 `id`；没有删除任何东西",
        ),
        do=Text(
            "Is `workdir:` right? Nothing is removed without the mark",
            "`workdir:` 对吗？没有标记就什么都不删",
        ),
    ),
    "CC-CLEAN-002": Entry(
        "error",
        Text(
            "a run must stay for now: it lives, may live elsewhere, or holds what is another account's",
            "这个 run 现在不能删除：它在运行，可能在别处运行，或者含有另一个账户的文件",
        ),
        do=Text(
            "`clusterctl stop` it first, or let its owner clean",
            "先 `clusterctl stop`，或者由启动它的用户清理",
        ),
    ),
    "CC-CLEAN-003": Entry(
        "error",
        Text(
            "nothing moved on the node for a long time: its file system hangs",
            "节点上的操作长时间没有进展：文件系统卡住了",
        ),
        do=Text("`findmnt` and `dmesg` there", "在节点上看 `findmnt`、`dmesg`"),
        cases={
            "": Case(
                Text("nothing moved on the node for {limit:.0f} s", "节点上 {limit:.0f} 秒没有进展"),
                Text(
                    "the file system of its work directory hangs; look at it there, then clean again",
                    "它的工作目录所在文件系统卡住了；在节点上检查，然后重新清理",
                ),
            ),
            "unanswered": Case(
                Text("no answer came for {limit:.0f} h", "{limit:.0f} 小时内没有返回结果"),
                Text(
                    "the file system of its work directory hangs; look at it there, then clean again",
                    "它的工作目录所在文件系统卡住了；在节点上检查，然后重新清理",
                ),
            ),
        },
    ),
}
