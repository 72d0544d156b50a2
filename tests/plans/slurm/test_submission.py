"""What is asked of Slurm, and what the tasks get, as plain values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from exporting import option_lines

from clusterctl.errors import SpecError, UsageError
from clusterctl.plans.export.shell import Export
from clusterctl.plans.export.slurm import render_slurm
from clusterctl.plans.slurm.submission import (
    SlurmNodes,
    choose_named_nodes,
    choose_script_nodes,
    choose_slurm_nodes,
    plan_check,
    plan_check_job,
    plan_options,
    plan_slurm_time,
    plan_submission,
    plan_time_limit,
    refuse_unsupported,
    render_script,
)
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.model import Inventory, Login, Slurm, Ssh
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.model import Job
from clusterctl.specs.job.parse import parse_job

RUN = RunId("j-20261123T070000-abcd")
INVENTORY = """
cluster: uni
ssh: {user: me}
python: ~/torch/bin/python
network: 10.20.0.0/16
slurm:
  login: {host: login01.uni.example, name: login, ssh: {port: 2222}}
  partition: gpu,gpu2
  account: cs-ml
  gpus_per_node: 8
  time: 2h
  workdir: /scratch/me/.clusterctl
  extra: [--constraint=a100, --comment=a b]
"""


def slurm_of(**keys: Any) -> Slurm:
    """Return a Slurm cluster with these keys."""
    return Slurm(login=Login(host="login"), **keys)


def make_inventory(text: str = INVENTORY) -> Inventory:
    """Read an inventory of a Slurm cluster."""
    return parse_inventory(text, "hpc.yaml")


def make_job(text: str) -> Job:
    """Read a job with these keys."""
    return parse_job(f"{{name: j, script: t.py, {text}}}", "job.yaml")


def options_of(job: str, slurm: Slurm | None = None, nodes: SlurmNodes | None = None) -> list[str]:
    """Return the options of sbatch for a job."""
    parsed = make_job(job)
    chosen = nodes or choose_slurm_nodes(parsed, None, None)
    return plan_options(parsed, slurm or make_inventory().slurm or slurm_of(), chosen, RUN)


def test_an_inventory_names_a_login_node() -> None:
    """The keys of the file hold for every node, the login node's own for its connection."""
    inventory = make_inventory()

    (login,) = inventory.nodes
    assert (login.name, login.host, login.ssh.user, login.ssh.port) == (
        "login",
        "login01.uni.example",
        "me",
        2222,
    )
    assert (login.workdir, login.network, login.gpus) == ("/scratch/me/.clusterctl", "10.20.0.0/16", 8)
    assert login.allocation is not None and login.allocation.job == ""
    assert inventory.slurm == Slurm(
        login=Login(host="login01.uni.example", name="login", ssh=Ssh(port=2222)),
        workdir="/scratch/me/.clusterctl",
        partition="gpu,gpu2",
        account="cs-ml",
        gpus_per_node=8,
        time=7200.0,
        extra=("--constraint=a100", "--comment=a b"),
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("cluster: a", "CC-SPEC-011"),
        ("{cluster: a, nodes: [{host: b}], slurm: {login: {host: c}}}", "CC-SLURM-002"),
        ("{cluster: a, slurm: {partition: p}}", "CC-SPEC-011"),
        ("{cluster: a, slurm: {login: {host: c}, partition: 'a b'}}", "CC-SLURM-002"),
        ("{cluster: a, slurm: {login: {host: c}, extra: [constraint=a]}}", "CC-SLURM-002"),
        ("{cluster: a, slurm: {login: {host: c}, extra: [--wrap=x]}}", "CC-SLURM-002"),
        ("{cluster: a, slurm: {login: {host: c, ssh: {jump: a, proxy_command: b}}}}", "CC-SPEC-013"),
    ],
)
def test_a_wrong_inventory_is_refused(text: str, code: str) -> None:
    """With a code, at its place in the file."""
    with pytest.raises(SpecError) as caught:
        make_inventory(text)
    assert [issue.code for issue in caught.value.issues] == [code]


def script_of(job: str, *choice: str | None) -> list[str]:
    """Return the options of sbatch in a script for the cluster."""
    inventory, parsed = make_inventory(), make_job(job)
    assert inventory.slurm is not None
    nodes = choose_script_nodes(parsed, inventory.slurm, inventory.nodes[0], *choice)
    text = render_slurm(Export(parsed, nodes, file="job.sbatch")).text
    assert "torch/bin/python" in text and "network=10.20.0.0/16" in text
    return option_lines(text)


