"""The main job, for real: torchrun over three nodes with three different NIC names."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import (
    HELLO,
    STUBBED,
    Result,
    cctl,
    kill_leftovers,
    leftovers,
    make_project,
    read_until,
    run_id,
    running_processes,
    said,
    start_cctl,
    tagged,
)
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab
from clusterctl.protocol.run_paths import short_id

HOSTILE = [
    "",
    " ",
    "a b",
    "it's",
    '"q"',
    "$(touch /tmp/pwned)",
    "`id`",
    "a\nb",
    "\\n",
    "--flag",
    "-x",
    "*",
    "名前 é",
    "a;b|c&d",
    "$HOME",
    "$$",
    "$$HOME",
    "$local_rank",
    "$${local_rank}",
    "~",
]


@pytest.fixture(autouse=True)
def clean_nodes(cluster: Lab) -> Iterator[None]:
    """Keep one test's leftovers out of the next; a test that must leave nothing asserts it itself."""
    yield
    kill_leftovers(cluster)


@pytest.fixture(scope="module")
def hello(cluster: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, list[dict[str, str]]]:
    """Run HELLO once over all nodes; the ranks' own words in the order of their ranks."""
    job = make_project(tmp_path_factory.mktemp("hello"), HELLO)
    result = cctl(cluster, "launch", job, "--json")
    assert result.code == 0, result.err
    words = [json.loads(line) for line in said(result.json_lines())]
    return result, sorted(words, key=lambda word: int(word["RANK"]))


def test_every_rank_runs_where_the_inventory_says(
    cluster: Lab, hello: tuple[Result, list[dict[str, str]]]
) -> None:
    """Rank, host and the node's own NICs go together; the sum proves that all reached all."""
    _, words = hello

    assert [word["host"] for word in words] == [node.name for node in cluster.nodes]
    for rank, (word, node) in enumerate(zip(words, cluster.nodes, strict=True)):
        nic = node.plan.nics[-1].name
        assert (word["RANK"], word["GROUP_RANK"], word["LOCAL_RANK"], word["WORLD_SIZE"]) == (
            str(rank),
            str(rank),
            "0",
            "3",
        )
        assert word["MASTER_ADDR"] == cluster.nodes[0].plan.ip
        assert word["NCCL_SOCKET_IFNAME"] == f"={nic}"
        assert word["GLOO_SOCKET_IFNAME"] == word["GLOO_IFACE"] == word["TP_SOCKET_IFNAME"] == nic
        assert word["sum"] == 6.0
    assert len({word["GLOO_SOCKET_IFNAME"] for word in words}) == 3
    assert len({word["MASTER_PORT"] for word in words}) == 1


def test_the_verdict_closes_the_stream_and_nothing_is_left(
    cluster: Lab, hello: tuple[Result, list[dict[str, str]]]
) -> None:
    """NDJSON ends in the verdict; no process of the run lives on any node."""
    result, _ = hello
    verdict = result.json_lines()[-1]["verdict"]

    assert (verdict["state"], verdict["exit_code"]) == ("SUCCEEDED", 0)
    assert set(verdict["nodes"].values()) == {"SUCCEEDED"}
    assert tagged(cluster) == {}


def test_status_ps_and_logs_tell_of_it_afterwards(
    cluster: Lab, hello: tuple[Result, list[dict[str, str]]]
) -> None:
    """Any machine with the inventory can ask; the nodes' state is the truth."""
    run = run_id(hello[0].err)

    status = json.loads(cctl(cluster, "status", run, "--json").out)
    assert status["run"]["state"] == "SUCCEEDED"
    assert [node["ranks"][0]["exit"] for node in status["nodes"]] == [0, 0, 0]
    assert run in [entry["run"] for entry in json.loads(cctl(cluster, "ps", "--json").out)["runs"]]
    logs = cctl(cluster, "logs", run, "--node", "1", "--stream", "stdout")
    assert logs.code == 0
    assert len(logs.out.splitlines()) == 1
    assert logs.out.startswith(f"{cluster.nodes[1].name} r1 | ")
    by_rank = [
        json.loads(line)
        for line in cctl(cluster, "logs", run, "--rank", "2", "--grep", "WORLD", "--json").out.splitlines()
    ]
    assert [(entry["node"], entry["rank"], entry["offset"]) for entry in by_rank] == [
        (cluster.nodes[2].name, 2, 0)
    ]
    nothing = cctl(cluster, "logs", run, "--grep", "no such word")
    assert (nothing.code, nothing.out, "no line matches 'no such word'" in nothing.err) == (0, "", True)


