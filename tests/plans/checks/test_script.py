"""Jobs and their scripts: what shows that processes on several nodes find each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusterctl.plans.checks.framework import Finding, LocalFacts, Observations
from clusterctl.plans.checks.registry import evaluate
from clusterctl.plans.checks.script import find_unaware, list_scripts, mark_suspected
from clusterctl.plans.launch.script import JobCode
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job

SPAWN = """
import torch.distributed as dist, torch.multiprocessing as mp
def work(rank): dist.init_process_group("nccl", rank=rank, world_size=torch.cuda.device_count())
mp.spawn(work, nprocs=torch.cuda.device_count())
"""


def code(texts: dict[str, str], nnodes: int = 2) -> JobCode:
    """Make the code of a job, which consists of the files that it runs."""
    return JobCode(nnodes, frozenset(texts), texts)


def job(**keys: Any) -> Job:
    """Make a job of the launcher `python`."""
    return Job(**{"name": "a", "file": "job.yaml", "launcher": "python", "script": "train.py", **keys})


@pytest.mark.parametrize(
    ("keys", "nnodes", "text", "warned"),
    [
        ({}, 2, SPAWN, True),
        ({}, 1, SPAWN, False),  # one node needs no other
        ({"launcher": "torchrun"}, 2, SPAWN, False),  # torchrun tells its workers
        ({"args": ("--rank", "${node_rank}")}, 2, SPAWN, False),
        ({"env": {"WORLD_SIZE": "${nnodes}"}}, 2, SPAWN, False),
        ({"args": ("--out", "${output_dir}", "$${nnodes}")}, 2, SPAWN, True),
        ({}, 2, SPAWN + "node = int(os.environ['NODE_RANK'])", False),
        (
            {},
            2,
            SPAWN + "os.environ['MASTER_ADDR'] = 'localhost'",
            True,
        ),  # it sets the name, and reads nothing
        ({}, 2, SPAWN + "out = os.environ['CLUSTERCTL_OUTPUT_DIR']", True),
        ({}, 2, SPAWN + "import socket; name = socket.gethostname()", False),
        ({"alone": "ok"}, 2, SPAWN, False),
    ],
)
def test_a_job_that_is_told_nothing_is_warned_of(keys: Any, nnodes: int, text: str, warned: bool) -> None:
    """By its words and its script, before anything is started."""
    assert find_unaware(job(**keys), code({"train.py": text}, nnodes)) == (("train.py",) if warned else ())


def test_the_nodes_warn_at_the_end_too_of_what_was_not_waived() -> None:
    """The planned job says so; a finding that is waived changes nothing, and no other one does."""
    warning = Finding("CC-RUN-050", "warning", ("gpu01",), "", "", "", "")
    other, waived = replace(warning, code="CC-RUN-052"), replace(warning, waived="on purpose")

    assert mark_suspected(job(), [other, warning]) == job(alone="suspected")
    assert mark_suspected(job(), [other, waived]) == job()


def test_without_a_script_nothing_is_claimed() -> None:
    """A program of the node may know anything."""
    assert find_unaware(job(launcher="command", script=None, command=("nvidia-smi",)), code({})) == ()


@pytest.mark.parametrize(
    ("command", "warned"),
    [
        (("torchrun", "--nproc-per-node", "2", "train.py"), True),
        (("torchrun", "--nnodes", "${nnodes}", "--node-rank", "${node_rank}", "train.py"), False),
        (("python", "-m", "torch.distributed.run", "train.py"), True),
        (("/opt/bin/accelerate", "launch", "train.py"), True),
        (("bash", "-c", "torchrun --nnodes $NNODES train.py"), False),
        (("llamafactory-cli", "train", "sft.yaml"), False),
    ],
)
def test_a_launcher_of_the_command_must_be_given_the_nodes(command: tuple[str, ...], warned: bool) -> None:
    """What its script reads is what that launcher sets, on one node as on several."""
    nested = job(launcher="command", script=None, command=command)
    assert bool(find_unaware(nested, code({}))) == warned
    assert bool(find_unaware(nested, code({"train.py": "rank = int(os.environ['RANK'])"}))) == warned


@pytest.mark.parametrize(
    ("keys", "paths", "warned"),
    [
        ({}, {"src/pkg/train.py"}, True),
        ({"module": "pkg"}, {"src/pkg/__main__.py"}, True),
        ({"env": {"PYTHONPATH": "src"}}, {"src/pkg/train.py"}, False),
        ({}, {"pkg/train.py", "src/pkg/train.py"}, False),
        ({}, {"README.md"}, False),  # it may be installed
    ],
)
def test_a_module_below_src_is_found_before_the_start(keys: Any, paths: set[str], warned: bool) -> None:
    """Python looks in the code's own folder only."""
    runs = job(**{"launcher": "torchrun", "script": None, "module": "pkg.train", **keys})
    nodes = (Node(name="gpu1", index=0, host="10.0.0.1"),)
    observed = Observations({}, {}, local_facts=LocalFacts(code=JobCode(1, paths)))
    assert [finding.code for finding in evaluate(nodes, observed, runs)] == ["CC-RUN-052"] * warned


def test_shell_scripts_count_by_what_they_read() -> None:
    """An export of a name is no use of it."""
    runs = job(launcher="command", script=None, command=("./train.sh",))
    bare = "export MASTER_ADDR=localhost\ntorchrun --nproc-per-node 2 train.py\n"
    whole = "torchrun --nnodes $NNODES --node-rank $NODE_RANK train.py\n"
    assert find_unaware(runs, code({"train.sh": bare}))
    assert not find_unaware(runs, code({"train.sh": whole}))


def test_the_files_that_a_job_runs_are_found_in_its_words() -> None:
    """A script, a module, and whatever a command names that is part of the code."""
    code = {"train.py", "pkg/main.py", "train.sh", "README.md"}
    assert list_scripts(job(script="./train.py"), code) == ("train.py",)
    assert list_scripts(job(script=None, module="pkg.main"), code) == ("pkg/main.py",)
    command = job(launcher="command", script=None, command=("accelerate", "launch", "train.py"))
    assert list_scripts(command, code) == ("train.py",)
    assert list_scripts(job(script="/opt/train.py"), code) == ()
