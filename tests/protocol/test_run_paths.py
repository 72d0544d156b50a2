"""Where everything of a run is: both sides have it from one place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from clusterctl.client.rpc.bundle import PACKAGE
from clusterctl.protocol import run_paths
from clusterctl.protocol.run_paths import RunPaths, WorkdirPaths, part_name

RUN = RunPaths("/w/runs/mnist-1/0-gpu01")
HOME = Path(run_paths.__file__)
JOINS = {"join", "make_below", "make_private"}
# Modules that spell a name of their own, with what it is; or that are still to be converted.
EXCEPTIONS = {
    ("node/supervise/agent.py", "stop.json"),  # converted together with the agent's states
    ("node/supervise/stages.py", "setup.log"),
    ("node/supervise/stages.py", "code"),
    ("node/state/environments.py", "bin"),  # of an environment
    ("node/verbs/machine/pythons.py", "bin"),  # of an environment of the user's
    ("node/verbs/machine/pythons.py", "envs"),  # conda's
    ("plans/export/bash.py", "outputs"),  # of a script that runs without a work directory of ours
}


@cache
def names() -> re.Pattern[str]:
    """Match the name of every file and directory that a path object knows, at the end of a text."""
    paths = [*vars(RUN).values(), *vars(WorkdirPaths("/w")).values()]
    constants = (run_paths.PAYLOAD, run_paths.STDOUT_LOG, run_paths.STDERR_LOG, run_paths.ERROR_FILE)
    logs = (*run_paths.early_logs(1), run_paths.torchrun_log(1))
    found = {Path(path).name for path in (*paths, *constants, *logs)} - {"0-gpu01"} | {run_paths.ATTEMPT}
    return re.compile(rf"(?:^|/)({'|'.join(map(re.escape, sorted(found)))})$")


def spelled(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module spells: ends of texts, or words that are joined to a path."""
    joined = {
        id(argument)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", "")) in JOINS
        for argument in call.args
    }
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Constant) else None
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        found = names().search(text) if isinstance(text, str) and "\n" not in text else None
        if found and (not found[1].isalpha() or id(node) in joined):
            yield found[1]
        elif isinstance(text, str) and text in ("/runs/", "/outputs/"):  # between the holes of an f-string
            yield text.strip("/")


@pytest.mark.parametrize(
    "text",
    [
        "join(a, 'state.json')",
        "x = b'agent.log'",
        "f'attempt-{k}'",
        "make_below(w, 'runs')",
        "'a/torchrun.log'",
        "f'{w}/runs/{r}'",
    ],
)
def test_a_spelled_name_is_seen(text: str) -> None:
    """The scan below can fail."""
    assert list(spelled(ast.parse(text)))


def test_no_name_is_spelled_elsewhere() -> None:
    """A file that moves, or gets a name, is changed in one place; no exception is left over."""
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for layer in ("node", "protocol", "plans", "client", "console", "cli")
        for path in (PACKAGE / layer).rglob("*.py")
        if path != HOME
        for name in spelled(ast.parse(path.read_text()))
    }
    assert found == EXCEPTIONS


def test_a_part_is_known_by_its_directory() -> None:
    """Run and node are read back from what `part_name` made, also of a node whose name holds a hyphen."""
    paths = RunPaths(WorkdirPaths("/w").run("mnist-1", part_name(3, "gpu-b-01")))
    assert (paths.rundir, paths.run_id, paths.node) == ("/w/runs/mnist-1/3-gpu-b-01", "mnist-1", "gpu-b-01")
    assert paths.attempt(2) == "/w/runs/mnist-1/3-gpu-b-01/attempt-2"
