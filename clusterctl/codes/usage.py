"""The command line, the lab, and bugs: CC-USE, CC-LAB, CC-BUG."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

HOW_TO_SELECT = "use names, ranks or ranges such as gpu01, 0-3, gpu[01-04,07] or gpu*, separated by commas"
KNOWN_NODES = "the nodes are {nodes}"
NO_SUCH_RUN = "no run {prefix!r} on these nodes"
NO_SUCH_CODE = "no code {word!r}"
NO_SUCH_LAB = "no lab with the name {name} is running"

ENTRIES: Mapping[str, Entry] = {
    "CC-USE-001": Entry(
        "error",
        "unknown verb or option, or a missing or wrong argument",
        do="The message suggests the nearest one; see `clusterctl --help`",
        cases={
            "": Case(Same("{problem}"), "see `{command} --help`"),
            "forwarded": Case(
                Same("{problem}"),
                "{forwarded}, if it is an option of the {program}; else see `{command} --help`",
            ),
            "program": Case(
                Same("{problem}"), "see `{command} --help`; options for the {program} go after `--`"
            ),
        },
    ),
    "CC-USE-002": Entry(
        "error",
        "no inventory was found; see [which inventory](../command-line.md#which-inventory-is-used)",
        do="Use `-i FILE`, or create one with `clusterctl init`",
        cases={
            "": Case(
                "no inventory: no -i, no --hosts, no CLUSTERCTL_INVENTORY, no ./inventory.yaml, no running lab",
                "`clusterctl init HOST...` writes one for your machines; `clusterctl lab up` starts a practice cluster",
            ),
            "near": Case(
                "no ./inventory.yaml; there is {file}",
                "clusterctl -i {file} ..., or rename it to inventory.yaml",
            ),
            "slurm": Case(
                "{file}: `nodes: {nodes}` gives no number, and there is no inventory to count in",
                "give the number, such as `--set nodes=4`, or an inventory with -i FILE",
            ),
            "labs": Case("{count} labs are running: {names}", "choose one, for example: {command}"),
        },
    ),
    "CC-USE-003": Entry(
        "error",
        "`--set` without `KEY=VALUE`",
        do="Write `--set KEY=VALUE`, such as `--set nproc_per_node=2`",
        cases={
            "": Case("--set {override}: expected KEY=VALUE", "for example --set nodes=2"),
        },
    ),
    "CC-USE-004": Entry(
        "error",
        "`--exclude` leaves no node",
        do="Exclude fewer nodes",
        cases={
            "": Case("no node is left: {exclude} excludes all selected nodes", "the inventory has {nodes}"),
            "spares": Case(
                "all remaining nodes are spares: {nodes}",
                "select the nodes that the job should run on, or remove `spare: true` from some of them",
            ),
        },
    ),
    "CC-USE-005": Entry(
        "error",
        "the job needs more nodes than are available",
        do="Set a smaller `nodes:`, or add nodes to the inventory",
        cases={
            "": Case(
                "the job needs {count} nodes, {usable} are available",
                "set `nodes: {usable}` in the job, or add nodes to {file}",
            ),
        },
    ),
    "CC-USE-006": Entry(
        "error",
        "a value that launch needs is unknown, such as the number of GPUs",
        do="Set `gpus:` in the inventory, or a number as `nproc_per_node`",
        cases={
            "": Case(
                "unknown: {names}",
                "set `ip:`, `nic:` or `gpus:` in the inventory, or a number as nproc_per_node",
            ),
        },
    ),
    "CC-USE-007": Entry(
        "error",
        "a secret of the job is not set in your environment",
        do="Run `export NAME=...` on the machine where you launch",
        cases={
            "": Case(
                "secrets not set on this machine: {names}", "export {first}=... before `clusterctl launch`"
            ),
        },
    ),
    "CC-USE-008": Entry(
        "error",
        "cannot write a file or the output of clusterctl on this machine: disk full, or no permission",
        what="Exit code 1",
        do="Check disk space and permissions on this machine",
        cases={
            "": Case("{target}: {reason}", "free some space, or get write permission"),
            "no-folder": Case("{target}: {reason}", "create its directory first"),
        },
    ),
    "CC-USE-009": Entry(
        "error",
        "no job file, or no script, was found",
        do="Name the job file or the script; `clusterctl init --script FILE` writes a job file",
        cases={
            "": Case(
                "no job file is named, and there is no ./job.yaml",
                "clusterctl launch SCRIPT.py, or `clusterctl init --script SCRIPT.py` to write job.yaml",
            ),
            "script": Case("there is no script {script}", "give a path from this directory"),
        },
    ),
    "CC-USE-010": Entry(
        "error",
        "no node is selected",
        do="List the nodes with `clusterctl inventory show`",
        cases={
            "": Case("no node is selected", HOW_TO_SELECT),
            "empty": Case(
                "the selection of nodes is empty",
                "use names, ranks or ranges such as gpu01, 0-3, gpu[01-04,07] or gpu*, separated by commas; or all",
            ),
        },
    ),
    "CC-USE-011": Entry(
        "error",
        "the selection of nodes is invalid",
        do="Write `0-3`, `gpu01,gpu02`, `gpu[01-04]` or `gpu*`",
        cases={
            "open": Case("invalid selection of nodes {pattern!r}: '[' is not closed", HOW_TO_SELECT),
            "character": Case(
                "invalid selection of nodes {pattern!r}: it contains a character that node names cannot have",
                HOW_TO_SELECT,
            ),
            "number": Case(
                "invalid selection of nodes {pattern!r}: {item!r} is not a number or a range such as 01-04",
                HOW_TO_SELECT,
            ),
            "backwards-item": Case(
                "invalid selection of nodes {pattern!r}: the range {item!r} runs backwards", HOW_TO_SELECT
            ),
            "many": Case(
                "invalid selection of nodes {pattern!r}: it expands to more than {most} names", HOW_TO_SELECT
            ),
            "backwards": Case(
                "invalid selection of nodes {pattern!r}: the range runs backwards", HOW_TO_SELECT
            ),
        },
    ),
    "CC-USE-012": Entry(
        "error",
        "no such node; the nearest name is shown",
        do="`clusterctl inventory show` lists the names",
        cases={
            "rank": Case("no node with rank {rank}: the last one is {last}", KNOWN_NODES),
            "empty": Case("no node with rank {rank}: the inventory is empty"),
            "": Case("no node with the name {name!r}{suggestion}", KNOWN_NODES),
            "pattern": Case("no node matches {name!r}{suggestion}", KNOWN_NODES),
            "range": Case("no node with the name {name!r} (from {pattern!r}){suggestion}", KNOWN_NODES),
            "pattern-range": Case("no node matches {name!r} (from {pattern!r}){suggestion}", KNOWN_NODES),
        },
    ),
    "CC-USE-020": Entry(
        "error",
        "there are no runs, or none of yours",
        do="`clusterctl ps` lists all runs; choose one by name",
        cases={
            "": Case("no run of yours ({user}) on these nodes", "choose one by name: {runs}"),
            "none": Case("no runs on these nodes", "clusterctl launch JOB.yaml starts one"),
        },
    ),
    "CC-USE-021": Entry(
        "error",
        "you have no active run",
        do="`clusterctl ps` lists ended runs; give the name of a run to look at it",
        cases={
            "": Case("no active run of yours ({user})", "runs of other users must be given by name: {runs}"),
            "none": Case("no active run of yours ({user})", "clusterctl ps lists ended runs"),
        },
    ),
    "CC-USE-022": Entry(
        "error",
        "several of your runs are active: choose one by name",
        do="Choose one of those that are listed",
        cases={
            "": Case("{count} runs are active", "choose one by name: {names}"),
        },
    ),
    "CC-USE-023": Entry(
        "error",
        "no run name starts with this prefix",
        do="`clusterctl ps` lists the names",
        cases={
            "": Case(NO_SUCH_RUN, "existing runs: {runs}"),
            "none": Case(NO_SUCH_RUN, "`clusterctl ps` lists the runs that are recorded on the nodes"),
            "folder": Case(NO_SUCH_RUN, "{way_out}; if it is the directory to pull into: {command}"),
        },
    ),
    "CC-USE-024": Entry(
        "error",
        "several run names start with this prefix",
        do="Type more of the name",
        cases={
            "": Case("{prefix!r} matches {count} runs", "one of: {names}"),
            "newest": Case("{prefix!r} matches {count} runs", "the newest: {command}"),
        },
    ),
    "CC-USE-025": Entry(
        "error",
        "the run belongs to another user; `-y` confirms that it is to be stopped",
        do="Ask its owner first; add `-y` to stop it nevertheless",
        cases={
            "": Case(Same("{reason}"), "{command}  (to stop it nevertheless)"),
        },
    ),
    "CC-USE-026": Entry(
        "error",
        "`--grep` is not a valid regular expression",
        do="Put it in quotes, and escape `( [ * ?`",
        cases={
            "": Case("--grep {grep}: {reason}", "escape special characters with \\"),
            "slow": Case(
                "--grep {grep}: a repetition within a repetition can take exponential time",
                "write it with one repetition, as `a+` for `(a+)+`",
            ),
        },
    ),
    "CC-USE-027": Entry(
        "error",
        "no such rank on these nodes",
        do="`clusterctl status` lists the ranks of a run",
        cases={
            "": Case("no {ranks} on {nodes}", "{command} shows its ranks"),
            "elsewhere": Case("no {ranks} on {nodes}", Same("{command}")),
        },
    ),
    "CC-USE-028": Entry(
        "error",
        "the run did not use the selected nodes",
        do="`clusterctl status` shows the nodes of a run",
        cases={
            "": Case("{run_id} did not run on {nodes}", "{command} shows its nodes"),
        },
    ),
    "CC-USE-029": Entry(
        "error",
        "`pull --job` cannot be combined with a run or `--logs`",
        do="Remove the run or `--logs`",
        cases={
            "": Case(
                "--job downloads the outputs of all runs of a job", "remove --job, or RUN, --logs and --all"
            ),
        },
    ),
    "CC-USE-030": Entry(
        "error",
        "`--older-than` is not a time with a unit, such as `12h` or `7d`",
        do="Write `12h` or `7d`",
        cases={
            "": Case("--older-than: {reason}", "for example --older-than 7d"),
            "unit": Case("--older-than {number}: the unit is missing", "for example --older-than {number}d"),
        },
    ),
    "CC-USE-031": Entry(
        "error",
        "`clean` was not confirmed: nothing was removed",
        do="Run `clusterctl clean -y`, or confirm in a terminal",
        cases={
            "": Case("nothing was removed", "add -y to remove what is shown"),
            "json": Case("nothing was removed", "check with --dry-run first, then add -y"),
        },
    ),
    "CC-USE-032": Entry(
        "error",
        "the job needs more [spares](../restarts.md#replace-a-lost-node-by-a-spare) than there are nodes left",
        do="Set a smaller `spares:`, or add nodes",
        cases={
            "": Case(
                "the job needs {spares} in addition to its {nodes}, {available} available",
                "lower `restart.spares`, select fewer `nodes`, or add nodes with `spare: true` to the inventory",
            ),
        },
    ),
    "CC-USE-033": Entry(
        "error",
        "spares would start another number of workers than the nodes that they replace",
        do="Use nodes with the same number of GPUs, or a number as `nproc_per_node`",
        cases={
            "": Case(
                "a spare must start as many workers as the node that it replaces",
                "set a number as nproc_per_node, or `gpus:` in the job, or use other nodes",
            ),
        },
    ),
    "CC-USE-034": Entry(
        "error",
        "the run has no such attempt",
        do="`clusterctl status` lists the attempts",
        cases={
            "": Case("{run} has no attempt {attempt}", "it has attempts 1 to {last}"),
            "one": Case("{run} has no attempt {attempt}", "it has only one attempt"),
        },
    ),
    "CC-USE-035": Entry(
        "error",
        "`--since` is neither a duration such as `10m` nor a time such as `14:05`",
        do="Use a duration such as `10m`, a time such as `14:05`, or a date such as `2026-11-21T14:05`",
        cases={
            "": Case(
                "--since {since}: neither a duration nor a time",
                "for example 10m, 1h30m, 14:05, 2026-11-21 or 2026-11-21T14:05, in this machine's time",
            ),
        },
    ),
    "CC-USE-036": Entry(
        "error",
        "this launcher cannot be exported",
        do="Start it with `clusterctl launch`",
        cases={
            "": Case(
                "a job with `launcher: {launcher}` cannot be exported as a script",
                "clusterctl launch starts it, also on a Slurm cluster",
            ),
        },
    ),
    "CC-USE-037": Entry(
        "error",
        "the job stages nothing",
        do="Add `stage:` to the job file",
        cases={
            "": Case("{file} has no `stage:`", "write `stage:` and below it, for example, `- from: ./data`"),
        },
    ),
    "CC-USE-040": Entry(
        "error",
        "the output file already exists; `--force` replaces it",
        do="Choose another name, or add `--force`",
        cases={
            "": Case("{path} already exists", "choose another name, or add --force"),
            "init": Case(
                "{path} already exists",
                "`clusterctl launch` uses it; `init --force` replaces it, `init --dir FOLDER` writes elsewhere",
            ),
            "directory": Case("{path} is a directory", "give the name of a file"),
        },
    ),
    "CC-USE-041": Entry(
        "error",
        "the state directory belongs to another account or is writable by others, who could store commands in it that clusterctl runs at the end of a run",
        do="Set another `XDG_STATE_HOME`, or run `chmod go-w`; with sudo, use `sudo -H`",
        cases={
            "": Case(
                "{path} {reason}; clusterctl keeps data there that it trusts, and commands that it runs",
                "set XDG_STATE_HOME to a directory of yours that others cannot write to; as another account (sudo): `sudo -H`",
            ),
        },
    ),
    "CC-USE-042": Entry(
        "error",
        "an inventory that was not named, or a file that it names, belongs to another account or is writable by others, who could run commands as you with it",
        do="Read the file; if you trust it, name it with `-i inventory.yaml`",
        cases={
            "": Case(
                "{file} is not used, because such a file can run commands on this machine: {path} {reason}",
                "read the file; if you trust it, name the inventory: `clusterctl -i inventory.yaml ...`",
            ),
        },
    ),
    "CC-USE-050": Entry(
        "error",
        "no such code, family or check; the nearest one is shown",
        do="The message suggests the nearest one; `clusterctl explain NET` lists a family",
        cases={
            "check": Case(
                "no check with the name {pattern!r}",
                "use codes such as CC-NET-003, families ({families}) or globs",
            ),
            "check-near": Case(
                "no check with the name {pattern!r}",
                "did you mean {guess}? Use codes such as CC-NET-003, families ({families}) or globs",
            ),
            "waiver": Case("{location}: no such finding", "`clusterctl explain` lists all"),
            "waiver-near": Case("{location}: no such finding", "did you mean {guess} ({title})?"),
            "number": Case(
                NO_SUCH_CODE,
                "the nearest is {nearest}: {title}; `clusterctl explain {family}` lists its family",
            ),
            "": Case(NO_SUCH_CODE, "a code looks like CC-NET-003; the families are {families}"),
            "near": Case(
                NO_SUCH_CODE,
                "did you mean {guess}? A code looks like CC-NET-003; the families are {families}",
            ),
        },
    ),
    "CC-USE-051": Entry(
        "error",
        "a waiver for a problem with which nothing can be launched, such as an unreachable node or a missing torch",
        do="Fix the problem, or leave the node out with `--exclude`",
        cases={
            "": Case(
                "{location}: {title}: no launch works with this problem, so it cannot be waived",
                "leave the node out with --exclude, and remove the waiver",
            ),
        },
    ),
    "CC-USE-070": Entry(
        "error",
        "the folder for the files of `init` does not exist",
        do="Create the folder first",
        cases={
            "": Case("{folder} is not a directory", "create it first"),
        },
    ),
    "CC-USE-071": Entry(
        "error",
        "the machines for `init` are given in more than one way",
        do="Use one of them",
        cases={
            "": Case("HOST, --from and --from-ssh-config cannot be combined", "use one of them"),
        },
    ),
    "CC-USE-072": Entry(
        "error",
        "no host of the SSH configuration matches the pattern of `--from-ssh-config`",
        do="Use a wider pattern, such as `'gpu*'`",
        cases={
            "": Case("no host of the SSH configuration matches {pattern!r}", "its hosts: {known}"),
        },
    ),
    "CC-USE-073": Entry(
        "error",
        "`init` got no machines, and there is no terminal to prompt for them",
        do="List the machines: `clusterctl init gpu01 gpu02`",
        cases={
            "": Case(
                "no machines were given",
                "clusterctl init HOST..., or --from FILE, or --from-ssh-config 'PAT'",
            ),
        },
    ),
    "CC-USE-080": Entry(
        "error",
        "this machine's limit of open files is too low for so many nodes",
        what="Exit code 1",
        do="Raise `nofile` in `/etc/security/limits.conf` of this machine and log in again, or use fewer nodes",
        cases={
            "": Case(
                "this machine allows {soft} open files, too few for so many nodes",
                "raise `nofile` in /etc/security/limits.conf on this machine and log in again, or use fewer nodes: --nodes 0-499",
            ),
        },
    ),
    "CC-USE-090": Entry(
        "error",
        "`-i`, `--lab` and `--hosts` cannot be combined",
        do="Keep one of them",
        cases={
            "": Case(
                "{first} and {second} cannot be combined: each selects the machines",
                "remove {first} {value} or {second} {other}",
            ),
        },
    ),
    "CC-USE-091": Entry(
        "error",
        "`stop` or `lab down` without a name was not confirmed; nothing was stopped",
        do="Give the name of the run or the lab, or add `-y`",
        cases={
            "": Case("nothing was stopped", Same("{command}")),
            "run": Case(
                "no run was given, and there is no terminal to confirm; active:", "{command}  (or add -y)"
            ),
            "lab": Case(
                "no lab was given, and there is no terminal to confirm; running:", "{command}  (or add -y)"
            ),
        },
    ),
    "CC-USE-092": Entry(
        "error",
        "unexpected arguments; arguments for the script or the command go after `--`",
        do="Put `--` before the arguments for the script or the command",
        cases={
            "": Case("unexpected arguments: {words}", "arguments for the script: {command}"),
            "one": Case("unexpected argument: {words}", "arguments for the script: {command}"),
            "option": Case("unexpected argument: {words}", "did you mean: {command}"),
            "live": Case(
                "--openmetrics writes live samples; with RUN or --since there are none",
                "live: {command}; as JSON: add --json",
            ),
            "options": Case(
                "unexpected options after the command without `--`: {words}",
                "options for the command: {command}; options for clusterctl go before the --",
            ),
        },
    ),
    "CC-USE-094": Entry(
        "error",
        "the port of `forward` cannot be used on this machine",
        do="Choose another one: `clusterctl forward RUN 6006:16006`",
        cases={
            "": Case("cannot listen on {address}: {reason}", "choose another port or path here: PORT:LOCAL"),
        },
    ),
    "CC-USE-095": Entry(
        "error",
        "this node has no part in the run, or did not answer",
        do="Name a node of the run with `--nodes`",
        cases={
            "": Case("{name} has no part in {run}, or did not answer", "its nodes that answered: {nodes}"),
        },
    ),
    "CC-USE-096": Entry(
        "error",
        "the run has no such rank",
        do="`clusterctl status RUN` lists its ranks",
        cases={
            "": Case("{run} has no rank {rank}", "its ranks: {ranks}"),
        },
    ),
    "CC-USE-097": Entry(
        "error",
        "`ssh` needs one node",
        do="Name one; `clusterctl exec` runs a command on many",
        cases={
            "": Case("{pattern} is more than one node: {nodes}", "name one of them"),
        },
    ),
    "CC-USE-098": Entry(
        "error",
        "the port of `ui` cannot be used on this machine",
        do="Choose another one, or leave `--port` out: any free port is taken then",
        cases={
            "": Case("cannot listen on 127.0.0.1:{port}: {reason}", "run `clusterctl ui` without `--port`"),
        },
    ),
    "CC-USE-099": Entry(
        "error",
        "`clusterctl.run` cannot send this function or these arguments",
        what="A function is imported from its module on the nodes, or is sent as source with what it uses of its notebook or program; nothing is pickled.",
        do="Put the function into a module, or let it import and define what it uses",
        cases={
            "arguments": Case(
                "{name}: the arguments cannot be written as JSON: {reason}",
                "pass numbers, texts, lists and dicts; the function can load the rest",
            ),
            "kind": Case(
                "{name}: a {kind} has no source; only functions can be sent",
                "write a function with `def` that calls it",
            ),
            "closure": Case(
                "{name}: a lambda, or a function that uses variables of another function, cannot be sent",
                "write it with `def` outside of other functions, and pass the variables as arguments",
            ),
            "source": Case("{name}: its source was not found: {reason}", "put it into a module"),
            "name": Case(
                "{name} uses {used}, which is no module, function, class or plain value",
                "make it inside the function, pass it as an argument, or put both into a module",
            ),
            "folders": Case(
                "{name} needs modules of several folders: {folders}",
                "give the one that is sent: `folder=`",
            ),
        },
    ),
    "CC-USE-093": Entry(
        "error",
        "`CLUSTERCTL_LANG` is not a supported language",
        do="Set `CLUSTERCTL_LANG=en` or `CLUSTERCTL_LANG=zh`, or unset it",
        cases={
            "": Case(
                "CLUSTERCTL_LANG={value}: unknown language", "use CLUSTERCTL_LANG=en or CLUSTERCTL_LANG=zh"
            ),
        },
    ),
    "CC-LAB-001": Entry(
        "error",
        "a program that the lab needs is missing; the message shows its package",
        do="Install the package that is shown",
        cases={
            "system": Case(
                "the lab needs Linux, this is {system}", "use a Linux machine: jobs run only on Linux"
            ),
            "": Case(
                "the lab needs `{name}`, which is not installed", Same("sudo apt-get install {package}")
            ),
        },
    ),
    "CC-LAB-002": Entry(
        "error",
        "this machine does not allow the lab's namespaces; the reason and the fix are shown",
        do="Use `lab up --backend inproc`, or run the command that is shown",
        cases={
            "apparmor": Case(
                "this machine does not allow the lab's namespaces: AppArmor restricts user namespaces",
                "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0   (or run the lab as root)",
            ),
            "off": Case(
                "this machine does not allow the lab's namespaces: user namespaces are disabled",
                Same("sudo sysctl -w kernel.unprivileged_userns_clone=1"),
            ),
            "limit": Case(
                "this machine does not allow the lab's namespaces: user namespaces are limited to 0",
                Same("sudo sysctl -w user.max_user_namespaces=15000"),
            ),
            "container": Case(
                "this machine does not allow the lab's namespaces: it is a container without the required privileges",
                "start the container with `docker run --privileged`",
            ),
            "": Case(
                "this machine does not allow the lab's namespaces: the kernel or its security module refused",
                "run the lab as root, or on another Linux machine",
            ),
        },
    ),
    "CC-LAB-003": Entry(
        "error",
        "a number, a name or a kind of fault that the lab does not support",
        do="The message lists the allowed values",
        cases={
            "gpus": Case(
                "a node of a lab has 0 to {most} GPUs, not {gpus}",
                "clusterctl lab up --gpus 2, or another number up to {most}",
            ),
            "name": Case("{name!r} is not a valid name for a lab", "use letters, digits, dots and dashes"),
            "nodes": Case(
                "a lab has 1 to {most} nodes, not {count}",
                "clusterctl lab up -n 3, or another number up to {most}",
            ),
            "no-nic": Case(
                "a lab needs the name of a NIC", "--nics eth0, or one for each node: --nics ib0,eno1"
            ),
            "nics": Case(
                "{item!r} is not a valid list of NIC names",
                "1 to 15 letters, digits, dots and dashes each; a+b gives one node two",
            ),
            "break": Case("a lab node has no fault {break_kind}", "use one of: {names}"),
        },
    ),
    "CC-LAB-004": Entry(
        "error",
        "a lab of this name exists already",
        do="Run `lab down` first, or choose another `--name`",
        cases={
            "": Case(
                "a lab with the name {name} already exists",
                "use it: clusterctl --lab {name} check; or another one: clusterctl lab up --name NAME; or end it: clusterctl lab down --name {name}",
            ),
        },
    ),
    "CC-LAB-005": Entry(
        "error",
        "no such lab is running, or several are: choose one with `--name`",
        do="`lab status` lists them; choose one with `--name`",
        cases={
            "no-such": Case(NO_SUCH_LAB, "running: {running}"),
            "none": Case(NO_SUCH_LAB, "no lab is running: nothing to stop"),
            "several": Case("{count} labs are running: {names}", "choose one, for example: --name {name}"),
            "none-running": Case("no lab is running", Same("clusterctl lab up")),
            "not-running": Case(NO_SUCH_LAB, Same("clusterctl lab up --name {name}")),
            "others-running": Case(NO_SUCH_LAB, "running: {names}; or clusterctl lab up --name {name}"),
        },
    ),
    "CC-LAB-006": Entry(
        "error",
        "the lab has no such node",
        do="`lab status` lists the nodes",
        cases={
            "": Case("the lab {name} has no node {machine}", "its nodes: {names}"),
        },
    ),
    "CC-LAB-007": Entry(
        "error",
        "a lab operation failed, or the lab did not start",
        do="The reason is shown; run `lab down --all`, then try again",
        cases={
            "loopback": Case("no loopback address is free for the lab"),
            "start": Case("the lab did not start: {reason}"),
            "slurm": Case("Slurm did not start on all nodes within {seconds:g} s"),
            "holder": Case("the lab's supervisor process exited"),
            "ssh-keygen": Case("ssh-keygen failed"),
            "time": Case("the lab did not start in time"),
            "": Case("the lab could not {action}: {reason}"),
        },
    ),
    "CC-LAB-008": Entry(
        "error",
        "the lab does not respond or does not stop",
        do="Run `lab down --all`",
        cases={
            "end": Case("the lab {name} does not stop", "check process {pid}: ps {pid}"),
            "": Case("the lab {name} does not respond: {reason}", Same("clusterctl lab down --name {name}")),
        },
    ),
    "CC-LAB-009": Entry(
        "error",
        "the node is powered off",
        do="Run `lab heal NODE`",
        cases={
            "": Case("{name} is powered off", Same("clusterctl lab heal {name}")),
        },
    ),
    "CC-LAB-010": Entry(
        "error",
        "a lab without namespaces does not support this: its nodes have no NICs of their own",
        do="Use a lab with namespaces, see [a practice cluster](../start.md#no-machines-yet-a-practice-cluster)",
        cases={
            "nics": Case(
                "nodes without namespaces have no NICs of their own", "remove --nics, or use --backend netns"
            ),
            "slurm": Case(
                "Slurm needs nodes with namespaces: without them all nodes are one machine",
                "remove --slurm, or use --backend netns",
            ),
            "": Case(
                "{name} has no NIC of its own that could go down: all nodes of this lab share lo",
                "a lab with namespaces supports it: clusterctl lab up --backend netns",
            ),
        },
    ),
    "CC-BUG-001": Entry(
        "error",
        "a bug in clusterctl",
        what="Exit code 70; the message shows a file with the details. Please report it",
        do="The message shows a file with the details: [please report it](../../../CONTRIBUTING.md#reporting-a-bug)",
        cases={
            "": Case("a bug in clusterctl: {message}", "please report it with the file {file}"),
        },
    ),
}
