"""What is sent to the nodes."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

from clusterctl.client.rpc import bundle

VERBS = sorted(
    path.stem for path in (bundle.PACKAGE / "node" / "verbs").rglob("*.py") if path.stem != "__init__"
)
SHIPPED = [path for name in bundle.SHIPPED for path in sorted((bundle.PACKAGE / name).rglob("*.py"))]


def file_of(name: str) -> Path:
    """Where a module is."""
    return bundle.PACKAGE.joinpath(*name.split(".")).with_suffix(".py")


def imports_of(name: str) -> set[str]:
    """List a module's relative imports as Python itself understands the file."""
    tree = ast.parse(bundle.strip_source(file_of(name).read_text()))
    found: set[str] = set()
    for part in ast.walk(tree):
        if isinstance(part, ast.ImportFrom) and part.level:
            base = [*name.split(".")[: -part.level], *(part.module.split(".") if part.module else [])]
            named = (
                [base] if file_of(".".join(base)).is_file() else [[*base, alias.name] for alias in part.names]
            )
            found |= {".".join(one) for one in named}
    return found


@pytest.mark.parametrize("name", VERBS)
def test_a_verbs_bundle_is_closed(name: str) -> None:
    """A bundle holds everything that its modules import, and frames."""
    held = bundle.list_modules(name)
    assert {f"node.verbs.{bundle.verb_module(name)}", "node.runtime.stream"} <= held
    assert {wanted for module in held for wanted in imports_of(module)} <= held


def test_bundle_holds_the_sources() -> None:
    """A bundle unpacks to the files, and is made once."""
    sources = json.loads(zlib.decompress(bundle.bundle("probe")))
    file = file_of("node.verbs.probe").read_text()
    assert sources["clusterctl.node.verbs.probe"] == bundle.strip_source(file) != file
    assert bundle.bundle("probe") is bundle.bundle("probe")


def test_modules_run_without_the_types_they_name(tmp_path: Path) -> None:
    """What is sent needs nothing of `typing`, keeps its lines, and every module of it can be imported."""
    for path in SHIPPED:
        bare = bundle.strip_source(path.read_text())
        assert bare.count("\n") == path.read_text().count("\n")
        target = tmp_path / "clusterctl" / path.relative_to(bundle.PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(bare)
    (tmp_path / "clusterctl" / "__init__.py").touch()
    code = "import sys, clusterctl.node.verbs.probe; assert 'typing' not in sys.modules\n"
    code += "from importlib import import_module\n"
    names = [
        ".".join(path.relative_to(bundle.PACKAGE).with_suffix("").parts)
        for path in SHIPPED
        if path.stem not in ("__init__", "boot", "main")
    ]
    code += f"for name in {names}: import_module('clusterctl.' + name)"
    subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"], check=True
    )


class CastRemover(ast.NodeTransformer):
    """Leaves the value of `cast("Type", value)`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace a cast."""
        self.generic_visit(node)
        return node.args[1] if isinstance(node.func, ast.Name) and node.func.id == "cast" else node


def without_docstrings(tree: ast.AST) -> str:
    """Render a syntax tree with all docstrings empty, and without what only a type checker reads."""
    tree = CastRemover().visit(tree)
    for part in ast.walk(tree):
        body = getattr(part, "body", None)
        for one in body if isinstance(body, list) else []:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                one.value.value = ""
        if isinstance(part, ast.Module):
            part.body = [one for one in part.body if not is_for_types(one)]
    return ast.dump(tree)


def is_for_types(statement: ast.stmt) -> bool:
    """Tell whether a statement does nothing at run time: an alias, an import of `typing`, a block for types."""
    if isinstance(statement, ast.If) and not statement.orelse:
        return isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING"
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "typing"
    value = statement.value if isinstance(statement, ast.Assign) else None
    is_none = isinstance(value, ast.Constant) and value.value in (None, False)
    return isinstance(value, ast.Subscript) or is_none


def test_only_docstrings_and_types_are_left_out() -> None:
    """A text that happens to stand alone on its lines, as an argument does, is sent as it is."""
    for path in SHIPPED:
        source = path.read_text()
        sent = bundle.strip_source(source)
        assert without_docstrings(ast.parse(sent)) == without_docstrings(ast.parse(source)), path


def test_probe_does_not_carry_the_agent() -> None:
    """Each verb brings what it needs, not the whole payload."""
    assert "node.supervise.guardian" not in bundle.list_modules("probe")


def test_zip_is_the_same_everywhere() -> None:
    """Another process, another time zone, another order of files: the same bytes."""
    code = "from clusterctl.client.rpc.bundle import payload_zip; print(payload_zip()[0])"
    environment = {**os.environ, "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    digest, raw = bundle.payload_zip()
    assert done.stdout.strip() == digest == hashlib.sha256(raw).hexdigest()


def test_zip_holds_the_payload_and_runs(tmp_path: Path) -> None:
    """Every file is in it, and Python can run it."""
    raw = bundle.payload_zip()[1]
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        names = archive.namelist()
        source = bundle.strip_source(file_of("node.runtime.stream").read_text())
        assert archive.read("clusterctl/node/runtime/stream.py").decode() == source
        assert archive.read("clusterctl/__init__.py") == b""
    assert names == sorted(names)
    files = {f"clusterctl/{path.relative_to(bundle.PACKAGE).as_posix()}" for path in SHIPPED}
    assert set(names) == {"__main__.py", "clusterctl/__init__.py", *files}
    (tmp_path / "payload.zip").write_bytes(raw)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "payload.zip"), "nonsense"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "nonsense" in done.stderr


def test_changed_source_is_another_payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest follows the content."""
    for path in SHIPPED:
        target = tmp_path / path.relative_to(bundle.PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    changed = tmp_path / "node" / "runtime" / "stream.py"
    changed.write_bytes(changed.read_bytes() + b"\n")
    before = bundle.payload_zip()[0]
    monkeypatch.setattr(bundle, "PACKAGE", tmp_path)
    bundle.clear_cache()
    try:
        assert bundle.payload_zip()[0] != before
    finally:
        monkeypatch.undo()
        bundle.clear_cache()
    assert bundle.payload_zip()[0] == before


def test_exec_and_sync_load_little() -> None:
    """A command on a node costs its start: no agent's modules are sent for it, and nothing of `typing` is loaded."""
    modules = ("node.verbs.exec", "node.runtime.processes", "node.runtime.stream", "protocol.frames")
    assert bundle.list_modules("exec") == set(modules)
    for verb in ("exec", "sync", "ps", "top"):
        sources = [bundle.strip_source(file_of(name).read_text()) for name in bundle.list_modules(verb)]
        assert not [source for source in sources if "\nfrom typing import" in source], verb


MOST_BYTES = {
    "clean": 20_200,
    "connect": 17_000,
    "diagnose": 19_900,
    "exec": 6_800,
    "files": 32_700,
    "follow": 24_400,
    "history": 23_300,
    "orphans": 14_300,
    "probe": 37_800,
    "ps": 15_000,
    "pythons": 11_000,
    "shell": 28_000,
    "slurm": 49_200,
    "start": 17_800,
    "stop": 20_400,
    "sync": 19_100,
    "top": 12_900,
    "warm": 9_200,
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_bundle_stays_small(verb: str) -> None:
    """Each verb is sent to each node each time; an import from another folder can double what it takes."""
    assert len(bundle.bundle(verb)) <= MOST_BYTES[verb]
