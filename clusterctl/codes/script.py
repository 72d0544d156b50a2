"""What a job's code shows before anything starts: CC-CODE. It is read by `plans/launch/script.py`."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-CODE-001": Entry(
        "warning",
        Text(
            "the script takes --local_rank, and the launcher does not pass it",
            "脚本接受 --local_rank，但启动方式不会传入它",
        ),
        why=Text(
            "torchrun passes the number as LOCAL_RANK in the environment; the script gets None or its default.",
            "torchrun 通过环境变量 LOCAL_RANK 传递该数值，脚本得到的是 None 或默认值。",
        ),
        what=Text(
            "The script parses --local_rank or --local-rank and reads LOCAL_RANK nowhere. torchrun, and torch.distributed.launch with --use-env, pass no such argument; without --use-env torch 2 passes --local-rank, with a dash. The line that is shown works with every spelling: torchrun fills `${local_rank}` for each rank.",
            "脚本解析 --local_rank 或 --local-rank，并且没有读取 LOCAL_RANK。torchrun，以及带 --use-env 的 torch.distributed.launch，不传这个参数；不带 --use-env 时，torch 2 传入的是 --local-rank（连字符）。所显示的写法对两种拼写都有效：torchrun 会为每个 rank 填入 `${local_rank}`。",
        ),
        do=Text(
            "Write the line into the job, or read LOCAL_RANK in the script",
            "把所显示的一行写进作业，或者在脚本里读取 LOCAL_RANK",
        ),
        cases={
            "": Case(fix=Text("in the job: {line}", "写进作业：{line}")),
            "launch": Case(
                fix=Text("in the job: use_env: true\nand: {line}", "写进作业：use_env: true\n以及：{line}")
            ),
        },
    ),
    "CC-CODE-002": Entry(
        "warning",
        Text(
            "the script starts its own workers, and so does the launcher",
            "脚本自行启动 worker，而启动方式也会启动",
        ),
        why=Text(
            "Each rank of torchrun starts all workers again: too many processes, in groups of their own, or none at all.",
            "torchrun 的每个 rank 都会再启动全部 worker：进程过多、各自成组，或者一个都没有。",
        ),
        what=Text(
            "The script calls torch.multiprocessing.spawn. It wants one process on each node, which `launcher: python` starts. On several nodes the script must count its ranks from the node's number: from arguments that it takes, or from NODE_RANK and NNODES in the environment.",
            "脚本调用了 torch.multiprocessing.spawn，它需要每个节点只有一个进程，也就是 `launcher: python`。有多个节点时，脚本必须从节点的编号开始计算 rank：使用它接受的参数，或者环境变量 NODE_RANK 和 NNODES。",
        ),
        do=Text("Set `launcher: python`", "设置 `launcher: python`"),
        cases={
            "": Case(
                fix=Text(
                    'in the job: launcher: python\nand with several nodes, at the start of the worker function in the script: rank += int(os.environ["NODE_RANK"]) * int(os.environ["NPROC_PER_NODE"]); world_size = int(os.environ["NNODES"]) * int(os.environ["NPROC_PER_NODE"])',
                    '写进作业：launcher: python\n有多个节点时，还要在脚本的 worker 函数开头写：rank += int(os.environ["NODE_RANK"]) * int(os.environ["NPROC_PER_NODE"]); world_size = int(os.environ["NNODES"]) * int(os.environ["NPROC_PER_NODE"])',
                )
            ),
            "args": Case(
                fix=Text(
                    "in the job: launcher: python\nand: {line}", "写进作业：launcher: python\n以及：{line}"
                )
            ),
        },
    ),
    "CC-CODE-003": Entry(
        "warning",
        Text("the address in the code is not that of node 0", "代码里的地址不是 0 号节点的地址"),
        why=Text(
            "The ranks connect to that address, and wait there until they time out, or each node trains on its own.",
            "各 rank 会连接这个地址，一直等到超时；或者各节点各自训练。",
        ),
        what=Text(
            "All ranks meet at node 0, whose training address and port clusterctl passes as MASTER_ADDR and MASTER_PORT, and as the placeholders `${master_addr}` and `${master_port}`. An address of another cluster, of another node, or localhost with several nodes leads elsewhere. Names that only the nodes can resolve are not judged.",
            "所有 rank 在 0 号节点会合，clusterctl 用 MASTER_ADDR、MASTER_PORT 和占位符 `${master_addr}`、`${master_port}` 传递它的训练地址和端口。其他集群的地址、其他节点的地址，或者多个节点时的 localhost，都会连到别处。只有节点才能解析的主机名不判断。",
        ),
        do=Text("Let clusterctl pass the address", "让 clusterctl 传递地址"),
        cases={
            "": Case(fix=Text('in the script: init_method="env://"', '在脚本里写：init_method="env://"')),
            "master": Case(
                fix=Text("remove the line: MASTER_ADDR is set already", "删除这一行：MASTER_ADDR 已经设置好")
            ),
            "args": Case(fix=Text("in the job: {line}", "写进作业：{line}")),
        },
    ),
    "CC-CODE-004": Entry(
        "warning",
        Text("an address for init_process_group has no tcp://", "传给 init_process_group 的地址没有 tcp://"),
        why=Text(
            "torch fails with `No rendezvous handler for ://`.",
            "torch 会报错 `No rendezvous handler for ://`。",
        ),
        what=Text(
            "`init_method` is a URL. An address without a scheme, as 10.0.0.1:23456, is none.",
            "`init_method` 是 URL；没有协议前缀的地址（例如 10.0.0.1:23456）不是 URL。",
        ),
        do=Text("Write `tcp://` before the address", "在地址前面写上 `tcp://`"),
        cases={
            "": Case(fix=Text('in the script: init_method="env://"', '在脚本里写：init_method="env://"')),
            "args": Case(fix=Text("in the job: {line}", "写进作业：{line}")),
        },
    ),
    "CC-CODE-005": Entry(
        "warning",
        Text(
            "the code uses torch._six, which torch 2 does not have",
            "代码使用了 torch._six，而 torch 2 没有它",
        ),
        why=Text(
            "It fails when the line is executed: the nodes need torch 2.2 or newer.",
            "执行到这一行就会失败：节点需要 torch 2.2 或更新的版本。",
        ),
        what=Text(
            "torch 2.0 removed the module. Replace the name where it is used: `torch._six.string_classes` by `str`, `torch._six.int_classes` by `int`, `torch._six.inf` by `math.inf`, `torch._six.container_abcs` by `collections.abc`. Then remove the import, if there is one.",
            "torch 2.0 删除了这个模块。在使用处替换：`torch._six.string_classes` 换成 `str`，`torch._six.int_classes` 换成 `int`，`torch._six.inf` 换成 `math.inf`，`torch._six.container_abcs` 换成 `collections.abc`。如果有对应的 import，再把它删掉。",
        ),
        do=Text("Replace the name where it is used", "在使用处替换"),
        cases={
            "": Case(
                fix=Text(
                    "write str for torch._six.string_classes, math.inf for torch._six.inf, collections.abc for torch._six.container_abcs",
                    "torch._six.string_classes 换成 str，torch._six.inf 换成 math.inf，torch._six.container_abcs 换成 collections.abc",
                )
            ),
        },
    ),
    "CC-CODE-006": Entry(
        "warning",
        Text(
            "the script takes its rank as an argument, and the job does not pass it",
            "脚本用参数接收 rank，但作业没有传入",
        ),
        why=Text(
            "All processes get the same default, so they wait for each other, or for an address of their own.",
            "所有进程得到相同的默认值，会互相等待，或者争用同一个地址。",
        ),
        what=Text(
            "The script gives the value of an option to init_process_group as `rank`: it is meant to be started once on each machine, with another number. `launcher: python` starts it so, and the placeholder `${node_rank}` is the number.",
            "脚本把一个选项的值作为 `rank` 传给 init_process_group：它应当在每台机器上各启动一次，编号各不相同。`launcher: python` 正是这样启动，占位符 `${node_rank}` 就是编号。",
        ),
        do=Text(
            "Set `launcher: python` and pass `${node_rank}`", "设置 `launcher: python`，并传入 `${node_rank}`"
        ),
        cases={
            "": Case(
                fix=Text(
                    "in the job: launcher: python\nnproc_per_node: 1\n{line}",
                    "写进作业：launcher: python\nnproc_per_node: 1\n{line}",
                )
            ),
        },
    ),
}