def test_hostile_values_arrive_byte_for_byte(cluster: Lab, tmp_path: Path) -> None:
    """Arguments, environment, file names: nothing is split, expanded or lost on the way.

    Two workers on each of two nodes: ranks count over nodes, and `${local_rank}` is left to torchrun.
    """
    script = """
    import hashlib, json, os, sys
    files = {}
    for folder, _, names in os.walk("."):
        for name in names:
            path = os.path.join(folder, name)
            files[os.path.relpath(path)] = hashlib.sha256(open(path, "rb").read()).hexdigest()
    env = {k: v for k, v in os.environ.items() if k.startswith("HOSTILE_")}
    place = os.environ["RANK"] + " " + os.environ["LOCAL_RANK"]
    mode = os.access("run.sh", os.X_OK)
    print(json.dumps({"place": place, "argv": sys.argv[1:], "env": env, "files": files, "mode": mode}))
    """
    folder = tmp_path / 'it\'s a "$(dir)" 名前'
    env = {f"HOSTILE_{index}": value for index, value in enumerate(HOSTILE)}
    sync = {"source": ".", "exclude": ["secret"]}
    args = [*HOSTILE, "${node_rank}", "${local_rank}", "${world_size}", "${nnodes}", "$${node_rank}"]
    job = make_project(folder, script, args=args, env=env, sync=sync, nodes=2, nproc_per_node=2)
    for name in ("new\nline.txt", "sp ace", "-dash", "名前.py", "sub/types.py", "secret"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(os.urandom(40))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / ".gitignore").write_text("*.tmp\n")
    (folder / "scratch.tmp").write_text("no")

    result = cctl(cluster, "launch", job, "--json")

    assert result.code == 0, result.err
    heard = [json.loads(line) for line in said(result.json_lines())]
    filled = {word["place"]: " ".join(word["argv"][len(HOSTILE) :]) for word in heard}
    assert filled == {
        "0 0": "0 0 4 2 ${node_rank}",
        "1 1": "0 1 4 2 ${node_rank}",
        "2 0": "1 0 4 2 ${node_rank}",
        "3 1": "1 1 4 2 ${node_rank}",
    }
    assert len(heard) == 4
    for word in heard:
        assert word["argv"][: len(HOSTILE)] == [value.replace("$${", "${") for value in HOSTILE]
        assert word["env"] == {key: value.replace("$${", "${") for key, value in env.items()}
        assert word["mode"] is True
        assert {"new\nline.txt", "sp ace", "-dash", "名前.py", "sub/types.py"} <= set(word["files"])
        assert not {"secret", "scratch.tmp"} & set(word["files"])
    assert all(word["files"] == heard[0]["files"] for word in heard)
    assert not [
        node.name for node in cluster.nodes if node.run(["ls", "/tmp/pwned"], check=False).returncode == 0
    ]


def test_the_first_failure_stops_all_and_is_named_first(cluster: Lab, tmp_path: Path) -> None:
    """One rank raises, cleans up slowly; the other waits for it in a collective; the one that raised is the cause."""
    script = """
    import atexit, os, time, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    try:
        if dist.get_rank() == 1:
            atexit.register(time.sleep, 3)
            raise ValueError("bad batch 17")
        dist.all_reduce(torch.ones(1))
        time.sleep(60)
    finally:
        dist.destroy_process_group()
    """
    job = make_project(tmp_path, script, nodes=2, start="fork")

    result = cctl(cluster, "launch", job)

    assert result.code == 1
    assert f"rank 1 on {cluster.nodes[1].name}: ValueError: bad batch 17" in result.err
    assert 'raise ValueError("bad batch 17")' in result.err
    assert "FAILED after" in result.err
    assert leftovers(cluster) == {}


def test_dry_run_needs_no_node(tmp_path: Path) -> None:
    """The plan is printed offline, with holes for what only nodes know."""
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(
        "cluster: c\nnodes:\n  - {host: 192.0.2.1, name: a, nic: eth1}\n  - {host: b.invalid, name: b}\n"
    )
    job = make_project(tmp_path / "p", "", nproc_per_node="gpu")

    result = cctl(None, "-i", inventory, "launch", job, "--dry-run")

    assert result.code == 0, result.err
    assert (
        "--node-rank 1 --nproc-per-node '<gpus@b>'" in result.out
        or "--node-rank 1 --nproc-per-node <gpus@b>" in result.out
    )
    assert "export GLOO_SOCKET_IFNAME=eth1" in result.out