def test_a_script_for_the_cluster_has_its_options() -> None:
    """Partition, account and the rest come from the inventory, as at a launch; a number of nodes, or names."""
    cluster = ["--partition=gpu,gpu2", "--account=cs-ml"]
    rest = ["'--comment=a b'", "--no-requeue", "--open-mode=append", "--output=%x-%j.out"]
    whole = ["--ntasks-per-node=1", "--gpus-per-node=8", "--exclusive", "--mem=0"]
    assert script_of("nodes: 4", None, None) == [
        *("--job-name=j", "--nodes=4", *whole, *cluster, "--time=02:00:00", "--constraint=a100", *rest),
    ]
    assert script_of("time_limit: 1h, restart: {max: 1, spares: 1}", "n[1-3]", "n2") == [
        *("--job-name=j", "--nodes=2", *whole, "--time=01:00:00", *cluster, "--constraint=a100"),
        *(rest[0], "--nodelist=n[1,3]", "--requeue", *rest[2:]),
    ]
    with pytest.raises(UsageError, match="all"):
        script_of("nodes: all", None, None)


def test_options_ask_for_what_the_job_needs() -> None:
    """Whole nodes for all GPUs of a node, else one CPU for each worker."""
    assert options_of("nodes: 4, time_limit: 30m, nproc_per_node: gpu") == [
        f"--job-name={RUN}",
        "--nodes=4",
        "--ntasks-per-node=1",
        "--partition=gpu,gpu2",
        "--account=cs-ml",
        "--gpus-per-node=8",
        "--exclusive",
        "--mem=0",
        "--time=00:37:00",
        "--no-requeue",
        "--open-mode=append",
        "--constraint=a100",
        "--comment=a b",
    ]
    small = options_of("nodes: 2, nproc_per_node: 2, backend: gloo", slurm_of())
    assert small[3:] == ["--cpus-per-task=2", "--no-requeue", "--open-mode=append"]


def test_spares_are_nodes_of_the_allocation() -> None:
    """And a lost node does not end it."""
    options = options_of("nodes: 2, nproc_per_node: 1, restart: {max: 2, spares: 1}")
    assert {"--nodes=3", "--no-kill"} <= set(options)
    assert "--no-kill --output" in render_script(
        make_job("nodes: 2, restart: {max: 1}"), make_inventory().nodes[0]
    )


def test_slurm_may_start_a_job_again_that_survives_a_lost_node() -> None:
    """Then its script outlives the warning of a GraceTime, or Slurm would take the job for ended."""
    login = make_inventory().nodes[0]
    for text, option in [
        ("restart: {max: 2}", "--requeue"),
        ("restart: {max: 2, on: [network]}", "--no-requeue"),
        ("nodes: 2", "--no-requeue"),
    ]:
        job = f"nodes: 2, nproc_per_node: 1, {text}" if "restart" in text else "nodes: 2, nproc_per_node: 1"
        assert option in options_of(job)
        assert ("sleep 300" in render_script(make_job(job), login)) == (option == "--requeue")


def test_a_check_asks_for_the_nodes_of_the_job_for_a_few_minutes() -> None:
    """Without a job for all GPUs of one node."""
    job = make_job(
        "nodes: 2, nproc_per_node: 1, time_limit: 10h, setup: {run: [echo]}, restart: {max: 1, spares: 1}"
    )
    options = plan_options(plan_check_job(job, slurm_of()), slurm_of(), SlurmNodes(3), RUN)
    assert {"--nodes=3", "--time=00:06:00", "--no-requeue"} <= set(options)
    alone = plan_options(
        plan_check_job(None, slurm_of(gpus_per_node=4)), slurm_of(gpus_per_node=4), SlurmNodes(1), RUN
    )
    assert {"--nodes=1", "--gpus-per-node=4", "--time=00:06:00"} <= set(alone)
    assert choose_named_nodes("gpu[01-03]", "gpu02").names == ("gpu01", "gpu03")
    assert choose_named_nodes("3", None) == SlurmNodes(3)
    assert choose_slurm_nodes(make_job("nodes: 2"), "3", "gpu02") == SlurmNodes(3, excluded=("gpu02",))
    assert choose_named_nodes(None, "gpu02") == SlurmNodes(1, excluded=("gpu02",))


