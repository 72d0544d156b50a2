"""The launch plan: the exact strings each node will run, from inventory, job and measured facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusterctl.errors import UsageError
from clusterctl.plans.launch.agent_spec import render_spec
from clusterctl.plans.launch.placement import plan_placement
from clusterctl.plans.launch.plan import (
    LaunchPlan,
    PlanFacts,
    check_measured,
    offline,
    plan_launch,
    render_plan,
)
from clusterctl.plans.launch.template import render_template
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.parse import parse_job

INVENTORY = parse_inventory(
    """
cluster: lab-a
ports: 20000-20100
nodes:
  - {host: 192.168.10.235, name: gpu01, nic: [meth919, meth920], gpus: 4}
  - {host: 192.168.10.236, name: gpu02, nic: [meth917, meth918], gpus: 2}
  - {host: gpu03.example, name: gpu03}
""",
    "inventory.yaml",
)


def make_plan(
    job: str, *, pattern: str | None = None, measured: bool = True, run_id: str | None = "r-1"
) -> LaunchPlan:
    """Plan a job over INVENTORY."""
    parsed = parse_job(job, "job.yaml")
    members = plan_placement(INVENTORY, parsed, pattern=pattern)
    known = {
        member.name: PlanFacts(f"10.0.0.{member.node_rank + 1}", ("eth9",), 8, 16, "/opt/py")
        for member in members
    }
    return plan_launch(
        parsed, members, known if measured else {m.name: offline(m) for m in members}, run_id=run_id
    )


def words(plan: LaunchPlan, rank: int = 0) -> list[str]:
    """Give a node's torchrun words with holes shown."""

    return [render_template(word) for word in plan.nodes[rank].argv]


def test_every_node_gets_its_own_rank_and_the_first_nodes_address() -> None:
    """node_rank follows the inventory; all name node 0 as master and share one rdzv_id."""
    plan = make_plan("{name: j, script: t.py, nproc_per_node: 2}")

    for rank in range(3):
        argv = words(plan, rank)
        assert argv[argv.index("--node-rank") + 1] == str(rank)
        assert argv[argv.index("--master-addr") + 1] == "10.0.0.1"
        assert argv[argv.index("--rdzv-id") + 1] == "r-1"
        assert argv[-1] == "t.py"
    assert plan.world_size == 6


def test_torchrun_never_restarts_or_tees_and_logs_into_the_attempt() -> None:
    """The flags whose defaults do harm are given."""
    argv = words(make_plan("{name: j, script: t.py, nproc_per_node: 1}"))

    pairs = dict(zip(argv[::2], argv[1::2], strict=False))
    assert pairs["--max-restarts"] == "0"
    assert pairs["--rdzv-backend"] == "static"
    assert pairs["--redirects"] == "3"
    assert pairs["--log-dir"] == "<run_dir>/attempt-1"
    assert pairs["--master-port"] == "<port@node0>"


def test_each_node_exports_its_own_nics_in_both_grammars() -> None:
    """NCCL takes `=` for exact names, Gloo takes plain names."""
    plan = make_plan("{name: j, script: t.py, nproc_per_node: 1}", measured=False)
    text = render_plan(plan)

    assert "export NCCL_SOCKET_IFNAME='=meth919,meth920'" in text
    assert "export GLOO_SOCKET_IFNAME=meth917,meth918" in text
    assert "export GLOO_IFACE=meth917,meth918" in text
    assert "<nic@gpu03>" in text


def test_one_node_is_one_node() -> None:
    """The head of the plan counts with the right noun."""
    job = "{name: j, script: t.py, nproc_per_node: 1}"

    assert render_plan(make_plan(job, pattern="0")).startswith("# j: 1 node, world size 1\n")
    assert render_plan(make_plan(job)).startswith("# j: 3 nodes, world size 3\n")


def test_the_inventorys_gpus_beat_the_count_found_and_unequal_counts_add_up() -> None:
    """`nproc_per_node: gpu` is per node."""
    plan = make_plan("{name: j, script: t.py}")

    assert [node.nproc_per_node for node in plan.nodes] == [4, 2, 8]
    assert plan.world_size == 14


def test_what_is_not_known_offline_shows_as_a_hole_and_names_itself() -> None:
    """A dry run needs no node; what only a node knows is visible as such."""
    plan = make_plan("{name: j, script: t.py}", measured=False, run_id=None)

    assert plan.world_size is None
    assert "--nproc-per-node <gpus@gpu03>" in render_plan(plan)
    assert plan.nodes[2].unmeasured == (
        "gpus@gpu03",
        "run_id",
        "nic@gpu03",
        "nic@gpu03",
        "nic@gpu03",
        "nic@gpu03",
    )


