"""When a worker is not forked: each reason from plain values."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from clusterctl.node.fork import worker
from clusterctl.node.fork.worker import Command

ENV = {"PATH": "/bin", "CLUSTERCTL_RUN": "a/b/1", "OMP_NUM_THREADS": "1"}
RANKS = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "MASTER_PORT": "1234",
    "TORCHELASTIC_RUN_ID": "x",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
}


def command(folder: Path, *words: str, **env: str) -> Command:
    """Make what torchrun starts for a script in a folder."""
    (folder / "train.py").write_text("")
    return Command([sys.executable, "-u", *(words or ("train.py",))], {**ENV, **RANKS, **env}, str(folder))


def reason(made: Command, *imported: str) -> str:
    """Give what is against forking it."""
    return worker.find_command_obstacle(made, ENV, frozenset(imported))


def test_what_torchrun_sets_for_each_worker_is_no_reason(tmp_path: Path) -> None:
    """Nor is a variable of the job that nothing reads when it is loaded."""
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "data").mkdir()

    assert reason(command(tmp_path, URL="tcp://10.0.0.1:1234"), "json", "data") == ""
    assert reason(command(tmp_path, "-m", "pkg.train", "--x"), "json") == ""


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"OMP_NUM_THREADS": "4"}, "OMP_NUM_THREADS"),
        ({"LD_PRELOAD": "/x.so"}, "LD_PRELOAD"),
        ({"TORCH_LOGS": "all"}, "TORCH_LOGS"),
        ({"PYTHONPATH": "/x"}, "PYTHONPATH"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "CUDA_VISIBLE_DEVICES"),
        ({"TZ": "UTC"}, "TZ"),
    ],
)
def test_a_variable_that_was_read_already(tmp_path: Path, env: dict[str, str], name: str) -> None:
    """It needs a new interpreter where it has another value than it had at the import, or is new."""
    assert reason(command(tmp_path, **env)) == f"{name} differs from its value when torch was imported"


def test_a_program_that_is_not_plain_python(tmp_path: Path) -> None:
    """Wrappers, other interpreters, other options, archives, and a script that is missing."""
    made = command(tmp_path)
    (tmp_path / "folder").mkdir()

    assert reason(made._replace(argv=["numactl", *made.argv])).startswith(
        "the workers are started by numactl"
    )
    assert reason(command(tmp_path, "-c", "pass")) == "the interpreter gets other options than -u"
    assert reason(command(tmp_path, "gone.py")) == "gone.py is no file that can be read"
    assert reason(command(tmp_path, "folder")) == "folder is no file that can be read"


@pytest.mark.parametrize("file", ["queue.py", "queue.cpython-311-x86_64-linux-gnu.so", "queue/__init__.py"])
def test_a_file_that_would_hide_an_imported_module(tmp_path: Path, file: str) -> None:
    """Beside the script lies what a new interpreter would import in the place of what is imported already."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")

    assert reason(command(tmp_path), "queue").startswith("queue in ")
    assert reason(command(tmp_path), "json") == ""


def test_auto_forks_only_what_was_compared() -> None:
    """`fork` takes untested versions as well."""
    tested = worker.TESTED_TORCH[0] + ".1+cu130"

    assert worker.find_untested_version("fork", "9.9.0") == ""
    assert worker.find_untested_version("auto", "9.9.0").startswith("torch 9.9.0 is not among")
    assert "torch" not in worker.find_untested_version("auto", tested)


def test_a_process_that_touched_cuda() -> None:
    """Its driver does not survive a fork."""
    torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True))

    assert worker.find_device(torch) == "CUDA is initialised"


@pytest.mark.parametrize("name", ["PYTHONDEVMODE", "OMP_PROC_BIND", "COVERAGE_PROCESS_START"])
def test_variables_that_change_the_start_of_an_interpreter(name: str) -> None:
    """Set, they need a new one; empty they count as not set."""
    assert worker.find_variables({name: "1"}) == f"{name} is set"
    assert worker.find_variables({name: "", "PYTHONPATH": "/a:/b"}) == ""


@pytest.mark.parametrize("path", ["src", "/a:", ":/a", "/a:./b"])
def test_a_search_path_that_depends_on_the_directory(path: str) -> None:
    """The gate begins in another one than the workers."""
    assert worker.find_variables({"PYTHONPATH": path}) != ""