def test_names_become_a_node_list() -> None:
    """Ranges are kept short."""
    job = make_job("nodes: 'gpu[01-04],big1'")
    nodes = choose_slurm_nodes(job, None, "gpu02")
    assert (nodes.count, nodes.excluded) == (4, ())
    options = options_of("nodes: 'gpu[01-04],big1'", nodes=nodes)
    assert "--nodelist=gpu[01,03-04],big1" in options
    assert choose_slurm_nodes(job, "a1", None).names == ("a1",)


@pytest.mark.parametrize("nodes", ["all", "'gpu*'", "0-3", "'gpu[1-99999]'"])
def test_nodes_that_slurm_cannot_be_given(nodes: str) -> None:
    """Nobody here knows which nodes there are."""
    with pytest.raises(UsageError) as caught:
        choose_slurm_nodes(make_job(f"nodes: {nodes}"), None, None)
    assert caught.value.code == "CC-SLURM-001"


@pytest.mark.parametrize(
    ("job", "slurm"),
    [
        ("gpus: [0]", slurm_of(gpus_per_node=1)),
        ("nproc_per_node: gpu", slurm_of()),
    ],
)
def test_what_cannot_be_done_is_refused(job: str, slurm: Slurm) -> None:
    """Before anything is sent."""
    with pytest.raises(UsageError) as caught:
        refuse_unsupported(make_job(job), slurm)
    assert caught.value.code == "CC-SLURM-001"


def test_our_time_limit_ends_the_run_before_slurms() -> None:
    """Whichever of the two the user has set."""
    limited, free, slurm = make_job("time_limit: 10h"), make_job("nodes: 1"), slurm_of(time=7200.0)
    for job in (limited, free):
        ours, slurms = plan_time_limit(job, slurm), plan_slurm_time(job, slurm)
        assert ours is not None and slurms is not None and ours < slurms == 7200.0
    assert plan_time_limit(limited, slurm_of()) == 36000.0 < (plan_slurm_time(limited, slurm_of()) or 0.0)
    assert plan_time_limit(free, slurm_of()) is plan_slurm_time(free, slurm_of()) is None


def test_a_script_has_a_file_for_each_task_and_ends_no_other() -> None:
    """srun waits for all who hold a shared file, and its exit code is that of a task that it killed."""
    script = render_script(make_job('activate: "module load cuda"'), make_inventory().nodes[0])

    assert script.startswith("#!/bin/bash\n")
    assert "--kill-on-bad-exit=0 --wait=0" in script and '--output="$folder/task.%t.out"' in script
    assert "bash -l -c 'module load cuda\n" in script
    assert '"$HOME"/torch/bin/python $i -S' in script


def test_a_template_has_no_secret_and_holes_for_what_a_node_knows() -> None:
    """Slurm keeps and shows the script; the template is in a folder that is shared."""
    inventory = make_inventory()
    job = make_job(
        "nodes: 3, nproc_per_node: gpu, secrets: [KEY], env: {A: '${world_size}'}, args: ['${node_rank}']"
    )
    assert inventory.slurm is not None
    template = plan_submission(
        job,
        inventory.slurm,
        inventory.nodes[0],
        choose_slurm_nodes(job, None, None),
        RUN,
        {},
        plan_check(job, inventory.nodes[0], (), (), "clusterctl", None),
    ).template
    spec = template["spec"]
    assert "KEY" not in json.dumps(template["check"])

    assert (template["workers"], template["network"]) == ("gpu", "10.20.0.0/16")
    assert (spec["nnodes"], spec["run"], spec["time_limit"]) == (
        3,
        RUN,
        plan_time_limit(job, inventory.slurm),
    )
    assert spec["env"]["A"] == [{"fill": "world_size"}]
    assert spec["env"]["NCCL_SOCKET_IFNAME"] == ["=", {"fill": "nics"}]
    assert spec["env"]["TP_SOCKET_IFNAME"] == [{"fill": "nic"}]
    argv = json.dumps(spec["argv"])
    assert all(
        f'{{"fill": "{name}"}}' in argv for name in ("workers", "master_addr", "master_port", "node_rank")
    )
    assert "restart" not in spec and "roster" not in spec
    assert "nodes" not in spec and "node_ports" not in spec  # names of nodes that are none


def test_a_check_does_not_get_what_may_be_secret_in_a_url() -> None:
    """It is in a file of the shared directory as long as the run is kept."""
    text = "name: j\nscript: a.py\nstage:\n- from: https://host/f.tar?signature=hidden\n"
    check = plan_check(parse_job(text, "job.yaml"), make_inventory().nodes[0], (), (), "clusterctl", None)
    assert "https://host/f.tar" in json.dumps(check)
    assert "hidden" not in json.dumps(check)
