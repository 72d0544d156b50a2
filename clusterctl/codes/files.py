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
    ),
    "CC-SPEC-013": Entry(
        "error",
        Text("a value that is not allowed here", "值不在允许的范围内"),
        do=Text("The values that may stand there are named", "报错里列出了可以写什么"),
    ),
    "CC-SPEC-014": Entry(
        "error",
        Text("no value where one must stand", "该有值的地方是空的"),
        do=Text("Write a value, or drop the key", "写上值，或者去掉这个键"),
    ),
    "CC-SPEC-015": Entry(
        "error",
        Text("a number out of its range", "数字超出范围"),
        do=Text("The range is named", "报错里写了范围"),
    ),
    "CC-SPEC-020": Entry(
        "error",
        Text("a node's name stands twice, or means something else", "节点名重复，或者有别的含义"),
        do=Text("Another name; not a number, a range or `all`", "换个名字；不能是数字、范围或 `all`"),
    ),
    "CC-SPEC-021": Entry(
        "error",
        Text("two nodes with the same host and port", "两个节点的主机和端口都相同"),
        do=Text("Drop one, or give it its own port", "去掉一个，或者写不同的端口"),
    ),
    "CC-SPEC-022": Entry(
        "error",
        Text("no nodes", "没有节点"),
        do=Text("Write at least one under `nodes:`", "`nodes:` 下至少写一个"),
    ),
    "CC-SPEC-023": Entry(
        "error",
        Text("training over IPv6, which does not work yet", "用 IPv6 训练，还不支持"),
        do=Text("An IPv4 address as `ip:`; `host:` may be IPv6", "`ip:` 写 IPv4 地址；`host:` 可以是 IPv6"),
    ),
    "CC-SPEC-024": Entry(
        "error",
        Text("characters that a host, user or path must not hold", "主机、用户或路径里有不允许的字符"),
        do=Text(
            "User and port go under `ssh:`: `ssh: {user: root, port: 2222}`",
            "用户和端口写在 `ssh:` 下：`ssh: {user: root, port: 2222}`",
        ),
    ),
    "CC-SPEC-025": Entry(
        "error",
        Text("not the name of a NIC", "不是网卡名"),
        do=Text(
            "The name as `ip link` shows it; several as a list: `nic: [a, b]`",
            "照 `ip link` 显示的写；多张写成列表：`nic: [a, b]`",
        ),
    ),
    "CC-SPEC-030": Entry(
        "error",
        Text(
            "a job needs exactly one of `script`, `module` and `command`",
            "`script`、`module`、`command` 必须正好写一个",
        ),
        do=Text("Keep one of `script:`, `module:`, `command:`", "只留一个"),
    ),
    "CC-SPEC-031": Entry(
        "error",
        Text(
            "`env` or `secrets` names a variable that torchrun or clusterctl sets",
            "`env` 或 `secrets` 里写了由 torchrun 或 clusterctl 设置的变量",
        ),
        do=Text("Drop the line: the launch sets it on each node", "删掉那一行，启动时会给每个节点设好"),
    ),
    "CC-SPEC-032": Entry(
        "error",
        Text("a secret has a value in `env`", "secret 在 `env` 里写了值"),
        do=Text(
            "Keep it in `secrets` alone, and export it where you launch",
            "只留在 `secrets` 里，启动前在本机 export",
        ),
    ),
    "CC-SPEC-033": Entry(
        "error",
        Text("an unknown placeholder, or one that this launcher does not fill in", "不认识的占位符"),
        do=Text(
            "The known ones are listed; `$${x}` is a literal", "报错里列出了可用的；`$${x}` 表示原样的 `${x}`"
        ),
    ),
    "CC-SPEC-034": Entry(
        "error",
        Text(
            "a key that belongs to another launcher, or one that this launcher needs",
            "这个键属于别的 launcher",
        ),
        do=Text("Drop the key, or change `launcher:`", "去掉这个键，或者改 `launcher:`"),
    ),
    "CC-SPEC-035": Entry(
        "error",
        Text("`gpus`, and a variable in `env` that chooses GPUs too", "又写了 `gpus`，又在 `env` 里选了 GPU"),
        do=Text("Keep `gpus:` and drop the variable", "留 `gpus:`，去掉变量"),
    ),
    "CC-SPEC-036": Entry(
        "error",
        Text("keys of `setup` that do not go together", "`setup` 里的几个键不能放在一起"),
        do=Text(
            "One of `venv`, `uv` and `conda`; `wheelhouse` and `system_site_packages` go with the first two",
            "`venv`、`uv`、`conda` 只留一个；`wheelhouse` 和 `system_site_packages` 只配前两个",
        ),
    ),
    "CC-SPEC-040": Entry(
        "error",
        Text("`--set` names a place that cannot be set", "`--set` 指的地方不能设"),
        do=Text(
            "A key of the job; a dot leads into `env`, `sync` and `restart`",
            "写任务的键；用点进入 `env`、`sync`、`restart`",
        ),
    ),
    "CC-SPEC-050": Entry(
        "error",
        Text(
            "`inventory import`: a line that the other tool's form does not have",
            "`inventory import`：有一行不符合那种格式",
        ),
        do=Text("Mend or drop the line that is named", "改掉或删掉指出的那一行"),
    ),
    "CC-SPEC-051": Entry(
        "error",
        Text(
            "`inventory import`: whose file it is cannot be told, or it is of a kind that is not read",
            "`inventory import`：看不出是哪种文件",
        ),
        do=Text("Say which by `--format`", "用 `--format` 说明"),
    ),
    "CC-SPEC-052": Entry(
        "error",
        Text("`inventory import`: no such group", "`inventory import`：没有这个组"),
        do=Text("The groups that there are stand in the message", "报错里列出了有哪些组"),
    ),
}
