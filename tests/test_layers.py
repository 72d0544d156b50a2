"""The house rules that a machine can check: who imports whom, what stays pure, how large things grow."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from package import Module, modules, parse

ARROW = (
    "translation",
    "node_texts",
    "codes",
    "errors",
    "interrupts",
    "protocol",
    "specs",
    "plans",
    "client",
    "console",
    "cli",
)  # each imports only what stands before it
MAY_IMPORT = {
    **{layer: ARROW[: place + 1] for place, layer in enumerate(ARROW)},
    "cli": (*ARROW, "lab"),
    "__main__": ("cli",),
    # starts the command in a process of its own; reads its documents
    "api": ("translation", "codes", "errors", "protocol", "specs", "plans", "console", "api"),
    "__init__": ("errors", "specs", "plans", "api"),  # the public API, loaded lazily
    # it starts and ends processes as a node does
    "lab": (
        "translation",
        "node_texts",
        "codes",
        "errors",
        "interrupts",
        "specs",
        "lab",
        "node.runtime.processes",
    ),
    "protocol": (),  # nothing but the standard library: it is shipped to the nodes
    "node": ("protocol",),  # the same, by relative import
}
HOMES = {
    "click": ("cli",),
    "cryptography": ("client", "lab"),  # comes with paramiko, whose errors it raises
    "fabric": ("client", "lab"),
    "invoke": ("client", "lab"),
    "paramiko": ("client", "lab"),
    "pathspec": ("plans",),
    "platformdirs": ("cli",),
    "pydantic": ("console",),  # the JSON Schema of documents
    "rich": ("console",),
    "ruamel": ("specs",),
    "typing_extensions": (
        "plans",
        "console",
        "protocol",
        "lab",
    ),  # types of documents; protocol and lab: for the type checker alone
    "torch": ("node",),
    "ray": ("node",),
}
IMPURE_MODULES = {
    *("datetime", "time", "random", "secrets", "uuid", "os", "platform", "pwd", "getpass", "locale"),
    *("glob", "io", "shutil", "tempfile", "logging", "subprocess", "multiprocessing", "threading"),
    *("asyncio", "concurrent", "select", "selectors", "socket", "socketserver", "http", "urllib"),
}
PURE_FOLDER = ("node", "lifecycle")
PURE_PATHS = ("pathlib.PurePath", "pathlib.PurePosixPath")
EFFECTS = {"open", "input", "print", "read_text", "read_bytes", "write_text", "write_bytes"}
DATA_TABLES = "clusterctl/codes"  # may be longer: rows are looked up, not read
MAX_CODE = 500  # lines of a module that are not blank, comment or docstring
MAX_POSITIONAL = 7  # values of a call without a name; those after a star do not count
NOT_YET_NAMED = {"DeepCheckResult"}  # the one call that still passes eight
MAX_ENTRIES = 16  # modules and folders in a folder
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}


def follows_the_arrow(module: Module) -> Iterator[str]:
    """Layers import downwards only."""
    for name in (found.name.split(".") for found in module.imports if found.top == "clusterctl"):
        allowed = MAY_IMPORT.get(module.layer, ())
        inside = module.layer in ("node", "protocol") and name[1:2] == [module.layer]
        wanted = {".".join(name[1:end]) for end in range(2, len(name) + 1)}
        if name[1:] not in ([], ["__version__"]) and not wanted & set(allowed) and not inside:
            yield f"{module.layer} imports {'.'.join(name)}"


def third_parties_stay_at_home(module: Module) -> Iterator[str]:
    """Each library is known to one layer."""
    for found in module.imports:
        home = HOMES.get(found.top, ("nowhere: give it a home in this test",))
        if found.top not in {"clusterctl", *sys.stdlib_module_names} and module.layer not in home:
            yield f"imports {found.name}, whose home is {', '.join(home)}"


def node_stands_alone(module: Module) -> Iterator[str]:
    """What runs on nodes needs Python 3.8 and nothing else; torch only once a job's interpreter is there."""
    if module.layer not in ("node", "protocol"):
        return
    for found in module.imports:
        if found.top == "clusterctl" and not found.relative:
            yield f"imports {found.name} from the package"
        if found.top == "torch" and not found.lazy:
            yield "imports torch outside a function"
    try:
        ast.parse(module.text, feature_version=(3, 8))
    except SyntaxError as error:
        yield f"is no Python 3.8: {error}"


