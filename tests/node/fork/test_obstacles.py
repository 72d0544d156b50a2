"""When a worker is not forked: each reason from plain values."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

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


@pytest.mark.parametrize("part", worker.NEEDED_PARTS)
def test_a_python_without_what_a_fork_needs(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """The part is named; where all are there, no version is a reason."""
    assert worker.find_missing_part() == ""
    module, _, path = part.partition(":")
    monkeypatch.delattr(f"{module}.{path}")

    assert worker.find_missing_part() == f"{module} has no {path}"


def test_a_python_that_passes_other_values_to_the_start_of_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter that is read has another name there."""
    monkeypatch.setattr(worker, "CHILD_PARAMETERS", (*worker.CHILD_PARAMETERS, "c2pwrite_new"))

    assert worker.find_missing_part() == "subprocess.Popen._execute_child has no parameter c2pwrite_new"


def handler_module(name: str, source: str) -> ModuleType:
    """Make a module of torch that starts workers."""
    module = ModuleType(name)
    exec(source, vars(module))
    return module


CALLING = "class SubprocessHandler:\n    def _popen(self): return {call}(args=())"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("from subprocess import Popen\n" + CALLING.format(call="Popen"), ""),
        (CALLING.format(call="Popen"), "NAME has no Popen"),
        ("import subprocess\n" + CALLING.format(call="subprocess.Popen"), "NAME has no Popen"),
        ("Popen = print\n" + CALLING.format(call="Popen"), "NAME has no Popen"),
        ("from subprocess import Popen", "NAME.SubprocessHandler does not call Popen"),
        (
            "from subprocess import Popen\n" + CALLING.format(call="start"),
            "NAME.SubprocessHandler does not call Popen",
        ),
    ],
)
def test_a_torch_that_starts_its_workers_otherwise(source: str, reason: str) -> None:
    """The name that is replaced must be there, and be what torchrun calls."""
    found = worker.find_handler_obstacle(handler_module("handler", source))

    assert found == reason.replace("NAME", worker.HANDLER_MODULE)


def test_a_torch_without_the_module_that_starts_workers() -> None:
    """Before 2.3 there was none."""
    assert worker.find_handler_obstacle(None) == f"torch has no {worker.HANDLER_MODULE}"


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