def test_placeholders_reach_args_and_env() -> None:
    """Every placeholder has its node's value; the port is left for the agent."""
    plan = make_plan(
        "name: j\nscript: t.py\nnproc_per_node: 2\n"
        "args: ['tcp://${master_addr}:${master_port}', '${node_rank}/${nnodes}', '${world_size}', '${run_id}']\n"
        "env: {OUT: '${output_dir}/x', LITERAL: '$${node_rank}'}\n"
    )
    spec = render_spec(plan, plan.nodes[1], {})

    assert spec["argv"][-4:] == [["tcp://10.0.0.1:", {"fill": "master_port"}], "1/3", "6", "r-1"]
    assert spec["env"]["OUT"] == [{"fill": "output_dir"}, "/x"]
    assert spec["env"]["LITERAL"] == "${node_rank}"
    assert spec["ports"] == [20000, 20100]
    assert spec["node_ports"] == [
        {"slot": rank, "address": node.ip, "ports": [22, 20000]} for rank, node in enumerate(plan.nodes)
    ]


def test_checkpoints_are_in_the_spec_and_the_script_gets_the_one_to_resume_from() -> None:
    """The directories are the node's; which checkpoint it is, only an agent can know; without the key it is empty."""
    job = "name: j\nscript: t.py\nnproc_per_node: 2\nrestart: {}\nargs: ['--resume=${resume}']\n"
    wanted = "{path: '${output_dir}/${run_id}/step-*', complete: .metadata, copies: all, rate: 2MB/s}"
    plan = make_plan(f"{job}checkpoints: {wanted}")
    spec = render_spec(plan, plan.nodes[1], {})

    assert spec["checkpoints"] == {
        "path": [{"fill": "output_dir"}, "/r-1/step-*"],
        "complete": ".metadata",
        "copies": 0,
        "keep": 2,
        "rate": 2e6,
        "needs": "all",
    }
    assert spec["argv"][-1] == ["--resume=", {"fill": "resume"}]
    plain = make_plan(job)
    assert render_spec(plain, plain.nodes[1], {})["argv"][-1] == "--resume="
    assert "checkpoints" not in render_spec(plain, plain.nodes[1], {})


@pytest.mark.parametrize(("grace", "reported"), [("30s", None), ("2m", "120")])
def test_torchrun_learns_of_a_grace_longer_than_its_own(grace: str, reported: str | None) -> None:
    """torchrun kills its workers 30 s after TERM; a job that needs longer reports it through its environment."""
    plan = make_plan(f"{{name: j, script: t.py, nproc_per_node: 1, grace: {grace}}}")

    assert render_spec(plan, plan.nodes[0], {})["env"].get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT") == reported


def test_torch_distributed_launch_is_called_as_torchrun_is() -> None:
    """The same flags; without use_env torch adds --local-rank itself, with it the flag reports not to."""
    plain, with_env = (
        make_plan(f"{{name: j, script: t.py, nproc_per_node: 1, launcher: launch{more}}}")
        for more in ("", ", use_env: true")
    )
    torchrun = make_plan("{name: j, script: t.py, nproc_per_node: 1}")

    assert words(plain, 1) == words(torchrun, 1)
    assert [word for word in words(with_env) if word not in words(plain)] == ["--use-env"]
    assert words(with_env)[-3:] == ["--use-env", "--", "t.py"], "before the script"
    assert render_spec(plain, plain.nodes[0], {})["module"] == "torch.distributed.launch"
    assert "/opt/py -m torch.distributed.launch --nnodes 3" in render_plan(plain)


def test_the_older_spelling_of_local_rank_is_an_argument() -> None:
    """What torch before 2.0 passed is written into args, where torchrun fills the number in."""
    job = "{name: j, script: t.py, nproc_per_node: 1, args: ['--local_rank=${local_rank}']}"

    assert words(make_plan(job))[-1] == "--local_rank=${local_rank}"