def is_pure(module: Module) -> Iterator[str]:
    """Codes, protocol, specs, plans and the agent's table have no clock, chance, environment, socket or file."""
    if module.layer not in {"codes", "protocol", "specs", "plans"} and module.path.parts[1:3] != PURE_FOLDER:
        return
    for found in module.imports:
        if found.top in IMPURE_MODULES or (found.top == "pathlib" and not found.name.startswith(PURE_PATHS)):
            yield f"imports {found.name}"
    for call in (node.func for node in module.nodes if isinstance(node, ast.Call)):
        name = call.id if isinstance(call, ast.Name) else call.attr if isinstance(call, ast.Attribute) else ""
        if name in EFFECTS:
            yield f"calls {name}() in line {call.lineno}"


def init_files_are_signposts(module: Module) -> Iterator[str]:
    """A folder says in at most ten lines what is in it; it re-exports nothing."""
    if module.path.name != "__init__.py":
        return
    text = ast.get_docstring(module.tree)
    if not text:
        yield "has no docstring"
    elif text.count("\n") >= 10:
        yield f"has a docstring of {text.count(chr(10)) + 1} lines"
    if len(module.path.parts) > 2 and len(module.tree.body) > bool(text):  # the first is the public API
        yield "holds code"


def stays_small(module: Module) -> Iterator[str]:
    """A module and a function can be read in one go, and a name says what is inside."""
    is_table = module.path.parent.as_posix() == DATA_TABLES
    if not is_table and module.text.count("\n") > MAX_CODE and module.code_lines > MAX_CODE:
        yield f"has {module.code_lines} lines of code"
    for function in module.functions:
        length = (function.end_lineno or 0) - function.lineno + 1
        if length >= 60:
            yield f"{function.name} has {length} lines"
    if EMPTY_NAMES & set(module.path.with_suffix("").parts):
        yield "has a name that says nothing"


def imports_in_no_circle(package: Sequence[Module]) -> Iterator[str]:
    """No module imports itself over others, also not inside functions or for types."""
    names = {module.name for module in package}
    wanted: dict[str, set[str]] = defaultdict(set)
    for module in package:
        for found in module.imports:
            target = found.name if found.name in names else found.name.rpartition(".")[0]
            if target in names and target != module.name:
                wanted[module.name].add(target)
    left = names
    while free := {name for name in left if not wanted[name] & left}:
        left = left - free
    while free := {name for name in left if not any(name in wanted[other] for other in left)}:
        left = left - free
    if left:
        yield f"a circle of imports: {', '.join(sorted(left))}"


def folders_stay_small(package: Sequence[Module]) -> Iterator[str]:
    """What is in a folder can be seen at a glance."""
    entries: dict[str, set[str]] = defaultdict(set)
    for parts in (module.path.parts for module in package):
        for place in range(1, len(parts)):
            entries["/".join(parts[:place])] |= {parts[place]} - {"__init__.py"}
    for folder, held in entries.items():
        if len(held) > MAX_ENTRIES:
            yield f"{folder} has {len(held)} entries"


def calls_are_readable(package: Sequence[Module]) -> Iterator[str]:
    """What each value of a call is can be seen there; a function with `*args` takes values of one kind."""
    variadic = {node.name for module in package for node in module.functions if node.args.vararg}
    for module in package:
        for call in (node for node in module.nodes if isinstance(node, ast.Call)):
            count = sum(not isinstance(value, ast.Starred) for value in call.args)
            if count <= MAX_POSITIONAL:
                continue
            name = ast.unparse(call.func).rpartition(".")[2]
            if name not in variadic | NOT_YET_NAMED:
                yield f"{module.path}:{call.lineno} passes {count} values to {name} without their names"


