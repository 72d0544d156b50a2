"""Jobs that start their own workers: what shows that these are told where they are."""

from __future__ import annotations

from typing import Any

import pytest
from ends import judge

from clusterctl.plans.launch.world_size_check import (
    describe_src_layout,
    describe_unaware,
    describe_world_event,
    list_scripts,
    render_unplanned,
)
from clusterctl.plans.runs.state import parse_state
from clusterctl.plans.runs.verdict import verdict_to_json
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.job.model import Job

SPAWN = """
import torch.distributed as dist, torch.multiprocessing as mp
def work(rank): dist.init_process_group("nccl", rank=rank, world_size=torch.cuda.device_count())
mp.spawn(work, nprocs=torch.cuda.device_count())
"""


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
    ],
)
def test_a_job_that_is_told_nothing_is_warned_of(keys: Any, nnodes: int, text: str, warned: bool) -> None:
    """By its words and its script, before anything is started."""
    told = describe_unaware(job(**keys), nnodes, {"train.py": text})
    assert told.startswith("CC-RUN-050: 2 nodes would start the same process") == warned
    assert bool(told) == warned


def test_without_a_script_nothing_is_claimed() -> None:
    """A program of the node may know anything."""
    assert describe_unaware(job(launcher="command", script=None, command=("nvidia-smi",)), 2, {}) == ""


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
    assert bool(describe_unaware(nested, 2, {})) == warned
    assert bool(describe_unaware(nested, 2, {"train.py": "rank = int(os.environ['RANK'])"})) == warned


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
    found = describe_src_layout(
        job(**{"launcher": "torchrun", "script": None, "module": "pkg.train", **keys}), paths
    )
    assert found.startswith("CC-RUN-052: module pkg") == warned
    assert bool(found) == warned


def test_shell_scripts_count_by_what_they_read() -> None:
    """An export of a name is no use of it."""
    runs = job(launcher="command", script=None, command=("./train.sh",))
    bare = "export MASTER_ADDR=localhost\ntorchrun --nproc-per-node 2 train.py\n"
    whole = "torchrun --nnodes $NNODES --node-rank $NODE_RANK train.py\n"
    assert describe_unaware(runs, 2, {"train.sh": bare})
    assert not describe_unaware(runs, 2, {"train.sh": whole})


def test_the_files_that_a_job_runs_are_found_in_its_words() -> None:
    """A script, a module, and whatever a command names that is part of the code."""
    code = {"train.py", "pkg/main.py", "train.sh", "README.md"}
    assert list_scripts(job(script="./train.py"), code) == ("train.py",)
    assert list_scripts(job(script=None, module="pkg.main"), code) == ("pkg/main.py",)
    command = job(launcher="command", script=None, command=("accelerate", "launch", "train.py"))
    assert list_scripts(command, code) == ("train.py",)
    assert list_scripts(job(script="/opt/train.py"), code) == ()


@pytest.mark.parametrize("seen", [None, "2", True, 2.0, [2]])
def test_an_event_that_makes_no_sense_says_nothing(seen: Any) -> None:
    """Nodes may send anything."""
    assert describe_world_event(Untrusted({"event": "world_size", "seen": seen, "planned": 4})) == ""


def test_another_world_size_is_a_warning_of_the_verdict() -> None:
    """The run has succeeded all the same; nodes of which nothing is known are not named."""
    seen = {"gpu01": 2, "gpu02": 2, "gpu03": 4, "gpu04": None}
    parts = {
        name: parse_state(
            Untrusted(
                {"run": "r", "state": "SUCCEEDED", "nnodes": 4, "node": name, "node_rank": rank}
                | {"world_size": 4, "world_size_seen": size}
            )
        )
        for rank, (name, size) in enumerate(seen.items())
    }
    verdict = judge("r", parts, [])
    assert verdict.state == "SUCCEEDED"
    assert verdict_to_json(verdict)["world_sizes"] == {"gpu01": 2, "gpu02": 2}
    (line,) = render_unplanned(verdict.world_sizes)
    assert line.startswith("gpu[01-02]: CC-RUN-051: workers run with WORLD_SIZE 2, planned is 4")
