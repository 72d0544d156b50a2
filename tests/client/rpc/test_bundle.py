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


def is_for_types(statement: ast.stmt) -> bool:
    """Return whether a statement is a block that only a type checker reads."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    return isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING"


def imports_of(name: str) -> set[str]:
    """List a module's relative imports as Python itself understands the file."""
    tree = ast.parse(file_of(name).read_text())
    tree.body = [part for part in tree.body if not is_for_types(part)]
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
    sources = json.loads(zlib.decompress(bundle.pack("probe")[1]))
    file = file_of("node.verbs.probe").read_text()
    assert sources["clusterctl.node.verbs.probe"] == file
    assert bundle.pack("probe") is bundle.pack("probe")


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
        source = file_of("node.runtime.stream").read_text()
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


def test_exec_carries_little() -> None:
    """A command on a node costs its start: no agent's modules are sent for it."""
    modules = ("node.verbs.exec", "node.runtime.processes", "node.runtime.stream", "protocol.frames")
    assert bundle.list_modules("exec") == set(modules)


MAX_BYTES = {
    "clean": 28_500,
    "connect": 22_400,
    "diagnose": 28_700,
    "download": 71_300,
    "exec": 9_000,
    "files": 41_100,
    "follow": 34_800,
    "history": 41_700,
    "idle": 3_800,
    "orphans": 27_000,
    "probe": 52_400,
    "ps": 21_900,
    "pulse": 40_000,
    "pythons": 16_100,
    "shell": 28_000,
    "slurm": 68_900,
    "slurm_pulse": 50_600,
    "staged": 20_900,
    "start": 25_000,
    "stop": 29_100,
    "sync": 31_800,
    "take": 46_800,
    "top": 18_400,
    "warm": 12_800,
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_bundle_stays_small(verb: str) -> None:
    """Each verb is sent to each node each time; an import from another folder can double what it takes."""
    assert len(bundle.pack(verb)[1]) <= MAX_BYTES[verb]