def test_dry_run_counts_files_and_warns(tmp_path: Path) -> None:
    """Links and empty folders are no files; two nodes that would each run the same process are named."""
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("cluster: c\nnodes: [{host: 192.0.2.1, name: a}, {host: 192.0.2.2, name: b}]\n")
    job = make_project(tmp_path / "p", "print(1)", launcher="python", nproc_per_node=None)
    (job.parent / "link").symlink_to("train.py")
    (job.parent / "empty").mkdir()

    result = cctl(None, "-i", inventory, "launch", job, "--dry-run")

    assert result.code == 0, result.err
    assert "# code: 2 files, " in result.out  # train.py and job.yaml
    assert "CC-RUN-050" in result.err


def test_what_launch_says_before_the_first_worker(cluster: Lab, tmp_path: Path) -> None:
    """A spare that cannot help is named at once, and only files are counted as sent."""
    job = make_project(tmp_path, "print(1)", nodes=1, launcher="python", restart={"spares": 1})
    (tmp_path / "link").symlink_to("train.py")
    (tmp_path / "empty").mkdir()

    result = cctl(cluster, "launch", job)

    assert result.code == 0, result.err
    assert "only 0 of 1 spares can replace lost nodes" in result.err
    assert "2 files, " in result.err


def test_edits_during_a_run_change_nothing(cluster: Lab, tmp_path: Path) -> None:
    """Each run has a copy of its own: what is edited here after GO is not seen there."""
    script = """
    import pathlib, time
    print("running", flush=True)
    while not pathlib.Path("/tmp/edited").exists():
        time.sleep(0.05)
    print(pathlib.Path("value.txt").read_text())
    """
    job = make_project(tmp_path, script, env=STUBBED)
    (tmp_path / "value.txt").write_text("as launched")
    launching = start_cctl(cluster, "launch", job, "--json")
    for _ in cluster.nodes:
        read_until(launching, "running")
    (tmp_path / "value.txt").write_text("edited")
    for node in cluster.nodes:
        node.run(["touch", "/tmp/edited"])
    assert launching.stdout is not None and launching.stderr is not None
    out = launching.stdout.read()  # not communicate(): it would miss what is buffered
    err = launching.stderr.read()
    launching.wait(HANG)
    for node in cluster.nodes:
        node.run(["rm", "/tmp/edited"])

    assert launching.returncode == 0, err
    lines = said([json.loads(line) for line in out.splitlines()])
    assert [line for line in lines if line != "running"] == ["as launched"] * 3


def test_ctrl_c_detaches_and_logs_and_stop_come_back(cluster: Lab, tmp_path: Path) -> None:
    """After GO Ctrl-C leaves the run alone, says how to come back, and `stop` ends every process of it."""
    script = """
    import subprocess, sys, time
    subprocess.Popen(["setsid", "sleep", "600"])
    for count in range(36000):
        print("tick", count, flush=True)
        time.sleep(0.1)
    """
    launching = start_cctl(cluster, "launch", make_project(tmp_path, script, env=STUBBED))
    read_until(launching, "tick")
    launching.send_signal(signal.SIGINT)
    _, err = launching.communicate(timeout=HANG)

    assert launching.returncode == 130
    run = run_id(err)
    assert f"clusterctl attach {short_id(run)}" in err
    assert len(tagged(cluster, run)) == 3
    last = ("logs", run, "--rank", "1", "--tail", "2")
    wait_until(lambda: len(cctl(cluster, *last).out.splitlines()) == 2, "two lines of rank 1")
    following = start_cctl(cluster, "logs", "-f", run)
    read_until(following, "tick")
    stopped = cctl(cluster, "stop", run, "--grace", "1")
    following.communicate(timeout=HANG)
    assert stopped.code == 0, stopped.err
    assert stopped.out.count(": stopped ") >= 3
    assert leftovers(cluster) == {}
    assert json.loads(cctl(cluster, "status", run, "--json").out)["run"]["state"] == "STOPPED"


def test_ctrl_c_before_go_cancels_cleanly(cluster: Lab, tmp_path: Path) -> None:
    """While the gates are still importing nothing has started; Ctrl-C leaves nothing at all."""
    for node in cluster.nodes:
        node.run(
            [
                "sh",
                "-c",
                "mkdir -p /tmp/slow && echo 'import time; time.sleep(3600)' > /tmp/slow/sitecustomize.py",
            ]
        )
    job = make_project(tmp_path, "print('never')", env={"PYTHONPATH": "/tmp/slow"})
    launching = start_cctl(cluster, "launch", job)
    wait_until(lambda: len(tagged(cluster)) == 3, "agents on all nodes")
    launching.send_signal(signal.SIGINT)
    out, err = launching.communicate(timeout=HANG)

    assert launching.returncode == 130, err
    assert "never" not in out
    wait_until(lambda: running_processes(cluster) == {}, "nothing left")


