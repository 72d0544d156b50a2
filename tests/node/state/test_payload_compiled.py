"""The payload with its byte code, as a real interpreter runs it."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from clusterctl.node.state import payload

MODULES = {
    "__main__.py": "from clusterctl.node.main import main\n\nmain()\n",
    "clusterctl/__init__.py": "",
    "clusterctl/node/__init__.py": "",
    "clusterctl/node/main.py": "def main():\n    print(__spec__.cached, __file__)\n    raise ValueError('seen')\n",
}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A payload as it arrives."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in MODULES.items():
            archive.writestr(name, text)
    (tmp_path / "payload.zip").write_bytes(packed.getvalue())
    return tmp_path / "payload.zip"


def run(path: str) -> subprocess.CompletedProcess[str]:
    """Run a zip as the guardian is run."""
    return subprocess.run([sys.executable, "-I", "-S", path], capture_output=True, text=True, check=False)


def test_nothing_is_compiled_at_a_start(plain: Path, tmp_path: Path) -> None:
    """The byte code is what runs: another source beside it is not looked at."""
    made = payload.with_byte_code(str(plain))
    forged = tmp_path / "forged.zip"
    with zipfile.ZipFile(made) as archive, zipfile.ZipFile(forged, "w") as target:
        for name in archive.namelist():
            target.writestr(name, archive.read(name) if name.endswith("c") else "raise SystemExit(9)\n")

    assert made != str(plain)
    assert [run(path).returncode for path in (str(plain), made, str(forged))] == [1, 1, 1]
    assert "ValueError: seen" in run(str(forged)).stderr


def test_it_is_made_once_and_made_again_when_damaged(plain: Path) -> None:
    """The same file serves the next start; a damaged one is not run."""
    made = Path(payload.with_byte_code(str(plain)))
    before = made.read_bytes()
    again = payload.with_byte_code(str(plain))
    made.write_bytes(before[:-1])

    rebuilt = Path(payload.with_byte_code(str(plain)))

    assert again == str(made)
    assert rebuilt.read_bytes() == before


def test_what_another_start_is_writing_is_not_run(plain: Path) -> None:
    """Nodes that share a home start at once: a file that is about to get another name is left alone."""
    made = Path(payload.with_byte_code(str(plain)))
    aside = made.with_name(f"{made.name}.0123456789abcdef.new")
    made.rename(aside)

    assert payload.with_byte_code(str(plain)) != str(aside)


def test_what_cannot_be_compiled_is_run_as_it_is(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory without room, or a payload that this interpreter cannot read, costs time only."""
    monkeypatch.setattr(payload, "write_atomically", full)
    assert payload.with_byte_code(str(plain)) == str(plain)
    plain.write_bytes(b"no zip")
    assert payload.with_byte_code(str(plain)) == str(plain)


def full(path: str, _: bytes) -> None:
    """Have no room left."""
    raise OSError(28, "No space left on device", path)


def test_byte_code_of_another_interpreter_does_no_harm(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's Python may be another one: it compiles the source that lies beside."""
    monkeypatch.setattr("importlib.util.MAGIC_NUMBER", b"\x00\x00\r\n")
    done = run(payload.with_byte_code(str(plain)))
    assert "ValueError: seen" in done.stderr
