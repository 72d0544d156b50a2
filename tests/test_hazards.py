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
OUR_OWN_CODE = {"clusterctl/plans/shell.py", "clusterctl/payload/boot.py"}  # run what clusterctl itself sent


@cache
def parse(text: str) -> ast.Module:
    """Parse a module once for all rules."""
    return ast.parse(text)


def names(tree: ast.Module) -> Iterator[str]:
    """Give what is imported and what is called, in full: `torch.load`, `os.system`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            yield ast.unparse(node.func)


BYTE_CODE = {
    "clusterctl/payload/compiled.py": ("marshal", "marshal.dumps", "compile")
}  # writes it, never reads it


def builds_objects(path: str, text: str) -> Iterator[str]:
    """Data of a node or a file is read as JSON, text or our own YAML tree: nothing in it can be code."""
    for name in names(parse(text)):
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
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            shell = any(key.arg == "shell" and ast.unparse(key.value) != "False" for key in node.keywords)
            if shell or name in ("os.system", "os.popen", "subprocess.getoutput", "pty.spawn"):
                yield f"{path}:{node.lineno}: {name}"


def runs_other_programs(path: str, text: str) -> Iterator[str]:
    """No program is called that becomes somebody else, copies on its own terms or kills by name."""
    for node in ast.walk(parse(text)):
        if isinstance(node, (ast.List, ast.Tuple)) and node.elts and isinstance(node.elts[0], ast.Constant):
            program = str(node.elts[0].value).rpartition("/")[2]
            if program in OTHER_PROGRAMS:
                yield f"{path}:{node.lineno}: {program}"


def writes_into_tmp(path: str, text: str) -> Iterator[str]:
    """On a node everything lies in our own directory: a name in /tmp could be taken before us."""
    if "/payload/" in path:
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
    for name in names(parse(text)):
        if name.partition(".")[0] == "tarfile" or name.endswith(("extractall", "unpack_archive")):
            yield f"{path}: {name}"


Rule = Callable[[str, str], Iterator[str]]
BREACHES: list[tuple[Rule, str, str]] = [
    (builds_objects, "clusterctl/runs/a.py", "import pickle"),
    (builds_objects, "clusterctl/payload/a.py", "def f():\n    import torch\n    torch.load('x')"),
    (builds_objects, "clusterctl/runs/a.py", "from yaml import load"),
    (builds_objects, "clusterctl/cli/a.py", "eval(text)"),
    (builds_objects, "clusterctl/cli/a.py", "exec(text)"),
    (builds_objects, "clusterctl/payload/compiled.py", "import marshal\nmarshal.loads(data)"),
    (calls_a_shell, "clusterctl/runs/a.py", "subprocess.run(text, shell=True)"),
    (calls_a_shell, "clusterctl/runs/a.py", "os.system(text)"),
    (runs_other_programs, "clusterctl/runs/a.py", "subprocess.run(['rsync', '-a', source])"),
    (runs_other_programs, "clusterctl/payload/a.py", "subprocess.run(('/usr/bin/sudo', 'true'))"),
    (writes_into_tmp, "clusterctl/payload/a.py", "open('/tmp/clusterctl-job')"),
    (forwards_the_agent, "clusterctl/runs/a.py", "Connection(host, forward_agent=True)"),
    (follows_their_names, "clusterctl/runs/a.py", "import tarfile"),
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


def test_paramiko_is_new_enough() -> None:
    """Older ones accept SHA-1 signatures (CVE-2026-44405) or a cut handshake (CVE-2023-48795)."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (floor,) = re.findall(r'^ +"paramiko>=([0-9.]+)"', project, re.MULTILINE)

    assert tuple(map(int, floor.split("."))) >= (5, 0, 0)
