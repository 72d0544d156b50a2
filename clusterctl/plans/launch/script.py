"""What a script calls and which options it parses, read from its syntax tree; nothing is imported.

From it follow the launcher and the arguments that `init` writes, and the findings of `plans/checks/script.py`.
"""

from __future__ import annotations

import ast
import posixpath
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from clusterctl.specs.job.model import Job
from clusterctl.specs.kinds import Launcher

MAX_SCRIPT = 256 << 10  # bytes
MAX_FILES = 50  # of the code that a script imports
MAX_SHOWN = 120  # characters of a value from the script

# Usual names of options for the directory of results; the more exact ones first.
OUTPUT_OPTIONS = (
    *(
        "output_dir",
        "out_dir",
        "save_dir",
        "checkpoint_dir",
        "ckpt_dir",
        "results_dir",
        "work_dir",
        "run_dir",
    ),
    *(
        "output",
        "out",
        "save_path",
        "checkpoint_path",
        "ckpt_path",
        "default_root_dir",
        "log_dir",
        "logdir",
        "save",
    ),
)
OUTPUT_DIR = "${output_dir}"
OPTION_CALLS = ("click.option", "click.decorators.option")
TRAINING_PARSERS = ("HfArgumentParser", "TrlParser")  # of transformers and trl
LOCAL_RANK_OPTIONS = ("--local_rank", "--local-rank")
MASTER_URL = "tcp://${master_addr}:${master_port}"
SPAWN = ("torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn")
INIT_KEYWORDS = {"init_method": MASTER_URL, "rank": "${node_rank}", "world_size": "${nnodes}"}
# What options of scripts that are started once per node usually mean.
USUAL_OPTIONS: Mapping[str, str] = {
    "node_rank": "${node_rank}",
    "machine_rank": "${node_rank}",
    "nr": "${node_rank}",
    "rank": "${node_rank}",
    "nnodes": "${nnodes}",
    "num_nodes": "${nnodes}",
    "nodes": "${nnodes}",
    "world_size": "${nnodes}",
    "nproc_per_node": "${nproc_per_node}",
    "master_addr": "${master_addr}",
    "master_port": "${master_port}",
    "init_method": MASTER_URL,
    "dist_url": MASTER_URL,
}


@dataclass(frozen=True)
class Line:
    """A line of a file of the code, and what was found there."""

    file: str
    number: int
    text: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.number}"
        return f"{place}: {self.text}" if self.text else place


@dataclass(frozen=True)
class Option:
    """An option that the script's parser takes; `dest` is the attribute of its value."""

    names: tuple[str, ...]
    dest: str
    default: str
    is_flag: bool
    line: Line

    @property
    def name(self) -> str:
        """The name to use: the long one."""
        return max(self.names, key=len)

    def find_value(self, args: Sequence[str]) -> str | None:
        """Return its value in the arguments, empty for a flag; None if they do not have it."""
        for index, arg in enumerate(args):
            name, equals, value = arg.partition("=")
            if name in self.names:
                if equals or self.is_flag:
                    return value
                return args[index + 1] if index + 1 < len(args) else ""
        return None


@dataclass(frozen=True)
class Spawn:
    """A call of torch.multiprocessing.spawn; `nprocs` if it is a number, `flags` are options that switch it on."""

    line: Line
    nprocs: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Address:
    """An address that the code holds: the `init_method` of a process group, or a value for MASTER_ADDR."""

    value: str
    line: Line
    is_master_addr: bool = False


