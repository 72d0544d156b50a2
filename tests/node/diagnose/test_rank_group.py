"""What a Python process of a run reports at its exit of its process group, as `sitecustomize` prepares it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusterctl.node.supervise.spawn import prepare_diagnosis

# torch as far as it is looked at; the real one is in tests/lab/test_alone_lab.py
TORCH = """
import sys, types
c10d = types.SimpleNamespace(_backend=None, _default_pg_init_method=None, size=0)
c10d.is_initialized = lambda: bool(c10d.size)
c10d.get_world_size = lambda: c10d.size
c10d.get_rank = lambda: 0
sys.modules["torch.distributed.distributed_c10d"] = c10d
def init(size):
    c10d.size, c10d._backend = size, "gloo"
def destroy():
    c10d.size = 0
"""


def sizes_of(folder: Path, script: str) -> list[int | None]:
    """Run a script with the preparation of a run; gives what its processes have reported, sorted."""
    diagnosis, file = folder / "attempt-1" / "diagnose", folder / "script.py"
    path = prepare_diagnosis(str(diagnosis), "")
    file.write_text(TORCH + script)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": path}
    subprocess.run([sys.executable, str(file)], env=env, check=False, timeout=60)
    found = [json.loads(each.read_text())["size"] for each in diagnosis.glob("*.group")]
    return sorted(found, key=lambda size: -1 if size is None else size)


@pytest.mark.parametrize(
    ("script", "sizes"),
    [
        ("pass", [1]),
        ("init(4)", [4]),
        ("init(1)", [1]),
        ("init(4); destroy()", [0]),
        ("c10d._default_pg_init_method = 'env://'", [0]),
        ("del c10d._backend", [0]),
        ("sys.modules['mpi4py'] = sys", [0]),
        ("sys.modules['torch.distributed.rpc'] = types.SimpleNamespace(_init_counter=1)", [0]),
        ("c10d.get_world_size = None; c10d.size = 2", [None]),
        ("import os; os._exit(0)", [None]),
        ("import os; os.kill(os.getpid(), 9)", [None]),
        ("sys.exit(3)", [1]),
        ("del sys.modules['torch.distributed.distributed_c10d']", []),
    ],
)
def test_what_a_process_reports(tmp_path: Path, script: str, sizes: list[int | None]) -> None:
    """Only what is certain: a group that was destroyed, another library, or an end without a report is not."""
    assert sizes_of(tmp_path, script) == sizes


FORKS = """
import multiprocessing
def work():
    %s
if __name__ == "__main__":
    one = multiprocessing.get_context("%s").Process(target=work)
    one.start(); one.join()
"""


@pytest.mark.parametrize(
    ("work", "method", "sizes"),
    [
        ("init(8)", "fork", [1, 8]),
        ("init(8)", "spawn", [1, 8]),
        ("pass", "fork", [1]),  # a data loader's
        ("pass", "spawn", [1, 1]),
        ("c10d._backend = 'gloo'", "fork", [0, 1]),
    ],
)
def test_what_the_processes_below_it_report(tmp_path: Path, work: str, method: str, sizes: list[int]) -> None:
    """A rank may leave the training to a process that it starts, which multiprocessing ends by `os._exit`."""
    assert sizes_of(tmp_path, FORKS % (work, method)) == sizes


def test_the_processes_that_it_execs_report_too(tmp_path: Path) -> None:
    """A launcher of the job's: one without torch leaves nothing."""
    run = "    subprocess.run([sys.executable, '-c', code])"
    script = f"import subprocess\nfor code in ('pass', 'import os; os._exit(0)'):\n{run}"
    assert sizes_of(tmp_path, script) == [None, 1]
