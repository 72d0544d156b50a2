"""What goes wrong in the script, its environment and its data."""

from __future__ import annotations

from clusterctl.plans.symptoms.symptom import Symptom

PROGRAM = (
    Symptom(
        "CC-JOB-060",
        r"(?m:^)(cannot start |\S{1,200}: (line )?\d+: )(?P<program>[\w./+-]+): "
        r"(\[Errno \d+\]|(command )?not found)",
        "a program cannot be started on this node",
        "It is looked for on the PATH of a shell that is no login shell, then beside the job's Python. Install it on "
        "every node, write its whole path, or let `activate:` lead to it. A script of yours needs `#!` and chmod +x.",
        "clusterctl exec -- sh -c 'command -v {program}'",
    ),
    Symptom(
        "CC-JOB-061",
        r"(unrecognized arguments|arguments are required): [^\n]*--local[-_]rank",
        "the script does not read the rank as its launcher gives it",
        "`launcher: launch` passes --local-rank as torch 2 does, and the script knows --local_rank only, or the other "
        "way round. Let it take both: add_argument('--local-rank', '--local_rank', type=int). Or leave it as it is: "
        '`use_env: true` and `args: ["--local_rank=${local_rank}"]`.',
    ),
    Symptom(
        "CC-JOB-062",
        r"operator torchvision::\w+ does not exist",
        "torchvision was built for another torch",
        "Both must be CUDA builds or both CPU builds, of versions that belong together. Install the pair together, or "
        "torchvision alone by `setup:` with system_site_packages and a wheel that fits the node's torch.",
        "clusterctl exec -- python3 -m pip list",
    ),
    Symptom(
        "CC-JOB-011",
        r"\(most likely due to a circular import\)|partially initialized module",
        "two modules import each other, or a file of yours has the name of another module",
        "A file called like a module of Python (types.py, random.py, logging.py) or torch.py takes its "
        "place: rename it.",
    ),
    Symptom(
        "CC-JOB-012",
        r"undefined symbol|cannot open shared object file|version `(GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found",
        "a compiled library does not fit what is installed on this node",
        "It was built for another torch, CUDA or system, or LD_LIBRARY_PATH finds another one first.",
        "clusterctl check job.yaml",
    ),
    Symptom(
        "CC-JOB-010",
        r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'|ImportError: ",
        "a module cannot be imported on this node",
        "If it is missing everywhere: install it, or let `setup:` do that on every node. Else the environments differ, "
        "or the module lies outside of what is sent as code; a package below src/ needs `env: {PYTHONPATH: src}`. "
        "The command shows where it is missing; take the job's own Python.",
        "clusterctl exec -- python3 -c 'import {module}'",
    ),
    Symptom(
        "CC-JOB-014",
        r"Detected mismatch between collectives on ranks|DDP expects same model across all ranks"
        r"|Tensors must have (identical|same)|op.preamble.length <= op.nbytes",
        "the ranks did different things: another collective, or other shapes",
        "A collective that only some ranks reach, uneven batches, or models that were built differently. "
        "With "
        "TORCH_DISTRIBUTED_DEBUG torch says which ranks differ.",
        "clusterctl launch job.yaml --set env.TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    Symptom(
        "CC-JOB-015",
        r"Expected to have finished reduction in the prior iteration"
        r"|Expected to mark a variable ready only once",
        "some parameters got no gradient in this step, or one twice",
        "Give DistributedDataParallel find_unused_parameters=True, or let every output take part in the "
        "loss.",
        "clusterctl launch job.yaml --set env.TORCH_DISTRIBUTED_DEBUG=DETAIL",
    ),
    Symptom(
        "CC-JOB-018",
        r"DefaultCPUAllocator: (can't|not enough)|(?<!OutOf)MemoryError|Cannot allocate memory",
        "the node, or what this account may use of it, has no memory left",
        "Fewer data loader workers, smaller batches, or a higher limit (ulimit -v, the cgroup's memory.max).",
        "clusterctl exec --nodes {node} -- free -h",
        restart="out_of_memory",
    ),
    Symptom(
        "CC-JOB-016",
        r"(PermissionError|OSError): \[Errno (13|1)\]|Permission denied: '(?P<path>[^']+)'",
        "this account may not read or write something on this node",
        "Other owners or numbers of users than on the other nodes, root squash on NFS, or a cache of "
        "somebody else.",
        "clusterctl exec -- ls -ld {path}",
    ),
    Symptom(
        "CC-JOB-017",
        r"(FileNotFoundError|NotADirectoryError): \[Errno \d+\] [^:]*: '(?P<path>[^']+)'"
        r"|FileNotFoundError",
        "a file is not there on this node",
        "Data is not sent with the code: it must lie at the same path on every node. A relative path begins "
        "in the copy "
        "of the code; what a rank writes belongs below CLUSTERCTL_OUTPUT_DIR.",
        "clusterctl exec -- ls -ld {path}",
    ),
)

LOADERS = (
    Symptom(
        "CC-JOB-013",
        r"DataLoader worker \(pid(\(s\))? [\d, ]+\) (is killed by signal: (?!Terminated)"
        r"|exited unexpectedly)",
        "a process of the data loader died",
        "Killed: mostly memory. Segmentation fault: a library in the dataset. With num_workers=0 its own "
        "error is seen.",
        "clusterctl exec --nodes {node} -- sh -c 'free -h; dmesg | grep -i \"out of memory\" | tail'",
        grade="doubtful",
    ),
    Symptom(
        "CC-JOB-019",
        r"(?m:^ConnectionResetError: )",
        "a process or server that the rank spoke to went away",
        "This comes from Python's own sockets, not from torch's: mostly a process of the data loader was killed, for "
        "its memory say, or a download broke off.",
        "clusterctl exec --nodes {node} -- sh -c 'free -h; dmesg | grep -i \"out of memory\" | tail'",
        grade="doubtful",
    ),
)
