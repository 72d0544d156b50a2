"""Which functions can be sent, and what the script of one does: it is run here as on a rank."""

from __future__ import annotations

import ast
import json
import linecache
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clusterctl.api.results import MARK
from clusterctl.api.source import CallScript, plan_script
from clusterctl.errors import UsageError

CELL = """import json as j
import math, os.path
from collections import OrderedDict

SCALE = 3
NAMES = ["a", "b"]
unused = object()


class Model:
    factor = SCALE

    def apply(self, value: "unused") -> float:
        return value * self.factor


def helper(value):
    return Model().apply(value) + math.floor(0.5)


def train(first, second=len(NAMES)):
    inner = [helper(one) for one in (first, second)]
    return {"inner": inner, "json": j.dumps(OrderedDict(a=1)), "base": os.path.basename("/x/y")}


def fail(value):
    raise ValueError(value)
"""


def cell(text: str, name: str = "<cell 7>") -> dict[str, Any]:
    """Define what a cell of a notebook defines: in __main__, with its source in linecache alone."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), scope)
    return scope


def run_script(script: CallScript, place: Path, python: str = sys.executable) -> Any:
    """Run the script in a folder as a rank does, and return what it wrote as its result."""
    path = place / script.name
    path.write_text(script.text, encoding="utf-8")
    search = {"PYTHONPATH": script.folder} if script.folder else {}
    env = {**os.environ, "WORLD_SIZE": "1", **search}
    done = subprocess.run([python, path], env=env, capture_output=True, text=True, check=False, cwd=place)
    assert done.returncode == 0, done.stderr
    _, mark, line = done.stdout.partition(MARK)
    assert mark, done.stdout
    return json.loads(line.split(" ", 4)[4])


def test_a_cell_of_a_notebook_is_sent_with_what_it_uses(tmp_path: Path) -> None:
    """Modules, functions, classes and plain values of the notebook go along; nothing of this machine is needed."""
    script = plan_script(cell(CELL)["train"], [2.0], None)

    assert run_script(script, tmp_path) == {"inner": [6.0, 6], "json": '{"a": 1}', "base": "y"}
    assert (script.folder, script.name) == (None, "clusterctl_call_train.py")
    assert "unused = " not in script.text


STATEMENTS = """import time
def wait(value):
    import time
    time.sleep(0)
    def part(other: time.struct_time): return other
    return part(value)
"""


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_a_cell_is_compiled_by_statements(future: str) -> None:
    """As IPython does: what stands around a function changes its instructions, but not what it does."""
    name = f"<cell {len(future)}>"
    linecache.cache[name] = (len(STATEMENTS), None, STATEMENTS.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": "__main__"}
    flags = compile(future, name, "exec", dont_inherit=True).co_flags if future else 0
    for node in ast.parse(STATEMENTS).body:
        exec(compile(ast.Module([node], []), name, "exec", flags, dont_inherit=True), scope)

    assert "time.sleep(0)" in plan_script(scope["wait"], [1], None).text


def test_a_class_without_methods_is_found_in_the_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest that has its fields: one that failed may hold another definition."""
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    first = "from dataclasses import dataclass\n\n@dataclass\nclass Point:\n    x: int\n    y: int = 2\n"
    cells = ["", "%magic", first, first.replace("= 2", "= 3"), "1 / 0\nclass Point:\n    z: int\n"]
    for text in cells[2:4]:
        exec(text, vars(notebook))
    scope = cell("def start(): return Point(1).y\n", "<cell 10>")
    scope["Point"], notebook.In = notebook.Point, cells  # type: ignore[attr-defined]  # names of the notebook

    assert run_script(plan_script(scope["start"], [], None), tmp_path) == 3


def test_lines_of_the_script_are_found_in_the_cell() -> None:
    """The line of an exception is that of the user's own file."""
    script = plan_script(cell(CELL)["fail"], ["x"], None)
    line = script.text.splitlines().index("    raise ValueError(value)") + 1

    assert script.locate(script.name, line) == (
        "<cell 7>",
        CELL.splitlines().index("    raise ValueError(value)") + 1,
    )
    assert script.locate(script.name, 1) == (script.name, 1)
    assert script.locate("model.py", line) == ("model.py", line)