def test_a_detached_run_goes_on_without_us(cluster: Lab, tmp_path: Path) -> None:
    """`-d` prints the run's name and leaves; the run ends by itself, its verdict can be asked for."""
    job = make_project(tmp_path, "import time; time.sleep(1); print('done')", env=STUBBED)

    result = cctl(cluster, "launch", "-d", job)

    assert result.code == 0, result.err
    run = result.out.strip()
    assert "not stopped" not in result.err
    wait_until(
        lambda: json.loads(cctl(cluster, "status", run, "--json").out)["run"]["state"] == "SUCCEEDED",
        "success",
    )
    assert cctl(cluster, "logs", run, "--stream", "stdout").out.count("done") == 3


def test_a_script_that_is_not_sent_is_an_error_before_anything_starts(cluster: Lab, tmp_path: Path) -> None:
    """A misspelled or ignored script is found here, not on three nodes."""
    job = make_project(tmp_path, "", script="trian.py")

    result = cctl(cluster, "launch", job)

    assert result.code == 2
    assert "script: trian.py not found in" in result.err and "there is train.py" in result.err


def test_secrets_reach_the_workers_and_no_file(cluster: Lab, tmp_path: Path) -> None:
    """A secret's value comes from our environment and is in no file of the node."""
    source = "import os; print(len(os.environ['API_KEY']), os.environ['API_KEY'])"
    job = make_project(tmp_path, source, secrets=["API_KEY"], env=STUBBED)
    value = "s3cr3t-value-nobody-else-has"

    missing = cctl(cluster, "launch", job)
    result = cctl(cluster, "launch", job, "--json", API_KEY=value)

    assert missing.code == 2
    assert "API_KEY" in missing.err
    assert result.code == 0, result.err
    assert said(result.json_lines()) == [f"{len(value)} [secret]"] * 3
    assert value not in result.out + result.err
    for node in cluster.nodes:
        found = node.run(
            ["grep", "-rl", "--exclude=stdout.log", value, f"{cluster.plan.account.home}/.clusterctl"],
            check=False,
        )
        assert (found.returncode, found.stdout) == (1, "")


def test_the_last_words_without_a_newline_are_not_lost(cluster: Lab, tmp_path: Path) -> None:
    """A script that ends in the middle of a line is shown whole; binary junk does not break the stream."""
    script = "import sys; sys.stdout.buffer.write(b'\\xff\\x00one\\ntwo\\x1b[2J'); sys.stderr.write('three')"
    result = cctl(cluster, "launch", make_project(tmp_path, script, nodes=1, env=STUBBED), "--json")

    assert result.code == 0, result.err
    entries = result.json_lines()
    assert said(entries) == ["\ufffd\x00one", "two\x1b[2J"]
    assert said(entries, "stderr") == ["three"]


def test_a_job_whose_python_is_missing_is_what_is_to_be_changed(cluster: Lab, tmp_path: Path) -> None:
    """The fix names the job file, and the nodes, which answered, are not called silent."""
    job = make_project(tmp_path, "", python="/usr/bin/nopython")

    result = cctl(cluster, "check", job)

    assert result.code == 3
    assert f"set `python` in {job} to the absolute path" in " ".join(result.out.split())
    assert "no answer" not in result.out


@pytest.mark.parametrize("interpreter", [sys.executable])
def test_a_job_may_name_its_own_python(cluster: Lab, tmp_path: Path, interpreter: str) -> None:
    """A job's `python` and `activate` beat the inventory's; over SSH a launch starts two of them on a node."""
    started = f"/tmp/started-{tmp_path.name}"
    job = make_project(
        tmp_path,
        "import os; print(os.environ['FROM_ACTIVATE'])",
        python=interpreter,
        activate=f"export FROM_ACTIVATE='it is \"set\"'\necho noise\ncat >/dev/null\necho >> {started}",
        nodes=1,
        env=STUBBED,
    )

    result = cctl(cluster, "launch", job, "--json")

    assert result.code == 0, result.err
    assert said(result.json_lines()) == ['it is "set"']
    assert cluster.nodes[0].run(["cat", started]).stdout == 3 * "\n"  # probe; start; sync, follow