@dataclass
class ScriptUse:
    """What the syntax trees of a script and of its own modules show; `add_file` reads one of them.

    `init_options` are the options, by `dest`, that are the arguments of init_process_group: dest by keyword.
    `assigned` are attributes that the code sets itself, so that their option does not decide.
    `parses_training_arguments`: the parser is Hugging Face's, which makes an option of each training argument.
    """

    options: list[Option] = field(default_factory=list)
    spawns: list[Spawn] = field(default_factory=list)
    addresses: list[Address] = field(default_factory=list)
    six: list[Line] = field(default_factory=list)
    init_options: dict[str, str] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    reads_local_rank: bool = False
    parses_training_arguments: bool = False

    def add_file(self, file: str, source: bytes, root: str = "") -> tuple[str, ...]:
        """Read a file, and return the files of the code that it may import; of what two files show the first counts.

        What is no Python that this version understands shows nothing. `root` is where imports begin.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as of "\d" in a string
                tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ()
        return _FileReader(file, root, self).read(tree)

    def find_option(self, dest: str) -> Option | None:
        """Return the option whose value is this attribute."""
        return next((option for option in self.options if option.dest == dest), None)

    def option_of(self, keyword: str) -> Option | None:
        """Return the option that is this argument of init_process_group, unless the code sets its value itself."""
        dest = self.init_options.get(keyword, "")
        return None if dest in self.assigned else self.find_option(dest)

    @property
    def local_rank_option(self) -> Option | None:
        """The option for the local rank, if the script has no other source for it."""
        found = (option for option in self.options if set(option.names) & set(LOCAL_RANK_OPTIONS))
        return None if self.reads_local_rank or self.spawns else next(found, None)


@dataclass(frozen=True)
class JobCode:
    """The code that a job sends to so many nodes: all paths, the texts of files that it runs, and what they call."""

    nnodes: int
    paths: Collection[str] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    use: ScriptUse = field(default_factory=ScriptUse)


class _FileReader:
    """Walks over one syntax tree, and adds to what is known."""

    def __init__(self, file: str, root: str, use: ScriptUse) -> None:
        self._file, self._root, self._use = file, root, use
        self._modules: dict[str, str] = {}  # what a name stands for: `mp` for torch.multiprocessing
        self._texts: dict[str, str] = {}  # names that are set to a text at the top
        self._imports: dict[str, None] = {}

    def read(self, tree: ast.Module) -> tuple[str, ...]:
        """Read the names first, then what is called by them."""
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._read_import(node)
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and (text := _text_of(statement.value)):
                self._texts.update({one.id: text for one in statement.targets if isinstance(one, ast.Name)})
        for node, flags in _walk_with_conditions(tree):
            self._read_node(node, flags)
        return tuple(self._imports)

    # names

    def _read_import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                self._modules[alias.asname or name] = name
                self._add_import(alias.name, self._root)
            return
        base = self._root if not node.level else posixpath.dirname(self._file)
        for _ in range(node.level - 1):
            base = posixpath.dirname(base)
        for alias in node.names:
            if not node.level:
                self._modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            self._add_import(".".join(filter(None, (node.module, alias.name))), base)
        if node.module:
            self._add_import(node.module, base)

    def _add_import(self, module: str, base: str) -> None:
        path = posixpath.join(base, module.replace(".", "/"))
        self._imports.update(dict.fromkeys((f"{path}.py", f"{path}/__init__.py")))

    def _name_of(self, node: ast.expr) -> str:
        """Return the full name of what an expression names: `torch.distributed.init_process_group`."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self._modules.get(node.id, node.id), *reversed(attributes)])

    # what is called

    def _read_node(self, node: ast.AST, flags: tuple[str, ...]) -> None:
        if isinstance(node, ast.Call):
            self._read_call(node, flags)
        elif isinstance(node, ast.Assign):
            self._read_assignment(node)
        elif isinstance(node, ast.Constant) and node.value == "LOCAL_RANK":
            self._use.reads_local_rank = True
        elif isinstance(node, (ast.Import, ast.ImportFrom, ast.Attribute)) and self._is_six(node):
            self._use.six.append(self._line(node))

    def _line(self, node: ast.AST, text: str = "") -> Line:
        return Line(self._file, getattr(node, "lineno", 0), text[:MAX_SHOWN])

    def _is_six(self, node: ast.Import | ast.ImportFrom | ast.Attribute) -> bool:
        if isinstance(node, ast.Attribute):
            return self._name_of(node) == "torch._six"
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.Import):
            return "torch._six" in names
        return node.module == "torch._six" or (node.module == "torch" and "_six" in names)

    def _read_call(self, call: ast.Call, flags: tuple[str, ...]) -> None:
        name = self._name_of(call.func)
        if (
            isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
        ) or name in OPTION_CALLS:
            self._read_option(call)
        elif name.rpartition(".")[2] in TRAINING_PARSERS:
            self._use.parses_training_arguments = True
        elif name in SPAWN:
            nprocs = _keyword(call, "nprocs")
            count = nprocs.value if isinstance(nprocs, ast.Constant) else None
            self._use.spawns.append(Spawn(self._line(call), count if isinstance(count, int) else None, flags))
        elif name.rpartition(".")[2] == "init_process_group":
            self._read_init(call)

    def _read_option(self, call: ast.Call) -> None:
        names = tuple(text for text in map(_text_of, call.args) if text.startswith("-"))
        if not names:
            return
        action = _text_of(_keyword(call, "action"))
        is_flag = getattr(_keyword(call, "is_flag"), "value", False) is True or any(
            "/" in name for name in names
        )
        dest = _text_of(_keyword(call, "dest"))
        long_name = next((name for name in names if name.startswith("--")), names[0])
        default = _keyword(call, "default")
        option = Option(
            names,
            dest or long_name.lstrip("-").replace("-", "_"),
            self._value_of(default) if default else "",
            is_flag or action.startswith("store_"),
            self._line(call, ", ".join(names)),
        )
        self._use.options.append(option)

    def _read_init(self, call: ast.Call) -> None:
        given = dict(zip(("backend", "init_method"), call.args, strict=False))
        given.update({one.arg: one.value for one in call.keywords if one.arg})
        for keyword, value in given.items():
            if isinstance(value, ast.Attribute) and keyword in INIT_KEYWORDS:
                self._use.init_options.setdefault(keyword, value.attr)
        url = given.get("init_method")
        if url is not None and (text := self._value_of(url)):
            self._add_address(text, call)

    def _add_address(self, text: str, node: ast.AST, *, is_master_addr: bool = False) -> None:
        self._use.addresses.append(Address(text[:MAX_SHOWN], self._line(node), is_master_addr))

    def _read_assignment(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                self._use.assigned.add(target.attr)
            elif isinstance(target, ast.Subscript) and self._name_of(target.value).endswith("environ"):
                text = self._value_of(node.value)
                if _key_of(target) == "MASTER_ADDR" and text:
                    self._add_address(text, node, is_master_addr=True)

    def _value_of(self, node: ast.expr) -> str:
        return self._texts.get(node.id, "") if isinstance(node, ast.Name) else _text_of(node)


def _text_of(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def _key_of(node: ast.Subscript) -> str:
    key: ast.AST = node.slice
    if not isinstance(key, ast.Constant):  # Python 3.8 wraps it
        key = getattr(key, "value", key)
    return _text_of(key) if isinstance(key, ast.expr) else ""


def _walk_with_conditions(tree: ast.AST) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Yield every node with the attributes that the `if`s around it read; without recursion, trees may be deep."""
    waiting: list[tuple[ast.AST, tuple[str, ...]]] = [(tree, ())]
    while waiting:
        node, flags = waiting.pop()
        yield node, flags
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.If):
            read = tuple(one.attr for one in ast.walk(node.test) if isinstance(one, ast.Attribute))
            body = set(map(id, node.body))
            waiting += [
                (child, (*flags, *read) if id(child) in body else flags) for child in reversed(children)
            ]
        else:
            waiting += [(child, flags) for child in reversed(children)]


# ---- what follows for a job ----


@dataclass(frozen=True)
class ScriptLaunch:
    """How a script is launched: the keys of a job; `nproc_per_node` is None where the nodes decide."""

    launcher: Launcher = "torchrun"
    args: tuple[str, ...] = ()
    nproc_per_node: int | None = None


def plan_script(use: ScriptUse) -> ScriptLaunch:
    """Plan the launch of a script by what it parses and calls."""
    if use.spawns:
        spawn = use.spawns[0]
        flags = (option for dest in spawn.flags if (option := use.find_option(dest)) and option.is_flag)
        args = (*node_args(use), *(option.name for option in flags))
        return ScriptLaunch("python", args, spawn.nprocs)
    if use.option_of("rank") and not use.local_rank_option:
        return ScriptLaunch("python", node_args(use), 1)
    option = use.local_rank_option
    return ScriptLaunch(args=(local_rank_arg(option),)) if option else ScriptLaunch()


def output_args(use: ScriptUse) -> tuple[str, ...]:
    """Return the argument that sends a script's results to the run's output folder; empty without such an option."""
    options = {option.dest: option for option in use.options if not option.is_flag}
    option = next((options[dest] for dest in OUTPUT_OPTIONS if dest in options), None)
    if option is None:
        return ("--output_dir", OUTPUT_DIR) if use.parses_training_arguments else ()
    name = posixpath.basename(option.default)
    is_file = "." in name.strip(".")  # such as `model.pt`
    return (option.name, f"{OUTPUT_DIR}/{name}" if is_file else OUTPUT_DIR)


def local_rank_arg(option: Option) -> str:
    """Return the argument that torchrun fills with the local rank; of two spellings the first of the script's."""
    name = next(name for name in option.names if name in LOCAL_RANK_OPTIONS)
    return f"{name}=${{local_rank}}"


def node_args(use: ScriptUse) -> tuple[str, ...]:
    """Return the arguments by which the only process on a node gets its rank, as far as the options show."""
    meanings = {dest: INIT_KEYWORDS[keyword] for keyword, dest in use.init_options.items()}
    words: list[str] = []
    for option in use.options:
        meaning = meanings.get(option.dest) or USUAL_OPTIONS.get(option.dest)
        if meaning and not option.is_flag and option.name not in words:
            words += [option.name, meaning]
    return tuple(words)


def merge_args(args: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of a job with new ones: a value that is there already is replaced."""
    merged = list(args)
    words = iter(new)
    for word in words:
        name, equals, _ = word.partition("=")
        value = None if equals or "${" in name else next(words, None)
        index = next((at for at, arg in enumerate(merged) if arg.partition("=")[0] == name), None)
        if index is None:
            merged += [word] if value is None else [word, value]
        elif value is None or "=" in merged[index]:
            merged[index] = word if value is None else f"{name}={value}"
        else:
            merged[index + 1 : index + 2] = [value]
    return tuple(merged)


def starts_workers(use: ScriptUse, job: Job) -> Spawn | None:
    """Return the call by which the script starts workers with these arguments, if it does."""
    for spawn in use.spawns:
        flags = [option for dest in spawn.flags if (option := use.find_option(dest)) and option.is_flag]
        if all(option.find_value(job.args) is not None for option in flags):
            return spawn
    return None


def list_addresses(use: ScriptUse, job: Job) -> list[Address]:
    """List the addresses that count with the arguments of a job: those in the code, else those of its options."""
    addresses = list(use.addresses)
    option = use.option_of("init_method")
    if option is not None:
        value = option.find_value(job.args)
        line = replace(option.line, text="") if value is None else Line(job.file, 0)
        text = option.default if value is None else value
        addresses += [Address(text, line)] if text else []
    return addresses
