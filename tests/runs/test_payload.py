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

from clusterctl.runs import payload

PAYLOAD = payload.PACKAGE / "payload"
VERBS = sorted(path.stem for path in PAYLOAD.glob("*.py") if path.stem != "__init__")
SHIPPED = [path for name in payload.SHIPPED for path in sorted((payload.PACKAGE / name).glob("*.py"))]


def imports_of(name: str) -> set[str]:
    """List a module's relative imports as Python itself understands the file."""
    folder, module = name.split(".")
    tree = ast.parse((payload.PACKAGE / folder / f"{module}.py").read_text())
    found: set[str] = set()
    for part in ast.walk(tree):
        if isinstance(part, ast.ImportFrom) and part.level:
            above = [folder] if part.level == 1 else []
            words = [*above, *(part.module.split(".") if part.module else [])]
            named = [words] if len(words) == 2 else [[*words, alias.name] for alias in part.names]
            found |= {".".join(one) for one in named}
    return found


@pytest.mark.parametrize("name", VERBS)
def test_a_verbs_bundle_is_closed(name: str) -> None:
    """A bundle holds everything that its modules import, and frames."""
    held = payload.modules(name)
    assert {f"payload.{name}", "payload.wire"} <= held
    assert {wanted for module in held for wanted in imports_of(module)} <= held


def test_bundle_holds_the_sources() -> None:
    """A bundle unpacks to the files, and is made once."""
    sources = json.loads(zlib.decompress(payload.bundle("probe")))
    file = (PAYLOAD / "probe.py").read_text()
    assert sources["clusterctl.payload.probe"] == payload.without_types(file) != file
    assert payload.bundle("probe") is payload.bundle("probe")


def test_modules_run_without_the_types_they_name(tmp_path: Path) -> None:
    """What is sent needs nothing of `typing`, keeps its lines, and every module of it can be imported."""
    for path in SHIPPED:
        bare = payload.without_types(path.read_text())
        assert bare.count("\n") == path.read_text().count("\n")
        target = tmp_path / "clusterctl" / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(bare)
    (tmp_path / "clusterctl" / "__init__.py").touch()
    code = "import sys, clusterctl.payload.probe; assert 'typing' not in sys.modules\n"
    code += "from importlib import import_module\n"
    names = [
        f"{path.parent.name}.{path.stem}" for path in SHIPPED if path.stem not in ("__init__", "boot", "main")
    ]
    code += f"for name in {names}: import_module('clusterctl.' + name)"
    subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"], check=True
    )


def test_probe_does_not_carry_the_agent() -> None:
    """Each verb brings what it needs, not the whole payload."""
    assert "payload.guardian" not in payload.modules("probe")


def test_zip_is_the_same_everywhere() -> None:
    """Another process, another time zone, another order of files: the same bytes."""
    code = "from clusterctl.runs.payload import payload_zip; print(payload_zip()[0])"
    environment = {**os.environ, "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    digest, raw = payload.payload_zip()
    assert done.stdout.strip() == digest == hashlib.sha256(raw).hexdigest()


def test_zip_holds_the_payload_and_runs(tmp_path: Path) -> None:
    """Every file is in it, and Python can run it."""
    raw = payload.payload_zip()[1]
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        names = archive.namelist()
        assert archive.read("clusterctl/payload/wire.py") == (PAYLOAD / "wire.py").read_bytes()
        assert archive.read("clusterctl/__init__.py") == b""
    assert names == sorted(names)
    files = {f"clusterctl/{path.parent.name}/{path.name}" for path in SHIPPED}
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
        (tmp_path / path.parent.name).mkdir(exist_ok=True)
        (tmp_path / path.parent.name / path.name).write_bytes(path.read_bytes())
    changed = tmp_path / "payload" / "wire.py"
    changed.write_bytes(changed.read_bytes() + b"\n")
    before = payload.payload_zip()[0]
    monkeypatch.setattr(payload, "PACKAGE", tmp_path)
    payload.forget()
    try:
        assert payload.payload_zip()[0] != before
    finally:
        monkeypatch.undo()
        payload.forget()
    assert payload.payload_zip()[0] == before


def test_exec_and_sync_load_little() -> None:
    """A command on a node costs its start: no agent's modules are sent for it, and nothing of `typing` is loaded."""
    modules = ("exec", "ending", "processes", "surroundings", "wire")
    assert payload.modules("exec") == {f"payload.{name}" for name in modules}
    for verb in ("exec", "sync", "ps", "top"):
        sources = [
            payload.without_types(payload.PACKAGE.joinpath(*name.split(".")).with_suffix(".py").read_text())
            for name in payload.modules(verb)
        ]
        assert not [source for source in sources if "\nfrom typing import" in source], verb