def test_one_process_per_node_gets_what_it_needs_to_find_the_others() -> None:
    """Placeholders in its arguments, the well-known variables in its environment, the NICs' as ever."""
    plan = make_plan(
        "name: j\nscript: t.py\nlauncher: python\nnproc_per_node: 2\n"
        "args: ['tcp://${master_addr}:${master_port}', '--rank', '${node_rank}', '$x']\n"
    )
    spec = render_spec(plan, plan.nodes[1], {})

    assert spec["argv"] == [
        "/opt/py",
        "t.py",
        ["tcp://10.0.0.1:", {"fill": "master_port"}],
        "--rank",
        "1",
        "$x",
    ]
    assert (spec["module"], spec["processes"], spec["nproc"], spec["world_size"]) == (None, 1, 2, 6)
    wanted = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": [{"fill": "master_port"}]}
    wanted |= {"NODE_RANK": "1", "NNODES": "3", "NPROC_PER_NODE": "2", "GLOO_SOCKET_IFNAME": "eth9"}
    assert {key: spec["env"][key] for key in wanted} == wanted


def test_a_module_and_a_command_as_one_process() -> None:
    """A command is taken word for word; what stands behind `--` on the command line is added."""
    module = make_plan("{name: j, module: p.t, args: [x], launcher: python, nproc_per_node: 1}")
    command = make_plan(
        "name: j\nlauncher: command\ncommand: [./go.sh, 'a b', '${nnodes}:${world_size}', '$$HOME']\n"
        "args: [x]\nnproc_per_node: 2"
    )

    assert words(module) == ["/opt/py", "-m", "p.t", "x"]
    assert words(command) == ["./go.sh", "a b", "3:6", "$$HOME", "x"]
    assert "export MASTER_PORT=<port@node0>" in render_plan(command)
    assert "\n./go.sh 'a b' 3:6 '$$HOME' x\n" in render_plan(command)


