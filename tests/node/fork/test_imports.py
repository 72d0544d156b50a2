"""When a process that has imported torch must not stand for another, from plain values and files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterctl.node.fork.imports import Imports, count_bytes, record_imports, sign
from clusterctl.node.fork.warm_server import imported_env, is_short

ENV = {"PATH": "/bin", "LANG": "C", "SSH_CLIENT": "10.0.0.1 1 22", "CLUSTERCTL_RUN": "a/b/1"}


def imports(*files: Path, **changes: object) -> Imports:
    """Make what a server has imported."""
    signed = {str(path): sign(str(path)) for path in files}
    return Imports("/usr/bin/python3", "payload.zip", ENV, ["json"], signed)._replace(**changes)


def difference(made: Imports, python: str = "/usr/bin/python3", **env: str) -> str:
    """Say what another process would have done otherwise."""
    return made.find_difference(python, ["json"], {**ENV, **env})


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


def test_another_interpreter_or_other_modules() -> None:
    """Both are named."""
    assert "python3.9" in difference(imports(), python="/usr/bin/python3.9")
    assert difference(imports(preload=["yaml"])) == "preload differs"


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
    assert made.find_changed_file() == str(package)
    made = imports(module)
    module.unlink()
    assert made.find_changed_file() == str(module)


def test_two_servers_with_the_same_imports_can_stand_for_each_other() -> None:
    """However they were logged in to."""
    other_login = imports(env={**ENV, "SSH_CLIENT": "else"})
    assert imports().digest() == other_login.digest()
    assert imports().digest() != imports(env={**ENV, "HF_HOME": "/data"}).digest()


def test_what_is_recorded_of_this_process() -> None:
    """Its modules, libraries and directories; none of them has changed."""
    made = record_imports("payload.zip", [])
    assert {os.__file__, pytest.__file__} <= set(made.files)
    assert any(".so" in path for path in made.files)
    assert made.find_changed_file() == ""


@pytest.mark.parametrize(
    ("available", "stalled", "short"),
    [(50, "0.00", False), (4, "0.00", True), (50, "12.50", True), (50, None, False), (None, "0.00", False)],
)
def test_memory_is_short(available: int | None, stalled: str | None, short: bool) -> None:
    """When little of it is available, or processes wait for it; an old kernel reports one of them, or none."""
    sizes = ["MemTotal:  100 kB", *([] if available is None else [f"MemAvailable:  {available} kB"])]
    pressure = (
        [] if stalled is None else [f"some avg10={stalled} avg60=0.00 avg300=0.00 total=1", "full avg10=0.00"]
    )
    assert is_short(sizes, pressure) is short


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
