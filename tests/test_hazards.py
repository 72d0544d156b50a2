"""What no line of the package may do, whatever a node, a file or a script gives it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "clusterctl").rglob("*.py"))
}
RUNS_OBJECTS = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "jsonpickle"}
OTHER_PROGRAMS = {"sudo", "su", "doas", "rsync", "scp", "sftp", "sshpass", "pkill", "killall"}
OUR_OWN_CODE = {  # run what clusterctl itself sent
    "clusterctl/plans/ssh.py",
    "clusterctl/node/boot.py",
    "clusterctl/node/diagnose/rank.py",
    "clusterctl/node/fork/worker.py",  # the job's script
}


@cache
def parse(text: str) -> ast.Module:
    """Parse a module once for all rules."""
    return ast.parse(text)


@cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """Walk through a module once for all rules."""
    return tuple(ast.walk(parse(text)))


@cache
def functions_of(text: str) -> tuple[tuple[str, ast.AST], ...]:
    """The same, with the name of the function that each is in."""
    return tuple(in_functions(parse(text)))


def spell(node: ast.expr) -> str:
    """Write an expression as source; `ast.unparse` takes its time for the names that most are."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{spell(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ast.unparse(node)


@cache
def names(text: str) -> tuple[str, ...]:
    """Give what is imported and what is called, in full: `torch.load`, `os.system`."""
    return tuple(find_names(text))


def find_names(text: str) -> Iterator[str]:
    """Find them, one after the other."""
    for node in nodes_of(text):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            yield spell(node.func)


