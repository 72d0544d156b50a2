"""A run and its results, Slurm clusters: CC-SYNC, CC-RUN, CC-END, CC-PULL, CC-COPY, CC-CLEAN, CC-SLURM."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

SET_SOURCE = "set sync: {source: ...} to the directory that holds the code, relative to the job file"
STUCK = "no progress on the node for a long time: its file system hangs"
NO_PROGRESS = "no progress on the node for {limit:.0f} s"
NO_RESULT = "no result for {limit:.0f} h"
SHORTEN_RULES = "shorten it: ignore a directory with one rule instead of each file with its own"
EXCLUDE_DATA = (
    "exclude what is not code, here or in .gitignore: sync: {exclude: [{first}]}; `--big` sends it anyway"
)
WRITES_ARE_LOST = "check the file system of the node's working directory: it does not keep what is written"
CHECK_WORKDIR_OR_CHANGE_IT = (
    "the file system of the node's working directory hangs; check it, or set another `workdir`"
)
CHECK_WORKDIR = "the file system of its working directory hangs; check it on the node"
CHECK_WORKDIR_THEN_CLEAN = (
    "the file system of its working directory hangs; check it on the node, then run clean again"
)
SLOW_NODE = "check whether its disk or file system is slow, or its memory full: run `import torch` on the node by hand"
RUN_TOGETHER = "read the log of a rank: it may report that GPUs are missing. Lightning needs `devices`, `num_nodes` and `strategy`; accelerate, TRL and DeepSpeed need torchrun (`script:` or `module:`) or the numbers of machines and processes; a script of your own needs `init_process_group`. If each rank is to work alone, write `alone: ok` in the job"
PASS_THE_RANK = (
    "pass ${node_rank}, ${nnodes} and ${master_addr} to it, or use `launcher: torchrun` to start the workers"
)
TRIED_AGAIN = "{command} tries again; the result of the run does not change"
NOT_SENT = "not sent: {notification}: {problem}"
EXIT_1 = "Exit code 1"
SESSION_CLOSED = "the node closed the session"

ENTRIES: Mapping[str, Entry] = {
    "CC-SYNC-001": Entry(
        "error",
        "the source directory is wrong: missing, not a directory, `/`, or a whole home directory",
        do="Set `sync: {source: ...}` to the folder with the script",
        cases={
            "": Case("the source directory {source} cannot be used: {reason}", SET_SOURCE),
            "no-directory": Case("the source {source} is not a directory", SET_SOURCE),
            "root": Case(
                "the source is the root of the file system; it would be sent to every node", SET_SOURCE
            ),
            "home": Case(
                "the source {source} is a whole home directory; it would be sent to every node", SET_SOURCE
            ),
        },
    ),
    "CC-SYNC-002": Entry(
        "error",
        "the source is larger than 500 MB or 50 000 files; the largest parts are listed, and `--big` sends it anyway",
        do="Use `.gitignore` or `sync: {exclude: [data/]}`; `--big` sends it anyway",
        cases={
            "files": Case(
                "the source tree has {count} files; at most {most} can be sent",
                "pack them into archives, or copy them to the nodes by other means",
            ),
            "": Case("the source tree has {amount}, the limit is {limit}; largest: {largest}", EXCLUDE_DATA),
            "incomplete": Case(
                "the source tree has at least {amount}, the limit is {limit}; largest: {largest}",
                EXCLUDE_DATA,
            ),
        },
    ),
    "CC-SYNC-003": Entry(
        "error",
        "the code on a node differs from the local code; nothing was started",
        do="Launch again; if it happens again, report it",
        cases={
            "": Case("the code on the node differs from the local code in: {paths}", WRITES_ARE_LOST),
            "unknown": Case("the code on the node differs from the local code", WRITES_ARE_LOST),
        },
    ),
    "CC-SYNC-004": Entry(
        "error",
        "a file name in the source is not UTF-8",
        do="Rename the file",
        cases={
            "": Case(
                "a file name in the source tree is not UTF-8: {shown}",
                "rename it, or list it in .gitignore or sync.exclude if the job does not need it",
            ),
        },
    ),
    "CC-SYNC-005": Entry(
        "error",
        "a file of the source cannot be read",
        do="Change the file's permissions, or exclude it",
        cases={
            "": Case(
                "cannot read {path} in the source tree: {reason}",
                "make it readable, or list it in .gitignore or sync.exclude if the job does not need it",
            ),
        },
    ),
    "CC-SYNC-006": Entry(
        "error",
        "a file changed while it was read or sent: launch again",
        do="Launch again when no program writes into the source",
        cases={
            "": Case(
                "{path} changed while it was being read",
                "wait until the program that writes it has finished, then launch again; if it is a log or an output, exclude it",
            ),
        },
    ),
    "CC-SYNC-007": Entry(
        "error",
        "the node received a malformed request: different versions, or a bug",
        do="Use the same version on both sides: launch again; if it happens again, report it",
    ),
    "CC-SYNC-008": Entry(
        "error",
        "the transfer was interrupted",
        do="Launch again: it continues after the last complete file",
        cases={
            "closed": Case("the node closed the connection during the sync"),
            "answer": Case(
                "the node's reply is invalid", "launch again; if it happens again, please report it"
            ),
        },
    ),
    "CC-SYNC-009": Entry(
        "error",
        "a file was corrupted in transfer",
        do="Launch again; if it happens again, memory or disk of the node is faulty",
    ),
    "CC-SYNC-010": Entry(
        "error",
        "the job's `script` is not among the files that are sent",
        do='Check whether `.gitignore` or `exclude` ignores it; `"!name"` keeps it',
        cases={
            "program": Case(
                "{file}: {program} is not in the code that is sent from {root}",
                "the command runs in the copy of sync.source; check whether .gitignore or sync.exclude excludes it",
            ),
            "script": Case(
                "{file}: script: {script} not found in {root}",
                "give the path of the script relative to sync.source",
            ),
            "script-near": Case(
                "{file}: script: {script} not found in {root}; there is {guess}",
                "set `script: {guess}`, or another path relative to sync.source",
            ),
            "script-excluded": Case(
                "{file}: script: {script} is in {root} but is not sent",
                'it is excluded by .gitignore or sync.exclude; to send it: `sync: {exclude: ["!{script}"]}`',
            ),
        },
    ),
    "CC-SYNC-011": Entry(
        "error",
        "the run's `code/` already exists with other content",
        do="Launch again: each run has its own directory",
    ),
    "CC-SYNC-012": Entry(
        "error",
        STUCK,
        do="Run `findmnt` and `dmesg` on the node; set another `workdir:`",
        cases={
            "": Case(NO_PROGRESS, CHECK_WORKDIR_OR_CHANGE_IT),
            "unanswered": Case(NO_RESULT, CHECK_WORKDIR_OR_CHANGE_IT),
        },
    ),
    "CC-SYNC-013": Entry(
        "error",
        "a `.gitignore` or `sync.exclude` has too many rules, or a rule that is too long",
        do="Ignore a directory with one rule instead of each file with its own",
        cases={
            "file": Case("{file} is larger than {mib} MiB", SHORTEN_RULES),
            "rules": Case("{count} ignore rules apply at {file}, more than {most}", SHORTEN_RULES),
            "rule": Case("the ignore rule at {location} is longer than {most} bytes", SHORTEN_RULES),
        },
    ),
    "CC-RUN-001": Entry(
        "error",
        "a bug in clusterctl, in the work for one node",
        what="Please report it",
        do="The message shows the path of a file: please report it",
        cases={
            "": Case(
                Same("{kind}: {failure}"),
                "this is a bug in clusterctl: please report it together with the text above",
            ),
        },
    ),
    "CC-RUN-002": Entry(
        "error",
        "a step failed on a node with an unexpected error",
        do="The evidence is the node's own error; try again",
    ),
    "CC-RUN-003": Entry(
        "error",
        "the process of a step died on a node while the connection was open, possibly because memory ran out",
        do="Check the node's memory: `free -h`, `dmesg`",
        cases={
            "": Case(
                "`{verb}` {status} on the node, without a result",
                "it was killed, possibly because memory ran out: check `dmesg` on the node",
            ),
            "ended": Case(SESSION_CLOSED),
        },
    ),
    "CC-RUN-004": Entry(
        "error",
        "data from a node is invalid",
        do="Check whether a startup file prints to standard output; otherwise report it",
        cases={
            "": Case("the data from the node is invalid", "please report this"),
            "unsolicited": Case(
                "`{verb}` sends data without a request and does not read", "please report this"
            ),
        },
    ),
    "CC-RUN-010": Entry(
        "error",
        "a name cannot be used on a node",
        do="Choose another name for the job or node",
    ),
    "CC-RUN-011": Entry(
        "error",
        "the node does not have this run, or no longer has it",
        do="`clusterctl ps` lists the runs; `clean` may have removed it",
    ),
    "CC-RUN-012": Entry(
        "error",
        "the code of clusterctl itself was corrupted in transfer to the node",
        do="Launch again; if it happens again, check the node's memory and disk",
    ),
    "CC-RUN-013": Entry(
        "error",
        "this run was already started on this node",
        do="Launch again: the run gets a new name",
    ),
    "CC-RUN-014": Entry(
        "error",
        "the agent on the node exited unexpectedly",
        do="Its last output is shown; check the node's memory",
    ),
    "CC-RUN-015": Entry(
        "error",
        "this part of the run is on another machine: the nodes share a home directory, and the inventory's node names differ from those at the launch",
        do="Give the machines the same names as at the launch",
    ),
    "CC-RUN-018": Entry(
        "error",
        "the run belongs to another account of the node, and only that account can stop it; nothing was changed (exit code 5)",
        do="Log in as that account and stop it there, or ask its owner to do so",
        cases={
            "": Case(
                "the run belongs to the account {account}; nothing was changed",
                "stop it as {account}: set `user: {account}` in an inventory, or ask its owner to stop it",
            ),
        },
    ),
    "CC-RUN-030": Entry(
        "error",
        "the job's Python on the node cannot import torchrun",
        do="Run `clusterctl check job.yaml`; set the right `python:`",
        cases={
            "environment": Case(
                "torchrun cannot be imported on the node",
                "add torch to what `setup` installs, or set `system_site_packages: true` to use the node's torch",
            ),
            "": Case(
                "torchrun cannot be imported on the node",
                "make `import torch.distributed.run` work in that Python; `clusterctl check` shows which one it is",
            ),
        },
    ),
    "CC-RUN-031": Entry(
        "error",
        "the run did not start; the agent reports the reason",
        do="The agent's reason is shown: fix that",
        cases={
            "": Case("the run did not start"),
        },
    ),
    "CC-RUN-032": Entry(
        "error",
        SESSION_CLOSED,
        do="Run `clusterctl status`; check whether the agent was killed, or the node ran out of memory",
        cases={
            "": Case(SESSION_CLOSED),
        },
    ),
    "CC-RUN-033": Entry(
        "error",
        "node 0 reported no port for the rendezvous",
        do="Check `ports:` of node 0; launch again",
        cases={
            "": Case("the master reported no port"),
        },
    ),
    "CC-RUN-034": Entry(
        "error",
        "a node took too long to get ready: a slow disk, or memory is full",
        do="Its disk is slow or its memory is full: run `import torch` on the node by hand",
        cases={
            "": Case("the node did not report {event!r} within {limit:.0f} s", SLOW_NODE),
            "import": Case("torchrun was not imported within {limit:.0f} s", SLOW_NODE),
        },
    ),
    "CC-RUN-035": Entry(
        "error",
        "a node sent invalid data while the run was followed",
        do="Run `clusterctl attach` again; if it happens again, report it",
        cases={
            "port": Case("the node reported no port"),
            "": Case("the node sent invalid data: {reason}"),
        },
    ),
    "CC-RUN-036": Entry(
        "error",
        "a process of the run has replaced its log by something that is not a file; that log is not read",
        do="Look at what the script does to its own output; the other logs are complete",
        cases={
            "": Case(
                "{file} is a {kind} and not a file any more: it was replaced on the node, and is not read"
            ),
        },
    ),
    "CC-RUN-037": Entry(
        "error",
        "a node's stream breaks again and again without anything new",
        do="Look at the processes of the node: `clusterctl exec --nodes NODE -- ps x`; the run itself goes on",
        cases={
            "": Case("the stream broke {count} times in a row without anything new"),
        },
    ),
    "CC-RUN-040": Entry(
        "error",
        "another run uses the GPUs or the node that this one needs; its name is shown, and nothing was started (exit code 3); [`launch --wait`](../sharing.md#gpus-that-others-use) waits",
        do="Use `clusterctl launch --wait`, other `gpus:` or other nodes",
        cases={
            "": Case(
                "another run uses the GPUs or nodes that this one needs",
                "`clusterctl launch --wait` waits until they are free; or use other GPUs (`gpus:`) or nodes (--exclude)",
            ),
        },
    ),
    "CC-RUN-050": Entry(
        "warning",
        "all nodes would start the same process",
        why="Each node may train on its own.",
        what="`launcher: python` and `command` start one process on each node. Neither the job nor the files that it runs use a placeholder such as `${node_rank}`, or one of the variables NODE_RANK, NNODES, MASTER_ADDR, RANK, so nothing shows how the processes find each other.",
        do="Use `${node_rank}`, `${nnodes}`, `${master_addr}` in `args` or `command`; or `launcher: torchrun`",
        cases={
            "": Case(fix=PASS_THE_RANK),
            "args": Case(fix="in the job: {line}"),
            "spawn": Case(
                fix='at the start of the worker function in the script: rank += int(os.environ["NODE_RANK"]) * int(os.environ["NPROC_PER_NODE"]); world_size = int(os.environ["NNODES"]) * int(os.environ["NPROC_PER_NODE"])'
            ),
        },
    ),
    "CC-RUN-051": Entry(
        "warning",
        "workers started by your program have another WORLD_SIZE than planned; a warning, [where that can be seen](../job.md#other-launchers-mpspawn-torchdistributedlaunch-ray-mpi)",
        do="With a nested torchrun or accelerate, pass it `${nnodes}`, `${node_rank}`, `${master_addr}`, `${master_port}`",
        cases={
            "": Case(
                "workers run with WORLD_SIZE {observed}, planned is {planned}: they do not train together as the job requires",
                PASS_THE_RANK,
            ),
        },
    ),
    "CC-RUN-052": Entry(
        "warning",
        "the job's module is in src/, where Python does not look",
        why="Python finds the module only if the package is installed on the nodes.",
        what="`module:` is imported from the folder of the code, which is the working directory; a package below `src/` is not found from there.",
        do="Set `env: {PYTHONPATH: src}`; ignore it if the package is installed on the nodes",
        cases={
            "": Case(fix="set `env: {PYTHONPATH: src}`, unless the package is installed on the nodes"),
        },
    ),
    "CC-RUN-053": Entry(
        "error",
        "all ranks ended with exit code 0, but formed no process group of the planned size",
        what="Every rank reports that it was never in a process group of the planned number of ranks. So each has trained a model of its own, or has done nothing.",
        do="Give the program the numbers of nodes and processes, start it by torchrun, or call `init_process_group`; if each rank is to work alone, `alone: ok` in the job",
        cases={
            "": Case(
                "{ranks} ranks ran alone: all ended with exit code 0, and were in no process group of {planned}",
                RUN_TOGETHER,
            ),
            "groups": Case(
                "the {ranks} ranks formed process groups of {largest}, {planned} were planned; all ended with exit code 0",
                RUN_TOGETHER,
            ),
            "suspected": Case(
                "the ranks of the {planned} nodes may have run alone: nothing distinguishes the nodes, and no process group of all of them was seen",
                PASS_THE_RANK,
            ),
        },
    ),
    "CC-RUN-060": Entry(
        "error",
        "a run that Python code started or waited for has failed, or its command ended early",
        do="Read `cause` of the exception; `run.logs()` has what the ranks wrote",
        cases={
            "": Case(Same("{place}: {text} (run {run}: {state})"), "`run.logs()` has what the ranks wrote"),
            "ended": Case(
                "run {run} ended as {state}: {reasons}", "`run.status()` has the state of each node"
            ),
            "early": Case("the run was not started, or not followed to its end: {reason}"),
            "unread": Case("the command wrote no complete answer: {reason}"),
        },
    ),
    "CC-RUN-061": Entry(
        "error",
        "the result of a function that Python code ran on all ranks is missing or cannot be read",
        what="Results are JSON: at most 1 MiB for each rank, 64 MiB and a million values together. They are lines of the log.",
        do="Return numbers, texts, lists and dicts; write what is larger to a file in `${output_dir}` and `pull` it",
        cases={
            "unwritable": Case(
                "{place}: the result cannot be written as JSON: {reason} (run {run})",
                "return numbers, texts, lists or dicts, such as `tensor.tolist()`",
            ),
            "large": Case(
                "{place}: the result has {reason} characters, the limit is {most} MiB (run {run})",
                "write it to a file in the directory CLUSTERCTL_OUTPUT_DIR, then `run.pull()`",
            ),
            "total": Case("the results of all ranks have more than {most} MiB (run {run})"),
            "values": Case("the results of all ranks have more than {most} values of JSON (run {run})"),
            "missing": Case(
                "rank {rank} has returned nothing (run {run})",
                "the function must return, not leave by `sys.exit()` or `os._exit()`",
            ),
            "twice": Case("{place}: more than one node has sent its result (run {run})"),
            "malformed": Case("{place}: the result is not as a rank writes it: {reason} (run {run})"),
        },
    ),
    "CC-END-001": Entry(
        "error",
        "the command of `on_end` cannot be run, failed, or exceeded its `time_limit`",
        do="Run the command by hand; check whether it is executable (`chmod +x`)",
        cases={
            "": Case("on_end: {program} {problem}", "run it by hand; the result of the run does not change"),
        },
    ),
    "CC-END-002": Entry(
        "error",
        "a notification could not be sent; the service's response is shown, and the next `attach` tries again",
        do="The service's response is shown; `clusterctl attach RUN` tries again",
        cases={
            "not-sent": Case(NOT_SENT, TRIED_AGAIN),
        },
    ),
    "CC-END-003": Entry(
        "error",
        "the variable for a URL or a signing secret is not set on this machine, or its URL cannot be used",
        what="Exit code 2 if it stops a launch",
        do="Export the variable with an `https://` URL",
        cases={
            "": Case("notify: {fault}", "export it before `launch`, or remove the entry"),
            "not-sent": Case(NOT_SENT, TRIED_AGAIN),
        },
    ),
    "CC-PULL-001": Entry(
        "error",
        "a node has more than 100 000 files or 100 GiB to download; `--no-limit` downloads them",
        do="Use `--no-limit`, or write fewer files to `${output_dir}`",
        cases={
            "": Case("{excess} to download", "--no-limit downloads them anyway"),
            "total": Case("{gib} GiB to download, more than {most}", "--no-limit downloads them anyway"),
        },
    ),
    "CC-PULL-002": Entry(
        "error",
        "the local disk is full, or has too little space; downloaded files stay, and the next `pull` continues",
        what=EXIT_1,
        do="Free space on this machine, then `pull` again: it continues",
        cases={
            "write": Case(
                "cannot write below {path}: {reason}",
                "free some space and pull again: downloaded files stay, and the rest continues where it stopped",
            ),
            "room": Case(
                "{size} to download, {missing} more than is free at {folder}",
                "free some space, or give a DIR on another disk",
            ),
            "interrupted": Case("interrupted"),
        },
    ),
    "CC-PULL-003": Entry(
        "error",
        "a node sends other data than announced, or closed the connection; no incomplete file got its final name",
        do="Run `pull` again",
        cases={
            "": Case("the node sent other data than announced"),
            "closed": Case("the node closed the connection"),
            "files": Case(
                "the node did not send files of the checkpoint as it had listed them",
                "check its disk, for example with `dmesg`; files that other nodes have too come from there",
            ),
        },
    ),
    "CC-PULL-004": Entry(
        "error",
        "the local directory cannot be used",
        what=EXIT_1,
        do="Check path and permissions of the local directory",
        cases={
            "": Case("{name}: {reason}", "give a directory that you may write to"),
        },
    ),
    "CC-PULL-005": Entry(
        "error",
        "not the name of a job, or of a run whose job is known: use `--job`",
        do="Use `pull --job NAME`",
        cases={
            "": Case("{job!r} is not the name of a job", "the name is in the job file: `name:`"),
        },
    ),
    "CC-PULL-006": Entry(
        "error",
        STUCK,
        do="Run `findmnt` and `dmesg` on the node",
        cases={
            "": Case(NO_PROGRESS, CHECK_WORKDIR),
            "unanswered": Case(NO_RESULT, CHECK_WORKDIR),
            "slow": Case(
                "it sends less than {rate} bytes per second; the download from it was ended",
                "check its network and its disks; the same command again continues where it stopped",
            ),
        },
    ),
    "CC-PULL-007": Entry(
        "error",
        "another `pull` is writing into the same directory",
        what=EXIT_1,
        do="Wait for it, or use another directory",
        cases={
            "": Case(
                "another pull is writing below {target}",
                "wait until it ends, and pull again; or give another DIR",
            ),
        },
    ),
    "CC-PULL-008": Entry(
        "error",
        "no node has outputs of the job in `--job`",
        do="`clusterctl ps` shows the names of jobs: check the spelling",
        cases={
            "": Case(
                "no node has outputs of job {job!r}",
                "see `clusterctl ps`: the name of a run is JOB-TIME-NUMBER",
            ),
        },
    ),
    "CC-PULL-009": Entry(
        "error",
        "a checkpoint cannot be downloaded whole",
        do="`clusterctl status RUN` shows the checkpoints of a run, and which is safe",
        cases={
            "none": Case(
                "the nodes of {run} keep no checkpoint",
                "they do for a job with `checkpoints:`, once one is complete; without --checkpoint the outputs of each node are downloaded",
            ),
            "unknown": Case("{run} has no checkpoint {name}", "it has {names}"),
            "lost": Case("the checkpoint is lost: no node has all of its files", "see `{command}`"),
            "not-whole": Case(
                "checkpoint {name}: the nodes that answered have {found} of its {files} files",
                "try again when the other nodes answer, or name an older checkpoint",
            ),
            "differs": Case(
                "checkpoint {name}: {nodes} have different contents of {path}",
                "leave one of them out with --exclude, or name another checkpoint",
            ),
        },
    ),
    "CC-COPY-001": Entry(
        "error",
        "`cp` needs a source and a destination, one of them on a node",
        do="Write `NODE:PATH` for a path on a node: `clusterctl cp gpu01:ckpt/last.pt .`",
        cases={
            "one": Case(
                "cp needs a source and a destination", "add the destination: `clusterctl cp gpu01:FILE .`"
            ),
            "local": Case(
                "sources and destination are all on this machine: {target}",
                "write NODE:PATH for a path on a node; a local path with a colon needs a slash before it: ./a:b",
            ),
            "mixed": Case(
                "some sources are on this machine and some on nodes", "copy them with two commands"
            ),
            "gather-here": Case(
                "--gather needs a directory on nodes", "write NODES:DIR: `clusterctl cp --gather all:ckpt`"
            ),
            "gather": Case(
                "--gather needs several nodes, and only {name} is named",
                "name all of them: `clusterctl cp --gather all:ckpt`",
            ),
        },
    ),
    "CC-COPY-002": Entry(
        "error",
        "a file or directory to copy does not exist",
        do="Check the path; on a node a relative one begins in the home directory, with `--run` in the run's working directory",
        cases={
            "here": Case("{path}: {reason}", "check the path"),
            "reported": Case(
                Same("{message}"),
                "check the path: `clusterctl ssh NODE`; a relative one begins in the home directory, with `cp --run` in the "
                "run's working directory",
            ),
        },
    ),
    "CC-COPY-003": Entry(
        "error",
        "the destination of a copy is not a directory, or a directory has the name of a file",
        do="Remove what is in the way, or instead of a link name what it leads to (`HF_HOME` or `to:` for a model); a missing directory is created if the destination ends in `/`",
        cases={
            "here": Case("{path} is not a directory", "give a directory as destination"),
            "parent": Case(
                "{path} does not exist",
                "create it, or write a / at the end of the destination: it is created then",
            ),
            "reported": Case(
                Same("{message}"),
                "if it is in the way, remove it on the node, or instead of a link name what it leads to (`HF_HOME` or `to:` for "
                "a model); a missing directory is created if the destination ends in /",
            ),
        },
    ),
    "CC-COPY-004": Entry(
        "error",
        "a node has no room for what is to be copied",
        what="Space, inodes or the quota of the account are not enough. This is found before the first byte is sent.",
        do="Free space on the node, or copy to a directory on another file system",
        cases={
            "reported": Case(
                Same("{message}"),
                "free space on the node, or name a directory on another file system",
            ),
        },
    ),
    "CC-COPY-005": Entry(
        "error",
        "a file or directory on a node cannot be used, because it belongs to another account",
        what="A container that runs as root leaves files of root. This is found before the first byte is sent.",
        do="On the node, give the directory to your account: `sudo chown -R ACCOUNT DIRECTORY`",
        cases={
            "reported": Case(
                Same("{message}"),
                "on the node: `sudo chown -R ACCOUNT DIRECTORY`, or name another directory; a container that runs as root leaves files of root",
            ),
        },
    ),
    "CC-CLEAN-001": Entry(
        "error",
        "the directory lacks the file `id` that marks a working directory of clusterctl; nothing was removed in it",
        do="Check `workdir:`; without the mark nothing is removed",
    ),
    "CC-CLEAN-002": Entry(
        "error",
        "a run cannot be removed now: it is running, may be running elsewhere, or contains files of another account",
        do="`clusterctl stop` it first, or let its owner run `clean`",
    ),
    "CC-CLEAN-003": Entry(
        "error",
        STUCK,
        do="Run `findmnt` and `dmesg` on the node",
        cases={
            "": Case(NO_PROGRESS, CHECK_WORKDIR_THEN_CLEAN),
            "unanswered": Case(NO_RESULT, CHECK_WORKDIR_THEN_CLEAN),
        },
    ),
    "CC-SLURM-001": Entry(
        "error",
        "the job file uses something that a run on Slurm does not support",
        why="On a Slurm cluster Slurm chooses the nodes and their GPUs; some features of runs over SSH do not exist "
        "there",
        do="Change the job file, or the value with --set",
        cases={
            "all": Case(
                "nodes: all means nothing on a Slurm cluster",
                "give a number in {file}, or on the command line: --set nodes=4",
            ),
            "spares": Case(
                "{names}: no node is left besides {spares} spares", "name more nodes, or lower restart.spares"
            ),
            "pattern": Case(
                "{pattern}: only names and ranges can be given to Slurm",
                "write them as gpu01,gpu[03-08], or give a number",
            ),
            "deep-setup": Case(
                "--deep: the job's `setup` makes its environment only when the job starts",
                "give a Python with torch: --set setup=null --set python=PATH",
            ),
            "gpus": Case(
                "gpus: Slurm chooses the GPUs of a job",
                "remove gpus from {file}, and set nproc_per_node to their number",
            ),
            "gpus-per-node": Case(
                "nproc_per_node: gpu needs the number of GPUs to ask Slurm for",
                "set slurm.gpus_per_node in the inventory, or a number: --set nproc_per_node=8",
            ),
            "wait": Case("--wait: on a Slurm cluster every job waits for its nodes", "remove --wait"),
            "skip": Case(
                "--skip: on a Slurm cluster the nodes of the job make the checks",
                "write the codes as `waive` in the job file",
            ),
        },
    ),
    "CC-SLURM-002": Entry(
        "error",
        "`slurm` in the inventory is wrong",
        do="Correct the value that is shown",
        cases={
            "name": Case(
                "{word!r} is not a name of Slurm's",
                "use letters, digits, '.', '_', '-', '@', '+', ':' and ','",
            ),
            "option": Case(
                "{word!r} is not an option of sbatch in one word", "write it as --constraint=a100"
            ),
            "own-option": Case(
                "clusterctl sets {name} itself",
                "remove it; partition, account, qos and time are keys of `slurm`, the number of nodes is the job's",
            ),
            "both": Case(
                "an inventory has either nodes or slurm, not both",
                "keep one; use another file for the other cluster",
            ),
        },
    ),
    "CC-SLURM-003": Entry(
        "error",
        "Slurm's programs are not found on the login node",
        do="Check that `slurm.login` is a login node of the cluster, and that `ssh LOGIN sbatch --version` works",
    ),
    "CC-SLURM-004": Entry(
        "error",
        "a program of Slurm's did not answer in time",
        do="Look whether the controller is up: `scontrol ping`",
    ),
    "CC-SLURM-005": Entry(
        "error",
        "Slurm did not take the job",
        why="sbatch reports why: an unknown partition or account, more nodes or time than the partition allows, a "
        "controller that is away",
        do="Correct partition, account, qos, time or gpus_per_node in the inventory; `sinfo` shows what there is",
    ),
    "CC-SLURM-006": Entry(
        "error",
        "Slurm did not cancel the job",
        do="Run `scancel` on the login node",
    ),
    "CC-SLURM-007": Entry(
        "error",
        "this verb does not work on a Slurm cluster",
        do="Use Slurm's own programs on the login node, or an inventory with `nodes`",
        cases={
            "": Case(
                "`{verb}` does not work on a Slurm cluster ({file})",
                "use Slurm's own programs on the login node, or an inventory with nodes",
            ),
            "export": Case(
                "the nodes of a Slurm cluster are not started by ssh ({file})",
                "`clusterctl export slurm` writes a script for sbatch",
            ),
            "nodes": Case(
                "`clean` on a Slurm cluster removes a run on all its nodes, not on some",
                "remove --nodes and --exclude",
            ),
        },
    ),
    "CC-SLURM-008": Entry(
        "error",
        "no node of this run has begun",
        why="A run on a Slurm cluster has output only when Slurm has given it nodes",
        do="Wait for it with `clusterctl attach`",
        cases={
            "": Case("{verb}: no node of {run} has begun; {reason}", Same("{command}")),
        },
    ),
    "CC-SLURM-009": Entry(
        "error",
        "no run of yours has nodes now",
        why="The nodes of a Slurm cluster can be reached only while Slurm has given them to a run",
        do="Launch a run, or wait for one that is in the queue",
        cases={
            "": Case(
                "no run of yours has nodes of this Slurm cluster now ({file})",
                "launch a run, or wait for one with `attach`",
            ),
            "ended": Case(
                "{verb}: {run} has ended, and its nodes are Slurm's again", "what is on record: {command}"
            ),
        },
    ),
    "CC-SLURM-010": Entry(
        "error",
        "the job is of another Slurm cluster",
        why="Two Slurm clusters use the same work directory; numbers of their jobs repeat, so nothing is cancelled from "
        "the wrong login node",
        do="Use the inventory whose `slurm.login` is of that cluster, and give each cluster its own `slurm.workdir`",
    ),
}
