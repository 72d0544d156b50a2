"""Inventory and job files: CC-SPEC."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-SPEC-001": Entry(
        "error",
        Text("the text is not YAML", "不是合法的 YAML"),
        do=Text(
            "Fix the line that is named; usually the indentation, or a quotation mark that is not closed",
            "改指出的那一行；多半是缩进，或者引号没有配对",
        ),
        cases={
            "tab": Case(
                Text("a tab where YAML needs spaces", "YAML 要求空格的地方有制表符"),
                Text("indent with spaces only", "只用空格缩进"),
            ),
            "first-character": Case(
                Text("a value cannot begin with {character}", "值不能以 {character} 开头"),
                Text("put the value in quotes: 'like this'", "给值加引号：'像这样'"),
            ),
            "colon": Case(
                Text("a ':' is not allowed here", "这里不能有 ':'"),
                Text(
                    "quote the text if the ':' belongs to it; else check the indentation of this line and the one above",
                    "如果 ':' 是文本的一部分，给文本加引号；否则检查这一行和上一行的缩进",
                ),
            ),
            "dash": Case(
                Text("a '- ' is not allowed here", "这里不能有 '- '"),
                Text("check the indentation of this line and the ones above", "检查这一行和上面几行的缩进"),
            ),
            "open-quote": Case(
                Text("a quotation mark that is not closed", "引号没有闭合"),
                Text("close the quotation", "补上后引号"),
            ),
            "no-colon": Case(
                Text("a key without its ':'", "键后面缺少 ':'"),
                Text("write KEY: VALUE", "写成 KEY: VALUE"),
            ),
            "brace": Case(
                Text("a '{' inside brackets begins a mapping", "方括号里的 '{' 会开始一个映射"),
                Text(
                    "put a text that contains { or } in quotes: '${run_id}'",
                    "给含有 { 或 } 的文本加引号：'${run_id}'",
                ),
            ),
            "no-comma": Case(
                Text("expected ',' or '{closing}'", "应为 ',' 或 '{closing}'"),
                Text("add the comma, or close the bracket", "补上逗号，或者闭合括号"),
            ),
            "no-comma-opened": Case(
                Text("expected ',' or '{closing}'", "应为 ',' 或 '{closing}'"),
                Text(
                    "add the comma, or close the bracket that opens in line {line}",
                    "补上逗号，或者闭合第 {line} 行打开的括号",
                ),
            ),
            "escape": Case(
                Text("unknown escape {character} in double quotes", "双引号里有未知的转义字符 {character}"),
                Text("use single quotes", "改用单引号"),
            ),
            "key-level": Case(
                Text(
                    "the indentation of this key matches no level of the file",
                    "这个键的缩进与文件的任何一层都不对应",
                ),
                Text("check the indentation of this line and the ones above", "检查这一行和上面几行的缩进"),
            ),
            "dash-level": Case(
                Text(
                    "the indentation of this '- ' matches no list of the file",
                    "这个 '- ' 的缩进与文件里的任何列表都不对应",
                ),
                Text("check the indentation of this line and the ones above", "检查这一行和上面几行的缩进"),
            ),
            "after-value": Case(
                Text("text after the end of a value", "值结束之后还有文本"),
                Text("put the value in quotes: 'like this'", "给值加引号：'像这样'"),
            ),
            "level": Case(
                Text("this does not match the lines above", "与上面几行的结构不符"),
                Text("check the indentation of this line and the ones above", "检查这一行和上面几行的缩进"),
            ),
            "no-value": Case(
                Text("expected a value, found {found}", "应为值，实际是 {found}"),
                Text("put the value in quotes: 'like this'", "给值加引号：'像这样'"),
            ),
            "after-end": Case(
                Text("text after the end of the file's content", "文件内容结束之后还有文本"),
                Text("check the indentation of this line and the ones above", "检查这一行和上面几行的缩进"),
            ),
            "marker": Case(
                Text("a '*', '&' or '%' has a special meaning in YAML", "'*'、'&'、'%' 在 YAML 里有特殊含义"),
                Text("put the value in quotes: 'like this'", "给值加引号：'像这样'"),
            ),
            "after-block": Case(
                Text("text after a '|' or '>'", "'|' 或 '>' 后面有文本"),
                Text("begin the text on a new line", "文本另起一行"),
            ),
            "directive": Case(
                Text("a '%' line that YAML does not define", "YAML 没有定义的 '%' 行"),
                Text("delete it", "删掉它"),
            ),
            "tag": Case(
                Text("a '!' has a special meaning in YAML", "'!' 在 YAML 里有特殊含义"),
                Text("put the value in quotes: 'like this'", "给值加引号：'像这样'"),
            ),
            "other": Case(
                Text("this is not YAML: {problem}", "不是合法的 YAML：{problem}"),
            ),
            "unclosed": Case(
                Text("the '{opening}' here is not closed", "这里的 '{opening}' 没有闭合"),
                Text("add the closing '{closing}'", "补上 '{closing}'"),
            ),
            "inexpressible": Case(
                Text("something that YAML cannot express", "YAML 无法表示的内容"),
                Text(
                    "look for escapes such as \\U in double quotes after this point",
                    "检查此处之后双引号里的 \\U 之类的转义",
                ),
            ),
            "alias-inside": Case(
                Text("the alias {alias} is inside what it repeats", "别名 {alias} 位于它要重复的内容之中"),
                Text("quote the text if the * belongs to it", "如果 * 是文本的一部分，给文本加引号"),
            ),
            "alias-unknown": Case(
                Text(
                    "the alias {alias} repeats nothing: no & has its name", "别名 {alias} 没有对应的锚点（&）"
                ),
                Text("quote the text if the * belongs to it", "如果 * 是文本的一部分，给文本加引号"),
            ),
        },
    ),
    "CC-SPEC-002": Entry(
        "error",
        Text(
            "the file is not UTF-8, or holds characters that must not stand in YAML or cannot be passed on",
            "文件不是 UTF-8，或者含有 YAML 不允许、或无法传递的字符",
        ),
        do=Text("Save it as UTF-8 without control characters", "另存为 UTF-8，去掉控制字符"),
        cases={
            "byte": Case(
                Text("the byte 0x{byte:02x} is not UTF-8 text", "字节 0x{byte:02x} 不是 UTF-8 文本"),
                Text("save the file as UTF-8", "把文件保存为 UTF-8"),
            ),
            "not-yaml": Case(
                Text("the character U+{number:04X} is not allowed in YAML", "YAML 不允许字符 U+{number:04X}"),
                Text("remove it", "删掉它"),
            ),
            "unsendable": Case(
                Text("the character U+{number:04X} cannot be passed on", "字符 U+{number:04X} 无法传递"),
                Text("remove it", "删掉它"),
            ),
            "file": Case(
                Text("{path}:{line}: not UTF-8 text", "{path}:{line}：不是 UTF-8 文本"),
                Text("save the file as UTF-8", "把文件保存为 UTF-8"),
            ),
            "locale": Case(
                Text(
                    "the byte 0x{byte:02x} cannot be read: the terminal's locale is not UTF-8",
                    "无法读取字节 0x{byte:02x}：终端的 locale 不是 UTF-8",
                ),
                Text(
                    "put LC_ALL=C.UTF-8 before clusterctl, and type UTF-8",
                    "在 clusterctl 前加 LC_ALL=C.UTF-8，并以 UTF-8 输入",
                ),
            ),
            "character": Case(
                Text("the character U+{number:04X} must not stand here", "这里不能有字符 U+{number:04X}"),
                Text("remove it", "删掉它"),
            ),
        },
    ),
    "CC-SPEC-003": Entry(
        "error",
        Text(
            "too large: the file, its depth, the number of its values, or of its problems",
            "太大：文件、嵌套层数、值的个数，或者问题的个数",
        ),
        do=Text(
            "Is it the right file? Lists belong into `args`, data into files of their own",
            "文件拿对了吗？数据不要写在这里",
        ),
        cases={
            "text": Case(
                Text("more than {kib} KiB of text", "文本超过 {kib} KiB"),
                Text(
                    "inventories and jobs are far smaller: is this the right file?",
                    "inventory 和作业文件要小得多：文件对吗？",
                ),
            ),
            "depth": Case(
                Text("nested more than {most} levels deep", "嵌套超过 {most} 层"),
            ),
            "values": Case(
                Text(
                    "more than {most} values, counting what aliases repeat",
                    "超过 {most} 个值（包括别名重复的内容）",
                ),
            ),
            "issues": Case(
                Text("{count} more problems are not shown", "还有 {count} 个问题没有列出"),
            ),
            "file": Case(
                Text("{path}: larger than {kib} KiB", "{path}：超过 {kib} KiB"),
                Text("is this the right file?", "文件对吗？"),
            ),
            "import": Case(
                Text("more than {limit}", "超过 {limit}"), Text("is this the right file?", "文件对吗？")
            ),
            "import-size": Case(
                Text("more than {limit} MiB of text", "文本超过 {limit} MiB"),
                Text("is this the right file?", "文件对吗？"),
            ),
            "line": Case(
                Text("a line of more than {most} characters", "有一行超过 {most} 个字符"),
                Text("is this the right file?", "文件对吗？"),
            ),
            "rendered": Case(
                Text("the inventory would be larger than {kib} KiB", "inventory 会超过 {kib} KiB"),
                Text("is this the right file?", "文件对吗？"),
            ),
        },
    ),
    "CC-SPEC-004": Entry(
        "error",
        Text("a key stands twice", "同一个键写了两次"),
        do=Text("Keep one of the two", "留一个"),
        cases={
            "": Case(
                Text("the key {key} is here twice", "键 {key} 写了两次"),
                Text("keep one; the other is at {other}", "保留一个；另一个在 {other}"),
            ),
        },
    ),
    "CC-SPEC-005": Entry(
        "error",
        Text(
            "the file is empty, holds several documents, or no keys and values",
            "文件是空的，含有多个文档，或者不是键和值",
        ),
        do=Text(
            "Start from an example of `inventories/`, or `clusterctl init`",
            "从 `inventories/` 的例子开始，或者用 `clusterctl init`",
        ),
        cases={
            "empty": Case(
                Text("the file is empty", "文件是空的"),
                Text("the file begins with a line such as KEY: VALUE", "文件以 KEY: VALUE 这样的行开头"),
            ),
            "no-mapping": Case(
                Text("expected keys and values, got {found}", "应为键和值，实际是 {found}"),
                Text("the file begins with a line such as KEY: VALUE", "文件以 KEY: VALUE 这样的行开头"),
            ),
            "second": Case(
                Text("a second document begins here", "从这里开始是第二个文档"),
                Text("one file holds one document", "一个文件只能有一个文档"),
            ),
        },
    ),
    "CC-SPEC-006": Entry(
        "error",
        Text(
            "YAML that these files do not use: merge keys, tags, lists as keys",
            "用了这里不支持的 YAML 写法（合并键、标签）",
        ),
        do=Text("Write it out; anchors and aliases work", "展开来写；锚点和别名可以用"),
        cases={
            "key": Case(
                Text("expected a key, got {found}", "应为键，实际是 {found}"),
            ),
            "merge": Case(
                Text("merge keys (<<) are not part of YAML 1.2", "合并键（<<）不属于 YAML 1.2"),
                Text(
                    "repeat the values; what all nodes share goes to the top level of the inventory",
                    "把值逐个写出；所有节点共用的写在 inventory 的顶层",
                ),
            ),
            "tag": Case(
                Text("the YAML tag {tag} is not supported", "不支持 YAML 标签 {tag}"),
                Text(
                    "quote the text if the ! belongs to it, else delete the tag",
                    "如果 ! 是文本的一部分，给文本加引号，否则删掉标签",
                ),
            ),
        },
    ),
    "CC-SPEC-007": Entry(
        "error",
        Text("the file cannot be read", "文件读不了"),
        do=Text("Path and permissions of the file", "看路径和权限"),
        cases={
            "home": Case(
                Text("{path}: {reason}", "{path}：{reason}"), Text("write the path in full", "写完整路径")
            ),
            "": Case(
                Text("{path}: {reason}", "{path}：{reason}"),
                Text("give the path of an existing file", "写一个存在的文件的路径"),
            ),
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
                Text("this is an inventory; expected a job file", "这是 inventory；这里应为作业文件"),
                Text(
                    "swap the two files: {command} VERB JOB.yaml", "两个文件写反了：{command} VERB JOB.yaml"
                ),
            ),
            "job": Case(
                Text("this is a job file; expected an inventory", "这是作业文件；这里应为 inventory"),
                Text(
                    "swap the two files: clusterctl -i INVENTORY.yaml VERB {file}",
                    "两个文件写反了：clusterctl -i INVENTORY.yaml VERB {file}",
                ),
            ),
            "script": Case(
                Text(
                    "this looks like a Python script; expected {expected} (YAML)",
                    "这看起来是 Python 脚本；这里应为 {expected}（YAML）",
                ),
                Text(
                    "`{command}` writes a job file and an inventory", "`{command}` 会写出作业文件和 inventory"
                ),
            ),
        },
    ),
    "CC-SPEC-010": Entry(
        "error",
        Text("unknown key; the nearest known one is named", "未知的键；会给出最接近的键"),
        do=Text("The nearest known key is named; mostly a misspelling", "报错里有最接近的键名，多半是拼错了"),
        cases={
            "": Case(
                Text("unknown key {key}", "未知的键 {key}"),
                Text("known keys: {known}", "可用的键：{known}"),
            ),
            "near": Case(
                Text("unknown key {key}{suggestion}", "未知的键 {key}{suggestion}"),
            ),
        },
    ),
    "CC-SPEC-011": Entry(
        "error",
        Text("a key is missing", "缺一个键"),
        do=Text("Add the key that is named", "补上指出的键"),
        cases={
            "": Case(
                Text("the key {key} is missing", "缺少键 {key}"),
                Text("add {name}: {meaning}", "加上 {name}：{meaning}"),
            ),
            "inside": Case(
                Text("the key {key} is missing in {parent}", "{parent} 里缺少键 {key}"),
                Text("add {name}: {meaning}", "加上 {name}：{meaning}"),
            ),
            "empty-setup": Case(
                Text(
                    "setup: neither venv nor uv nor conda nor run", "setup：venv、uv、conda、run 一个都没有"
                ),
                Text(
                    "such as setup: {venv: requirements.txt}, or run: for shell commands alone",
                    "例如 setup: {venv: requirements.txt}；只有 shell 命令就用 run:",
                ),
            ),
        },
    ),
    "CC-SPEC-012": Entry(
        "error",
        Text(
            "the wrong kind of value: a text where a list is wanted, a word where a number is",
            "值的类型不对：应为列表却写了文本，应为数字却写了单词",
        ),
        do=Text(
            "What is wanted is named: a list `[a, b]`, a number, a text",
            "报错里写了要什么：列表 `[a, b]`、数字还是文本",
        ),
        cases={
            "list": Case(
                Text("{path}: expected a list, got {found}", "{path}：应为列表，实际是 {found}"),
                Text("{form}", "{form}"),
            ),
            "mapping": Case(
                Text("{path}: expected keys and values, got {found}", "{path}：应为键和值，实际是 {found}"),
                Text("{form}", "{form}"),
            ),
            "mapping-keys": Case(
                Text("{path}: expected keys and values, got {found}", "{path}：应为键和值，实际是 {found}"),
                Text("{path}: {KEY: VALUE} with the keys {keys}", "{path}: {KEY: VALUE}，可用的键：{keys}"),
            ),
            "whole-number": Case(
                Text("expected a whole number, got {text}", "应为整数，实际是 {text}"),
                Text("plain decimal digits, such as 8", "十进制数字，例如 8"),
            ),
            "time": Case(
                Text(
                    "expected a time such as 30s, 12h or 1h30m, got {text}",
                    "应为 30s、12h、1h30m 这样的时长，实际是 {text}",
                )
            ),
            "size": Case(
                Text("expected a size, got {text}", "应为大小，实际是 {text}"),
                Text("such as 500MB, 20GB or 1TB; 0 for no limit", "例如 500MB、20GB 或 1TB；0 表示不限制"),
            ),
            "flag": Case(Text("expected true or false, got {word}", "应为 true 或 false，实际是 {word}")),
            "single": Case(
                Text("expected {noun}, got {found}", "应为 {noun}，实际是 {found}"),
                Text("write a single value", "写一个值"),
            ),
            "single-example": Case(
                Text("expected {noun}, got {found}", "应为 {noun}，实际是 {found}"),
                Text("write a single value, such as {example}", "写一个值，例如 {example}"),
            ),
        },
    ),
    "CC-SPEC-013": Entry(
        "error",
        Text("a value that is not allowed here", "值不在允许的范围内"),
        do=Text("The values that may stand there are named", "报错里列出了可以写什么"),
        cases={
            "twice": Case(
                Text("{name}: {text} is here twice", "{name}：{text} 写了两次"),
                Text("keep one", "保留一个"),
            ),
            "leaves-output-directory": Case(
                Text("{text} leaves the output directory", "{text} 超出了输出目录"),
                Text(
                    "files below ${output_dir}, such as '**' or '*.pt'",
                    "${output_dir} 下的文件，例如 '**' 或 '*.pt'",
                ),
            ),
            "nproc": Case(
                Text(
                    "expected gpu, cpu or a whole number, got {word}{suggestion}",
                    "应为 gpu、cpu 或整数，实际是 {word}{suggestion}",
                ),
                Text(
                    "gpu for one process per GPU, or a number of processes such as 8",
                    "gpu 表示每块 GPU 一个进程，或者写进程数，例如 8",
                ),
            ),
            "not-beside-job-file": Case(
                Text("{text} is not beside the job file", "{text} 不在作业文件所在目录下"),
                Text(
                    "a path beside or below the job file; a folder there may be a link",
                    "作业文件所在目录或其下级的路径；其中的目录可以是链接",
                ),
            ),
            "unsigned-service": Case(
                Text("notify: {text} messages are not signed", "notify：{text} 的消息不签名"),
                Text(
                    "drop secret_from; the URL itself is the secret there",
                    "删掉 secret_from；该服务的 URL 本身就是密钥",
                ),
            ),
            "not-name": Case(
                Text("{text} is not a name", "{text} 不是有效的名字"),
                Text(
                    "letters, digits, '.', '_' and '-' only, beginning with a letter or digit",
                    "只能含字母、数字、'.'、'_' 和 '-'，以字母或数字开头",
                ),
            ),
            "too-long": Case(
                Text("{text} is longer than {max_length} characters", "{text} 超过 {max_length} 个字符")
            ),
            "not-absolute": Case(
                Text(
                    "expected a path that begins with / or ~/, got {text}",
                    "应为以 / 或 ~/ 开头的路径，实际是 {text}",
                )
            ),
            "not-interpreter": Case(
                Text("{text} is not an interpreter", "{text} 不是解释器"),
                Text(
                    "an absolute path, ~/..., or a bare command such as python3.11; no options",
                    "绝对路径、~/...，或者 python3.11 这样的命令名；不能带选项",
                ),
            ),
            "not-script": Case(
                Text("{text} is not a script", "{text} 不是脚本"),
                Text(
                    "a path inside the source directory, or an absolute path on the nodes",
                    "源目录内的路径，或者节点上的绝对路径",
                ),
            ),
            "leaves-source-directory": Case(
                Text("{text} leaves the source directory", "{text} 超出了源目录"),
                Text("make sync.source the directory above it", "把 sync.source 设为上一级目录"),
            ),
            "not-module": Case(
                Text("{text} is not a module", "{text} 不是模块"),
                Text(
                    "a dotted name such as pkg.train, without .py", "带点的模块名，例如 pkg.train，不带 .py"
                ),
            ),
            "not-variable": Case(
                Text("{text} is not the name of a variable", "{text} 不是变量名"),
                Text(
                    "letters, digits and '_' only, and no digit in front",
                    "只能含字母、数字和 '_'，不能以数字开头",
                ),
            ),
            "two-ways": Case(
                Text(
                    "ssh: `jump` and `proxy_command` are two ways to the node",
                    "ssh：`jump` 和 `proxy_command` 是两种不同的连接方式",
                ),
                Text("drop one of them", "删掉其中一个"),
            ),
            "code": Case(
                Text(
                    "expected the code of a finding such as CC-NET-009, got {word!r}",
                    "应为 CC-NET-009 这样的检查项代码，实际是 {word!r}",
                )
            ),
            "reason": Case(
                Text(
                    "expected a reason in one line of at most {longest_reason} characters",
                    "应为一行原因，最多 {longest_reason} 个字符",
                )
            ),
            "choice": Case(
                Text(
                    "expected {expected}, got {word}{suggestion}",
                    "应为 {expected}，实际是 {word}{suggestion}",
                )
            ),
            "empty": Case(
                Text("expected at least one, got an empty list", "至少要有一项，实际是空列表"),
                Text("name one, or drop the line", "写一项，或者删掉这一行"),
            ),
            "not-ipv4-address": Case(
                Text("{text} is not an IPv4 address", "{text} 不是 IPv4 地址"),
                Text(
                    "four numbers from 0 to 255, such as 192.168.10.235",
                    "四个 0 到 255 的数字，例如 192.168.10.235",
                ),
            ),
            "long-chain": Case(
                Text("a chain of {count} bastions", "bastion 链有 {count} 级"),
                Text("{longest_chain} at most", "最多 {longest_chain} 级"),
            ),
            "not-bastion": Case(
                Text("{word} is not a bastion", "{word} 不是 bastion"),
                Text(
                    "user@host:port or the name of a host in your SSH configuration; commas make a chain",
                    "user@host:port，或者 SSH 配置里的主机名；多级用逗号连接",
                ),
            ),
            "not-network": Case(
                Text("{text} is not a network", "{text} 不是网段"),
                Text("such as 192.168.10.0/24", "例如 192.168.10.0/24"),
            ),
            "port-range": Case(
                Text(
                    "expected a range of ports such as 20000-20100, got {text}",
                    "应为 20000-20100 这样的端口范围，实际是 {text}",
                ),
                Text(
                    "write the first and the last port with a '-' between them",
                    "写第一个和最后一个端口，中间用 '-'",
                ),
            ),
            "no-proxy-command": Case(
                Text("expected a command, got {text}", "应为命令，实际是 {text}"),
                Text("write null for no proxy command", "不用代理命令就写 null"),
            ),
            "not-training-ip": Case(
                Text("{text} is not an IPv4 address", "{text} 不是 IPv4 地址"),
                Text("such as 192.168.10.235", "例如 192.168.10.235"),
            ),
            "proxy-token": Case(
                Text("unknown token {token} in a proxy command", "代理命令里有未知的记号 {token}"),
                Text(
                    "known are %h %p %r %% (host, port, user, a percent sign)",
                    "可用的有 %h %p %r %%（主机、端口、用户、百分号）",
                ),
            ),
            "node-pattern": Case(Text("{problem}"), Text("{way_out}")),
            "network-bits": Case(
                Text("{text} is not a network", "{text} 不是网段"),
                Text("did you mean {network}?", "是不是 {network}？"),
            ),
        },
    ),
    "CC-SPEC-014": Entry(
        "error",
        Text("no value where one must stand", "该有值的地方是空的"),
        do=Text("Write a value, or drop the key", "写上值，或者去掉这个键"),
        cases={
            "list": Case(
                Text("{path}: expected a list, got nothing", "{path}：应为列表，实际没有值"),
                Text("give a value, or delete the line", "写一个值，或者删掉这一行"),
            ),
            "mapping": Case(
                Text("{path}: expected keys and values, got nothing", "{path}：应为键和值，实际没有值"),
                Text("give a value, or delete the line", "写一个值，或者删掉这一行"),
            ),
            "empty-command": Case(
                Text("command: expected at least a program", "command：至少要有程序名"), Text("[./train.sh]")
            ),
            "empty-gpus": Case(
                Text("gpus: expected at least one index", "gpus：至少要有一个编号"),
                Text(
                    "[0, 1], or drop the line for all GPUs; for a job without any: nproc_per_node: 1, backend: gloo",
                    "[0, 1]；要用全部 GPU 就删掉这一行；不用 GPU 的作业写 nproc_per_node: 1, backend: gloo",
                ),
            ),
            "empty-restart-on": Case(
                Text("restart.on: expected at least one reason", "restart.on：至少要有一个原因"),
                Text(
                    "such as [node_lost, worker_killed], or drop the line for the usual ones",
                    "例如 [node_lost, worker_killed]，或者删掉这一行使用默认值",
                ),
            ),
            "empty-on-end": Case(
                Text("on_end.command: expected at least a program", "on_end.command：至少要有程序名"),
                Text("[./tell.sh]"),
            ),
            "empty-text": Case(
                Text("expected a text, got an empty one", "应为文本，实际为空"),
                Text("give a value, or delete the line", "写一个值，或者删掉这一行"),
            ),
            "nothing": Case(
                Text("expected {noun}, got nothing", "应为 {noun}，实际没有值"), Text("{way_out}")
            ),
        },
    ),
    "CC-SPEC-015": Entry(
        "error",
        Text("a number out of its range", "数字超出范围"),
        do=Text("The range is named", "报错里写了范围"),
        cases={
            "negative": Case(Text("expected 0 or more, got {number}", "应为 0 或更大的数，实际是 {number}")),
            "not-positive": Case(
                Text("expected 1 or more, got {number}", "应为 1 或更大的数，实际是 {number}")
            ),
            "port": Case(
                Text("expected a port from 1 to 65535, got {port}", "应为 1 到 65535 的端口，实际是 {port}")
            ),
            "zero-limit": Case(
                Text("expected more than 0", "应大于 0"),
                Text("drop the line for no limit", "不限制就删掉这一行"),
            ),
            "small-size": Case(
                Text("{text} is less than 1MB", "{text} 小于 1MB"),
                Text("such as 500MB, 20GB or 1TB; 0 for no limit", "例如 500MB、20GB 或 1TB；0 表示不限制"),
            ),
            "port-limits": Case(
                Text("{text} leaves the range of ports", "{text} 超出了端口范围"),
                Text(
                    "ports from {lowest_port} to {highest_port} can be used",
                    "可用的端口为 {lowest_port} 到 {highest_port}",
                ),
            ),
            "backwards": Case(
                Text("the range {text} runs backwards", "范围 {text} 的顺序反了"),
                Text("write {high}-{low}", "写 {high}-{low}"),
            ),
        },
    ),
    "CC-SPEC-020": Entry(
        "error",
        Text("a node's name stands twice, or means something else", "节点名重复，或者有别的含义"),
        do=Text("Another name; not a number, a range or `all`", "换个名字；不能是数字、范围或 `all`"),
        cases={
            "reads-as-ranks": Case(
                Text("the name {text} reads as node ranks", "名字 {text} 会被当作节点编号"),
                Text("such as node{plain}", "例如 node{plain}"),
            ),
            "all": Case(
                Text("the name 'all' stands for all nodes", "名字 'all' 表示所有节点"),
                Text("take another name", "换个名字"),
            ),
            "same-name": Case(
                Text("the node at {location} is called {text} too", "{location} 处的节点也叫 {text}"),
                Text("give each node a name: of its own", "用 name: 给每个节点写不同的名字"),
            ),
            "host-as-name": Case(
                Text(
                    "host: cannot be the node's name as well: {problem}",
                    "host：不能同时用作节点名：{problem}",
                ),
                Text("give the node a name: of its own", "用 name: 给节点写名字"),
            ),
        },
    ),
    "CC-SPEC-021": Entry(
        "error",
        Text("two nodes with the same host and port", "两个节点的主机和端口都相同"),
        do=Text("Drop one, or give it its own port", "去掉一个，或者写不同的端口"),
        cases={
            "one-machine": Case(
                Text("{name} and {other} are one machine: {host}", "{name} 和 {other} 是同一台机器：{host}"),
                Text("choose one of them, or a --group", "选其中一个，或者用 --group"),
            ),
            "again": Case(
                Text("{host} stands here again", "{host} 重复出现"),
                Text(
                    "keep one line; --format mpi adds the slots up", "只留一行；--format mpi 会把槽位数相加"
                ),
            ),
            "same-port": Case(
                Text(
                    "host: the node at {location} has the same host and port {address}",
                    "host：{location} 处的节点有相同的主机和端口 {address}",
                ),
                Text(
                    "one machine is one node; two behind one address differ in ssh.port",
                    "一台机器就是一个节点；同一地址后面的两台机器用 ssh.port 区分",
                ),
            ),
        },
    ),
    "CC-SPEC-022": Entry(
        "error",
        Text("no nodes", "没有节点"),
        do=Text("Write at least one under `nodes:`", "`nodes:` 下至少写一个"),
        cases={
            "no-host": Case(
                Text("no host is named here", "这里没有写主机"), Text("one host a line", "每行一个主机")
            ),
            "empty-list": Case(
                Text("nodes: the list is empty", "nodes：列表是空的"),
                Text("name at least one host", "至少写一个主机"),
            ),
            "ssh-config": Case(
                Text("this is an SSH configuration without a host to take", "这个 SSH 配置里没有可用的主机"),
                Text(
                    "name the machines: clusterctl init HOST..., or a list with one host a line",
                    "写出机器：clusterctl init HOST...，或者每行一个主机的列表",
                ),
            ),
            "ssh-config-reasons": Case(
                Text(
                    "this is an SSH configuration without a host to take: {reasons}",
                    "这个 SSH 配置里没有可用的主机：{reasons}",
                ),
                Text(
                    "name the machines: clusterctl init HOST..., or a list with one host a line",
                    "写出机器：clusterctl init HOST...，或者每行一个主机的列表",
                ),
            ),
            "empty-group": Case(Text("the group {group} has no hosts", "组 {group} 里没有主机")),
            "no-hosts": Case(Text("no host is named here", "这里没有写主机")),
            "no-ssh": Case(
                Text("no host is reached by SSH: {reason}", "没有主机能通过 SSH 连接：{reason}"),
                Text("name machines that run sshd", "写运行 sshd 的机器"),
            ),
            "none-by-ssh": Case(
                Text(
                    "no host is reached by SSH: {reason} (and {more})",
                    "没有主机能通过 SSH 连接：{reason}（{more}）",
                ),
                Text("name machines that run sshd", "写运行 sshd 的机器"),
            ),
        },
    ),
    "CC-SPEC-023": Entry(
        "error",
        Text("training over IPv6, which does not work yet", "用 IPv6 训练，还不支持"),
        do=Text("An IPv4 address as `ip:`; `host:` may be IPv6", "`ip:` 写 IPv4 地址；`host:` 可以是 IPv6"),
        cases={
            "ipv6-machine": Case(
                Text("training over IPv6 is not supported yet: {text}", "暂不支持通过 IPv6 训练：{text}"),
                Text("write the machine's IPv4 address, or a name", "写机器的 IPv4 地址或名字"),
            ),
            "ipv6-host": Case(
                Text("training over IPv6 is not supported yet", "暂不支持通过 IPv6 训练"),
                Text("write the machine's IPv4 address, or a name", "写机器的 IPv4 地址或名字"),
            ),
            "node": Case(
                Text(
                    "host: training over IPv6 is not supported yet, and the node has no other address",
                    "host：暂不支持通过 IPv6 训练，而该节点没有其他地址",
                ),
                Text(
                    "add its IPv4 address in the training network as ip:",
                    "用 ip: 写上它在训练网络里的 IPv4 地址",
                ),
            ),
            "ipv6-address": Case(
                Text("training over IPv6 is not supported yet: {text}", "暂不支持通过 IPv6 训练：{text}"),
                Text("give the node's IPv4 address", "写节点的 IPv4 地址"),
            ),
            "ipv6-network": Case(
                Text("training over IPv6 is not supported yet: {text}", "暂不支持通过 IPv6 训练：{text}"),
                Text("give the IPv4 network", "写 IPv4 网段"),
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
            "parent-folder": Case(
                Text("{text} holds '..'", "{text} 含有 '..'"), Text("write the path itself", "直接写路径")
            ),
            "whole-home": Case(
                Text(
                    "{text} holds more than clusterctl may own", "{text} 的范围超出 clusterctl 可以独占的目录"
                ),
                Text(
                    "name a directory of its own below it, such as ~/.clusterctl",
                    "写它下面的一个专用目录，例如 ~/.clusterctl",
                ),
            ),
            "not-user-name": Case(
                Text("{text} is not a user name", "{text} 不是用户名"),
                Text("letters, digits and . _ @ + - only", "只能含字母、数字和 . _ @ + -"),
            ),
            "host": Case(
                Text("{text} is not a host name or address", "{text} 不是主机名或地址"),
                Text(
                    "letters, digits, '.', '_' and '-' only, and no '-' in front",
                    "只能含字母、数字、'.'、'_' 和 '-'，不能以 '-' 开头",
                ),
            ),
            "host-user": Case(
                Text("{text} is not a host name or address", "{text} 不是主机名或地址"),
                Text("write the user under ssh: {user: ...}", "用户名写在 ssh: {user: ...} 里"),
            ),
            "host-port": Case(
                Text("{text} is not a host name or address", "{text} 不是主机名或地址"),
                Text("write the port under ssh: {port: ...}", "端口写在 ssh: {port: ...} 里"),
            ),
        },
    ),
    "CC-SPEC-025": Entry(
        "error",
        Text("not the name of a NIC", "不是网卡名"),
        do=Text(
            "The name as `ip link` shows it; several as a list: `nic: [a, b]`",
            "照 `ip link` 显示的写；多块写成列表：`nic: [a, b]`",
        ),
        cases={
            "too-long": Case(
                Text(
                    "{text} is longer than a NIC's name can be: {longest_nic} bytes",
                    "{text} 超过网卡名的最大长度：{longest_nic} 字节",
                )
            ),
            "not-nic": Case(
                Text("{text} is not the name of a NIC", "{text} 不是网卡名"),
                Text(
                    "such as eth0; `ip link` on the node shows them", "例如 eth0；在节点上用 `ip link` 查看"
                ),
            ),
            "alias": Case(
                Text(
                    "{text} is an alias, which NCCL and Gloo cannot bind",
                    "{text} 是别名，NCCL 和 Gloo 不能绑定",
                ),
                Text("name the NIC itself", "写网卡本身的名字"),
            ),
            "at-sign": Case(
                Text("{text} holds an '@'", "{text} 含有 '@'"),
                Text("of eth0@if3, as ip shows it, the name is eth0", "ip 显示的 eth0@if3，名字是 eth0"),
            ),
            "comma": Case(
                Text("{text} holds a ','", "{text} 含有 ','"),
                Text("write a list: nic: [meth919, meth920]", "写成列表：nic: [meth919, meth920]"),
            ),
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
                Text(
                    "the job has neither a script nor a module nor a command",
                    "作业里没有 script、module 或 command",
                ),
                Text(
                    "add script: train.py, module: pkg.train, or command: [./train.sh]",
                    "加上 script: train.py、module: pkg.train 或 command: [./train.sh]",
                ),
            ),
            "several": Case(
                Text(
                    "a job has one of script, module and command, not both; the {other} is at {place}",
                    "作业只能有 script、module、command 中的一个；{other} 在 {place}",
                ),
                Text("drop one of them", "删掉其中一个"),
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
                Text(
                    "{text} is set by {set_by}, on every node and for every worker",
                    "{text} 由 {set_by} 在每个节点上为每个 worker 设置",
                ),
                Text(
                    "drop the line; the node's value is right by itself", "删掉这一行；节点会自动设置正确的值"
                ),
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
                Text(
                    "{name} is a secret and has a value in env at {location}",
                    "{name} 是密钥变量，但在 {location} 的 env 里有值",
                ),
                Text(
                    "drop it from env; the value comes from your own environment",
                    "从 env 里删掉；它的值取自你自己的环境变量",
                ),
            ),
        },
    ),
    "CC-SPEC-033": Entry(
        "error",
        Text(
            "an unknown placeholder, or one that this launcher does not fill in",
            "未知的占位符，或者该启动方式不填写它",
        ),
        do=Text(
            "The known ones are listed; `$${x}` is a literal", "报错里列出了可用的；`$${x}` 表示原样的 `${x}`"
        ),
        cases={
            "local-rank": Case(
                Text(
                    "${local_rank} is filled in by torchrun, not by `launcher: {launcher}`",
                    "${local_rank} 由 torchrun 填写，`launcher: {launcher}` 不会填写",
                ),
                Text(
                    "each node runs one process: use ${node_rank}", "每个节点只启动一个进程：用 ${node_rank}"
                ),
            ),
            "unclosed": Case(
                Text("a placeholder '${' without its '}'", "占位符 '${' 缺少 '}'"),
                Text("close it; $${ is a literal ${", "补上 '}'；$${ 表示字面的 ${"),
            ),
            "unknown": Case(
                Text("unknown placeholder {name}{suggestion}", "未知的占位符 {name}{suggestion}"),
                Text(
                    "placeholders are {known}; write $${...} for a literal ${...}",
                    "占位符有 {known}；字面的 ${...} 写作 $${...}",
                ),
            ),
        },
    ),
    "CC-SPEC-034": Entry(
        "error",
        Text(
            "a key that belongs to another launcher, or one that this launcher needs",
            "这个键属于另一种启动方式，或者该启动方式缺少必需的键",
        ),
        do=Text("Drop the key, or change `launcher:`", "去掉这个键，或者改 `launcher:`"),
        cases={
            "command": Case(
                Text(
                    "a command is for `launcher: command`, this job's launcher is {launcher}",
                    "command 用于 `launcher: command`，这个作业的启动方式是 {launcher}",
                ),
                Text("add launcher: command", "加上 launcher: command"),
            ),
            "no-command": Case(
                Text("`launcher: command` without a command", "写了 `launcher: command`，但没有 command"),
                Text(
                    "command: [./train.sh], or launcher: python for a script",
                    "command: [./train.sh]；脚本则用 launcher: python",
                ),
            ),
            "use-env": Case(
                Text(
                    "use_env is for `launcher: launch`, this job's launcher is {launcher}",
                    "use_env 用于 `launcher: launch`，这个作业的启动方式是 {launcher}",
                ),
                Text(
                    "drop it: LOCAL_RANK is in the environment anyway",
                    "删掉它：环境变量里本来就有 LOCAL_RANK",
                ),
            ),
        },
    ),
    "CC-SPEC-035": Entry(
        "error",
        Text("`gpus`, and a variable in `env` that chooses GPUs too", "又写了 `gpus`，又在 `env` 里选了 GPU"),
        do=Text("Keep `gpus:` and drop the variable", "留 `gpus:`，去掉变量"),
        cases={
            "": Case(
                Text(
                    "{name} in env and gpus at {location} both choose the GPUs",
                    "env 里的 {name} 和 {location} 处的 gpus 都在选择 GPU",
                ),
                Text("keep gpus: it is checked before the start", "保留 gpus：启动前会检查它"),
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
                Text(
                    "setup: one of venv, uv and conda, not both; the {text} is at {location}",
                    "setup：venv、uv、conda 只能写一个；{text} 在 {location}",
                ),
                Text("drop one of them", "删掉其中一个"),
            ),
            "not-conda": Case(
                Text("setup.{name} is for venv and uv", "setup.{name} 用于 venv 和 uv"),
                Text("drop it, or use venv or uv", "删掉它，或者用 venv 或 uv"),
            ),
            "no-kind": Case(
                Text("setup.{name} is for venv and uv", "setup.{name} 用于 venv 和 uv"),
                Text("add venv: requirements.txt, or drop it", "加上 venv: requirements.txt，或者删掉它"),
            ),
        },
    ),
    "CC-SPEC-040": Entry(
        "error",
        Text("`--set` names a place that cannot be set", "`--set` 指的地方不能设"),
        do=Text(
            "A key of the job; a dot leads into `env`, `sync` and `restart`",
            "写作业的键；用点选择 `env`、`sync`、`restart`",
        ),
        cases={
            "no-key": Case(
                Text("{path} is not a key", "{path} 不是键"),
                Text("such as env.NCCL_DEBUG", "例如 env.NCCL_DEBUG"),
            ),
            "not-a-table": Case(
                Text("{path} cannot be set: {head} is {found}", "{path} 不能设置：{head} 是 {found}"),
                Text("set {head} as a whole", "整体设置 {head}"),
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
                Text("{kind} is no kind of section", "没有 {kind} 这种段落"),
                Text(
                    "there are [GROUP], [GROUP:vars] and [GROUP:children]",
                    "可用的有 [GROUP]、[GROUP:vars] 和 [GROUP:children]",
                ),
            ),
            "group-variable": Case(
                Text("{line} is no variable", "{line} 不是变量"), Text("write KEY=VALUE", "写 KEY=VALUE")
            ),
            "group-name": Case(Text("{line} is no name of a group", "{line} 不是组名")),
            "group-inside-itself": Case(
                Text("the group {cyclic} is inside itself", "组 {cyclic} 包含了自己")
            ),
            "host-range": Case(
                Text("{part} is no range of hosts", "{part} 不是主机范围"),
                Text("a range is [01:16], [a:f] or [01:16:2]", "范围写作 [01:16]、[a:f] 或 [01:16:2]"),
            ),
            "open-quote": Case(
                Text("a quotation does not end in this line", "这一行的引号没有结束"),
                Text("close it, or escape the quote", "补上结尾的引号，或者转义引号"),
            ),
            "host-variable": Case(
                Text("{word} is no variable", "{word} 不是变量"),
                Text(
                    "write KEY=VALUE behind the host; one host a line", "在主机后面写 KEY=VALUE；每行一个主机"
                ),
            ),
            "group-key": Case(
                Text("{key} is no key of a group", "{key} 不是组的键"),
                Text("a group has hosts, children and vars", "一个组可以有 hosts、children 和 vars"),
            ),
            "no-section": Case(
                Text("{line} is no section", "{line} 不是段落"),
                Text(
                    "[GROUP], [GROUP:vars] or [GROUP:children], without spaces",
                    "[GROUP]、[GROUP:vars] 或 [GROUP:children]，不带空格",
                ),
            ),
            "group-body": Case(
                Text("{name}: expected keys and values, got {found}", "{name}：应为键和值，实际是 {found}")
            ),
            "group-member": Case(
                Text("{key}: expected keys and values, got {found}", "{key}：应为键和值，实际是 {found}"),
                Text(
                    "a name is followed by a colon, also alone in its line",
                    "名字后面要有冒号，单独一行时也一样",
                ),
            ),
            "no-slots": Case(
                Text("{host} has no slots", "{host} 没有 slots"),
                Text("write HOST slots=N", "写 HOST slots=N"),
            ),
            "setting": Case(
                Text("{key} is not understood here", "这里不能用 {key}"),
                Text("one host a line; settings are KEY=VALUE", "每行一个主机；设置写作 KEY=VALUE"),
            ),
            "number": Case(
                Text("{host} has a number behind a colon", "{host} 的冒号后面有数字"),
                Text("write slots=N", "写 slots=N"),
            ),
            "undeclared-group": Case(
                Text("there is no group {name}", "没有组 {name}"), Text("add [{section}]", "加上 [{section}]")
            ),
            "odd-group": Case(Text("there is no group {name}", "没有组 {name}")),
            "pattern": Case(Text("{problem}"), Text("a range is gpu[01-04,07]", "范围写作 gpu[01-04,07]")),
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
                Text(
                    "the numbers behind the colons may be ports or slots",
                    "冒号后面的数字可能是端口，也可能是槽位数",
                ),
                Text(
                    "give --format hosts for ports, --format mpi for slots",
                    "是端口就加 --format hosts，是槽位数就加 --format mpi",
                ),
            ),
            "own": Case(
                Text("this is an inventory of clusterctl already", "这已经是 clusterctl 的 inventory"),
                Text("clusterctl -i FILE check"),
            ),
            "plugin": Case(
                Text("this is the file of an Ansible inventory plugin", "这是 Ansible inventory 插件的文件"),
                Text(
                    "let Ansible write what it finds: ansible-inventory -i FILE --list --yaml",
                    "让 Ansible 输出结果：ansible-inventory -i FILE --list --yaml",
                ),
            ),
        },
    ),
    "CC-SPEC-052": Entry(
        "error",
        Text("`inventory import`: no such group", "`inventory import`：没有这个组"),
        do=Text("The groups that there are stand in the message", "报错里列出了有哪些组"),
        cases={
            "no-ansible": Case(
                Text(
                    "only Ansible's inventories have groups, and this was read as {description}",
                    "只有 Ansible 的 inventory 有组，而这个文件是按 {description} 读取的",
                ),
                Text(
                    "give --format ansible if it is one", "如果是 Ansible 的 inventory，加 --format ansible"
                ),
            ),
            "unknown": Case(
                Text("no group is called {group}{suggestion}", "没有组叫 {group}{suggestion}"),
                Text("the groups are {groups}", "组有 {groups}"),
            ),
            "no-groups": Case(
                Text("no group is called {group}{suggestion}", "没有组叫 {group}{suggestion}"),
                Text("the file has no groups", "文件里没有组"),
            ),
        },
    ),
}
