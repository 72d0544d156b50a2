"""Why a run makes no progress: CC-HANG, which `diagnose` reports."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

RUN_AGAIN = Text("run it again after some seconds", "几秒后再执行一次")

ENTRIES: Mapping[str, Entry] = {
    "CC-HANG-001": Entry(
        "error",
        Text("a rank is stopped", "rank 被暂停"),
        do=Text(
            "SIGSTOP, Ctrl-Z or a debugger has stopped the process. It continues after SIGCONT, or when the debugger detaches.",
            "进程被 SIGSTOP、Ctrl-Z 或调试器暂停。发送 SIGCONT 或者让调试器放行后，进程会继续运行。",
        ),
        cases={
            "": Case(
                Text("{ranks} is stopped by a signal; {waiting}", "{ranks} 被信号暂停；{waiting}"),
                Text("$ kill -CONT {pid}", "$ kill -CONT {pid}"),
            ),
            "traced": Case(
                Text("{ranks} is stopped by a debugger; {waiting}", "{ranks} 被调试器暂停；{waiting}"),
                Text("detach the debugger from process {pid}", "让调试器与进程 {pid} 分离"),
            ),
        },
    ),
    "CC-HANG-002": Entry(
        "error",
        Text("a rank waits in the kernel for a file system or a device", "rank 在内核中等待文件系统或设备"),
        do=Text(
            "The process is in state D: no signal can end it until the kernel gets an answer. Most often a network file system does not respond, else a disk or a driver.",
            "进程处于 D 状态：内核得到响应之前，任何信号都不能结束它。最常见的原因是网络文件系统无响应，其次是磁盘或驱动。",
        ),
        cases={
            "": Case(
                Text(
                    "{ranks} waits in the kernel (state D, in {waits_in}), usually for a network file system; {waiting}",
                    "{ranks} 在内核中等待（状态 D，位于 {waits_in}），通常是在等网络文件系统；{waiting}",
                ),
                Text(
                    "see what the kernel reports: `clusterctl exec --nodes {node} -- 'dmesg | tail -30'`",
                    "查看内核日志：`clusterctl exec --nodes {node} -- 'dmesg | tail -30'`",
                ),
            )
        },
    ),
    "CC-HANG-003": Entry(
        "error",
        Text("a rank has failed, but its process does not exit", "rank 已经失败，但进程没有退出"),
        do=Text(
            "The rank wrote its traceback and then waits while the interpreter shuts down: for a thread that is not a daemon, or in a destructor that waits for other ranks. Fix the exception first.",
            "rank 写出了 traceback，随后卡在解释器退出阶段：在等非 daemon 线程，或者析构函数在等其他 rank。请先修复这个异常。",
        ),
        cases={
            "": Case(
                Text(
                    "{ranks} has failed with {exception}, but its process does not exit; {waiting}",
                    "{ranks} 已因 {exception} 失败，但进程没有退出；{waiting}",
                ),
                Text(
                    "read its traceback: `clusterctl logs --rank {number}`",
                    "查看它的 traceback：`clusterctl logs --rank {number}`",
                ),
            )
        },
    ),
    "CC-HANG-004": Entry(
        "error",
        Text(
            "a rank has not entered the collective that others wait in",
            "rank 没有进入其他 rank 正在等待的集合通信",
        ),
        do=Text(
            "Every rank of a process group must call the same collectives in the same order. Look at the line of the rank that is missing: does it wait for data, loop, or take another branch?",
            "同一进程组的所有 rank 必须按相同顺序调用相同的集合通信。查看缺席的 rank 停在哪一行：是在等数据、死循环，还是走了别的分支？",
        ),
        cases={
            "": Case(
                Text(
                    "{ranks} has not entered {operation}; it is at {where}; {waiting}",
                    "{ranks} 没有进入 {operation}，停在 {where}；{waiting}",
                ),
                Text(
                    "all stacks: `clusterctl diagnose --stacks`; why this matters: `clusterctl explain CC-HANG-004`",
                    "查看全部调用栈：`clusterctl diagnose --stacks`；说明：`clusterctl explain CC-HANG-004`",
                ),
            ),
            "locked": Case(
                Text(
                    "{ranks} has not entered {operation}; C code holds the GIL at {where}; {waiting}",
                    "{ranks} 没有进入 {operation}，C 代码在 {where} 占着 GIL；{waiting}",
                ),
                Text(
                    "look at the call on that line: a regular expression, or an extension that does not release the GIL",
                    "检查这一行调用的内容：正则表达式，或者不释放 GIL 的扩展模块",
                ),
            ),
            "ended": Case(
                Text(
                    "{ranks} has exited and will not enter {operation}; {waiting}",
                    "{ranks} 已经退出，不会再进入 {operation}；{waiting}",
                ),
                Text(
                    "give every rank the same number of steps, or use `torch.distributed.algorithms.join.Join`",
                    "让所有 rank 的步数相同，或者使用 `torch.distributed.algorithms.join.Join`",
                ),
            ),
            "unreachable": Case(
                Text(
                    "no answer about {ranks} ({nodes}), for which others wait in {operation}; {waiting}",
                    "没有取得 {ranks}（{nodes}）的信息，其他 rank 在 {operation} 中等它；{waiting}",
                ),
                Text(
                    "check the node: `clusterctl check --nodes {nodes}`",
                    "检查该节点：`clusterctl check --nodes {nodes}`",
                ),
            ),
        },
    ),
    "CC-HANG-005": Entry(
        "error",
        Text("ranks are in different collectives", "各 rank 进入了不同的集合通信"),
        do=Text(
            "Operation, size and data type must be the same on all ranks of a process group, and ranks that share several groups must use them in the same order.",
            "同一进程组内所有 rank 的操作、大小和数据类型必须一致；共用多个进程组的 rank 必须按相同顺序使用它们。",
        ),
        cases={
            "": Case(
                Text(
                    "{ranks} has entered {operation} at {where}, but {others} entered {usual} at {elsewhere}, as #{number} of group {group}",
                    "组 {group} 的第 {number} 个集合通信：{ranks} 在 {where} 进入 {operation}，而 {others} 在 {elsewhere} 进入 {usual}",
                ),
                Text(
                    "make both lines call the same operation with the same shape and data type",
                    "让这两行以相同的形状和数据类型调用相同的操作",
                ),
            ),
            "order": Case(
                Text(
                    "{ranks} waits in {operation} at {where}, and {others} in {usual} at {elsewhere}: each waits for the other",
                    "{ranks} 在 {where} 等待 {operation}，{others} 在 {elsewhere} 等待 {usual}：双方互相等待",
                ),
                Text(
                    "use the process groups in the same order on all ranks",
                    "让所有 rank 按相同顺序使用各进程组",
                ),
            ),
        },
    ),
    "CC-HANG-006": Entry(
        "error",
        Text(
            "all ranks are in the same collective, and it does not complete",
            "所有 rank 都在同一个集合通信中，但它没有完成",
        ),
        do=Text(
            "The program is right so far: the network between the nodes or a GPU is the next suspect. `check --deep` tests both with small collectives; end the run first, or test other nodes.",
            "程序到这一步没有问题：接下来应怀疑节点间网络或 GPU。`check --deep` 用小规模集合通信测试两者；请先结束任务，或者换其他节点测试。",
        ),
        cases={
            "": Case(
                Text(
                    "all ranks ({ranks}) have entered {operation} at {where}, and it has not completed for {duration}",
                    "所有 rank（{ranks}）都已在 {where} 进入 {operation}，但 {duration} 后仍未完成",
                ),
                Text(
                    "test the network and the GPUs: `clusterctl check --deep`",
                    "测试网络和 GPU：`clusterctl check --deep`",
                ),
            )
        },
    ),
    "CC-HANG-007": Entry(
        "warning",
        Text(
            "a rank is at another line than most, and nothing is recorded",
            "rank 停在与多数 rank 不同的位置，且没有新的记录",
        ),
        do=Text(
            "No rank waits in a collective that torch has recorded. Where one rank is at another line than most, look there first: a lock, a queue, a file, or a send without its receive.",
            "没有 rank 在 torch 记录到的集合通信中等待。如果某个 rank 与多数 rank 停在不同的行，先看那里：锁、队列、文件，或者没有配对的 send 和 recv。",
        ),
        cases={
            "": Case(
                Text(
                    "{ranks} is at {where}, while {others} are at {elsewhere}; no rank waits in a recorded collective",
                    "{ranks} 停在 {where}，而 {others} 停在 {elsewhere}；没有 rank 在已记录的集合通信中等待",
                ),
                Text(
                    "compare all stacks: `clusterctl diagnose --stacks`",
                    "对比全部调用栈：`clusterctl diagnose --stacks`",
                ),
            )
        },
    ),
    "CC-HANG-008": Entry(
        "warning",
        Text("a node does not answer", "节点无响应"),
        do=Text(
            "It is unknown what its ranks do. If the agent there is gone, the other nodes stop the run.",
            "不知道该节点上的 rank 在做什么。如果那里的 agent 已经不在，其他节点会自行结束任务。",
        ),
        cases={
            "": Case(
                Text(
                    "{nodes} does not answer, and the other ranks do not show why there is no progress",
                    "{nodes} 无响应，其他 rank 也看不出停滞的原因",
                ),
                Text(
                    "check the node: `clusterctl check --nodes {nodes}`",
                    "检查该节点：`clusterctl check --nodes {nodes}`",
                ),
            )
        },
    ),
    "CC-HANG-009": Entry(
        "info",
        Text("the ranks make progress", "各 rank 都有进展"),
        do=Text(
            "The last collective began within the usual interval of this run, so nothing hangs.",
            "最近一次集合通信距今没有超过该任务的正常间隔，没有卡住。",
        ),
        cases={
            "": Case(
                Text(
                    "not hung: {ranks} make progress, the last collective began {duration} s ago",
                    "没有卡住：{ranks} 有进展，最近一次集合通信始于 {duration} 秒前",
                )
            )
        },
    ),
    "CC-HANG-010": Entry(
        "info",
        Text("nothing shows a hang", "没有发现卡住的迹象"),
        do=Text(
            "The ranks compute, load or start, or cannot be queried: with `diagnose: false` in the job, or without Python. Run it again after some seconds; if a rank is still at the same line, look there.",
            "各 rank 正在计算、加载数据或启动，或者无法查询：作业里写了 `diagnose: false`，或者不是 Python 程序。几秒后再执行一次；如果某个 rank 仍停在同一行，值得查看。",
        ),
        cases={
            "": Case(
                Text(
                    "no rank waits in a collective; {ranks} are at {where}, {busy} of {count} use a processor",
                    "没有 rank 在集合通信中等待；{ranks} 停在 {where}，{count} 个 rank 中 {busy} 个占用 CPU",
                ),
                RUN_AGAIN,
            ),
            "idle": Case(
                Text(
                    "no rank waits in a collective or uses a processor; {ranks} are at {where}",
                    "没有 rank 在集合通信中等待；{ranks} 停在 {where}，都没有占用 CPU",
                ),
                RUN_AGAIN,
            ),
            "nothing": Case(
                Text("no stacks and no records: {reason}", "没有调用栈，也没有记录：{reason}"),
                Text(
                    "see the ranks and their last lines: `clusterctl status`",
                    "查看各 rank 及其最后的输出：`clusterctl status`",
                ),
            ),
        },
    ),
    "CC-HANG-011": Entry(
        "warning",
        Text("a rank arrives last in most collectives", "某个 rank 在多数集合通信中最后到达"),
        do=Text(
            "All other ranks wait for it in each step. Usual reasons: its data loader or disk, another program on the node, a hot or slow processor. GPU time after the launch of a kernel is not included.",
            "每一步其他 rank 都在等它。常见原因：它的数据加载或磁盘、节点上的其他程序、处理器过热或较慢。kernel 提交给 GPU 之后才变慢的，这里看不出来。",
        ),
        cases={
            "": Case(
                Text(
                    "{ranks} arrives last in {share} of {count} collectives, {delay} ms behind the median ({loss} of the time)",
                    "{ranks} 在 {count} 次集合通信的 {share} 中最后到达，比中位数晚 {delay} ms（占时间的 {loss}）",
                ),
                Text(
                    "compare the nodes: `clusterctl top`; see what the rank does: `clusterctl diagnose --stacks`",
                    "对比各节点：`clusterctl top`；查看该 rank 在做什么：`clusterctl diagnose --stacks`",
                ),
            )
        },
    ),
    "CC-HANG-012": Entry(
        "info",
        Text("no rank is late in most collectives", "没有 rank 在多数集合通信中迟到"),
        do=Text(
            "By the times at which Python enters collectives no rank makes the others wait. GPU time after the launch of a kernel is not included.",
            "从 Python 进入集合通信的时间看，没有 rank 让其他 rank 等待。kernel 提交给 GPU 之后才变慢的，这里看不出来。",
        ),
        cases={
            "": Case(
                Text(
                    "no rank is late: of {count} collectives {ranks} is last most often, in {share}, {delay} ms behind the median ({loss} of the time)",
                    "没有 rank 迟到：{count} 次集合通信中 {ranks} 最后到达的次数最多，占 {share}，比中位数晚 {delay} ms（占时间的 {loss}）",
                )
            ),
            "nothing": Case(
                Text(
                    "the times of collectives cannot be compared: {reason}",
                    "无法比较集合通信的时间：{reason}",
                ),
                Text("run it again after some steps", "运行若干步之后再执行一次"),
            ),
            "clocks": Case(
                Text(
                    "the clocks of the nodes are not compared yet, or a node does not answer",
                    "各节点的时钟还没有比较过，或者有节点无响应",
                ),
                Text("run it again after 20 seconds", "20 秒后再执行一次"),
            ),
        },
    ),
    "CC-HANG-013": Entry(
        "error",
        Text(
            "torchrun, the agent or the guardian of a node is halted, or torchrun does not exit",
            "某个节点的 torchrun、agent 或 guardian 被暂停，或者 torchrun 没有退出",
        ),
        do=Text(
            "A halted process does nothing until it gets SIGCONT, or its debugger detaches: torchrun then does not notice that its ranks have ended, and the run does not end. Continue it on its node, or stop the run.",
            "被暂停的进程在收到 SIGCONT（或调试器放行）之前什么都不做：torchrun 不会发现 rank 已经退出，任务也就不会结束。请在该节点上让它继续运行，或者停止任务。",
        ),
        cases={
            "": Case(
                Text(
                    "{process} on {node} (pid {pid}) is halted by a signal or a debugger",
                    "{node} 上的 {process}（pid {pid}）被信号或调试器暂停",
                ),
                Text(
                    "continue it: `clusterctl exec --nodes {node} -- kill -CONT {pid}`",
                    "让它继续运行：`clusterctl exec --nodes {node} -- kill -CONT {pid}`",
                ),
            ),
            "remains": Case(
                Text(
                    "all ranks have ended, and {process} on {node} (pid {pid}) has not exited",
                    "所有 rank 都已结束，但 {node} 上的 {process}（pid {pid}）没有退出",
                ),
                Text(
                    "stop the run: `clusterctl stop`",
                    "停止任务：`clusterctl stop`",
                ),
            ),
        },
    ),
}