def in_functions(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Give all that is in a tree, with the name of the function that it is in."""
    for child in ast.iter_child_nodes(node):
        name = child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        yield name, child
        yield from in_functions(child, name)


BYTE_CODE = {
    "clusterctl/node/state/payload.py": ("marshal", "marshal.dumps", "compile"),  # writes it, never reads it
    "clusterctl/api/source.py": ("compile",),  # compares the user's file with what is loaded, never runs it
}


def builds_objects(path: str, text: str) -> Iterator[str]:
    """Data of a node or a file is read as JSON, text or our own YAML tree: nothing in it can be code."""
    for name in names(text):
        if name in BYTE_CODE.get(path, ()):
            continue
        if name.partition(".")[0] in RUNS_OBJECTS or name in (
            "torch.load",
            "numpy.load",
            "eval",
            "builtins.eval",
        ):
            yield f"{path}: {name}"
        if name in ("exec", "compile", "builtins.exec") and path not in OUR_OWN_CODE:
            yield f"{path}: {name}"


def calls_a_shell(path: str, text: str) -> Iterator[str]:
    """Here no text becomes a command line: programs get their arguments one by one."""
    for node in nodes_of(text):
        if isinstance(node, ast.Call):
            name = spell(node.func)
            # the shell of an account is a fact of `check`
            shell = name != "Account" and any(
                key.arg == "shell" and ast.unparse(key.value) != "False" for key in node.keywords
            )
            if shell or name in ("os.system", "os.popen", "subprocess.getoutput", "pty.spawn"):
                yield f"{path}:{node.lineno}: {name}"


def runs_other_programs(path: str, text: str) -> Iterator[str]:
    """No program is called that becomes somebody else, copies on its own terms or kills by name."""
    for node in nodes_of(text):
        if isinstance(node, (ast.List, ast.Tuple)) and node.elts and isinstance(node.elts[0], ast.Constant):
            program = str(node.elts[0].value).rpartition("/")[2]
            if program in OTHER_PROGRAMS:
                yield f"{path}:{node.lineno}: {program}"


def writes_into_tmp(path: str, text: str) -> Iterator[str]:
    """On a node everything lies in our own directory: a name in /tmp could be taken before us."""
    if "/node/" in path:
        yield from (
            f"{path}: {found}" for found in re.findall(r"\btempfile\b|\bmktemp\b|/tmp/\w+|TMPDIR", text)
        )


def forwards_the_agent(path: str, text: str) -> Iterator[str]:
    """Whoever is root on a node could use the keys of the agent."""
    yield from (
        f"{path}: {found}" for found in re.findall(r"forward_agent=(?!False)\w+|AgentRequestHandler", text)
    )


def follows_their_names(path: str, text: str) -> Iterator[str]:
    """No archive of a node is unpacked: names and links in it would be the node's choice."""
    for name in names(text):
        if name.partition(".")[0] == "tarfile" or name.endswith(("extractall", "unpack_archive")):
            yield f"{path}: {name}"


# Who writes the JSON that these functions read without `protocol.untrusted`: we ourselves, or who commands us anyway.
TRUSTED_JSON = {
    "clusterctl/api/on_rank.py:clusterctl_call": "the client, whose function is called",
    "clusterctl/cli/commands/explain.py:explain": "the examples of codes, which comes with the package",
    "clusterctl/protocol/untrusted.py:": "the reader itself",
    "clusterctl/client/local/hooks.py:_load_hooks": "our own file",
    "clusterctl/client/files/target_dir.py:_load": "our own file",
    "clusterctl/client/files/target_dir.py:_load_homes": "our own file",
    "clusterctl/client/sync/contents.py:_load": "our own file",
    "clusterctl/node/boot.py:boot": "the client, whose code we are",
    "clusterctl/node/boot.py:add_modules": "the same",
    "clusterctl/node/runtime/stream.py:__init__": "the client",
    "clusterctl/node/verbs/sync.py:receive_manifest": "the client",
    "clusterctl/node/runtime/reports.py:read": "our own child",
    "clusterctl/node/supervise/gate.py:read_line": "our own parent",
    "clusterctl/node/supervise/gate.py:main": "our own parent",
    "clusterctl/node/supervise/launchers/ray.py:main": "our own parent",
    "clusterctl/node/supervise/launchers/mpi.py:main": "our own parent",
    "clusterctl/node/probe/python.py:_collect": "our own child",
    "clusterctl/node/diagnose/collective.py:receive_answer": "our own child",
}
# Who takes a value as it came, and how it is bounded there.
UNREAD = {
    "clusterctl/client/slurm.py:gather_facts": "parse_facts reads it into dataclasses",
    "clusterctl/client/slurm.py:parse_failure": "start_error reads it",
    "clusterctl/node/slurm/queue.py:send_facts": "passed on to the client, which does the same",
    "clusterctl/node/slurm/allocation.py:read_all": "passed on to plans/slurm/judge.py, which does the same",
    "clusterctl/client/launch/locks.py:parse_lock_holders": "parse_holders reads it into a dataclass",
    "clusterctl/client/watch/streams.py:_parse_sample": "read_sample does the same",
    "clusterctl/client/run_evidence.py:_read_gpus": "parse_sample does the same",
    "clusterctl/client/preflight.py:_listen": "read_listening and read_ways do the same",
    "clusterctl/client/preflight.py:_call": "read_listening and read_ways do the same",
    "clusterctl/client/cleanup.py:find_orphans": "parse_orphans does the same",
    "clusterctl/client/rpc/tasks.py:_request_facts": "parse_facts does the same",
    "clusterctl/client/rpc/tasks.py:find_pythons": "parse_pythons does the same",
}
FROM_NODES = ("header", "seen", "raw", "event", "entry", "told", "said", "frame", "answer")
# Names of runs and jobs that become part of a path here, and by what they were checked before.
PATHS_OF_NAMES = {
    (
        "clusterctl/cli/actions/files/pull.py",
        "self._job",
    ): "read out of a run id, or matched against NAME_PATTERN",
}
NAMES = ("run", "_run", "run_id", "job", "_job")


def reads_json_without_bounds(path: str, text: str) -> Iterator[str]:
    """What another machine or account has written is read by `protocol.untrusted`, which bounds what it can cost."""
    if "/lab/" in path:  # the parts of a lab speak to each other
        return
    for function, node in functions_of(text):
        if isinstance(node, ast.Call) and f"{path}:{function}" not in TRUSTED_JSON:
            name = spell(node.func)
            if name in ("json.loads", "json.load", "json.JSONDecoder", "loads", "JSONDecoder"):
                yield f"{path}:{node.lineno}: {name}"


def takes_values_unread(path: str, text: str) -> Iterator[str]:
    """A value of a frame that nobody has bounded goes only to a reader that does so itself."""
    for function, node in functions_of(text):
        if isinstance(node, ast.Attribute) and node.attr == "unread" and f"{path}:{function}" not in UNREAD:
            yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def calculates_with_raw_numbers(path: str, text: str) -> Iterator[str]:
    """A number of a node may be 10^400, a list or true: `int` and `float` are no readers of it."""
    if "/client/" not in path and "/plans/" not in path:
        return
    for node in nodes_of(text):
        if isinstance(node, ast.Call) and spell(node.func) in ("int", "float") and node.args:
            inner = node.args[0]
            taken = [one for one in ast.walk(inner) if isinstance(one, (ast.Subscript, ast.Call))]
            names = {one.id for one in ast.walk(inner) if isinstance(one, ast.Name)}
            if taken and names & set(FROM_NODES):
                yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def makes_paths_of_names(path: str, text: str) -> Iterator[str]:
    """A run's name becomes part of a path as a RunId, a job's after it was checked: it may come from a node."""
    if "/node/" in path or "/lab/" in path:
        return
    for function in nodes_of(text):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        proven = {one.arg for one in arguments if one.annotation and "RunId" in ast.unparse(one.annotation)}
        for node in ast.walk(function):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
                continue
            owners = {id(one.value) for one in ast.walk(node.right) if isinstance(one, ast.Attribute)}
            for one in ast.walk(node.right):
                bare = isinstance(one, ast.Name) and one.id in NAMES and id(one) not in owners
                bare = bare and one.id not in proven
                of_something = isinstance(one, ast.Attribute) and one.attr in NAMES
                if (bare or of_something) and (path, ast.unparse(one)) not in PATHS_OF_NAMES:
                    yield f"{path}:{node.lineno}: {ast.unparse(node)}"


Rule = Callable[[str, str], Iterator[str]]
BREACHES: list[tuple[Rule, str, str]] = [
    (builds_objects, "clusterctl/client/a.py", "import pickle"),
    (builds_objects, "clusterctl/node/a.py", "def f():\n    import torch\n    torch.load('x')"),
    (builds_objects, "clusterctl/client/a.py", "from yaml import load"),
    (builds_objects, "clusterctl/cli/a.py", "eval(text)"),
    (builds_objects, "clusterctl/cli/a.py", "exec(text)"),
    (builds_objects, "clusterctl/node/state/payload.py", "import marshal\nmarshal.loads(data)"),
    (calls_a_shell, "clusterctl/client/a.py", "subprocess.run(text, shell=True)"),
    (calls_a_shell, "clusterctl/client/a.py", "os.system(text)"),
    (runs_other_programs, "clusterctl/client/a.py", "subprocess.run(['rsync', '-a', source])"),
    (runs_other_programs, "clusterctl/node/a.py", "subprocess.run(('/usr/bin/sudo', 'true'))"),
    (writes_into_tmp, "clusterctl/node/a.py", "open('/tmp/clusterctl-job')"),
    (forwards_the_agent, "clusterctl/client/a.py", "Connection(host, forward_agent=True)"),
    (follows_their_names, "clusterctl/client/a.py", "import tarfile"),
    (reads_json_without_bounds, "clusterctl/client/a.py", "json.loads(body)"),
    (reads_json_without_bounds, "clusterctl/node/a.py", "from json import loads\nloads(line)"),
    (takes_values_unread, "clusterctl/client/a.py", "header.unread('rows')"),
    (calculates_with_raw_numbers, "clusterctl/client/a.py", "int(header['events'])"),
    (calculates_with_raw_numbers, "clusterctl/plans/a.py", "float(raw.get('time') or 0)"),
    (
        makes_paths_of_names,
        "clusterctl/client/a.py",
        "def f(folder: Path, run: str):\n    folder / f'{run}.json'",
    ),
    (makes_paths_of_names, "clusterctl/cli/a.py", "def f(state):\n    Path('outputs') / state.job"),
]
RULES = dict.fromkeys(rule for rule, _, _ in BREACHES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_module_does_it(rule: Rule) -> None:
    """The whole package is looked through."""
    assert [breach for path, text in MODULES.items() for breach in rule(path, text)] == []


@pytest.mark.parametrize(("rule", "path", "text"), BREACHES)
def test_a_breach_would_be_seen(rule: Rule, path: str, text: str) -> None:
    """Each rule can fail."""
    assert list(rule(path, text))


def test_nobody_is_trusted_who_reads_nothing() -> None:
    """Each exception is still one."""
    held = {
        f"{path}:{function}": ast.unparse(node)
        for path, text in MODULES.items()
        if any(name.startswith(f"{path}:") for name in (*TRUSTED_JSON, *UNREAD))
        for function, node in functions_of(text)
        if isinstance(node, ast.Attribute) and node.attr in ("loads", "load", "JSONDecoder", "unread")
    }
    readers = set(TRUSTED_JSON) - set(held)
    takers = set(UNREAD) - set(held)
    places = {path for path, name in PATHS_OF_NAMES if name not in MODULES[path]}

    assert (readers, takers, places) == (set(), set(), set())


def test_paramiko_is_new_enough() -> None:
    """Older ones accept SHA-1 signatures (CVE-2026-44405) or a cut handshake (CVE-2023-48795)."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (floor,) = re.findall(r'^ +"paramiko>=([0-9.]+),<6"', project, re.MULTILINE)

    assert tuple(map(int, floor.split("."))) >= (5, 0, 0)