def test_chosen_gpus_are_shown_to_the_job_and_counted() -> None:
    """`gpus` sets what CUDA shows, in nvidia-smi's order, and gives one worker to each."""
    plan = make_plan("{name: j, script: t.py, gpus: [1, 3]}")
    env = render_spec(plan, plan.nodes[0], {})["env"]

    assert [node.nproc_per_node for node in plan.nodes] == [2, 2, 2]
    assert (env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"]) == ("1,3", "PCI_BUS_ID")
    every = make_plan("{name: j, script: t.py}")
    assert "CUDA_VISIBLE_DEVICES" not in every.nodes[0].env


@pytest.mark.parametrize(
    ("value", "nproc"), [("0,2,5", [3, 3, 3]), ("'-1'", [0, 0, 0]), ("'${node_rank}'", [4, 2, 8])]
)
def test_a_users_own_choice_of_gpus_wins(value: str, nproc: list[int]) -> None:
    """It is reported, and its entries are counted, unless a placeholder hides them."""
    plan = make_plan(
        f"{{name: j, script: t.py, env: {{CUDA_VISIBLE_DEVICES: {value!s}}}}}".replace("0,2,5", "'0,2,5'")
    )

    assert [node.nproc_per_node for node in plan.nodes] == nproc
    assert plan.overridden == ("CUDA_VISIBLE_DEVICES",)


def test_a_users_own_nic_variable_wins_and_is_reported() -> None:
    """What the job sets is used; the launch reports it."""
    plan = make_plan("{name: j, script: t.py, nproc_per_node: 1, env: {GLOO_SOCKET_IFNAME: eth5}}")

    assert render_spec(plan, plan.nodes[0], {})["env"]["GLOO_SOCKET_IFNAME"] == "eth5"
    assert plan.overridden == ("GLOO_SOCKET_IFNAME",)


@pytest.mark.parametrize(
    ("nodes", "pattern", "chosen"),
    [
        ("all", None, ["gpu01", "gpu02", "gpu03"]),
        ("2", None, ["gpu01", "gpu02"]),
        ("gpu[02-03]", None, ["gpu02", "gpu03"]),
        ("2", "2", ["gpu03"]),
    ],
)
def test_nodes_are_chosen_by_the_job_unless_the_command_line_has_others(
    nodes: str, pattern: str | None, chosen: list[str]
) -> None:
    """A count takes the first nodes, a pattern names them; ranks are given again from 0."""
    plan = make_plan(f"{{name: j, script: t.py, nproc_per_node: 1, nodes: '{nodes}'}}", pattern=pattern)

    assert [node.name for node in plan.nodes] == chosen
    assert [node.member.node_rank for node in plan.nodes] == list(range(len(chosen)))


def test_more_nodes_than_there_are_is_an_error() -> None:
    """The message reports how many can be used."""
    with pytest.raises(UsageError, match="needs 4 nodes, 3 are available"):
        make_plan("{name: j, script: t.py, nodes: 4}")


def test_the_lines_to_type_begin_with_what_activates_the_environment() -> None:
    """Without it a person who pastes them would run another Python than the job does."""
    lines = render_plan(
        make_plan("{name: j, script: t.py, activate: module load cuda, nproc_per_node: 1}")
    ).split("\n")

    assert [lines[place + 1] for place, line in enumerate(lines) if line.startswith("# node")] == [
        "module load cuda"
    ] * 3


# ---- restarts ----

AGAIN = (
    "name: j\nscript: t.py\nnproc_per_node: 1\nnodes: 2\nrestart: {spares: 1, on: [node_lost, gpu], max: 5}\n"
    "args: ['${node_rank} of ${nnodes} at ${master_addr}, try ${attempt}']\n"
)


def test_a_run_that_may_start_again_leaves_to_the_agents_what_another_attempt_changes() -> None:
    """Ranks, the master's address and the attempt's number are holes; a dry run shows them as they are at first."""
    plan = make_plan(AGAIN)
    spec, spare = (render_spec(plan, node, {}) for node in (plan.nodes[1], plan.spares[0]))

    node_rank, address, attempt = ({"fill": name} for name in ("node_rank", "master_addr", "attempt"))
    assert spec["argv"][-1] == [node_rank, " of 2 at ", address, ", try ", attempt]
    assert spec["argv"][spec["argv"].index("--log-dir") + 1] == [{"fill": "run_dir"}, "/attempt-", attempt]
    assert spec["argv"][spec["argv"].index("--node-rank") + 1] == [node_rank]
    assert (spec["slot"], spec["slots"], spec["spare"], spec["world_size"]) == (1, 3, False, 2)
    assert (spare["slot"], spare["node_rank"], spare["spare"], spare["nnodes"]) == (2, 2, True, 2)
    assert spare["argv"] == spec["argv"]
    assert [(one["node"], one["node_rank"]) for one in spec["roster"]] == [
        ("gpu01", 0),
        ("gpu02", 1),
        ("gpu03", None),
    ]
    assert (spec["restart"]["max"], spec["restart"]["on"]) == (5, ["node_lost", "gpu"])
    assert words(plan, 1)[-1] == "1 of 2 at 10.0.0.1, try 1"
    shown = render_plan(plan)
    assert "# j: 2 nodes, world size 2, 1 spare\n" in shown
    assert "# spare: gpu03, 10.0.0.3" in shown
    assert "--node-rank '<node_rank>'" not in shown
    assert "--node-rank <node_rank>" in shown


def test_a_run_that_does_not_start_again_is_rendered_as_before() -> None:
    """No hole and no key more than it needs; `${attempt}` is 1."""
    plan = make_plan("{name: j, script: t.py, nproc_per_node: 1, args: ['${attempt}']}")
    spec = render_spec(plan, plan.nodes[1], {})

    assert spec["argv"][-1] == "1"
    assert spec["argv"][spec["argv"].index("--log-dir") + 1] == [{"fill": "run_dir"}, "/attempt-1"]
    assert not {"slot", "slots", "spare", "roster", "restart"} & set(spec)


def test_spares_start_as_many_workers_as_the_others() -> None:
    """With GPUs by the node's number they differ here: 4, 2 and 8."""
    with pytest.raises(UsageError) as error:
        make_plan(AGAIN.replace("nproc_per_node: 1", "nproc_per_node: gpu"))

    assert error.value.code == "CC-USE-033"
    assert "gpu01 would start 4" in error.value.evidence


def test_ray_starts_on_every_node_and_the_program_on_node_0() -> None:
    """Node 0's Ray has the port that is held for it; the program's words are the same everywhere, for a restart."""
    plan = make_plan(
        "{name: j, launcher: ray, command: [bash, go.sh], args: ['${nnodes}'], nproc_per_node: 2}"
    )
    text = render_plan(plan)
    spec = [render_spec(plan, node, {}) for node in plan.nodes]  # type: ignore[typeddict-item]  # who launched it

    assert "ray start --head --node-ip-address 10.0.0.1 --port <port@node0> --block &\nbash go.sh 3\n" in text
    assert "ray start --address 10.0.0.1:<port@node0> --node-ip-address 10.0.0.3 --block\n" in text
    assert text.count("bash go.sh") == 1
    assert "MASTER_ADDR" not in text
    assert [each["argv"] for each in spec] == [["bash", "go.sh", "3"]] * 3
    assert {each["ends_with"] for each in spec} == {"node 0"}
    assert spec[1]["ray"] == {
        "gpus": 2,
        "all_gpus": 6,
        "ports": [20000, 20100],
        "own_ports": 10,
        "names": {"10.0.0.1": "gpu01", "10.0.0.2": "gpu02", "10.0.0.3": "gpu03"},
    }


def test_a_spare_is_not_missed_in_ray() -> None:
    """Nor is it counted, before it takes the place of a node."""
    plan = make_plan(
        "{name: j, launcher: ray, script: t.py, nproc_per_node: 2, nodes: 2, restart: {spares: 1}}"
    )

    ray = render_spec(plan, plan.nodes[0], {})["ray"]  # type: ignore[typeddict-item]  # who launched it
    assert ray["names"] == {"10.0.0.1": "gpu01", "10.0.0.2": "gpu02"}


def test_ray_gets_no_gpus_that_the_run_does_not_take() -> None:
    """On CPUs none, also on nodes that have some."""
    plan = make_plan("{name: j, launcher: ray, script: t.py, nproc_per_node: 2, backend: gloo}")

    ray = render_spec(plan, plan.nodes[0], {})["ray"]  # type: ignore[typeddict-item]  # who launched it
    assert (ray["gpus"], ray["all_gpus"]) == (0, 0)


def test_under_mpirun_every_node_has_its_own_words_and_all_the_slots() -> None:
    """The Python of each node; torchrun's variables are left to each rank."""
    plan = make_plan("{name: j, launcher: mpirun, script: t.py, nproc_per_node: 4}")
    spec = render_spec(plan, plan.nodes[1], {})  # type: ignore[typeddict-item]  # who launched it

    assert spec["mpi"] == {"slots": [4, 4, 4]}
    assert (spec["argv"], spec["ends_with"], spec["processes"]) == (["/opt/py", "t.py"], "node 0", 1)
    assert not {"MASTER_ADDR", "WORLD_SIZE", "PET_LOG_DIR"} & set(spec["env"])


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ("script: t.py, launcher: torchrun", set()),
        ("script: t.py, launcher: launch", set()),
        ("script: t.py, launcher: python", {"CLUSTERCTL_WORLD_SIZE"}),
        ("command: [trl, sft], launcher: command", {"CLUSTERCTL_WORLD_SIZE"}),
        ("script: t.py, launcher: ray", set()),
        ("script: t.py, launcher: mpirun", set()),
    ],
)
def test_no_launcher_gives_a_world_size_without_a_rank(keys: str, named: set[str]) -> None:
    """A program that finds one alone takes itself for rank 0 on every node and waits forever."""
    plan = make_plan(f"{{name: j, {keys}, nproc_per_node: 2}}")
    for node in plan.nodes:
        assert {name for name in node.env if "WORLD_SIZE" in name or name == "RANK"} == named
    assert all(render_template(plan.nodes[0].env[name]) == "6" for name in named)


