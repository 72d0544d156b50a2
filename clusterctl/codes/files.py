"""Inventory and job files: CC-SPEC."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-SPEC-001": Entry(
        "error",
        Text("the text is not YAML", "不是合法的 YAML"),
        do=Text(
            "Mend the line that is named; mostly an indent, or a quotation mark that does not end",
            "改指出的那一行；多半是缩进，或者引号没有配对",
        ),
    ),
    "CC-SPEC-002": Entry(
        "error",
        Text(
            "the file is not UTF-8, or holds characters that must not stand in YAML or cannot be passed on",
            "文件不是 UTF-8，或者含有不允许的字符",
        ),
        do=Text("Save it as UTF-8 without control characters", "另存为 UTF-8，去掉控制字符"),
        cases={
            "file": Case(Text("{path}:{line}: not UTF-8 text"), Text("save the file as UTF-8")),
            "locale": Case(
                Text("the byte 0x{limit:02x} cannot be read: the terminal's locale is not UTF-8"),
                Text("put LC_ALL=C.UTF-8 before clusterctl, and type UTF-8"),
            ),
            "character": Case(Text("the character U+{number:04X} must not stand here"), Text("remove it")),
        },
    ),
    "CC-SPEC-003": Entry(
        "error",
        Text(
            "too large: the file, its depth, the number of its values, or of its problems",
            "文件太大、层数太深、值太多",
        ),
        do=Text(
            "Is it the right file? Lists belong into `args`, data into files of their own",
            "文件拿对了吗？数据不要写在这里",
        ),
        cases={
            "file": Case(Text("{path}: larger than {kib} KiB"), Text("is this the right file?")),
            "import": Case(Text("more than {limit}"), Text("is this the right file?")),
            "import-size": Case(Text("more than {limit} MiB of text"), Text("is this the right file?")),
            "line": Case(Text("a line of more than {most} characters"), Text("is this the right file?")),
            "rendered": Case(
                Text("the inventory would be larger than {kib} KiB"), Text("is this the right file?")
            ),
        },
    ),
    "CC-SPEC-004": Entry(
        "error",
        Text("a key stands twice", "同一个键写了两次"),
        do=Text("Keep one of the two", "留一个"),
    ),
    "CC-SPEC-005": Entry(
        "error",
        Text(
            "the file is empty, holds several documents, or no keys and values",
            "文件是空的，或者含有多个文档",
        ),
        do=Text(
            "Start from an example of `inventories/`, or `clusterctl init`",
            "从 `inventories/` 的例子开始，或者用 `clusterctl init`",
        ),
    ),
    "CC-SPEC-006": Entry(
        "error",
        Text(
            "YAML that these files do not use: merge keys, tags, lists as keys",
            "用了这里不支持的 YAML 写法（合并键、标签）",
        ),
        do=Text("Write it out; anchors and aliases work", "展开来写；锚点和别名可以用"),
    ),
    "CC-SPEC-007": Entry(
        "error",
        Text("the file cannot be read", "文件读不了"),
        do=Text("Path and permissions of the file", "看路径和权限"),
        cases={
            "home": Case(Text("{path}: {reason}"), Text("write the path in full")),
            "": Case(Text("{path}: {reason}"), Text("give the path of an existing file")),
        },
    ),
    "CC-SPEC-008": Entry(
        "error",
        Text(
            "another kind of file: a Python script, or the inventory and the job are swapped",
            "文件类型不对：是 Python 脚本，或者 inventory 和作业文件写反了",
        ),
        do=Text(
            "The inventory goes after `-i`, the job file after the verb; `clusterctl init --script FILE` writes a job for a script",
            "inventory 写在 `-i` 后面，作业文件写在命令后面；`clusterctl init --script FILE` 为脚本生成作业文件",
        ),
        cases={
            "inventory": Case(
                Text("this is an inventory; expected a job file"),
                Text("swap the two files: {command} VERB JOB.yaml"),
            ),
            "job": Case(
                Text("this is a job file; expected an inventory"),
                Text("swap the two files: clusterctl -i INVENTORY.yaml VERB {file}"),
            ),
            "script": Case(
                Text("this looks like a Python script; expected {expected} (YAML)"),
                Text("`{command}` writes a job file and an inventory"),
            ),
        },
    ),
    "CC-SPEC-010": Entry(
        "error",
        Text("unknown key; the nearest known one is named", "不认识的键"),
        do=Text("The nearest known key is named; mostly a misspelling", "报错里有最接近的键名，多半是拼错了"),
    ),
    "CC-SPEC-011": Entry(
        "error",
        Text("a key is missing", "缺一个键"),
        do=Text("Add the key that is named", "补上指出的键"),
        cases={
            "empty-setup": Case(
                Text("setup: neither venv nor uv nor conda nor run"),
                Text("such as setup: {venv: requirements.txt}, or run: for shell commands alone"),
            ),
        },
    ),
    "CC-SPEC-012": Entry(
        "error",
        Text(
            "the wrong kind of value: a text where a list is wanted, a word where a number is", "值的类型不对"
        ),
        do=Text(
            "What is wanted is named: a list `[a, b]`, a number, a text",
            "报错里写了要什么：列表 `[a, b]`、数字还是文本",
        ),
        cases={
            "whole-number": Case(
                Text("expected a whole number, got {text}"), Text("plain decimal digits, such as 8")
            ),
            "time": Case(Text("expected a time such as 30s, 12h or 1h30m, got {text}")),
            "size": Case(
                Text("expected a size, got {text}"), Text("such as 500MB, 20GB or 1TB; 0 for no limit")
            ),
            "flag": Case(Text("expected true or false, got {word}")),
            "single": Case(Text("expected {noun}, got {found}"), Text("write a single value")),
            "single-example": Case(
                Text("expected {noun}, got {found}"), Text("write a single value, such as {example}")
            ),
        },
    ),
    "CC-SPEC-013": Entry(
        "error",
        Text("a value that is not allowed here", "值不在允许的范围内"),
        do=Text("The values that may stand there are named", "报错里列出了可以写什么"),
        cases={
            "leaves-output-directory": Case(
                Text("{text} leaves the output directory"),
                Text("files below ${output_dir}, such as '**' or '*.pt'"),
            ),
            "nproc": Case(
                Text("expected gpu, cpu or a whole number, got {word}{suggestion}"),
                Text("gpu for one process per GPU, or a number of processes such as 8"),
            ),
            "not-beside-job-file": Case(
                Text("{text} is not beside the job file"),
                Text("a path beside or below the job file; a folder there may be a link"),
            ),
            "unsigned-service": Case(
                Text("notify: {text} messages are not signed"),
                Text("drop secret_from; the URL itself is the secret there"),
            ),
            "not-name": Case(
                Text("{text} is not a name"),
                Text("letters, digits, '.', '_' and '-' only, beginning with a letter or digit"),
            ),
            "too-long": Case(Text("{text} is longer than {max_length} characters")),
            "not-absolute": Case(Text("expected a path that begins with / or ~/, got {text}")),
            "not-interpreter": Case(
                Text("{text} is not an interpreter"),
                Text("an absolute path, ~/..., or a bare command such as python3.11; no options"),
            ),
            "not-script": Case(
                Text("{text} is not a script"),
                Text("a path inside the source directory, or an absolute path on the nodes"),
            ),
            "leaves-source-directory": Case(
                Text("{text} leaves the source directory"), Text("make sync.source the directory above it")
            ),
            "not-module": Case(
                Text("{text} is not a module"), Text("a dotted name such as pkg.train, without .py")
            ),
            "not-variable": Case(
                Text("{text} is not the name of a variable"),
                Text("letters, digits and '_' only, and no digit in front"),
            ),
            "two-ways": Case(
                Text("ssh: `jump` and `proxy_command` are two ways to the node"), Text("drop one of them")
            ),
            "code": Case(Text("expected the code of a finding such as CC-NET-009, got {word!r}")),
            "reason": Case(Text("expected a reason in one line of at most {longest_reason} characters")),
            "choice": Case(Text("expected {expected}, got {word}{suggestion}")),
            "empty": Case(
                Text("expected at least one, got an empty list"), Text("name one, or drop the line")
            ),
            "not-ipv4-address": Case(
                Text("{text} is not an IPv4 address"),
                Text("four numbers from 0 to 255, such as 192.168.10.235"),
            ),
            "long-chain": Case(Text("a chain of {count} bastions"), Text("{longest_chain} at most")),
            "not-bastion": Case(
                Text("{word} is not a bastion"),
                Text("user@host:port or the name of a host in your SSH configuration; commas make a chain"),
            ),
            "not-network": Case(Text("{text} is not a network"), Text("such as 192.168.10.0/24")),
            "port-range": Case(
                Text("expected a range of ports such as 20000-20100, got {text}"),
                Text("write the first and the last port with a '-' between them"),
            ),
            "no-proxy-command": Case(
                Text("expected a command, got {text}"), Text("write null for no proxy command")
            ),
            "not-training-ip": Case(Text("{text} is not an IPv4 address"), Text("such as 192.168.10.235")),
            "proxy-token": Case(
                Text("unknown token {token} in a proxy command"),
                Text("known are %h %p %r %% (host, port, user, a percent sign)"),
            ),
            "node-pattern": Case(Text("{problem}"), Text("{way_out}")),
            "network-bits": Case(Text("{text} is not a network"), Text("did you mean {network}?")),
        },
    ),
    "CC-SPEC-014": Entry(
        "error",
        Text("no value where one must stand", "该有值的地方是空的"),
        do=Text("Write a value, or drop the key", "写上值，或者去掉这个键"),
        cases={
            "empty-command": Case(Text("command: expected at least a program"), Text("[./train.sh]")),
            "empty-gpus": Case(
                Text("gpus: expected at least one index"),
                Text(
                    "[0, 1], or drop the line for all GPUs; for a job without any: nproc_per_node: 1, backend: gloo"
                ),
            ),
            "empty-restart-on": Case(
                Text("restart.on: expected at least one reason"),
                Text("such as [node_lost, worker_killed], or drop the line for the usual ones"),
            ),
            "empty-on-end": Case(Text("on_end.command: expected at least a program"), Text("[./tell.sh]")),
            "empty-text": Case(
                Text("expected a text, got an empty one"), Text("give a value, or drop the line")
            ),
            "nothing": Case(Text("expected {noun}, got nothing"), Text("{way_out}")),
        },
    ),
    "CC-SPEC-015": Entry(
        "error",
        Text("a number out of its range", "数字超出范围"),
        do=Text("The range is named", "报错里写了范围"),
        cases={
            "negative": Case(Text("expected 0 or more, got {number}")),
            "not-positive": Case(Text("expected 1 or more, got {number}")),
            "port": Case(Text("expected a port from 1 to 65535, got {port}")),
            "zero-limit": Case(Text("expected more than 0"), Text("drop the line for no limit")),
            "small-size": Case(
                Text("{text} is less than 1MB"), Text("such as 500MB, 20GB or 1TB; 0 for no limit")
            ),
            "port-limits": Case(
                Text("{text} leaves the range of ports"),
                Text("ports from {lowest_port} to {highest_port} can be used"),
            ),
            "backwards": Case(Text("the range {text} runs backwards"), Text("write {high}-{low}")),
        },
    ),
    "CC-SPEC-020": Entry(
        "error",
        Text("a node's name stands twice, or means something else", "节点名重复，或者有别的含义"),
        do=Text("Another name; not a number, a range or `all`", "换个名字；不能是数字、范围或 `all`"),
        cases={
            "reads-as-ranks": Case(Text("the name {text} reads as node ranks"), Text("such as node{text_b}")),
            "all": Case(Text("the name 'all' stands for all nodes"), Text("take another name")),
            "same-name": Case(
                Text("the node at {location} is called {text} too"), Text("give each node a name: of its own")
            ),
            "host-as-name": Case(
                Text("host: cannot be the node's name as well: {problem}"),
                Text("give the node a name: of its own"),
            ),
        },
    ),
    "CC-SPEC-021": Entry(
        "error",
        Text("two nodes with the same host and port", "两个节点的主机和端口都相同"),
        do=Text("Drop one, or give it its own port", "去掉一个，或者写不同的端口"),
        cases={
            "one-machine": Case(
                Text("{name} and {name_b} are one machine: {host}"), Text("choose one of them, or a --group")
            ),
            "again": Case(
                Text("{host} stands here again"), Text("keep one line; --format mpi adds the slots up")
            ),
            "same-port": Case(
                Text("host: the node at {location} has the same host and port {address}"),
                Text("one machine is one node; two behind one address differ in ssh.port"),
            ),
        },
    ),
    "CC-SPEC-022": Entry(
        "error",
        Text("no nodes", "没有节点"),
        do=Text("Write at least one under `nodes:`", "`nodes:` 下至少写一个"),
        cases={
            "no-host": Case(Text("no host is named here"), Text("one host a line")),
            "empty-list": Case(Text("nodes: the list is empty"), Text("name at least one host")),
            "ssh-config": Case(
                Text("this is an SSH configuration without a host to take"),
                Text("name the machines: clusterctl init HOST..., or a list with one host a line"),
            ),
            "ssh-config-reasons": Case(
                Text("this is an SSH configuration without a host to take: {reasons}"),
                Text("name the machines: clusterctl init HOST..., or a list with one host a line"),
            ),
            "empty-group": Case(Text("the group {group} has no hosts")),
            "no-hosts": Case(Text("no host is named here")),
            "no-ssh": Case(Text("no host is reached by SSH: {reason}"), Text("name machines that run sshd")),
            "none-by-ssh": Case(
                Text("no host is reached by SSH: {reason} (and {more})"), Text("name machines that run sshd")
            ),
        },
    ),
    "CC-SPEC-023": Entry(
        "error",
        Text("training over IPv6, which does not work yet", "用 IPv6 训练，还不支持"),
        do=Text("An IPv4 address as `ip:`; `host:` may be IPv6", "`ip:` 写 IPv4 地址；`host:` 可以是 IPv6"),
        cases={
            "ipv6-machine": Case(
                Text("training over IPv6 is not supported yet: {text}"),
                Text("write the machine's IPv4 address, or a name"),
            ),
            "ipv6-host": Case(
                Text("training over IPv6 is not supported yet"),
                Text("write the machine's IPv4 address, or a name"),
            ),
            "node": Case(
                Text("host: training over IPv6 is not supported yet, and the node has no other address"),
                Text("add its IPv4 address in the training network as ip:"),
            ),
            "ipv6-address": Case(
                Text("training over IPv6 is not supported yet: {text}"), Text("give the node's IPv4 address")
            ),
            "ipv6-network": Case(
                Text("training over IPv6 is not supported yet: {text}"), Text("give the IPv4 network")
            ),
        },
    ),
    "CC-SPEC-024": Entry(
        "error",
        Text("characters that a host, user or path must not hold", "主机、用户或路径里有不允许的字符"),
        do=Text(
            "User and port go under `ssh:`: `ssh: {user: root, port: 2222}`",
            "用户和端口写在 `ssh:` 下：`ssh: {user: root, port: 2222}`",
        ),
        cases={
            "parent-folder": Case(Text("{text} holds '..'"), Text("write the path itself")),
            "whole-home": Case(
                Text("{text} holds more than clusterctl may own"),
                Text("name a directory of its own below it, such as ~/.clusterctl"),
            ),
            "not-user-name": Case(
                Text("{text} is not a user name"), Text("letters, digits and . _ @ + - only")
            ),
            "host": Case(
                Text("{text} is not a host name or address"),
                Text("letters, digits, '.', '_' and '-' only, and no '-' in front"),
            ),
            "host-user": Case(
                Text("{text} is not a host name or address"), Text("write the user under ssh: {user: ...}")
            ),
            "host-port": Case(
                Text("{text} is not a host name or address"), Text("write the port under ssh: {port: ...}")
            ),
        },
    ),
    "CC-SPEC-025": Entry(
        "error",
        Text("not the name of a NIC", "不是网卡名"),
        do=Text(
            "The name as `ip link` shows it; several as a list: `nic: [a, b]`",
            "照 `ip link` 显示的写；多张写成列表：`nic: [a, b]`",
        ),
        cases={
            "too-long": Case(Text("{text} is longer than a NIC's name can be: {longest_nic} bytes")),
            "not-nic": Case(
                Text("{text} is not the name of a NIC"),
                Text("such as eth0; `ip link` on the node shows them"),
            ),
            "alias": Case(
                Text("{text} is an alias, which NCCL and Gloo cannot bind"), Text("name the NIC itself")
            ),
            "at-sign": Case(
                Text("{text} holds an '@'"), Text("of eth0@if3, as ip shows it, the name is eth0")
            ),
            "comma": Case(Text("{text} holds a ','"), Text("write a list: nic: [meth919, meth920]")),
        },
    ),
    "CC-SPEC-030": Entry(
        "error",
        Text(
            "a job needs exactly one of `script`, `module` and `command`",
            "`script`、`module`、`command` 必须正好写一个",
        ),
        do=Text("Keep one of `script:`, `module:`, `command:`", "只留一个"),
        cases={
            "none": Case(
                Text("the job has neither a script nor a module nor a command"),
                Text("add script: train.py, module: pkg.train, or command: [./train.sh]"),
            ),
            "several": Case(
                Text("a job has one of script, module and command, not both; {other_program}"),
                Text("drop one of them"),
            ),
        },
    ),
    "CC-SPEC-031": Entry(
        "error",
        Text(
            "`env` or `secrets` names a variable that torchrun or clusterctl sets",
            "`env` 或 `secrets` 里写了由 torchrun 或 clusterctl 设置的变量",
        ),
        do=Text("Drop the line: the launch sets it on each node", "删掉那一行，启动时会给每个节点设好"),
        cases={
            "": Case(
                Text("{text} is set by {set_by}, on every node and for every worker"),
                Text("drop the line; the node's value is right by itself"),
            ),
        },
    ),
    "CC-SPEC-032": Entry(
        "error",
        Text("a secret has a value in `env`", "secret 在 `env` 里写了值"),
        do=Text(
            "Keep it in `secrets` alone, and export it where you launch",
            "只留在 `secrets` 里，启动前在本机 export",
        ),
        cases={
            "": Case(
                Text("{name} is a secret and has a value in env at {location}"),
                Text("drop it from env; the value comes from your own environment"),
            ),
        },
    ),
    "CC-SPEC-033": Entry(
        "error",
        Text("an unknown placeholder, or one that this launcher does not fill in", "不认识的占位符"),
        do=Text(
            "The known ones are listed; `$${x}` is a literal", "报错里列出了可用的；`$${x}` 表示原样的 `${x}`"
        ),
        cases={
            "local-rank": Case(
                Text("${local_rank} is filled in by torchrun, not by `launcher: {launcher}`"),
                Text("each node runs one process: use ${node_rank}"),
            ),
            "unclosed": Case(
                Text("a placeholder '${' without its '}'"), Text("close it; $${ is a literal ${")
            ),
            "unknown": Case(
                Text("unknown placeholder {name}{suggestion}"),
                Text("placeholders are {known}; write $${...} for a literal ${...}"),
            ),
        },
    ),
    "CC-SPEC-034": Entry(
        "error",
        Text(
            "a key that belongs to another launcher, or one that this launcher needs",
            "这个键属于别的 launcher",
        ),
        do=Text("Drop the key, or change `launcher:`", "去掉这个键，或者改 `launcher:`"),
        cases={
            "command": Case(
                Text("a command is for `launcher: command`, this job's launcher is {launcher}"),
                Text("add launcher: command"),
            ),
            "no-command": Case(
                Text("`launcher: command` without a command"),
                Text("command: [./train.sh], or launcher: python for a script"),
            ),
            "use-env": Case(
                Text("use_env is for `launcher: launch`, this job's launcher is {launcher}"),
                Text("drop it: LOCAL_RANK is in the environment anyway"),
            ),
        },
    ),
    "CC-SPEC-035": Entry(
        "error",
        Text("`gpus`, and a variable in `env` that chooses GPUs too", "又写了 `gpus`，又在 `env` 里选了 GPU"),
        do=Text("Keep `gpus:` and drop the variable", "留 `gpus:`，去掉变量"),
        cases={
            "": Case(
                Text("{name} in env and gpus at {location} both choose the GPUs"),
                Text("keep gpus: it is checked before the start"),
            ),
        },
    ),
    "CC-SPEC-036": Entry(
        "error",
        Text("keys of `setup` that do not go together", "`setup` 里的几个键不能放在一起"),
        do=Text(
            "One of `venv`, `uv` and `conda`; `wheelhouse` and `system_site_packages` go with the first two",
            "`venv`、`uv`、`conda` 只留一个；`wheelhouse` 和 `system_site_packages` 只配前两个",
        ),
        cases={
            "several-kinds": Case(
                Text("setup: one of venv, uv and conda, not both; the {text} is at {location}"),
                Text("drop one of them"),
            ),
            "not-conda": Case(Text("setup.{name} is for venv and uv"), Text("drop it, or use venv or uv")),
            "no-kind": Case(
                Text("setup.{name} is for venv and uv"), Text("add venv: requirements.txt, or drop it")
            ),
        },
    ),
    "CC-SPEC-040": Entry(
        "error",
        Text("`--set` names a place that cannot be set", "`--set` 指的地方不能设"),
        do=Text(
            "A key of the job; a dot leads into `env`, `sync` and `restart`",
            "写任务的键；用点进入 `env`、`sync`、`restart`",
        ),
        cases={
            "no-key": Case(Text("{path} is not a key"), Text("such as env.NCCL_DEBUG")),
            "not-a-table": Case(
                Text("{path} cannot be set: {head} is {found}"), Text("set {head} as a whole")
            ),
        },
    ),
    "CC-SPEC-050": Entry(
        "error",
        Text(
            "`inventory import`: a line that the other tool's form does not have",
            "`inventory import`：有一行不符合那种格式",
        ),
        do=Text("Mend or drop the line that is named", "改掉或删掉指出的那一行"),
        cases={
            "section-kind": Case(
                Text("{kind} is no kind of section"),
                Text("there are [GROUP], [GROUP:vars] and [GROUP:children]"),
            ),
            "group-variable": Case(Text("{line} is no variable"), Text("write KEY=VALUE")),
            "group-name": Case(Text("{line} is no name of a group")),
            "group-inside-itself": Case(Text("the group {cyclic} is inside itself")),
            "host-range": Case(
                Text("{part} is no range of hosts"), Text("a range is [01:16], [a:f] or [01:16:2]")
            ),
            "open-quote": Case(
                Text("a quotation does not end in this line"), Text("close it, or escape the quote")
            ),
            "host-variable": Case(
                Text("{word} is no variable"), Text("write KEY=VALUE behind the host; one host a line")
            ),
            "group-key": Case(
                Text("{key} is no key of a group"), Text("a group has hosts, children and vars")
            ),
            "no-section": Case(
                Text("{line} is no section"),
                Text("[GROUP], [GROUP:vars] or [GROUP:children], without spaces"),
            ),
            "group-body": Case(Text("{name}: expected keys and values, got {found}")),
            "group-member": Case(
                Text("{key}: expected keys and values, got {found}"),
                Text("a name is followed by a colon, also alone in its line"),
            ),
            "no-slots": Case(Text("{host} has no slots"), Text("write HOST slots=N")),
            "setting": Case(
                Text("{key} is not understood here"), Text("one host a line; settings are KEY=VALUE")
            ),
            "number": Case(Text("{host} has a number behind a colon"), Text("write slots=N")),
            "undeclared-group": Case(Text("there is no group {name}"), Text("add [{section}]")),
            "odd-group": Case(Text("there is no group {name}")),
            "pattern": Case(Text("{problem}"), Text("a range is gpu[01-04,07]")),
        },
    ),
    "CC-SPEC-051": Entry(
        "error",
        Text(
            "`inventory import`: whose file it is cannot be told, or it is of a kind that is not read",
            "`inventory import`：看不出是哪种文件",
        ),
        do=Text("Say which by `--format`", "用 `--format` 说明"),
        cases={
            "ports-or-slots": Case(
                Text("the numbers behind the colons may be ports or slots"),
                Text("give --format hosts for ports, --format mpi for slots"),
            ),
            "own": Case(Text("this is an inventory of clusterctl already"), Text("clusterctl -i FILE check")),
            "plugin": Case(
                Text("this is the file of an Ansible inventory plugin"),
                Text("let Ansible write what it finds: ansible-inventory -i FILE --list --yaml"),
            ),
        },
    ),
    "CC-SPEC-052": Entry(
        "error",
        Text("`inventory import`: no such group", "`inventory import`：没有这个组"),
        do=Text("The groups that there are stand in the message", "报错里列出了有哪些组"),
        cases={
            "no-ansible": Case(
                Text("only Ansible's inventories have groups, and this was read as {description}"),
                Text("give --format ansible if it is one"),
            ),
            "unknown": Case(Text("no group is called {group}{suggestion}"), Text("the groups are {groups}")),
            "no-groups": Case(Text("no group is called {group}{suggestion}"), Text("the file has no groups")),
        },
    ),
}
