"""Inventory and job files: CC-SPEC."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text, same

RIGHT_FILE = Text("check that this is the right file", "请检查文件是否正确")
KEEP_ONE = Text("remove one of them", "删除其中一个")
NO_IPV6 = Text("training over IPv6 is not supported yet: {text}", "暂不支持通过 IPv6 训练：{text}")
NOT_A_HOST = Text("{text} is not a valid host name or address", "{text} 不是有效的主机名或地址")
LIST_MACHINES = Text(
    "list the machines: clusterctl init HOST..., or a file with one host per line",
    "写出机器：clusterctl init HOST...，或者每行一个主机的文件",
)
CHECK_INDENTATION = Text(
    "check the indentation of this line and the ones above", "检查这一行和上面几行的缩进"
)
QUOTE_THE_VALUE = Text("put the value in quotes: 'like this'", "给值加引号：'像这样'")
QUOTE_THE_STAR = Text("quote the text if the * belongs to it", "如果 * 是文本的一部分，请给文本加引号")
START_WITH_A_KEY = Text("start the file with a line such as KEY: VALUE", "文件应以 KEY: VALUE 这样的行开头")
EXPECTED_COMMA = Text("expected ',' or '{closing}'", "应为 ',' 或 '{closing}'")
GIVE_OR_DELETE = Text("give a value, or remove the key from the file", "写一个值，或者从文件里删除这个键")


ENTRIES: Mapping[str, Entry] = {
    "CC-SPEC-001": Entry(
        "error",
        Text("the file is not valid YAML", "不是合法的 YAML"),
        do=Text(
            "Fix the reported line; usually the indentation is wrong, or a quotation mark is not closed",
            "修改报告的那一行；多半是缩进有误，或者引号没有闭合",
        ),
        cases={
            "tab": Case(
                Text("a tab where YAML needs spaces", "YAML 要求空格的地方有制表符"),
                Text("indent with spaces only", "只用空格缩进"),
            ),
            "first-character": Case(
                Text("a value cannot start with {character}", "值不能以 {character} 开头"),
                QUOTE_THE_VALUE,
            ),
            "colon": Case(
                Text("a ':' is not allowed here", "此处不能有 ':'"),
                Text(
                    "quote the text if the ':' belongs to it; otherwise check the indentation of this line and the one above",
                    "如果 ':' 是文本的一部分，给文本加引号；否则检查这一行和上一行的缩进",
                ),
            ),
            "dash": Case(
                Text("a '- ' is not allowed here", "此处不能有 '- '"),
                CHECK_INDENTATION,
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
                Text("a '{' inside brackets starts a mapping", "方括号里的 '{' 会开始一个映射"),
                Text(
                    "put a text that contains { or } in quotes: '${run_id}'",
                    "给含有 { 或 } 的文本加引号：'${run_id}'",
                ),
            ),
            "no-comma": Case(
                EXPECTED_COMMA,
                Text("add the comma, or close the bracket", "补上逗号，或者闭合括号"),
            ),
            "no-comma-opened": Case(
                EXPECTED_COMMA,
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
                CHECK_INDENTATION,
            ),
            "dash-level": Case(
                Text(
                    "the indentation of this '- ' matches no list of the file",
                    "这个 '- ' 的缩进与文件里的任何列表都不对应",
                ),
                CHECK_INDENTATION,
            ),
            "after-value": Case(
                Text("text after the end of a value", "值结束之后还有文本"),
                QUOTE_THE_VALUE,
            ),
            "level": Case(
                Text("this does not match the lines above", "与上面几行的结构不符"),
                CHECK_INDENTATION,
            ),
            "no-value": Case(
                Text("expected a value, found {found}", "应为值，实际是 {found}"),
                QUOTE_THE_VALUE,
            ),
            "after-end": Case(
                Text("text after the end of the file's content", "文件内容结束之后还有文本"),
                CHECK_INDENTATION,
            ),
            "marker": Case(
                Text("a '*', '&' or '%' has a special meaning in YAML", "'*'、'&'、'%' 在 YAML 里有特殊含义"),
                QUOTE_THE_VALUE,
            ),
            "after-block": Case(
                Text("text after a '|' or '>'", "'|' 或 '>' 后面有文本"),
                Text("start the text on a new line", "请另起一行写文本"),
            ),
            "directive": Case(
                Text("a '%' line that YAML does not define", "YAML 没有定义的 '%' 行"),
                Text("delete it", "请删除它"),
            ),
            "tag": Case(
                Text("a '!' has a special meaning in YAML", "'!' 在 YAML 里有特殊含义"),
                QUOTE_THE_VALUE,
            ),
            "other": Case(
                Text("this is not YAML: {problem}", "不是合法的 YAML：{problem}"),
            ),
            "unclosed": Case(
                Text("the '{opening}' here is not closed", "此处的 '{opening}' 没有闭合"),
                Text("add the closing '{closing}'", "补上 '{closing}'"),
            ),
            "inexpressible": Case(
                Text("content that YAML cannot express", "YAML 无法表示的内容"),
                Text(
                    "look for escapes such as \\U in double quotes after this point",
                    "检查此处之后双引号里的 \\U 之类的转义",
                ),
            ),
            "alias-inside": Case(
                Text("the alias {alias} is inside its own anchor", "别名 {alias} 位于它要重复的内容之中"),
                QUOTE_THE_STAR,
            ),
            "alias-unknown": Case(
                Text(
                    "the alias {alias} has no anchor: no & with this name", "别名 {alias} 没有对应的锚点（&）"
                ),
                QUOTE_THE_STAR,
            ),
        },
    ),
    "CC-SPEC-002": Entry(
        "error",
        Text(
            "the file is not UTF-8, or contains characters that YAML does not allow or that cannot be passed on",
            "文件不是 UTF-8，或者含有 YAML 不允许或无法传递的字符",
        ),
        do=Text("Save it as UTF-8 without control characters", "保存为 UTF-8，并去掉控制字符"),
        cases={
            "byte": Case(
                Text("the byte 0x{byte:02x} is not UTF-8 text", "字节 0x{byte:02x} 不是 UTF-8 文本"),
                Text("save the file as UTF-8", "把文件保存为 UTF-8"),
            ),
            "not-yaml": Case(
                Text("the character U+{number:04X} is not allowed in YAML", "YAML 不允许字符 U+{number:04X}"),
                Text("remove it", "请删除它"),
            ),
            "unsendable": Case(
                Text("the character U+{number:04X} cannot be passed on", "字符 U+{number:04X} 无法传递"),
                Text("remove it", "请删除它"),
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
                    "set LC_ALL=C.UTF-8 before clusterctl, and type UTF-8",
                    "在 clusterctl 前加 LC_ALL=C.UTF-8，并以 UTF-8 输入",
                ),
            ),
            "character": Case(
                Text("the character U+{number:04X} is not allowed here", "此处不允许字符 U+{number:04X}"),
                Text("remove it", "请删除它"),
            ),
        },
    ),
    "CC-SPEC-003": Entry(
        "error",
        Text(
            "the file is too large, too deeply nested, or has too many values or problems",
            "文件过大、嵌套过深，或者值或问题过多",
        ),
        do=Text(
            "Check that it is the right file; large lists belong in `args`, data in separate files",
            "检查文件是否正确；长列表写在 `args` 里，数据放在单独的文件里",
        ),
        cases={
            "text": Case(
                Text("more than {kib} KiB of text", "文本超过 {kib} KiB"),
                RIGHT_FILE,
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
                RIGHT_FILE,
            ),
            "import": Case(
                Text("more than {limit}", "超过 {limit}"),
                RIGHT_FILE,
            ),
            "import-size": Case(
                Text("more than {limit} MiB of text", "文本超过 {limit} MiB"),
                RIGHT_FILE,
            ),
            "line": Case(
                Text("a line of more than {most} characters", "有一行超过 {most} 个字符"),
                RIGHT_FILE,
            ),
            "rendered": Case(
                Text("the inventory would be larger than {kib} KiB", "inventory 会超过 {kib} KiB"),
                RIGHT_FILE,
            ),
        },
    ),
    "CC-SPEC-004": Entry(
        "error",
        Text("a key is written twice", "同一个键写了两次"),
        do=Text("Keep one of the two", "只保留一个"),
        cases={
            "": Case(
                Text("the key {key} is written twice", "键 {key} 写了两次"),
                Text("keep one; the other is at {other}", "保留一个；另一个在 {other}"),
            ),
        },
    ),
    "CC-SPEC-005": Entry(
        "error",
        Text(
            "the file is empty, contains several documents, or is not a mapping of keys to values",
            "文件为空、含有多个文档，或者不是键和值",
        ),
        do=Text(
            "Start from an example in `inventories/`, or from `clusterctl init`",
            "从 `inventories/` 里的示例开始，或者用 `clusterctl init` 生成",
        ),
        cases={
            "empty": Case(
                Text("the file is empty", "文件是空的"),
                START_WITH_A_KEY,
            ),
            "no-mapping": Case(
                Text("expected keys and values, got {found}", "应为键和值，实际是 {found}"),
                START_WITH_A_KEY,
            ),
            "second": Case(
                Text("a second document starts here", "从这里开始是第二个文档"),
                Text("write only one document per file", "一个文件只能写一个文档"),
            ),
        },
    ),
    "CC-SPEC-006": Entry(
        "error",
        Text(
            "unsupported YAML: merge keys, tags, or lists as keys",
            "不支持的 YAML 写法：合并键、标签，或者用列表作键",
        ),
        do=Text("Write the values out; anchors and aliases are supported", "把值展开来写；支持锚点和别名"),
        cases={
            "key": Case(
                Text("expected a key, got {found}", "应为键，实际是 {found}"),
            ),
            "merge": Case(
                Text("merge keys (<<) are not part of YAML 1.2", "合并键（<<）不属于 YAML 1.2"),
                Text(
                    "repeat the values; put what all nodes share at the top level of the inventory",
                    "把值逐个写出；所有节点共用的写在 inventory 的顶层",
                ),
            ),
            "tag": Case(
                Text("the YAML tag {tag} is not supported", "不支持 YAML 标签 {tag}"),
                Text(
                    "quote the text if the ! belongs to it; otherwise delete the tag",
                    "如果 '!' 是文本的一部分，请给文本加引号；否则删除标签",
                ),
            ),
        },
    ),
    "CC-SPEC-007": Entry(
        "error",
        Text("the file cannot be read", "无法读取文件"),
        do=Text("Check path and permissions of the file", "检查文件的路径和权限"),
        cases={
            "home": Case(
                Text("{path}: {reason}", "{path}：{reason}"), Text("write the full path", "写完整路径")
            ),
            "": Case(
                Text("{path}: {reason}", "{path}：{reason}"),
                Text("give the path of an existing file", "请指定已存在的文件的路径"),
            ),
            "near": Case(
                Text("{path}: {reason}", "{path}：{reason}"),
                Text("did you mean {guess}?", "是不是 {guess}？"),
            ),
            "directory": Case(
                Text("{path} is a directory without {name}", "目录 {path} 中没有 {name}"),
                Text("give the path of a file", "请写文件的路径"),
            ),
        },
    ),
    "CC-SPEC-008": Entry(
        "error",
        Text(
            "the wrong kind of file: a Python script, another tool's inventory, or inventory and job are swapped",
            "文件类型不对：是 Python 脚本、其他工具的 inventory，或者 inventory 和作业文件写反了",
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
            "other-tool": Case(
                Text(
                    "this is {description}; expected an inventory of clusterctl",
                    "这是{description}；这里应为 clusterctl 的 inventory",
                ),
                Text("`{command}` writes an inventory from it", "`{command}` 由它写出一个 inventory"),
            ),
            "script": Case(
                Text(
                    "this looks like a Python script; expected {expected} (YAML)",
                    "这看起来是 Python 脚本；这里应为{expected}（YAML）",
                ),
                Text(
                    "`{command}` writes a job file and an inventory", "`{command}` 会写出作业文件和 inventory"
                ),
            ),
        },
    ),
    "CC-SPEC-010": Entry(
        "error",
        Text("unknown key; the nearest known one is shown", "未知的键；会列出最接近的键"),
        do=Text(
            "The message shows the nearest known key; usually it is a spelling mistake",
            "报错里有最接近的键名，多半是拼写错误",
        ),
        cases={
            "": Case(
                Text("unknown key {key}", "未知的键 {key}"),
                Text("known keys: {known}", "可用的键：{known}"),
            ),
            "near": Case(
                Text("unknown key {key}{suggestion}", "未知的键 {key}{suggestion}"),
            ),
            "comma": Case(
                Text(
                    "{key}: {value} inside braces: the comma ends the value",
                    "花括号里的 {key}: {value}：逗号会结束这个值",
                ),
                Text("write a list: {key}: [{form}]", "写成列表：{key}: [{form}]"),
            ),
        },
    ),
    "CC-SPEC-011": Entry(
        "error",
        Text("a key is missing", "缺少键"),
        do=Text("Add the missing key", "补上缺少的键"),
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
                    "setup: none of venv, uv, conda and run is set", "setup：没有设置 venv、uv、conda 或 run"
                ),
                Text(
                    "for example setup: {venv: requirements.txt}, or run: if you only need shell commands",
                    "例如 setup: {venv: requirements.txt}；如果只需要 shell 命令，用 run:",
                ),
            ),
        },
    ),
    "CC-SPEC-012": Entry(
        "error",
        Text(
            "wrong type of value: a text instead of a list, or a word instead of a number",
            "值的类型不对：应为列表却写了文本，应为数字却写了单词",
        ),
        do=Text(
            "The message shows the expected type: a list `[a, b]`, a number, or a text",
            "报错里写明了应有的类型：列表 `[a, b]`、数字或文本",
        ),
        cases={
            "list": Case(
                Text("{path}: expected a list, got {found}", "{path}：应为列表，实际是 {found}"),
                same("{form}"),
            ),
            "mapping": Case(
                Text("{path}: expected keys and values, got {found}", "{path}：应为键和值，实际是 {found}"),
                same("{form}"),
            ),
            "mapping-keys": Case(
                Text("{path}: expected keys and values, got {found}", "{path}：应为键和值，实际是 {found}"),
                Text("{path}: {KEY: VALUE} with the keys {keys}", "{path}: {KEY: VALUE}，可用的键：{keys}"),
            ),
            "whole-number": Case(
                Text("expected a whole number, got {text}", "应为整数，实际是 {text}"),
                Text("plain decimal digits, such as 8", "使用十进制数字，例如 8"),
            ),
            "time": Case(
                Text(
                    "expected a time such as 30s, 12h or 1h30m, got {text}",
                    "应为 30s、12h、1h30m 这样的时长，实际是 {text}",
                )
            ),
            "size": Case(
                Text("expected a size, got {text}", "应为大小，实际是 {text}"),
                Text(
                    "for example 500MB, 20GB or 1TB; 0 for no limit", "例如 500MB、20GB 或 1TB；0 表示不限制"
                ),
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
        Text("the value is not allowed here", "值不在允许的范围内"),
        do=Text("The message lists the allowed values", "报错里列出了允许的值"),
        cases={
            "twice": Case(
                Text("{name}: {text} is written twice", "{name}：{text} 写了两次"),
                Text("keep one", "保留一个"),
            ),
            "leaves-output-directory": Case(
                Text("{text} is outside the output directory", "{text} 超出了输出目录"),
                Text(
                    "give files below ${output_dir}, such as '**' or '*.pt'",
                    "请指定 ${output_dir} 下的文件，例如 '**' 或 '*.pt'",
                ),
            ),
            "metric-name": Case(
                Text("{text} is not a name for a number", "{text} 不能作为指标的名称"),
                Text(
                    "use letters, digits, '.', '_', '/' and '-', at most 48",
                    "只能使用字母、数字、'.'、'_'、'/' 和 '-'，最多 48 个字符",
                ),
            ),
            "metric-pattern": Case(
                Text(
                    "{text} is not a regular expression: {reason}",
                    "{text} 不是正则表达式（Python 报告：{reason}）",
                ),
                Text("write it as for Python's re.search", "按 Python 的 re.search 的写法书写"),
            ),
            "metric-group": Case(
                Text(
                    "{text} has {count} groups, one is needed: the number",
                    "{text} 有 {count} 个分组，需要且只能有一个：数值",
                ),
                Text(
                    "put the number in parentheses, such as `'reward: ([-+.0-9e]+)'`, and write other groups as `(?:...)`",
                    "用圆括号括住数值，例如 `'reward: ([-+.0-9e]+)'`，其他分组写成 `(?:...)`",
                ),
            ),
            "metric-slow": Case(
                Text(
                    "{text} repeats a repetition, which can take very long",
                    "{text} 中有嵌套的重复，匹配可能耗时极长",
                ),
                Text(
                    "write one repetition instead of two, such as `[a-z ]+` for `([a-z]+ ?)+`",
                    "用一个重复代替两个，例如用 `[a-z ]+` 代替 `([a-z]+ ?)+`",
                ),
            ),
            "nproc": Case(
                Text(
                    "expected gpu, cpu or a whole number, got {word}{suggestion}",
                    "应为 gpu、cpu 或整数，实际是 {word}{suggestion}",
                ),
                Text(
                    "gpu for one process per GPU, or a number of processes such as 8",
                    "gpu 表示每块 GPU 一个进程；也可以写进程数，例如 8",
                ),
            ),
            "not-beside-job-file": Case(
                Text("{text} is not in the job file's directory", "{text} 不在作业文件所在目录下"),
                Text(
                    "give a path in the job file's directory or below; a folder in it may be a link",
                    "请指定作业文件所在目录或其下级的路径；其中的目录可以是链接",
                ),
            ),
            "unsigned-service": Case(
                Text("notify: {text} messages are not signed", "notify：{text} 的消息不签名"),
                Text(
                    "remove secret_from; for this service the URL itself is the secret",
                    "删除 secret_from；该服务的 URL 本身就是 secret",
                ),
            ),
            "stall-restart": Case(
                Text("stall.then: restart needs the key restart", "stall.then：restart 需要 restart 键"),
                Text(
                    "add `restart: {max: 3}`, or write `then: stop`",
                    "加上 `restart: {max: 3}`，或者写 `then: stop`",
                ),
            ),
            "not-name": Case(
                Text("{text} is not a valid name", "{text} 不是有效的名称"),
                Text(
                    "use only letters, digits, '.', '_' and '-', starting with a letter or digit",
                    "只能使用字母、数字、'.'、'_' 和 '-'，以字母或数字开头",
                ),
            ),
            "too-long": Case(
                Text("{text} is longer than {max_length} characters", "{text} 超过 {max_length} 个字符")
            ),
            "not-absolute": Case(
                Text(
                    "expected a path that starts with / or ~/, got {text}",
                    "应为以 / 或 ~/ 开头的路径，实际是 {text}",
                )
            ),
            "not-interpreter": Case(
                Text("{text} is not a valid interpreter", "{text} 不是有效的解释器"),
                Text(
                    "give an absolute path, ~/..., or a command such as python3.11; without options",
                    "请写绝对路径、~/...，或者 python3.11 这样的命令名；不能带选项",
                ),
            ),
            "not-script": Case(
                Text("{text} is not a valid script", "{text} 不是有效的脚本"),
                Text(
                    "give a path inside the source directory, or an absolute path on the nodes",
                    "请指定源目录内的路径，或者节点上的绝对路径",
                ),
            ),
            "leaves-source-directory": Case(
                Text("{text} is outside the source directory", "{text} 超出了源目录"),
                Text("set sync.source to the directory above it", "把 sync.source 设为上一级目录"),
            ),
            "not-module": Case(
                Text("{text} is not a valid module", "{text} 不是有效的模块"),
                Text(
                    "give a dotted name such as pkg.train, without .py",
                    "请写带点的模块名，例如 pkg.train，不带 .py",
                ),
            ),
            "not-variable": Case(
                Text("{text} is not a valid name for a variable", "{text} 不是有效的变量名"),
                Text(
                    "use only letters, digits and '_', with no digit at the start",
                    "只能使用字母、数字和 '_'，不能以数字开头",
                ),
            ),
            "two-ways": Case(
                Text(
                    "ssh: `jump` and `proxy_command` cannot be combined",
                    "ssh：`jump` 和 `proxy_command` 不能同时使用",
                ),
                KEEP_ONE,
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
                Text("expected at least one item, got an empty list", "至少要有一项，实际是空列表"),
                Text("give one, or remove the key from the file", "写一项，或者从文件里删除这个键"),
            ),
            "not-ipv4-address": Case(
                Text("{text} is not an IPv4 address", "{text} 不是 IPv4 地址"),
                Text(
                    "use four numbers from 0 to 255, such as 192.168.10.235",
                    "使用四个 0 到 255 的数字，例如 192.168.10.235",
                ),
            ),
            "long-chain": Case(
                Text("{count} bastions in a chain", "跳板机链有 {count} 级"),
                Text("use at most {longest_chain}", "最多 {longest_chain} 级"),
            ),
            "not-bastion": Case(
                Text("{word} is not a valid bastion", "{word} 不是有效的跳板机"),
                Text(
                    "use user@host:port or the name of a host in your SSH configuration; commas make a chain",
                    "使用 user@host:port，或者 SSH 配置里的主机名；多级用逗号分隔",
                ),
            ),
            "not-network": Case(
                Text("{text} is not a network", "{text} 不是网段"),
                Text("for example 192.168.10.0/24", "例如 192.168.10.0/24"),
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
                Text("for example 192.168.10.235", "例如 192.168.10.235"),
            ),
            "proxy-token": Case(
                Text("unknown token {token} in a proxy command", "代理命令里有未知的记号 {token}"),
                Text(
                    "use %h %p %r %% (host, port, user, percent sign)",
                    "可用的有 %h %p %r %%（主机、端口、用户、百分号）",
                ),
            ),
            "node-pattern": Case(same("{problem}"), same("{way_out}")),
            "network-bits": Case(
                Text("{text} is not a network", "{text} 不是网段"),
                Text("did you mean {network}?", "是不是 {network}？"),
            ),
        },
    ),
    "CC-SPEC-014": Entry(
        "error",
        Text("a value is missing", "缺少值"),
        do=Text("Write a value, or remove the key", "写上值，或者删除这个键"),
        cases={
            "list": Case(
                Text("{path}: expected a list, got nothing", "{path}：应为列表，实际没有值"),
                GIVE_OR_DELETE,
            ),
            "mapping": Case(
                Text("{path}: expected keys and values, got nothing", "{path}：应为键和值，实际没有值"),
                GIVE_OR_DELETE,
            ),
            "empty-command": Case(
                Text("command: expected at least a program", "command：至少要有程序名"),
                same("[./train.sh]"),
            ),
            "empty-gpus": Case(
                Text("gpus: expected at least one index", "gpus：至少要有一个编号"),
                Text(
                    "[0, 1], or remove `gpus` from the file for all GPUs; for a job without GPUs: nproc_per_node: 1, backend: gloo",
                    "[0, 1]；要使用全部 GPU 就从文件里删除 `gpus`；不用 GPU 的作业写 nproc_per_node: 1, backend: gloo",
                ),
            ),
            "empty-restart-on": Case(
                Text("restart.on: expected at least one reason", "restart.on：至少要有一个原因"),
                Text(
                    "for example [node_lost, worker_killed], or remove the key from the file for the default",
                    "例如 [node_lost, worker_killed]，或者从文件里删除这个键以使用默认值",
                ),
            ),
            "empty-on-end": Case(
                Text("on_end.command: expected at least a program", "on_end.command：至少要有程序名"),
                same("[./on-end.sh]"),
            ),
            "empty-text": Case(
                Text("expected a text, got an empty one", "应为文本，实际为空"),
                GIVE_OR_DELETE,
            ),
            "nothing": Case(
                Text("expected {noun}, got nothing", "应为 {noun}，实际没有值"),
                same("{way_out}"),
            ),
        },
    ),
    "CC-SPEC-015": Entry(
        "error",
        Text("a number is out of range", "数字超出范围"),
        do=Text("The message shows the range", "报错里写明了范围"),
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
                Text("for no limit, remove the key from the file", "如需不限制，从文件里删除这个键"),
            ),
            "small-size": Case(
                Text("{text} is less than 1MB", "{text} 小于 1MB"),
                Text(
                    "for example 500MB, 20GB or 1TB; 0 for no limit", "例如 500MB、20GB 或 1TB；0 表示不限制"
                ),
            ),
            "port-limits": Case(
                Text("{text} is outside the range of ports", "{text} 超出了端口范围"),
                Text(
                    "use ports from {lowest_port} to {highest_port}",
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
        Text("a node's name is used twice, or has another meaning", "节点名重复，或者有其他含义"),
        do=Text(
            "Choose another name; not a number, a range or `all`", "换一个名称；不能是数字、范围或 `all`"
        ),
        cases={
            "reads-as-ranks": Case(
                Text("the name {text} would be read as node ranks", "名称 {text} 会被当作节点编号"),
                Text("for example node{plain}", "例如 node{plain}"),
            ),
            "all": Case(
                Text("the name 'all' means all nodes", "名称 'all' 表示所有节点"),
                Text("choose another name", "换一个名称"),
            ),
            "same-name": Case(
                Text("the node at {location} has the name {text} too", "{location} 处的节点也叫 {text}"),
                Text("give one of them a `name:` of its own", "用 `name:` 给其中一个设置不同的名称"),
            ),
            "host-as-name": Case(
                Text(
                    "host: cannot also be used as the node's name: {problem}",
                    "host：不能同时用作节点名：{problem}",
                ),
                Text("set name: for the node", "用 name: 给节点设置名称"),
            ),
        },
    ),
    "CC-SPEC-021": Entry(
        "error",
        Text("two nodes with the same host and port", "两个节点的主机和端口都相同"),
        do=Text("Remove one, or set a different port", "删除一个，或者设置不同的端口"),
        cases={
            "one-machine": Case(
                Text(
                    "{name} and {other} are the same machine: {host}",
                    "{name} 和 {other} 是同一台机器：{host}",
                ),
                Text("choose one of them, or a --group", "选择其中一个，或者用 --group"),
            ),
            "again": Case(
                Text("{host} is listed twice", "{host} 重复出现"),
                Text(
                    "keep one line; --format mpi adds up the slots",
                    "只保留一行；--format mpi 会把 slots 相加",
                ),
            ),
            "same-port": Case(
                Text(
                    "host: the node at {location} has the same host and port {address}",
                    "host：{location} 处的节点有相同的主机和端口 {address}",
                ),
                Text(
                    "one machine is one node; two machines with the same address must differ in ssh.port",
                    "一台机器就是一个节点；地址相同的两台机器必须用不同的 ssh.port 区分",
                ),
            ),
        },
    ),
    "CC-SPEC-022": Entry(
        "error",
        Text("no nodes", "没有节点"),
        do=Text("Add at least one to `nodes:`", "在 `nodes:` 下至少写一个"),
        cases={
            "no-host": Case(
                Text("no host is listed here", "此处没有写主机"),
                Text("write one host per line", "每行一个主机"),
            ),
            "empty-list": Case(
                Text("nodes: the list is empty", "nodes：列表是空的"),
                Text("add at least one host", "至少写一个主机"),
            ),
            "ssh-config": Case(
                Text("this SSH configuration contains no usable host", "这个 SSH 配置里没有可用的主机"),
                LIST_MACHINES,
            ),
            "ssh-config-reasons": Case(
                Text(
                    "this SSH configuration contains no usable host: {reasons}",
                    "这个 SSH 配置里没有可用的主机：{reasons}",
                ),
                LIST_MACHINES,
            ),
            "empty-group": Case(Text("the group {group} has no hosts", "组 {group} 里没有主机")),
            "no-hosts": Case(Text("no host is listed here", "此处没有写主机")),
            "no-ssh": Case(
                Text("no host can be used over SSH: {reason}", "没有主机能通过 SSH 连接：{reason}"),
                Text("list machines that run sshd", "请写运行 sshd 的机器"),
            ),
            "none-by-ssh": Case(
                Text(
                    "no host can be used over SSH: {reason} (and {more})",
                    "没有主机能通过 SSH 连接：{reason}（以及 {more}）",
                ),
                Text("list machines that run sshd", "请写运行 sshd 的机器"),
            ),
        },
    ),
    "CC-SPEC-023": Entry(
        "error",
        Text("training over IPv6 is not supported yet", "暂不支持通过 IPv6 训练"),
        do=Text(
            "Set `ip:` to an IPv4 address; `host:` may be IPv6",
            "把 `ip:` 设为 IPv4 地址；`host:` 可以是 IPv6",
        ),
        cases={
            "ipv6-machine": Case(
                NO_IPV6,
                Text("write the machine's IPv4 address, or a name", "写机器的 IPv4 地址或名称"),
            ),
            "ipv6-host": Case(
                Text("training over IPv6 is not supported yet", "暂不支持通过 IPv6 训练"),
                Text("write the machine's IPv4 address, or a name", "写机器的 IPv4 地址或名称"),
            ),
            "node": Case(
                Text(
                    "host: training over IPv6 is not supported yet, and the node has no other address",
                    "host：暂不支持通过 IPv6 训练，而该节点没有其他地址",
                ),
                Text(
                    "set ip: to its IPv4 address in the training network",
                    "用 ip: 指定它在训练网络中的 IPv4 地址",
                ),
            ),
            "ipv6-address": Case(
                NO_IPV6,
                Text("use the node's IPv4 address", "请写节点的 IPv4 地址"),
            ),
            "ipv6-network": Case(
                NO_IPV6,
                Text("use the IPv4 network", "请写 IPv4 网段"),
            ),
        },
    ),
    "CC-SPEC-024": Entry(
        "error",
        Text(
            "a host, user or path contains characters that are not allowed",
            "主机、用户或路径含有不允许的字符",
        ),
        do=Text(
            "Set user and port under `ssh:`: `ssh: {user: root, port: 2222}`",
            "用户和端口写在 `ssh:` 下：`ssh: {user: root, port: 2222}`",
        ),
        cases={
            "parent-folder": Case(
                Text("{text} contains '..'", "{text} 含有 '..'"),
                Text("write the path without it", "请写不含 '..' 的路径"),
            ),
            "whole-home": Case(
                Text(
                    "{text} cannot be used: clusterctl needs a directory of its own",
                    "{text} 不能使用：clusterctl 需要专用的目录",
                ),
                Text(
                    "set a directory below it, such as ~/.clusterctl",
                    "请指定它下面的专用目录，例如 ~/.clusterctl",
                ),
            ),
            "not-user-name": Case(
                Text("{text} is not a valid user name", "{text} 不是有效的用户名"),
                Text("use only letters, digits and . _ @ + -", "只能使用字母、数字和 . _ @ + -"),
            ),
            "host": Case(
                NOT_A_HOST,
                Text(
                    "use only letters, digits, '.', '_' and '-', with no '-' at the start",
                    "只能使用字母、数字、'.'、'_' 和 '-'，不能以 '-' 开头",
                ),
            ),
            "host-user": Case(
                NOT_A_HOST,
                Text("write the user under ssh: {user: ...}", "用户名写在 ssh: {user: ...} 里"),
            ),
            "host-port": Case(
                NOT_A_HOST,
                Text("write the port under ssh: {port: ...}", "端口写在 ssh: {port: ...} 里"),
            ),
        },
    ),
    "CC-SPEC-025": Entry(
        "error",
        Text("not the name of a NIC", "不是有效的网卡名"),
        do=Text(
            "Use the name that `ip link` shows; several as a list: `nic: [a, b]`",
            "使用 `ip link` 显示的名称；多块网卡写成列表：`nic: [a, b]`",
        ),
        cases={
            "too-long": Case(
                Text(
                    "{text} is longer than a NIC's name can be: {longest_nic} bytes",
                    "{text} 超过网卡名的最大长度：{longest_nic} 字节",
                )
            ),
            "not-nic": Case(
                Text("{text} is not the name of a NIC", "{text} 不是有效的网卡名"),
                Text(
                    "for example eth0; `ip link` on the node lists the names",
                    "例如 eth0；在节点上用 `ip link` 查看",
                ),
            ),
            "alias": Case(
                Text(
                    "{text} is an alias; NCCL and Gloo cannot bind to an alias",
                    "{text} 是别名，NCCL 和 Gloo 无法绑定别名",
                ),
                Text("use the name of the NIC itself", "使用网卡本身的名称"),
            ),
            "at-sign": Case(
                Text("{text} contains '@'", "{text} 含有 '@'"),
                Text(
                    "for eth0@if3, as `ip` shows it, the name is eth0",
                    "`ip` 显示为 eth0@if3 时，网卡名是 eth0",
                ),
            ),
            "comma": Case(
                Text("{text} contains ','", "{text} 含有 ','"),
                Text("write a list: nic: [meth919, meth920]", "写成列表：nic: [meth919, meth920]"),
            ),
        },
    ),
    "CC-SPEC-030": Entry(
        "error",
        Text(
            "a job needs exactly one of `script`, `module` and `command`",
            "`script`、`module`、`command` 必须且只能写一个",
        ),
        do=Text(
            "Keep one of `script:`, `module:`, `command:`", "`script:`、`module:`、`command:` 只保留一个"
        ),
        cases={
            "none": Case(
                Text(
                    "the job has none of script, module and command", "作业里没有 script、module 或 command"
                ),
                Text(
                    "add script: train.py, module: pkg.train, or command: [./train.sh]",
                    "加上 script: train.py、module: pkg.train 或 command: [./train.sh]",
                ),
            ),
            "several": Case(
                Text(
                    "only one of script, module and command is allowed; the {other} is at {place}",
                    "script、module、command 只能写一个；{other} 在 {place}",
                ),
                KEEP_ONE,
            ),
        },
    ),
    "CC-SPEC-031": Entry(
        "error",
        Text(
            "`env` or `secrets` contains a variable that torchrun or clusterctl sets",
            "`env` 或 `secrets` 里含有由 torchrun 或 clusterctl 设置的变量",
        ),
        do=Text(
            "Remove the line: `launch` sets the variable on each node",
            "删除这一行：`launch` 会在每个节点上设置该变量",
        ),
        cases={
            "": Case(
                Text(
                    "{text} is set by {set_by}, on every node and for every worker",
                    "{text} 由 {set_by} 在每个节点上为每个 worker 设置",
                ),
                Text(
                    "remove the line; the right value is set on each node",
                    "删除这一行；每个节点上会设置正确的值",
                ),
            ),
        },
    ),
    "CC-SPEC-032": Entry(
        "error",
        Text("a secret has a value in `env`", "secret 在 `env` 里写了值"),
        do=Text(
            "Keep it only in `secrets`, and export it on the machine where you launch",
            "只保留在 `secrets` 里，并在执行启动的机器上 export",
        ),
        cases={
            "": Case(
                Text(
                    "{name} is a secret and has a value in env at {location}",
                    "{name} 是 secret，但在 {location} 的 env 里有值",
                ),
                Text(
                    "remove it from env; the value is taken from your own environment",
                    "从 env 里删除；它的值取自你自己的环境变量",
                ),
            ),
        },
    ),
    "CC-SPEC-033": Entry(
        "error",
        Text(
            "an unknown placeholder, or one that this launcher does not support",
            "未知的占位符，或者该启动方式不支持它",
        ),
        do=Text(
            "The message lists the known ones; `$${x}` is a literal",
            "报错里列出了可用的占位符；`$${x}` 表示字面值",
        ),
        cases={
            "local-rank": Case(
                Text(
                    "${local_rank} is set by torchrun, not by `launcher: {launcher}`",
                    "${local_rank} 由 torchrun 设置，`launcher: {launcher}` 不支持",
                ),
                Text(
                    "each node runs one process: use ${node_rank}", "每个节点只启动一个进程：用 ${node_rank}"
                ),
            ),
            "unclosed": Case(
                Text("the placeholder '${' has no '}'", "占位符 '${' 缺少 '}'"),
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
            "a key belongs to another launcher, or this launcher needs a key that is missing",
            "这个键属于另一种启动方式，或者该启动方式缺少必需的键",
        ),
        do=Text("Remove the key, or change `launcher:`", "删除这个键，或者修改 `launcher:`"),
        cases={
            "command": Case(
                Text(
                    "command needs `launcher: command`, `ray` or `mpirun`; this job's launcher is {launcher}",
                    "command 需要 `launcher: command`、`ray` 或 `mpirun`，而该作业的启动方式是 {launcher}",
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
                    "use_env needs `launcher: launch`; this job's launcher is {launcher}",
                    "use_env 需要 `launcher: launch`，而该作业的启动方式是 {launcher}",
                ),
                Text(
                    "remove it: LOCAL_RANK is in the environment anyway",
                    "删除它：环境变量里本来就有 LOCAL_RANK",
                ),
            ),
            "no-python": Case(
                Text(
                    "no_python is for `script` under torchrun; it cannot be combined with {key}",
                    "no_python 用于 torchrun 下的 `script`，不能与 {key} 同时使用",
                ),
                Text(
                    "remove no_python, or use script: and launcher: torchrun",
                    "删除 no_python，或者改用 script: 和 launcher: torchrun",
                ),
            ),
            "shell-torchrun": Case(
                Text(
                    "script: {script} is a shell script, and torchrun would run it with Python",
                    "script: {script} 是 shell 脚本，而 torchrun 会用 Python 运行它",
                ),
                Text(
                    "no_python: true runs it once per rank; launcher: command once per node",
                    "no_python: true 让每个 rank 运行一次；launcher: command 让每个节点运行一次",
                ),
            ),
            "shell-python": Case(
                Text(
                    "script: {script} is a shell script, and this launcher would run it with Python",
                    "script: {script} 是 shell 脚本，而该启动方式会用 Python 运行它",
                ),
                Text(
                    "launcher: command and command: [bash, SCRIPT.sh]",
                    "改用 launcher: command 和 command: [bash, SCRIPT.sh]",
                ),
            ),
            "ends-with": Case(
                Text(
                    "`ends_with: node 0` needs `launcher: command` or `python`; this job's launcher is {launcher}",
                    "`ends_with: node 0` 需要 `launcher: command` 或 `python`，而该作业的启动方式是 {launcher}",
                ),
                Text(
                    "remove it: a rank of torchrun that ends early leaves the others waiting",
                    "删除它：torchrun 的 rank 提前结束会让其他 rank 一直等待",
                ),
            ),
            "ends-with-head": Case(
                Text(
                    "under {launcher} a run always ends with node 0's program, so `ends_with: all` has no meaning",
                    "使用 {launcher} 时任务总是随 0 号节点的程序结束，`ends_with: all` 没有意义",
                ),
                Text("remove ends_with", "删除 ends_with"),
            ),
            "keep-warm": Case(
                Text(
                    "keep_warm needs `launcher: torchrun`; this job's launcher is {launcher}",
                    "keep_warm 需要 `launcher: torchrun`，而该作业的启动方式是 {launcher}",
                ),
                Text("remove keep_warm", "删除 keep_warm"),
            ),
            "keep-warm-exec": Case(
                Text(
                    "`start: exec` starts every worker with a new interpreter, so keep_warm at {place} has no use",
                    "`start: exec` 会用新的解释器启动每个 worker，因此 {place} 处的 keep_warm 不起作用",
                ),
                Text("use start: auto, or remove one of the two", "改用 start: auto，或者删除其中一个"),
            ),
        },
    ),
    "CC-SPEC-035": Entry(
        "error",
        Text("`gpus` and a variable in `env` both select GPUs", "`gpus` 和 `env` 里的变量都在选择 GPU"),
        do=Text("Keep `gpus:` and remove the variable", "保留 `gpus:`，删除该变量"),
        cases={
            "": Case(
                Text(
                    "{name} in env and gpus at {location} both select GPUs",
                    "env 里的 {name} 和 {location} 处的 gpus 都在选择 GPU",
                ),
                Text("keep gpus: it is checked before the start", "保留 gpus：启动前会检查它"),
            ),
        },
    ),
    "CC-SPEC-036": Entry(
        "error",
        Text("keys of `setup` that cannot be combined", "`setup` 里的这些键不能同时使用"),
        do=Text(
            "Use one of `venv`, `uv` and `conda`; `wheelhouse` and `system_site_packages` work with the first two",
            "`venv`、`uv`、`conda` 只用一个；`wheelhouse` 和 `system_site_packages` 只用于前两个",
        ),
        cases={
            "several-kinds": Case(
                Text(
                    "setup: only one of venv, uv and conda is allowed; the {text} is at {location}",
                    "setup：venv、uv、conda 只能写一个；{text} 在 {location}",
                ),
                KEEP_ONE,
            ),
            "not-conda": Case(
                Text("setup.{name} works only with venv and uv", "setup.{name} 只用于 venv 和 uv"),
                Text("remove it, or use venv or uv", "删除它，或者改用 venv 或 uv"),
            ),
            "no-kind": Case(
                Text("setup.{name} works only with venv and uv", "setup.{name} 只用于 venv 和 uv"),
                Text("add venv: requirements.txt, or remove it", "加上 venv: requirements.txt，或者删除它"),
            ),
        },
    ),
    "CC-SPEC-040": Entry(
        "error",
        Text("`--set` with a key that cannot be set", "`--set` 指定的键无法设置"),
        do=Text(
            "Use a key of the job; with a dot inside `env`, `sync` and `restart`",
            "使用作业的键；`env`、`sync`、`restart` 内的键用点连接",
        ),
        cases={
            "no-key": Case(
                Text("{path} is not a key", "{path} 不是有效的键"),
                Text("for example env.NCCL_DEBUG", "例如 env.NCCL_DEBUG"),
            ),
            "not-a-table": Case(
                Text("{path} cannot be set: {head} is {found}", "{path} 无法设置：{head} 是 {found}"),
                Text("set {head} as a whole", "整体设置 {head}"),
            ),
        },
    ),
    "CC-SPEC-050": Entry(
        "error",
        Text(
            "`init --from`: a line does not match the file format",
            "`init --from`：有一行不符合该文件格式",
        ),
        do=Text("Fix or remove the reported line", "修改或删除报告的那一行"),
        cases={
            "section-kind": Case(
                Text("{kind} is not a kind of section", "没有 {kind} 这种段落"),
                Text(
                    "use [GROUP], [GROUP:vars] or [GROUP:children]",
                    "可用的有 [GROUP]、[GROUP:vars] 和 [GROUP:children]",
                ),
            ),
            "group-variable": Case(
                Text("{line} is not a variable", "{line} 不是变量"), Text("write KEY=VALUE", "写 KEY=VALUE")
            ),
            "group-name": Case(Text("{line} is not a valid group name", "{line} 不是有效的组名")),
            "group-inside-itself": Case(Text("the group {cyclic} contains itself", "组 {cyclic} 包含自身")),
            "host-range": Case(
                Text("{part} is not a range of hosts", "{part} 不是主机范围"),
                Text("a range is [01:16], [a:f] or [01:16:2]", "范围写作 [01:16]、[a:f] 或 [01:16:2]"),
            ),
            "open-quote": Case(
                Text("a quotation mark is not closed in this line", "这一行的引号没有闭合"),
                Text("close it, or escape the quote", "补上结尾的引号，或者转义引号"),
            ),
            "host-variable": Case(
                Text("{word} is not a variable", "{word} 不是变量"),
                Text(
                    "write KEY=VALUE after the host; one host per line",
                    "在主机后面写 KEY=VALUE；每行一个主机",
                ),
            ),
            "group-key": Case(
                Text("{key} is not a key of a group", "{key} 不是组的键"),
                Text("a group has hosts, children and vars", "一个组可以有 hosts、children 和 vars"),
            ),
            "no-section": Case(
                Text("{line} is not a section", "{line} 不是段落"),
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
                    "a name needs a colon after it, even if it is alone in its line",
                    "名称后面必须有冒号，单独一行时也一样",
                ),
            ),
            "no-slots": Case(
                Text("{host} has no slots", "{host} 没有 slots"),
                Text("write HOST slots=N", "写 HOST slots=N"),
            ),
            "setting": Case(
                Text("{key} is not supported here", "此处不支持 {key}"),
                Text("one host per line; settings are KEY=VALUE", "每行一个主机；设置写作 KEY=VALUE"),
            ),
            "number": Case(
                Text("{host} has a number after a colon", "{host} 的冒号后面有数字"),
                Text("write slots=N", "写 slots=N"),
            ),
            "undeclared-group": Case(
                Text("there is no group {name}", "没有名为 {name} 的组"),
                Text("add [{section}]", "加上 [{section}]"),
            ),
            "odd-group": Case(Text("there is no group {name}", "没有名为 {name} 的组")),
            "pattern": Case(same("{problem}"), Text("a range is gpu[01-04,07]", "范围写作 gpu[01-04,07]")),
        },
    ),
    "CC-SPEC-051": Entry(
        "error",
        Text(
            "`init --from`: the file's format is unknown or not supported",
            "`init --from`：文件格式未知或不支持",
        ),
        do=Text("Choose the format with `--format`", "用 `--format` 指定格式"),
        cases={
            "ports-or-slots": Case(
                Text(
                    "the numbers after the colons may be ports or slots",
                    "冒号后面的数字可能是端口，也可能是 slots",
                ),
                Text(
                    "use --format hosts for ports, --format mpi for slots",
                    "是端口就用 --format hosts，是 slots 就用 --format mpi",
                ),
            ),
            "own": Case(
                Text("this is already an inventory of clusterctl", "这已经是 clusterctl 的 inventory"),
                same("clusterctl -i FILE check"),
            ),
            "plugin": Case(
                Text("this is the file of an Ansible inventory plugin", "这是 Ansible inventory 插件的文件"),
                Text(
                    "let Ansible export its hosts: ansible-inventory -i FILE --list --yaml",
                    "用 Ansible 导出主机：ansible-inventory -i FILE --list --yaml",
                ),
            ),
        },
    ),
    "CC-SPEC-052": Entry(
        "error",
        Text("`init --from`: no such group", "`init --from`：没有这个组"),
        do=Text("The message lists the groups", "报错里列出了已有的组"),
        cases={
            "no-ansible": Case(
                Text(
                    "only Ansible inventories have groups, and this file was read as {description}",
                    "只有 Ansible 的 inventory 有组，而该文件按 {description} 读取",
                ),
                Text("use --format ansible if it is one", "如果是 Ansible 的 inventory，用 --format ansible"),
            ),
            "unknown": Case(
                Text("no group with the name {group}{suggestion}", "没有名为 {group} 的组{suggestion}"),
                Text("the groups are {groups}", "组有 {groups}"),
            ),
            "no-groups": Case(
                Text("no group with the name {group}{suggestion}", "没有名为 {group} 的组{suggestion}"),
                Text("the file has no groups", "文件里没有组"),
            ),
        },
    ),
}