def test_agents_that_cannot_find_each_other_are_not_started() -> None:
    """A node without an address is an error of the launch: the nodes decide together how a run ends."""
    plan = make_plan("{name: j, script: t.py, nproc_per_node: 2}")
    check_measured(plan)
    unknown = replace(plan.nodes[1], ip=None)
    with pytest.raises(UsageError) as refused:
        check_measured(replace(plan, nodes=(plan.nodes[0], unknown)))
    assert refused.value.code == "CC-USE-006"
    check_measured(replace(plan, nodes=(unknown,)))


SIZED = '{name: j, script: t.py, nproc_per_node: 2, args: ["${nnodes}/${world_size}"], restart: {}%s}'


def test_a_run_that_may_shrink_leaves_its_size_to_the_agents() -> None:
    """With min_nodes each attempt fills in nodes and ranks; it is shown as it is at first."""
    plan = make_plan(SIZED % ", min_nodes: 2")
    spec = render_spec(plan, plan.nodes[0], {})
    assert words(plan)[1] == "3"
    assert words(plan)[-1] == "3/6"
    assert spec["argv"][1] == [{"fill": "nnodes"}]
    assert spec["argv"][-1] == [{"fill": "nnodes"}, "/", {"fill": "world_size"}]
    assert spec["min_nodes"] == 2
    assert [entry["processes"] for entry in spec["roster"]] == [2, 2, 2]

    fixed = make_plan(SIZED % "")
    spec = render_spec(fixed, fixed.nodes[0], {})
    assert spec["argv"][-1] == "3/6"
    assert "min_nodes" not in spec
    assert "processes" not in spec["roster"][0]


def test_fewer_nodes_than_the_run_has() -> None:
    """How many nodes a pattern is shows only at the launch."""
    with pytest.raises(UsageError, match=r"min_nodes: 2 is not less than nodes: 2"):
        make_plan(SIZED % ", min_nodes: 2", pattern="gpu[01-02]")
