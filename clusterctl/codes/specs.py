"""Inventory and job files: CC-SPEC."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

RIGHT_FILE = "check that this is the right file"
KEEP_ONE = "remove one of them"
NO_IPV6 = "training over IPv6 is not supported yet: {text}"
NOT_A_HOST = "{text} is not a valid host name or address"
LIST_MACHINES = "list the machines: clusterctl init HOST..., or a file with one host per line"
CHECK_INDENTATION = "check the indentation of this line and the ones above"
QUOTE_THE_VALUE = "put the value in quotes: 'like this'"
QUOTE_THE_STAR = "quote the text if the * belongs to it"
START_WITH_A_KEY = "start the file with a line such as KEY: VALUE"
EXPECTED_COMMA = "expected ',' or '{closing}'"
GIVE_OR_DELETE = "give a value, or remove the key from the file"


ENTRIES: Mapping[str, Entry] = {
    "CC-SPEC-001": Entry(
        "error",
        "the file is not valid YAML",
        do="Fix the reported line; usually the indentation is wrong, or a quotation mark is not closed",
        cases={
            "tab": Case("a tab where YAML needs spaces", "indent with spaces only"),
            "first-character": Case("a value cannot start with {character}", QUOTE_THE_VALUE),
            "colon": Case(
                "a ':' is not allowed here",
                "quote the text if the ':' belongs to it; otherwise check the indentation of this line and the one above",
            ),
            "dash": Case("a '- ' is not allowed here", CHECK_INDENTATION),
            "open-quote": Case("a quotation mark that is not closed", "close the quotation"),
            "no-colon": Case("a key without its ':'", "write KEY: VALUE"),
            "brace": Case(
                "a '{' inside brackets starts a mapping",
                "put a text that contains { or } in quotes: '${run_id}'",
            ),
            "no-comma": Case(EXPECTED_COMMA, "add the comma, or close the bracket"),
            "no-comma-opened": Case(
                EXPECTED_COMMA, "add the comma, or close the bracket that opens in line {line}"
            ),
            "escape": Case("unknown escape {character} in double quotes", "use single quotes"),
            "key-level": Case("the indentation of this key matches no level of the file", CHECK_INDENTATION),
            "dash-level": Case("the indentation of this '- ' matches no list of the file", CHECK_INDENTATION),
            "after-value": Case("text after the end of a value", QUOTE_THE_VALUE),
            "level": Case("this does not match the lines above", CHECK_INDENTATION),
            "no-value": Case("expected a value, found {found}", QUOTE_THE_VALUE),
            "after-end": Case("text after the end of the file's content", CHECK_INDENTATION),
            "marker": Case("a '*', '&' or '%' has a special meaning in YAML", QUOTE_THE_VALUE),
            "after-block": Case("text after a '|' or '>'", "start the text on a new line"),
            "directive": Case("a '%' line that YAML does not define", "delete it"),
            "tag": Case("a '!' has a special meaning in YAML", QUOTE_THE_VALUE),
            "other": Case("this is not YAML: {problem}"),
            "unclosed": Case("the '{opening}' here is not closed", "add the closing '{closing}'"),
            "inexpressible": Case(
                "content that YAML cannot express",
                "look for escapes such as \\U in double quotes after this point",
            ),
            "alias-inside": Case("the alias {alias} is inside its own anchor", QUOTE_THE_STAR),
            "alias-unknown": Case("the alias {alias} has no anchor: no & with this name", QUOTE_THE_STAR),
        },
    ),
    "CC-SPEC-002": Entry(
        "error",
        "the file is not UTF-8, or contains characters that YAML does not allow or that cannot be passed on",
        do="Save it as UTF-8 without control characters",
        cases={
            "byte": Case("the byte 0x{byte:02x} is not UTF-8 text", "save the file as UTF-8"),
            "not-yaml": Case("the character U+{number:04X} is not allowed in YAML", "remove it"),
            "unsendable": Case("the character U+{number:04X} cannot be passed on", "remove it"),
            "file": Case("{path}:{line}: not UTF-8 text", "save the file as UTF-8"),
            "locale": Case(
                "the byte 0x{byte:02x} cannot be read: the terminal's locale is not UTF-8",
                "set LC_ALL=C.UTF-8 before clusterctl, and type UTF-8",
            ),
            "character": Case("the character U+{number:04X} is not allowed here", "remove it"),
        },
    ),
    "CC-SPEC-003": Entry(
        "error",
        "the file is too large, too deeply nested, or has too many values or problems",
        do="Check that it is the right file; large lists belong in `args`, data in separate files",
        cases={
            "text": Case("more than {kib} KiB of text", RIGHT_FILE),
            "depth": Case("nested more than {most} levels deep"),
            "values": Case("more than {most} values, counting what aliases repeat"),
            "issues": Case("{count} more problems are not shown"),
            "file": Case("{path}: larger than {kib} KiB", RIGHT_FILE),
            "import": Case("more than {limit}", RIGHT_FILE),
            "import-size": Case("more than {limit} MiB of text", RIGHT_FILE),
            "line": Case("a line of more than {most} characters", RIGHT_FILE),
            "rendered": Case("the inventory would be larger than {kib} KiB", RIGHT_FILE),
        },
    ),
    "CC-SPEC-004": Entry(
        "error",
        "a key is written twice",
        do="Keep one of the two",
        cases={"": Case("the key {key} is written twice", "keep one; the other is at {other}")},
    ),
    "CC-SPEC-005": Entry(
        "error",
        "the file is empty, contains several documents, or is not a mapping of keys to values",
        do="Start from an example in `inventories/`, or from `clusterctl init`",
        cases={
            "empty": Case("the file is empty", START_WITH_A_KEY),
            "no-mapping": Case("expected keys and values, got {found}", START_WITH_A_KEY),
            "second": Case("a second document starts here", "write only one document per file"),
        },
    ),
    "CC-SPEC-006": Entry(
        "error",
        "unsupported YAML: merge keys, tags, or lists as keys",
        do="Write the values out; anchors and aliases are supported",
        cases={
            "key": Case("expected a key, got {found}"),
            "merge": Case(
                "merge keys (<<) are not part of YAML 1.2",
                "repeat the values; put what all nodes share at the top level of the inventory",
            ),
            "tag": Case(
                "the YAML tag {tag} is not supported",
                "quote the text if the ! belongs to it; otherwise delete the tag",
            ),
        },
    ),
    "CC-SPEC-007": Entry(
        "error",
        "the file cannot be read",
        do="Check path and permissions of the file",
        cases={
            "home": Case("{path}: {reason}", "write the full path"),
            "": Case("{path}: {reason}", "give the path of an existing file"),
            "near": Case("{path}: {reason}", "did you mean {guess}?"),
            "directory": Case("{path} is a directory without {name}", "give the path of a file"),
        },
    ),
    "CC-SPEC-008": Entry(
        "error",
        "the wrong kind of file: a Python script, another tool's inventory, or inventory and job are swapped",
        do="The inventory goes after `-i`, the job file after the verb; `clusterctl init --script FILE` writes a job for a script",
        cases={
            "inventory": Case(
                "this is an inventory; expected a job file", "swap the two files: {command} VERB JOB.yaml"
            ),
            "job": Case(
                "this is a job file; expected an inventory",
                "swap the two files: clusterctl -i INVENTORY.yaml VERB {file}",
            ),
            "other-tool": Case(
                "this is {description}; expected an inventory of clusterctl",
                "`{command}` writes an inventory from it",
            ),
            "script": Case(
                "this looks like a Python script; expected {expected} (YAML)",
                "`{command}` writes a job file and an inventory",
            ),
        },
    ),
    "CC-SPEC-010": Entry(
        "error",
        "unknown key; the nearest known one is shown",
        do="The message shows the nearest known key; usually it is a spelling mistake",
        cases={
            "": Case("unknown key {key}", "known keys: {known}"),
            "near": Case("unknown key {key}{suggestion}"),
            "comma": Case(
                "{key}: {value} inside braces: the comma ends the value", "write a list: {key}: [{form}]"
            ),
        },
    ),
    "CC-SPEC-011": Entry(
        "error",
        "a key is missing",
        do="Add the missing key",
        cases={
            "": Case("the key {key} is missing", "add {name}: {meaning}"),
            "inside": Case("the key {key} is missing in {parent}", "add {name}: {meaning}"),
            "empty-setup": Case(
                "setup: none of venv, uv, conda and run is set",
                "for example setup: {venv: requirements.txt}, or run: if you only need shell commands",
            ),
        },
    ),
    "CC-SPEC-012": Entry(
        "error",
        "wrong type of value: a text instead of a list, or a word instead of a number",
        do="The message shows the expected type: a list `[a, b]`, a number, or a text",
        cases={
            "list": Case("{path}: expected a list, got {found}", Same("{form}")),
            "mapping": Case("{path}: expected keys and values, got {found}", Same("{form}")),
            "mapping-keys": Case(
                "{path}: expected keys and values, got {found}", "{path}: {KEY: VALUE} with the keys {keys}"
            ),
            "whole-number": Case("expected a whole number, got {text}", "plain decimal digits, such as 8"),
            "time": Case("expected a time such as 30s, 12h or 1h30m, got {text}"),
            "size": Case("expected a size, got {text}", "for example 500MB, 20GB or 1TB; 0 for no limit"),
            "flag": Case("expected true or false, got {word}"),
            "single": Case("expected {noun}, got {found}", "write a single value"),
            "single-example": Case("expected {noun}, got {found}", "write a single value, such as {example}"),
        },
    ),
    "CC-SPEC-013": Entry(
        "error",
        "the value is not allowed here",
        do="The message lists the allowed values",
        cases={
            "twice": Case("{name}: {text} is written twice", "keep one"),
            "leaves-output-directory": Case(
                "{text} is outside the output directory",
                "give files below ${output_dir}, such as '**' or '*.pt'",
            ),
            "metric-name": Case(
                "{text} is not a name for a number", "use letters, digits, '.', '_', '/' and '-', at most 48"
            ),
            "metric-pattern": Case(
                "{text} is not a regular expression: {reason}", "write it as for Python's re.search"
            ),
            "metric-group": Case(
                "{text} has {count} groups, one is needed: the number",
                "put the number in parentheses, such as `'reward: ([-+.0-9e]+)'`, and write other groups as `(?:...)`",
            ),
            "metric-slow": Case(
                "{text} repeats a repetition, which can take very long",
                "write one repetition instead of two, such as `[a-z ]+` for `([a-z]+ ?)+`",
            ),
            "nproc": Case(
                "expected gpu, cpu or a whole number, got {word}{suggestion}",
                "gpu for one process per GPU, or a number of processes such as 8",
            ),
            "not-beside-job-file": Case(
                "{text} is not in the job file's directory",
                "give a path in the job file's directory or below; a folder in it may be a link",
            ),
            "unsigned-service": Case(
                "notify: {text} messages are not signed",
                "remove secret_from; for this service the URL itself is the secret",
            ),
            "stall-restart": Case(
                "stall.then: restart needs the key restart", "add `restart: {max: 3}`, or write `then: stop`"
            ),
            "min-nodes-restart": Case("min_nodes needs the key restart", "add `restart: {max: 3}`"),
            "min-nodes": Case(
                "min_nodes: {text} is not less than nodes: {nodes}",
                "set a smaller number, or remove min_nodes",
            ),
            "not-name": Case(
                "{text} is not a valid name",
                "use only letters, digits, '.', '_' and '-', starting with a letter or digit",
            ),
            "too-long": Case("{text} is longer than {max_length} characters"),
            "not-absolute": Case("expected a path that starts with / or ~/, got {text}"),
            "not-interpreter": Case(
                "{text} is not a valid interpreter",
                "give an absolute path, ~/..., or a command such as python3.11; without options",
            ),
            "not-script": Case(
                "{text} is not a valid script",
                "give a path inside the source directory, or an absolute path on the nodes",
            ),
            "leaves-source-directory": Case(
                "{text} is outside the source directory", "set sync.source to the directory above it"
            ),
            "not-module": Case(
                "{text} is not a valid module", "give a dotted name such as pkg.train, without .py"
            ),
            "not-variable": Case(
                "{text} is not a valid name for a variable",
                "use only letters, digits and '_', with no digit at the start",
            ),
            "two-ways": Case("ssh: `jump` and `proxy_command` cannot be combined", KEEP_ONE),
            "code": Case("expected the code of a finding such as CC-NET-009, got {word!r}"),
            "reason": Case("expected a reason in one line of at most {longest_reason} characters"),
            "choice": Case("expected {expected}, got {word}{suggestion}"),
            "empty": Case(
                "expected at least one item, got an empty list", "give one, or remove the key from the file"
            ),
            "not-ipv4-address": Case(
                "{text} is not an IPv4 address", "use four numbers from 0 to 255, such as 192.168.10.235"
            ),
            "long-chain": Case("{count} bastions in a chain", "use at most {longest_chain}"),
            "not-bastion": Case(
                "{word} is not a valid bastion",
                "use user@host:port or the name of a host in your SSH configuration; commas make a chain",
            ),
            "not-network": Case("{text} is not a network", "for example 192.168.10.0/24"),
            "port-range": Case(
                "expected a range of ports such as 20000-20100, got {text}",
                "write the first and the last port with a '-' between them",
            ),
            "no-proxy-command": Case("expected a command, got {text}", "write null for no proxy command"),
            "not-training-ip": Case("{text} is not an IPv4 address", "for example 192.168.10.235"),
            "proxy-token": Case(
                "unknown token {token} in a proxy command", "use %h %p %r %% (host, port, user, percent sign)"
            ),
            "node-pattern": Case(Same("{problem}"), Same("{way_out}")),
            "network-bits": Case("{text} is not a network", "did you mean {network}?"),
        },
    ),
    "CC-SPEC-014": Entry(
        "error",
        "a value is missing",
        do="Write a value, or remove the key",
        cases={
            "list": Case("{path}: expected a list, got nothing", GIVE_OR_DELETE),
            "mapping": Case("{path}: expected keys and values, got nothing", GIVE_OR_DELETE),
            "empty-command": Case("command: expected at least a program", Same("[./train.sh]")),
            "empty-gpus": Case(
                "gpus: expected at least one index",
                "[0, 1], or remove `gpus` from the file for all GPUs; for a job without GPUs: nproc_per_node: 1, backend: gloo",
            ),
            "empty-restart-on": Case(
                "restart.on: expected at least one reason",
                "for example [node_lost, worker_killed], or remove the key from the file for the default",
            ),
            "empty-on-end": Case("on_end.command: expected at least a program", Same("[./on-end.sh]")),
            "empty-text": Case("expected a text, got an empty one", GIVE_OR_DELETE),
            "nothing": Case("expected {noun}, got nothing", Same("{way_out}")),
        },
    ),
    "CC-SPEC-015": Entry(
        "error",
        "a number is out of range",
        do="The message shows the range",
        cases={
            "negative": Case("expected 0 or more, got {number}"),
            "not-positive": Case("expected 1 or more, got {number}"),
            "port": Case("expected a port from 1 to 65535, got {port}"),
            "zero-limit": Case("expected more than 0", "for no limit, remove the key from the file"),
            "small-size": Case("{text} is less than 1MB", "for example 500MB, 20GB or 1TB; 0 for no limit"),
            "port-limits": Case(
                "{text} is outside the range of ports", "use ports from {lowest_port} to {highest_port}"
            ),
            "backwards": Case("the range {text} runs backwards", "write {high}-{low}"),
        },
    ),
    "CC-SPEC-020": Entry(
        "error",
        "a node's name is used twice, or has another meaning",
        do="Choose another name; not a number, a range or `all`",
        cases={
            "reads-as-ranks": Case("the name {text} would be read as node ranks", "for example node{plain}"),
            "all": Case("the name 'all' means all nodes", "choose another name"),
            "same-name": Case(
                "the node at {location} has the name {text} too", "give one of them a `name:` of its own"
            ),
            "host-as-name": Case(
                "host: cannot also be used as the node's name: {problem}", "set name: for the node"
            ),
        },
    ),
    "CC-SPEC-021": Entry(
        "error",
        "two nodes with the same host and port",
        do="Remove one, or set a different port",
        cases={
            "one-machine": Case(
                "{name} and {other} are the same machine: {host}", "choose one of them, or a --group"
            ),
            "again": Case("{host} is listed twice", "keep one line; --format mpi adds up the slots"),
            "same-port": Case(
                "host: the node at {location} has the same host and port {address}",
                "one machine is one node; two machines with the same address must differ in ssh.port",
            ),
        },
    ),
    "CC-SPEC-022": Entry(
        "error",
        "no nodes",
        do="Add at least one to `nodes:`",
        cases={
            "no-host": Case("no host is listed here", "write one host per line"),
            "empty-list": Case("nodes: the list is empty", "add at least one host"),
            "ssh-config": Case("this SSH configuration contains no usable host", LIST_MACHINES),
            "ssh-config-reasons": Case(
                "this SSH configuration contains no usable host: {reasons}", LIST_MACHINES
            ),
            "empty-group": Case("the group {group} has no hosts"),
            "no-hosts": Case("no host is listed here"),
            "no-ssh": Case("no host can be used over SSH: {reason}", "list machines that run sshd"),
            "none-by-ssh": Case(
                "no host can be used over SSH: {reason} (and {more})", "list machines that run sshd"
            ),
        },
    ),
    "CC-SPEC-023": Entry(
        "error",
        "training over IPv6 is not supported yet",
        do="Set `ip:` to an IPv4 address; `host:` may be IPv6",
        cases={
            "ipv6-machine": Case(NO_IPV6, "write the machine's IPv4 address, or a name"),
            "ipv6-host": Case(
                "training over IPv6 is not supported yet", "write the machine's IPv4 address, or a name"
            ),
            "node": Case(
                "host: training over IPv6 is not supported yet, and the node has no other address",
                "set ip: to its IPv4 address in the training network",
            ),
            "ipv6-address": Case(NO_IPV6, "use the node's IPv4 address"),
            "ipv6-network": Case(NO_IPV6, "use the IPv4 network"),
        },
    ),
    "CC-SPEC-024": Entry(
        "error",
        "a host, user or path contains characters that are not allowed",
        do="Set user and port under `ssh:`: `ssh: {user: root, port: 2222}`",
        cases={
            "parent-folder": Case("{text} contains '..'", "write the path without it"),
            "whole-home": Case(
                "{text} cannot be used: clusterctl needs a directory of its own",
                "set a directory below it, such as ~/.clusterctl",
            ),
            "not-user-name": Case(
                "{text} is not a valid user name", "use only letters, digits and . _ @ + -"
            ),
            "host": Case(NOT_A_HOST, "use only letters, digits, '.', '_' and '-', with no '-' at the start"),
            "host-user": Case(NOT_A_HOST, "write the user under ssh: {user: ...}"),
            "host-port": Case(NOT_A_HOST, "write the port under ssh: {port: ...}"),
        },
    ),
    "CC-SPEC-025": Entry(
        "error",
        "not the name of a NIC",
        do="Use the name that `ip link` shows; several as a list: `nic: [a, b]`",
        cases={
            "too-long": Case("{text} is longer than a NIC's name can be: {longest_nic} bytes"),
            "not-nic": Case(
                "{text} is not the name of a NIC", "for example eth0; `ip link` on the node lists the names"
            ),
            "alias": Case(
                "{text} is an alias; NCCL and Gloo cannot bind to an alias", "use the name of the NIC itself"
            ),
            "at-sign": Case("{text} contains '@'", "for eth0@if3, as `ip` shows it, the name is eth0"),
            "comma": Case("{text} contains ','", "write a list: nic: [meth919, meth920]"),
        },
    ),
    "CC-SPEC-030": Entry(
        "error",
        "a job needs exactly one of `script`, `module` and `command`",
        do="Keep one of `script:`, `module:`, `command:`",
        cases={
            "none": Case(
                "the job has none of script, module and command",
                "add script: train.py, module: pkg.train, or command: [./train.sh]",
            ),
            "several": Case(
                "only one of script, module and command is allowed; the {other} is at {place}", KEEP_ONE
            ),
        },
    ),
    "CC-SPEC-031": Entry(
        "error",
        "`env` or `secrets` contains a variable that torchrun or clusterctl sets",
        do="Remove the line: `launch` sets the variable on each node",
        cases={
            "": Case(
                "{text} is set by {set_by}, on every node and for every worker",
                "remove the line; the right value is set on each node",
            )
        },
    ),
    "CC-SPEC-032": Entry(
        "error",
        "a secret has a value in `env`",
        do="Keep it only in `secrets`, and export it on the machine where you launch",
        cases={
            "": Case(
                "{name} is a secret and has a value in env at {location}",
                "remove it from env; the value is taken from your own environment",
            )
        },
    ),
    "CC-SPEC-033": Entry(
        "error",
        "an unknown placeholder, or one that this launcher does not support",
        do="The message lists the known ones; `$${x}` is a literal",
        cases={
            "local-rank": Case(
                "${local_rank} is set by torchrun, not by `launcher: {launcher}`",
                "each node runs one process: use ${node_rank}",
            ),
            "unclosed": Case("the placeholder '${' has no '}'", "close it; $${ is a literal ${"),
            "unknown": Case(
                "unknown placeholder {name}{suggestion}",
                "placeholders are {known}; write $${...} for a literal ${...}",
            ),
        },
    ),
    "CC-SPEC-034": Entry(
        "error",
        "a key belongs to another launcher, or this launcher needs a key that is missing",
        do="Remove the key, or change `launcher:`",
        cases={
            "command": Case(
                "command needs `launcher: command`, `ray` or `mpirun`; this job's launcher is {launcher}",
                "add launcher: command",
            ),
            "no-command": Case(
                "`launcher: command` without a command",
                "command: [./train.sh], or launcher: python for a script",
            ),
            "use-env": Case(
                "use_env needs `launcher: launch`; this job's launcher is {launcher}",
                "remove it: LOCAL_RANK is in the environment anyway",
            ),
            "no-python": Case(
                "no_python is for `script` under torchrun; it cannot be combined with {key}",
                "remove no_python, or use script: and launcher: torchrun",
            ),
            "shell-torchrun": Case(
                "script: {script} is a shell script, and torchrun would run it with Python",
                "no_python: true runs it once per rank; launcher: command once per node",
            ),
            "shell-python": Case(
                "script: {script} is a shell script, and this launcher would run it with Python",
                "launcher: command and command: [bash, SCRIPT.sh]",
            ),
            "ends-with": Case(
                "`ends_with: node 0` needs `launcher: command` or `python`; this job's launcher is {launcher}",
                "remove it: a rank of torchrun that ends early leaves the others waiting",
            ),
            "ends-with-head": Case(
                "under {launcher} a run always ends with node 0's program, so `ends_with: all` has no meaning",
                "remove ends_with",
            ),
            "keep-warm": Case(
                "keep_warm needs `launcher: torchrun`; this job's launcher is {launcher}", "remove keep_warm"
            ),
            "keep-warm-exec": Case(
                "`start: exec` starts every worker with a new interpreter, so keep_warm at {place} has no use",
                "use start: fork, or remove one of the two",
            ),
        },
    ),
    "CC-SPEC-035": Entry(
        "error",
        "`gpus` and a variable in `env` both select GPUs",
        do="Keep `gpus:` and remove the variable",
        cases={
            "": Case(
                "{name} in env and gpus at {location} both select GPUs",
                "keep gpus: it is checked before the start",
            )
        },
    ),
    "CC-SPEC-036": Entry(
        "error",
        "keys of `setup` that cannot be combined",
        do="Use one of `venv`, `uv` and `conda`; `wheelhouse` and `system_site_packages` work with the first two",
        cases={
            "several-kinds": Case(
                "setup: only one of venv, uv and conda is allowed; the {text} is at {location}", KEEP_ONE
            ),
            "not-conda": Case("setup.{name} works only with venv and uv", "remove it, or use venv or uv"),
            "no-kind": Case(
                "setup.{name} works only with venv and uv", "add venv: requirements.txt, or remove it"
            ),
        },
    ),
    "CC-SPEC-037": Entry(
        "error",
        "an entry of `stage` that cannot be copied",
        do="Write `from:` as a path, `NODE:PATH`, `hf://ORG/NAME@REVISION`, `ms://...` or `https://...`, and another `to:` for each",
        cases={
            "node": Case(
                "{text} is not the path of one node", "write NODE:PATH, such as gpu01:/data/imagenet"
            ),
            "slashes": Case("{text} has no // after the colon", "write {fixed}"),
            "no-name": Case("{text} has no name", "give a file or a directory, such as ./corpus"),
            "repository": Case(
                "{text} is not a repository", "write {scheme}://ORG/NAME or {scheme}://ORG/NAME@REVISION"
            ),
            "scheme": Case(
                "{text} is not known",
                "use a path, NODE:PATH, hf://, ms:// or https://; mount other storage on a node",
            ),
            "url": Case(
                "{text} is not the URL of a file",
                "write https://HOST/PATH, without a user or a password in it",
            ),
            "target-placeholder": Case(
                "{text}: only ${stage_dir} can be used here, at the beginning",
                "for example ${stage_dir}/corpus",
            ),
            "target-parent": Case("{text} contains ..", "write the path without it"),
            "sha256": Case("{text} is not a SHA-256", "give its 64 hexadecimal digits"),
            "layout": Case("stage.layout works only with hf:// and ms://", "remove it"),
            "not-url": Case(
                "stage.sha256 works only with https://", "remove it; other sources are verified anyway"
            ),
            "plain-http": Case(
                "stage: what http:// sends can be changed on its way", "use https://, or add sha256"
            ),
            "same-place": Case("stage: {text} is the place of another entry too", "give each its own `to`"),
        },
    ),
    "CC-SPEC-038": Entry(
        "error",
        "`checkpoints` that the nodes could not keep for each other",
        do='Write `path:` as a pattern of absolute paths such as "${output_dir}/step-*", and add `restart:`',
        cases={
            "relative": Case(
                "{text} is not an absolute path in a directory", "for example ${output_dir}/step-*"
            ),
            "parent": Case("{text} contains ..", "write the path without it"),
            "no-wildcard": Case(
                "{text} is the same file or directory for each checkpoint",
                "write each checkpoint under a name of its own, such as step-300, and step-* here",
            ),
            "wildcard-in-folder": Case(
                "{text}: only the last part can have wildcards",
                "name the directory, for example ${output_dir}/step-*",
            ),
            "placeholder": Case(
                "{text}: only ${output_dir}, at the beginning, and ${run_id} in a directory can be used here",
                "for example ${output_dir}/${run_id}/step-*",
            ),
            "complete": Case(
                "checkpoints.complete: {text} is not the path of a file in each checkpoint",
                "for example .metadata",
            ),
            "rate": Case("{text} is not a rate", "for example 1GB/s"),
            "restart": Case(
                "checkpoints are kept for a restart, and this job has no `restart`",
                "add for example restart: {max: 3, spares: 1}",
            ),
            "own-min-nodes": Case(
                "with fewer nodes (min_nodes at {place}) every rank needs files of the others",
                "remove needs: own, or min_nodes",
            ),
        },
    ),
    "CC-SPEC-040": Entry(
        "error",
        "`--set` with a key that cannot be set",
        do="Use a key of the job; with a dot inside `env`, `sync` and `restart`",
        cases={
            "no-key": Case("{path} is not a key", "for example env.NCCL_DEBUG"),
            "not-a-table": Case("{path} cannot be set: {head} is {found}", "set {head} as a whole"),
        },
    ),
    "CC-SPEC-050": Entry(
        "error",
        "`init --from`: a line does not match the file format",
        do="Fix or remove the reported line",
        cases={
            "no-slots": Case("{host} has no slots", "write HOST slots=N"),
            "setting": Case("{key} is not supported here", "one host per line; settings are KEY=VALUE"),
            "number": Case("{host} has a number after a colon", "write slots=N"),
            "pattern": Case(Same("{problem}"), "a range is gpu[01-04,07]"),
        },
    ),
    "CC-SPEC-051": Entry(
        "error",
        "`init --from`: the file's format is unknown or not supported",
        do="Choose the format with `--format`",
        cases={
            "ports-or-slots": Case(
                "the numbers after the colons may be ports or slots",
                "use --format hosts for ports, --format mpi for slots",
            ),
            "own": Case("this is already an inventory of clusterctl", Same("clusterctl -i FILE check")),
        },
    ),
    "CC-SPEC-052": Entry(
        "error",
        "`init --from`: no such group",
        do="The message lists the groups",
        cases={
            "no-ansible": Case(
                "only Ansible inventories have groups, and this file was read as {description}",
                "use --format ansible if it is one",
            ),
            "unknown": Case("no group with the name {group}{suggestion}", "the groups are {groups}"),
        },
    ),
    "CC-SPEC-053": Entry(
        "error",
        "`init --from`: Ansible is missing, or does not list the hosts of the file",
        do="Run `ansible-inventory -i FILE --list > hosts.json` where Ansible is installed, and read that file",
        cases={
            "missing": Case(
                "{file}: Ansible reads its inventories itself, and there is no program ansible-inventory",
                "pip install ansible-core, or where Ansible is: ansible-inventory -i FILE --list > hosts.json",
            ),
            "failed": Case("{file}: Ansible cannot list the hosts", "try {command}"),
            "executable": Case(
                "{file} can be executed, so Ansible would run it on this machine",
                "read it; if you trust it: {command} | clusterctl init --from -",
            ),
            "planted": Case(
                "{file} is not used, because Ansible can run commands for it on this machine: {path} {reason}",
                "read it; if you trust it: {command} | clusterctl init --from -",
            ),
            "listing": Case("this is not what `ansible-inventory --list` prints"),
        },
    ),
}