Rule = Callable[[Module], Iterator[str]]
BREACHES: list[tuple[Rule, str, str]] = [
    (follows_the_arrow, "specs/a.py", "from clusterctl.plans.launch import plan"),
    (follows_the_arrow, "specs/a.py", "from clusterctl import plans"),
    (follows_the_arrow, "client/a.py", "def f():\n    import clusterctl.console.progress"),
    (follows_the_arrow, "client/ssh/a.py", "from ...cli import main"),
    (follows_the_arrow, "lab/a.py", "from clusterctl.plans.launch.template import text"),
    (follows_the_arrow, "lab/a.py", "from clusterctl.node.runtime import stream"),
    (follows_the_arrow, "client/a.py", "from clusterctl.node.runtime import stream"),
    (follows_the_arrow, "plans/runs/a.py", "from clusterctl.client.rpc import session"),
    (follows_the_arrow, "node/verbs/a.py", "from ...client.rpc import session"),
    (follows_the_arrow, "errors.py", "from clusterctl.specs import job"),
    (follows_the_arrow, "node/a.py", "from clusterctl.codes import lookup"),
    (third_parties_stay_at_home, "cli/a.py", "def f():\n    from fabric import Connection"),
    (third_parties_stay_at_home, "plans/a.py", "import ruamel.yaml"),
    (third_parties_stay_at_home, "client/a.py", "import requests"),
    (third_parties_stay_at_home, "node/a.py", "import numpy"),
    (node_stands_alone, "node/a.py", "from clusterctl.errors import NodeError"),
    (node_stands_alone, "node/a.py", "import torch.distributed.run"),
    (node_stands_alone, "node/a.py", "match 1:\n    case _: pass"),
    (node_stands_alone, "protocol/a.py", "from clusterctl.errors import NodeError"),
    (follows_the_arrow, "protocol/a.py", "from ..specs import values"),
    (is_pure, "protocol/a.py", "import time"),
    (is_pure, "node/lifecycle/a.py", "import time"),
    (is_pure, "plans/a.py", "import time"),
    (is_pure, "plans/a.py", "from pathlib import Path"),
    (is_pure, "plans/a.py", "def f(path):\n    return path.read_text()"),
    (is_pure, "specs/a.py", "text = open('/etc/hosts')"),
    (
        init_files_are_signposts,
        "plans/runs/__init__.py",
        '"""Runs."""\nfrom clusterctl.plans.launch import plan',
    ),
    (init_files_are_signposts, "plans/__init__.py", ""),
    (init_files_are_signposts, "plans/__init__.py", '""" """'),
    (init_files_are_signposts, "__init__.py", "x = 1"),
    (init_files_are_signposts, "plans/__init__.py", '"""' + "line\n" * 11 + '"""'),
    (stays_small, "plans/a.py", "x = 1\n" * 501),
    (stays_small, "plans/a.py", "def f():\n" + "    x = 1\n" * 59),
    (stays_small, "plans/utils.py", ""),
]
RULES = dict.fromkeys(rule for rule, _, _ in BREACHES)
TreeRule = Callable[[Sequence[Module]], Iterator[str]]
TREE_BREACHES: list[tuple[TreeRule, dict[str, str]]] = [
    (
        imports_in_no_circle,
        {"plans/a.py": "import clusterctl.plans.b", "plans/b.py": "from clusterctl.plans import a"},
    ),
    (
        imports_in_no_circle,
        {
            "node/x/a.py": "from ..y.b import one",
            "node/y/b.py": "def f():\n    from .c import two",
            "node/y/c.py": "if TYPE_CHECKING:\n    from ..x import a",
        },
    ),
    (folders_stay_small, {f"plans/runs/m{number}.py": "" for number in range(17)}),
    (folders_stay_small, {f"plans/m{number}/a.py": "" for number in range(17)}),
    (calls_are_readable, {"plans/a.py": "Plan(1, 2, 3, 4, 5, 6, 7, 8)"}),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule: Rule) -> None:
    """No module breaks it."""
    assert [f"{module.path} {breach}" for module in modules() for breach in rule(module)] == []


@pytest.mark.parametrize(("rule", "path", "text"), BREACHES)
def test_a_breach_is_seen(rule: Rule, path: str, text: str) -> None:
    """Each rule can fail."""
    assert list(rule(parse(f"clusterctl/{path}", text)))


@pytest.mark.parametrize(
    "rule", dict.fromkeys(rule for rule, _ in TREE_BREACHES), ids=lambda rule: rule.__name__
)
def test_the_tree_keeps_the_rule(rule: TreeRule) -> None:
    """The package as a whole does not break it."""
    assert list(rule(modules())) == []


@pytest.mark.parametrize(("rule", "texts"), TREE_BREACHES)
def test_a_breach_of_the_tree_is_seen(rule: TreeRule, texts: dict[str, str]) -> None:
    """Each rule can fail, and a tree without the last module keeps it."""
    package = [parse(f"clusterctl/{path}", text) for path, text in texts.items()]
    assert list(rule(package))
    assert not list(rule(package[:-1]))


TESTS = Path(__file__).parent
# their shared texts move when the modules that they test do
STILL_IMPORT = {"client/ssh/test_known_hosts_revoked.py"}


def imported_tests(text: str) -> set[str]:
    """Name the test files that a test file imports."""
    nodes = list(ast.walk(ast.parse(text)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name for name in names if name.rpartition(".")[2].startswith("test_")}


def test_no_test_imports_another_test_file() -> None:
    """What several need is in `tests/support`, or beside them in a file without tests."""
    files = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("test_*.py")}
    found = {name: imported_tests(path.read_text(encoding="utf-8")) for name, path in files.items()}

    assert {name: names for name, names in found.items() if names and name not in STILL_IMPORT} == {}
    assert imported_tests("def f():\n    from test_a import b\nimport tests.test_c, os") == {
        "test_a",
        "tests.test_c",
    }
