"""When a gate that waits must not be that of a run, from plain values and files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from clusterctl.node.fork.imports import Imports, count_bytes, record_imports, sign
from clusterctl.node.fork.worker_server import imported_env

START: Any = {"preload": ["json"], "workers": 1}
ENV = {"PATH": "/bin", "LANG": "C", "SSH_CLIENT": "10.0.0.1 1 22", "CLUSTERCTL_RUN": "a/b/1"}


def imports(*files: Path) -> Imports:
    """Make what a gate has imported."""
    signed = {str(path): sign(str(path)) for path in files}
    return Imports("/usr/bin/python3", "payload.zip", ENV, START, signed)


def difference(
    made: Imports,
    python: str = "/usr/bin/python3",
    start: Any = START,
    payload: str = "payload.zip",
    **env: str,
) -> str:
    """Return what a gate that starts now would do otherwise."""
    return made.find_difference(python, payload, {**ENV, **env}, start)


def test_what_changes_with_each_run_and_login_is_no_difference() -> None:
    """Our own variables, and those of the login."""
    changed = {"SSH_CLIENT": "10.9.9.9 2 22", "XDG_SESSION_ID": "7", "CLUSTERCTL_RUN": "c/d/2"}
    assert difference(imports(), **changed, TORCHELASTIC_ERROR_FILE="/runs/2/error.json") == ""


@pytest.mark.parametrize(
    "env",
    [
        {"OMP_NUM_THREADS": "4"},
        {"LD_PRELOAD": "/x.so"},
        {"CUDA_VISIBLE_DEVICES": "1"},
        {"HF_HOME": "/data"},
        {"PATH": "/opt/bin:/bin"},
    ],
)
def test_any_other_variable_is_a_difference(env: dict[str, str]) -> None:
    """Whatever it is: a module of `preload` may have read it."""
    (name,) = env
    assert difference(imports(), **env) == f"{name} differs from its value when torch was imported"


def test_another_interpreter_payload_or_plan() -> None:
    """Each is named."""
    assert "python3.9" in difference(imports(), python="/usr/bin/python3.9")
    assert difference(imports(), payload="new.zip") == "it is of another version of clusterctl"
    assert difference(imports(), start={**START, "preload": ["yaml"]}) == "preload differs"
    assert difference(imports(), start={**START, "workers": 2}) == "workers differs"


def test_a_file_that_was_replaced_or_written(tmp_path: Path) -> None:
    """Also one that is gone, and a new entry in a directory that modules are looked for in."""
    package, module = tmp_path / "site", tmp_path / "site" / "torch.py"
    package.mkdir()
    module.write_text("1")
    made = imports(package, module)
    assert made.find_changed_file() == ""
    os.utime(module, (1, 1))
    assert made.find_changed_file() == str(module)
    made = imports(package, module)
    (package / "other.pth").touch()
    os.utime(package, (2, 2))
    assert difference(made) == f"{package} has changed since it was imported"
    made = imports(module)
    module.unlink()
    assert made.find_changed_file() == str(module)


def test_what_is_recorded_of_this_process() -> None:
    """Its modules, libraries and directories; none of them has changed."""
    made = record_imports("payload.zip", START)
    assert {os.__file__, pytest.__file__} <= set(made.files)
    assert any(".so" in path for path in made.files)
    assert made.find_changed_file() == ""


def test_torchruns_own_number_of_threads() -> None:
    """With several workers a gate imports torch with one thread, unless the job says otherwise."""
    assert imported_env({}, 1) == {}
    assert imported_env({}, 2) == {"OMP_NUM_THREADS": "1"}
    assert imported_env({"OMP_NUM_THREADS": "8"}, 2) == {"OMP_NUM_THREADS": "8"}


def test_memory_that_processes_share_counts_once() -> None:
    """A process that is forked has nearly all of its memory from the one that forked it."""
    size = 64 << 20
    content = bytearray(os.urandom(1 << 20) * (size >> 20))
    ready, release = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b".")
        os.read(release[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    both = count_bytes([os.getpid(), child])
    os.write(release[1], b".")
    os.waitpid(child, 0)
    for descriptor in (*ready, *release):
        os.close(descriptor)
    assert len(content) == size
    assert both >= size
    assert abs(both - count_bytes([os.getpid()])) < size / 2, "twice it would be more by far"
    assert count_bytes([child]) == 0, "it has ended"
