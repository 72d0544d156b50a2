"""What a job's code shows before anything starts: CC-CODE. It is read by `plans/launch/script.py`."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry

ENTRIES: Mapping[str, Entry] = {
    "CC-CODE-001": Entry(
        "warning",
        "the script takes --local_rank, and the launcher does not pass it",
        why="torchrun passes the number as LOCAL_RANK in the environment; the script gets None or its default.",
        what="The script parses --local_rank or --local-rank and reads LOCAL_RANK nowhere. torchrun, and torch.distributed.launch with --use-env, pass no such argument; without --use-env torch 2 passes --local-rank, with a dash. The line that is shown works with every spelling: torchrun fills `${local_rank}` for each rank.",
        do="Write the line into the job, or read LOCAL_RANK in the script",
        cases={
            "": Case(fix="in the job: {line}"),
            "launch": Case(fix="in the job: use_env: true\nand: {line}"),
        },
    ),
    "CC-CODE-002": Entry(
        "warning",
        "the script starts its own workers, and so does the launcher",
        why="Each rank of torchrun starts all workers again: too many processes, in groups of their own, or none at all.",
        what="The script calls torch.multiprocessing.spawn. It wants one process on each node, which `launcher: python` starts. On several nodes the script must count its ranks from the node's number: from arguments that it takes, or from NODE_RANK and NNODES in the environment.",
        do="Set `launcher: python`",
        cases={
            "": Case(
                fix='in the job: launcher: python\nand with several nodes, at the start of the worker function in the script: rank += int(os.environ["NODE_RANK"]) * int(os.environ["NPROC_PER_NODE"]); world_size = int(os.environ["NNODES"]) * int(os.environ["NPROC_PER_NODE"])'
            ),
            "args": Case(fix="in the job: launcher: python\nand: {line}"),
        },
    ),
    "CC-CODE-003": Entry(
        "warning",
        "the address in the code is not that of node 0",
        why="The ranks connect to that address, and wait there until they time out, or each node trains on its own.",
        what="All ranks meet at node 0, whose training address and port clusterctl passes as MASTER_ADDR and MASTER_PORT, and as the placeholders `${master_addr}` and `${master_port}`. An address of another cluster, of another node, or localhost with several nodes leads elsewhere. Names that only the nodes can resolve are not judged.",
        do="Let clusterctl pass the address",
        cases={
            "": Case(fix='in the script: init_method="env://"'),
            "master": Case(fix="remove the line: MASTER_ADDR is set already"),
            "args": Case(fix="in the job: {line}"),
        },
    ),
    "CC-CODE-004": Entry(
        "warning",
        "an address for init_process_group has no tcp://",
        why="torch fails with `No rendezvous handler for ://`.",
        what="`init_method` is a URL. An address without a scheme, as 10.0.0.1:23456, is none.",
        do="Write `tcp://` before the address",
        cases={
            "": Case(fix='in the script: init_method="env://"'),
            "args": Case(fix="in the job: {line}"),
        },
    ),
    "CC-CODE-005": Entry(
        "warning",
        "the code uses torch._six, which torch 2 does not have",
        why="It fails when the line is executed: the nodes need torch 2.2 or newer.",
        what="torch 2.0 removed the module. Replace the name where it is used: `torch._six.string_classes` by `str`, `torch._six.int_classes` by `int`, `torch._six.inf` by `math.inf`, `torch._six.container_abcs` by `collections.abc`. Then remove the import, if there is one.",
        do="Replace the name where it is used",
        cases={
            "": Case(
                fix="write str for torch._six.string_classes, math.inf for torch._six.inf, collections.abc for torch._six.container_abcs"
            ),
        },
    ),
    "CC-CODE-006": Entry(
        "warning",
        "the script takes its rank as an argument, and the job does not pass it",
        why="All processes get the same default, so they wait for each other, or for an address of their own.",
        what="The script gives the value of an option to init_process_group as `rank`: it is meant to be started once on each machine, with another number. `launcher: python` starts it so, and the placeholder `${node_rank}` is the number.",
        do="Set `launcher: python` and pass `${node_rank}`",
        cases={
            "": Case(fix="in the job: launcher: python\nnproc_per_node: 1\n{line}"),
        },
    ),
}