def test_a_function_of_a_module_is_imported(tmp_path: Path) -> None:
    """Its folder is sent; of a module that is installed nothing is."""
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "work.py").write_text(
        "class Work:\n    @staticmethod\n    def double(x): return 2 * x\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        from pack.work import Work  # type: ignore[import-not-found]  # written above
    finally:
        sys.path.remove(str(tmp_path))
    sys.path.append(str(tmp_path))
    try:
        script = plan_script(Work.double, [4], None)
    finally:
        sys.path.remove(str(tmp_path))

    assert script.folder == str(tmp_path.resolve())
    assert run_script(script, tmp_path) == 8
    assert plan_script(platform.python_version, [], None).folder is None


def outer() -> Callable[[], int]:
    """Return a function with a variable of this one."""
    value = 1

    def inner() -> int:
        return value

    return inner


REFUSED: list[tuple[Callable[..., Any], list[Any], str]] = [
    (lambda: 1, [], "a lambda, or a function that uses variables of another function"),
    (outer(), [], "a lambda, or a function that uses variables of another function"),
    (partial(outer), [], "a partial has no source"),
    (outer, [object()], "the arguments cannot be written as JSON"),
    (outer, [float("nan")], "the arguments cannot be written as JSON"),
    (
        cell("lock = object()\ndef f():\n    return lock\n", "<cell 8>")["f"],
        [],
        "f uses lock, which is no module",
    ),
    (eval("lambda: 2", {"__name__": "__main__"}), [], "a lambda"),
]


@pytest.mark.parametrize(("function", "arguments", "text"), REFUSED)
def test_what_cannot_be_sent_is_refused_here(
    function: Callable[..., Any], arguments: list[Any], text: str
) -> None:
    """Before any node is asked."""
    with pytest.raises(UsageError) as raised:
        plan_script(function, arguments, None)
    assert (raised.value.code, text in raised.value.message) == ("CC-USE-099", True), raised.value.message


ORDER = """
class Base:
    def make(self):
        return Derived(2).value


class Derived(Base):
    def __init__(self, value):
        self.value = value


def start():
    return Base().make()
"""
SPECIAL = 'def start():\n    return ["a\u2028b", """x\n   \ny"""]\n'


@pytest.mark.parametrize(
    ("text", "result"), [(ORDER, 2), (SPECIAL, ["a\u2028b", "x\n   \ny"])], ids=["bases first", "texts"]
)
def test_the_script_does_what_the_program_does(tmp_path: Path, text: str, result: Any) -> None:
    """A base stands before what derives from it, whichever is used first; texts arrive as they are."""
    scope = program(tmp_path / "program.py", text)
    assert run_script(plan_script(scope["start"], [], None), tmp_path) == result


def program(file: Path, text: str) -> dict[str, Any]:
    """Write a program and define what it defines."""
    file.write_text(text, encoding="utf-8")
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, str(file), "exec"), scope)
    return scope


def test_a_file_that_was_edited_is_refused(tmp_path: Path) -> None:
    """What would be sent is not what the program has loaded."""
    file = tmp_path / "program.py"
    scope = program(file, "def start():\n    return 1\n")
    assert "return 1" in plan_script(scope["start"], [], None).text
    file.write_text("def start():\n    return 666\n")
    os.utime(file, (0, 0))
    with pytest.raises(UsageError, match="changed in its file"):
        plan_script(scope["start"], [], None)


def test_a_method_that_uses_variables_around_it_is_refused() -> None:
    """They are not there on a node."""
    text = (
        "def outer():\n    limit = 3\n    class Local:\n        def get(self):\n            return limit\n"
        "    return Local\n\nLocal = outer()\n\ndef start():\n    return Local().get()\n"
    )
    with pytest.raises(UsageError, match="Local"):
        plan_script(cell(text)["start"], [], None)


def test_modules_of_several_folders_need_a_choice(tmp_path: Path) -> None:
    """One folder is sent: which, the caller says."""
    for folder, module in (("one", "first_part"), ("two", "second_part")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{module}.py").write_text("X = 1\n")
        sys.path.append(str(tmp_path / folder))
    try:
        function = cell("def f():\n    import first_part, second_part\n", "<cell 9>")["f"]
        with pytest.raises(UsageError) as raised:
            plan_script(function, [], None)
        chosen = plan_script(function, [], "/somewhere")
    finally:
        del sys.path[-2:]

    assert str(tmp_path / "one") in raised.value.message and str(tmp_path / "two") in raised.value.message
    assert chosen.folder == "/somewhere"
