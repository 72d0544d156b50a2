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
                Text("the source directory {source} cannot be used: {reason}"),
                Text(
                    "set sync: {source: ...} to the directory that holds the code, relative to the job file"
                ),
            ),
            "no-directory": Case(
                Text("the source {source} is not a directory"),
                Text(
                    "set sync: {source: ...} to the directory that holds the code, relative to the job file"
                ),
            ),
            "root": Case(
                Text("the source is the root of the file system; it would be sent to every node"),
                Text(
                    "set sync: {source: ...} to the directory that holds the code, relative to the job file"
                ),
            ),
            "home": Case(
                Text("the source {source} is a whole home directory; it would be sent to every node"),
                Text(
                    "set sync: {source: ...} to the directory that holds the code, relative to the job file"
                ),
            ),
        },
    ),
    "CC-SYNC-002": Entry(
        "error",
        Text(
            "the source is larger than 500 MB or 50 000 files; the largest parts are named, and `--big` sends it all the same",
            "代码目录太大",
        ),
        do=Text(
            "`.gitignore` or `sync: {exclude: [data/]}`; `--big` sends it all the same",
            "写 `.gitignore` 或 `sync: {exclude: [data/]}`；`--big` 表示照样发送",
        ),
        cases={
            "files": Case(
                Text("the source tree has {count} files, the most that can be sent is {most}"),
                Text("pack them into archives, or bring them to the nodes by other means"),
            ),
            "": Case(
                Text("the source tree has {amount}, the limit is {limit}; largest: {largest}"),
                Text(
                    "keep what is not code out, here or in .gitignore: sync: {exclude: [{first}]}; `--big` sends it all the same"
                ),
            ),
            "incomplete": Case(
                Text("the source tree has at least {amount}, the limit is {limit}; largest: {largest}"),
                Text(
                    "keep what is not code out, here or in .gitignore: sync: {exclude: [{first}]}; `--big` sends it all the same"
                ),
            ),
        },
    ),
    "CC-SYNC-003": Entry(
        "error",
        Text(
            "the code on a node is not the code that is here; nothing was started",
            "节点上的代码和本机的不一样",
        ),
        do=Text("Launch again; if it comes back, report it", "再启动一次；反复出现请报告"),
        cases={
            "": Case(
                Text("the code on the node is not the code that is here; it differs in: {paths}"),
                Text(
                    "look at the file system of the node's work directory: it does not keep what is written"
                ),
            ),
            "unknown": Case(
                Text("the code on the node is not the code that is here"),
                Text(
                    "look at the file system of the node's work directory: it does not keep what is written"
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
                Text("a name in the source tree is not UTF-8: {shown}"),
                Text("rename it, or name it in .gitignore or sync.exclude if the job does not need it"),
            ),
        },
    ),
    "CC-SYNC-005": Entry(
        "error",
        Text("a file of the source cannot be read", "有文件读不了"),
        do=Text("Permissions of the file, or exclude it", "改权限，或者排除它"),
        cases={
            "": Case(
                Text("{path} in the source tree cannot be read: {reason}"),
                Text(
                    "make it readable, or name it in .gitignore or sync.exclude if the job does not need it"
                ),
            ),
        },
    ),
    "CC-SYNC-006": Entry(
        "error",
        Text("a file changed while it was read or sent: launch again", "发送过程中文件变了"),
        do=Text("Launch again when nothing writes into the source", "等没有东西再写代码目录时重新启动"),
        cases={
            "": Case(
                Text("{path} changed while it was being read"),
                Text(
                    "let whatever writes it finish, then launch again; exclude it if it is a log or an output"
                ),
            ),
        },
    ),
    "CC-SYNC-007": Entry(
        "error",
        Text(
            "the node was asked for something malformed: different versions, or a bug", "发给节点的请求不合规"
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
            "closed": Case(Text("the node hung up during the sync")),
            "answer": Case(
                Text("the node's answer makes no sense"),
                Text("launch again; if it stays so, please report it"),
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
                Text("{file}: {program} is not in the code that is sent from {root}"),
                Text(
                    "the command runs in the copy of sync.source; is it excluded by .gitignore or sync.exclude?"
                ),
            ),
            "script": Case(
                Text("{file}: script {script} is not in the code that is sent from {root}"),
                Text("script is relative to sync.source; is it excluded by .gitignore or sync.exclude?"),
            ),
        },
    ),
    "CC-SYNC-011": Entry(
        "error",
        Text(
            "the run's `code/` exists already and holds something else", "这次运行的 `code/` 已经有别的内容"
        ),
        do=Text("Launch again: each run has a directory of its own", "再启动一次，每次运行都有自己的目录"),
    ),
    "CC-SYNC-012": Entry(
        "error",
        Text(
            "nothing moved on the node for a long time: its file system hangs",
            "节点上很久没有动静：文件系统卡住了",
        ),
        do=Text(
            "`findmnt` and `dmesg` there; another `workdir:`",
            "在节点上看 `findmnt`、`dmesg`；换一个 `workdir:`",
        ),
        cases={
            "": Case(
                Text("nothing moved on the node for {limit:.0f} s"),
                Text(
                    "the file system of the node's work directory hangs; look at it, or set another `workdir`"
                ),
            ),
            "unanswered": Case(
                Text("no answer came for {limit:.0f} h"),
                Text(
                    "the file system of the node's work directory hangs; look at it, or set another `workdir`"
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
                Text("{file} is larger than {mib} MiB"),
                Text("cut it down: ignore a directory by one rule instead of its files by many"),
            ),
            "rules": Case(
                Text("{count} ignore rules hold at {file}, more than {most}"),
                Text("cut it down: ignore a directory by one rule instead of its files by many"),
            ),
            "rule": Case(
                Text("the ignore rule at {location} is longer than {most} bytes"),
                Text("cut it down: ignore a directory by one rule instead of its files by many"),
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
                Text("this is a bug in clusterctl: please report it together with the text above"),
            ),
        },
    ),
    "CC-RUN-002": Entry(
        "error",
        Text("a step failed on a node in a way that nobody foresaw", "某一步在节点上意外失败"),
        do=Text("The evidence is the node's own words; try again", "看报错里节点自己说了什么；再试一次"),
    ),
    "CC-RUN-003": Entry(
        "error",
        Text(
            "a step's process on a node died while the connection lives, perhaps for want of memory",
            "节点上的步骤进程死了",
        ),
        do=Text("Memory of the node: `free -h`, `dmesg`", "看节点的内存：`free -h`、`dmesg`"),
        cases={
            "": Case(
                Text("`{verb}` {status} on the node, without an answer"),
                Text("it was killed, perhaps for want of memory: look at `dmesg` on the node"),
            ),
            "ended": Case(Text("the node ended the conversation")),
        },
    ),
    "CC-RUN-004": Entry(
        "error",
        Text("what a node sent cannot be understood", "节点发来的东西看不懂"),
        do=Text(
            "Does a start-up file print into everything? Else report it", "是不是启动文件乱打印？不是就请报告"
        ),
        cases={
            "": Case(Text("what the node sent cannot be understood"), Text("please report this")),
            "unsolicited": Case(
                Text("`{verb}` sends without being asked and does not read"), Text("please report this")
            ),
        },
    ),
    "CC-RUN-010": Entry(
        "error",
        Text("a name that cannot be used on a node", "名字在节点上不能用"),
        do=Text("Another name for the job or node", "给任务或节点换个名字"),
    ),
    "CC-RUN-011": Entry(
        "error",
        Text("the node does not have this run, or not any more", "节点上没有这次运行（或已被清理）"),
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
        Text("this run was started on this node before", "这次运行在该节点上已经启动过"),
        do=Text("Launch again: it gets a new name", "再启动一次，会有新的名字"),
    ),
    "CC-RUN-014": Entry(
        "error",
        Text("the agent on the node ended before its time", "节点上的 agent 提前退出"),
        do=Text("Its last words are shown; memory of the node", "看它最后说了什么；看节点的内存"),
    ),
    "CC-RUN-015": Entry(
        "error",
        Text(
            "this part of the run is on another machine: with a home that nodes share, the inventory gives the machines other names than at the launch",
            "这部分运行在另一台机器上",
        ),
        do=Text(
            "Give the machines the names that they had at the launch", "inventory 里的节点名要和启动时一样"
        ),
    ),
    "CC-RUN-018": Entry(
        "error",
        Text(
            "the run lives under another account of the node, which alone can stop it; nothing was touched (exit code 5)",
            "任务属于节点上的另一个账户",
        ),
        do=Text(
            "Log in as that account and stop it there, or ask its owner",
            "用那个账户登录后再停，或者请它的主人来停",
        ),
        cases={
            "": Case(
                Text("the run lives under the account {account}, and nothing of it was touched"),
                Text(
                    "stop it as {account}: with `user: {account}` in an inventory, or let its owner do that"
                ),
            ),
        },
    ),
    "CC-RUN-030": Entry(
        "error",
        Text(
            "torchrun cannot be imported by the job's Python on the node",
            "任务的 Python import 不了 torchrun",
        ),
        do=Text(
            "`clusterctl check job.yaml`; the right `python:`",
            "`clusterctl check job.yaml`；`python:` 指到正确的解释器",
        ),
        cases={
            "environment": Case(
                Text("torchrun cannot be loaded there"),
                Text(
                    "add torch to what `setup` installs, or `system_site_packages: true` for the torch of the node"
                ),
            ),
            "": Case(
                Text("torchrun cannot be loaded there"),
                Text(
                    "make `import torch.distributed.run` work in that Python; `clusterctl check` shows which one it is"
                ),
            ),
        },
    ),
    "CC-RUN-031": Entry(
        "error",
        Text("the run did not start; the agent's reason is shown", "运行没能启动"),
        do=Text("The agent's reason is shown: mend that", "显示了 agent 给出的原因：先解决它"),
        cases={
            "": Case(Text("the run did not start")),
        },
    ),
    "CC-RUN-032": Entry(
        "error",
        Text("the node ended the conversation", "节点结束了对话"),
        do=Text(
            "`clusterctl status`; was the agent killed, or the node short of memory?",
            "看 `clusterctl status`；agent 被杀了，还是节点内存不够？",
        ),
        cases={
            "": Case(Text("the node ended the conversation")),
        },
    ),
    "CC-RUN-033": Entry(
        "error",
        Text("node 0 named no port for the rendezvous", "0 号节点没有报出 rendezvous 端口"),
        do=Text("`ports:` of node 0; launch again", "看 0 号节点的 `ports:`；再启动一次"),
        cases={
            "": Case(Text("the master named no port")),
        },
    ),
    "CC-RUN-034": Entry(
        "error",
        Text("a node took too long to get ready: a slow disk, a full memory", "节点准备得太久"),
        do=Text(
            "A slow disk or a full memory there: `import torch` by hand",
            "那里磁盘慢或者内存满：手工 `import torch` 试试",
        ),
        cases={
            "": Case(
                Text("the node did not say {event!r} within {limit:.0f} s"),
                Text("is its disk or file system slow, or its memory full? Try `import torch` there by hand"),
            ),
            "import": Case(
                Text("torchrun was not imported within {limit:.0f} s"),
                Text("is its disk or file system slow, or its memory full? Try `import torch` there by hand"),
            ),
        },
    ),
    "CC-RUN-035": Entry(
        "error",
        Text("what a node sent while it was followed cannot be understood", "跟随时节点发来的东西看不懂"),
        do=Text("`clusterctl attach` again; else report it", "再 `clusterctl attach`；反复出现请报告"),
        cases={
            "port": Case(Text("the node named no port")),
            "": Case(Text("the node sent what cannot be understood: {reason}")),
        },
    ),
    "CC-RUN-040": Entry(
        "error",
        Text(
            "another run has the GPUs, or the node, that this one needs; it is named, and nothing was started (exit code 3); [`launch --wait`](sharing-gpus.md) waits",
            "需要的 GPU 或节点被别的任务占着",
        ),
        do=Text(
            "`clusterctl launch --wait`, other `gpus:` or nodes",
            "`clusterctl launch --wait`，或者换 `gpus:`、换节点",
        ),
        cases={
            "": Case(
                Text("another run has what this one needs"),
                Text(
                    "`clusterctl launch --wait` waits until it is free; or take other GPUs (`gpus:`) or nodes (--exclude)"
                ),
            ),
        },
    ),
    "CC-RUN-050": Entry(
        "warning",
        Text(
            "all nodes would start the same process, and nothing in the job or its script tells them apart; a warning before the start, for `launcher: python` and `command`",
            "启动前的警告：几个节点会启动同样的进程，任务和脚本都看不出它们如何找到彼此",
        ),
        do=Text(
            "`${node_rank}`, `${nnodes}`, `${master_addr}` in `args` or `command`; or `launcher: torchrun`",
            "在 `args` 或 `command` 里写 `${node_rank}`、`${nnodes}`、`${master_addr}`；或者用 `launcher: torchrun`",
        ),
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
            "": Case(Text("on_end: {program} {problem}"), Text("run it by hand; the verdict stays")),
        },
    ),
    "CC-END-002": Entry(
        "error",
        Text(
            "a message could not be sent; the service's answer is shown, and the next `attach` tries again",
            "消息没有发出去",
        ),
        do=Text(
            "The service's answer is shown; `clusterctl attach RUN` tries again",
            "看显示的服务端答复；`clusterctl attach RUN` 会再试",
        ),
        cases={
            "": Case(
                Text("not sent: {notification}: {problem}"), Text("{command} tries again; the verdict stays")
            ),
        },
    ),
    "CC-END-003": Entry(
        "error",
        Text(
            "the variable for a URL or a signing secret is not set here, or holds no URL that can be used",
            "保存 URL 或签名密钥的变量没有设置",
        ),
        what=Text("Exit code 2 where it stops a launch"),
        do=Text("Export the variable with an `https://` URL", "export 这个变量，值是 `https://` 的 URL"),
        cases={
            "": Case(Text("notify: {fault}"), Text("export it before `launch`, or drop the entry")),
            "not-sent": Case(
                Text("not sent: {notification}: {problem}"), Text("{command} tries again; the verdict stays")
            ),
        },
    ),
    "CC-PULL-001": Entry(
        "error",
        Text(
            "a node has more than 100 000 files or 100 GiB to bring; `--no-limit` brings them",
            "要取的文件太多或太大",
        ),
        do=Text(
            "`--no-limit`, or fewer files in `${output_dir}`",
            "加 `--no-limit`，或者让 `${output_dir}` 里少些文件",
        ),
        cases={
            "": Case(Text("there are {excess} to bring"), Text("--no-limit brings them all the same")),
            "total": Case(
                Text("there are {gib} GiB to bring, more than {most}"),
                Text("--no-limit brings them all the same"),
            ),
        },
    ),
    "CC-PULL-002": Entry(
        "error",
        Text(
            "the disk here is full, or has too little room; what arrived stays, the next `pull` goes on there",
            "本机磁盘满了",
        ),
        what=Text("Exit code 1"),
        do=Text("Free room here, then `pull` again: it goes on", "在本机腾出空间再 `pull`，会接着传"),
        cases={
            "write": Case(
                Text("cannot write below {path}: {reason}"),
                Text(
                    "make room and pull again: what has arrived stays, and the rest is taken up where it stopped"
                ),
            ),
            "room": Case(
                Text("{size} to bring, {missing} more than are free at {folder}"),
                Text("make room, or give a DIR on another disk"),
            ),
            "interrupted": Case(Text("interrupted")),
        },
    ),
    "CC-PULL-003": Entry(
        "error",
        Text(
            "a node does not send what it announced, or hung up; no file of doubtful content got its name",
            "节点没有把说好的内容发完",
        ),
        do=Text("`pull` again", "再 `pull` 一次"),
        cases={
            "": Case(Text("what the node sends is not what it announced")),
            "closed": Case(Text("the node hung up")),
        },
    ),
    "CC-PULL-004": Entry(
        "error",
        Text("the directory here cannot be used", "本机的目录不能用"),
        what=Text("Exit code 1"),
        do=Text("Path and permissions of the directory here", "看路径和权限"),
        cases={
            "": Case(Text("{name}: {reason}"), Text("give a directory that you may write")),
        },
    ),
    "CC-PULL-005": Entry(
        "error",
        Text(
            "that is not the name of a job, or of a run from which the job can be told: use `--job`",
            "这不是任务名",
        ),
        do=Text("`pull --job NAME`", "用 `pull --job NAME`"),
        cases={
            "": Case(Text("{job!r} is not the name of a job"), Text("it stands in the job file: `name:`")),
        },
    ),
    "CC-PULL-006": Entry(
        "error",
        Text(
            "nothing moved on the node for a long time: its file system hangs",
            "节点上很久没有动静：文件系统卡住了",
        ),
        do=Text("`findmnt` and `dmesg` there", "在节点上看 `findmnt`、`dmesg`"),
        cases={
            "": Case(
                Text("nothing moved on the node for {limit:.0f} s"),
                Text("the file system of its work directory hangs; look at it there"),
            ),
            "unanswered": Case(
                Text("no answer came for {limit:.0f} h"),
                Text("the file system of its work directory hangs; look at it there"),
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
                Text("another pull is writing below {target}"),
                Text("let it end, and pull again; or give another DIR"),
            ),
        },
    ),
    "CC-PULL-008": Entry(
        "error",
        Text(
            "no node has outputs of the job that `--job` names: is it misspelled?", "没有节点有这个任务的输出"
        ),
        do=Text("`clusterctl ps` shows the names of jobs", "用 `clusterctl ps` 看任务名"),
        cases={
            "": Case(
                Text("no node has outputs of a job {job!r}"),
                Text("see `clusterctl ps`: a run is called JOB-TIME-NUMBER"),
            ),
        },
    ),
    "CC-CLEAN-001": Entry(
        "error",
        Text(
            "the directory lacks the file `id` that marks a work directory of clusterctl; nothing is removed there",
            "这个目录没有 clusterctl 的标记文件 `id`",
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
            "这次运行现在不能删",
        ),
        do=Text(
            "`clusterctl stop` it first, or let its owner clean", "先 `clusterctl stop`，或者让主人自己清"
        ),
    ),
    "CC-CLEAN-003": Entry(
        "error",
        Text(
            "nothing moved on the node for a long time: its file system hangs",
            "节点上很久没有动静：文件系统卡住了",
        ),
        do=Text("`findmnt` and `dmesg` there", "在节点上看 `findmnt`、`dmesg`"),
        cases={
            "": Case(
                Text("nothing moved on the node for {limit:.0f} s"),
                Text("the file system of its work directory hangs; look at it there, then clean again"),
            ),
            "unanswered": Case(
                Text("no answer came for {limit:.0f} h"),
                Text("the file system of its work directory hangs; look at it there, then clean again"),
            ),
        },
    ),
}
