"""The verbs around a run, on real nodes: sync, pull, exec and clean."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from driving import cctl, kill_leftovers, make_project, run_id, start_cctl, wait_until_gone
from waiting import HANG

from clusterctl.lab.labs import Lab, break_node
from clusterctl.protocol.run_paths import short_id

if TYPE_CHECKING:
    from conftest import Bed


WRITES = """
import os, socket
place = os.environ["CLUSTERCTL_OUTPUT_DIR"]
with open(os.path.join(place, "model.pt"), "wb") as sink:
    sink.write(os.urandom(3_000_000))
os.symlink("model.pt", os.path.join(place, "latest"))
os.symlink("/etc/passwd", os.path.join(place, "evil"))
print("written on", socket.gethostname())
"""


@pytest.fixture(autouse=True)
def clean_nodes(cluster: Lab) -> Iterator[None]:
    """Keep one test's leftovers out of the next."""
    yield
    kill_leftovers(cluster)


STRAYS = """
import os, socket
if socket.gethostname().endswith("01"):
    for number in range(2):
        with open(f"{number}.ckpt", "wb") as sink:
            sink.write(os.urandom(50_000))
    os.symlink("1.ckpt", "last.ckpt")
"""


def test_what_a_script_leaves_in_its_working_directory_is_not_lost(cluster: Lab, tmp_path: Path) -> None:
    """Named at the end, by attach, status and pull; downloaded by --all; clean shows what would be lost."""
    job = make_project(tmp_path / "job", STRAYS, name="strays", launcher="python")
    first = cluster.nodes[0].name
    told = f"2 files outside ${{output_dir}}: 0.ckpt, 1.ckpt (100.0 kB) on {first}"
    launched = cctl(cluster, "launch", job)
    run = run_id(launched.err)
    assert (launched.code, told in launched.err, f"pull {short_id(run)} --all" in launched.err) == (
        0,
        True,
        True,
    )
    assert told in cctl(cluster, "attach", run).err
    assert told in " ".join(cctl(cluster, "status", run).out.split())

    bare = cctl(cluster, "pull", run, cwd=tmp_path)
    assert (bare.code, f"{first}: no outputs" in bare.out, told in bare.err) == (5, True, True)
    whole = cctl(cluster, "pull", run, "--all", "--json", cwd=tmp_path)
    document = json.loads(whole.out)
    home = tmp_path / "outputs/strays" / first
    assert (whole.code, document["nodes"][0]["outside"]["files"]) == (0, 2), whole.err
    code = home / f"code-{run}"
    assert sorted(path.name for path in code.iterdir()) == ["0.ckpt", "1.ckpt", "last.ckpt"]
    assert (code / "0.ckpt").stat().st_size == 50_000
    assert list(home.glob(f"logs-{run}/**/*.log"))

    kept = cctl(cluster, "clean", "--keep", "0")
    assert (kept.code, told in kept.out) == (2, True)
    assert run in cctl(cluster, "ps", "-v").out
    assert cctl(cluster, "clean", "--keep", "0", "-y").code == 0


def test_a_run_from_its_code_to_its_end(make_lab: Callable[..., Bed], tmp_path: Path) -> None:
    """The code goes ahead, the results come home once, the run goes and its outputs stay."""
    cluster = make_lab()
    job = make_project(tmp_path / "job", WRITES, name="results", launcher="python")
    names = [node.name for node in cluster.nodes]
    first = json.loads(cctl(cluster, "sync", job, "--json").out)
    assert [(node["tree"], node["sent"] > 0) for node in first["nodes"]] == [(first["tree"], True)] * 3
    again = cctl(cluster, "sync", job)
    assert (again.code, "0 bytes sent" in again.out, len(again.out.splitlines())) == (0, True, 1)
    (job.parent / "more.py").write_text("x = 1\n")
    launched = cctl(cluster, "launch", "--set", "sync.via=tree", job)
    assert (launched.code, "; 6 bytes sent" in launched.err) == (0, True), launched.err
    run = run_id(launched.err)

    brought = cctl(cluster, "pull", run, "--logs", "--json", cwd=tmp_path)
    document = json.loads(brought.out)
    assert (brought.code, document["directory"]) == (5, "outputs/results")  # 5: a link leads out
    assert [one["refused"] for one in document["nodes"]] == [
        [{"path": "evil", "why": "a link that leads out of the directory"}]
    ] * 3
    for name, node in zip(names, document["nodes"], strict=True):
        home = tmp_path / "outputs/results" / name
        assert node["bytes"] > 3_000_000
        assert ((home / "model.pt").stat().st_size, str((home / "latest").readlink())) == (
            3_000_000,
            "model.pt",
        )
        assert f"written on {name}" in "".join(path.read_text() for path in home.glob(f"logs-{run}/**/*.log"))
    second = json.loads(cctl(cluster, "pull", run, "--json", cwd=tmp_path).out)
    assert [(one["files"], one["unchanged"]) for one in second["nodes"]] == [(0, 1)] * 3

    kept = cctl(cluster, "clean", "--keep", "0")
    assert (kept.code, run in kept.out, "CC-USE-031" in kept.err) == (2, True, True)
    assert cctl(cluster, "clean", "--keep", "0", "-y").code == 0
    assert json.loads(cctl(cluster, "ps", "--json").out)["runs"] == []
    missing = cctl(cluster, "pull", "--job", "result", cwd=tmp_path)
    assert (missing.code, "CC-PULL-008" in missing.err, (tmp_path / "outputs/result").exists()) == (
        2,
        True,
        False,
    )
    bare = cctl(cluster, "pull", "results", cwd=tmp_path)
    assert (bare.code, "clusterctl pull ./results" in bare.err) == (2, True), bare.err
    later = cctl(cluster, "pull", "--job", "results", "./later", cwd=tmp_path)
    assert (later.code, (tmp_path / f"later/{names[2]}/model.pt").exists()) == (5, True)


def test_a_command_is_folded_and_ends_with_ctrl_c(cluster: Lab) -> None:
    """Equal answers stand together; the command's own failure is 1; nothing is left of what is interrupted."""
    names = [node.name for node in cluster.nodes]
    folded = cctl(cluster, "exec", "--", "echo", "a  b", "$HOME")
    assert (folded.code, folded.out) == (0, f"{names[0][:-2]}[01-03]: a  b $HOME\n")
    odd = cctl(cluster, "exec", "--exclude", "0", "--", f"test $(hostname) = {names[1]} || exit 3")
    assert (odd.code, odd.out) == (1, f"{names[1]}\n{names[2]}: exit 3\n")
    stuck = start_cctl(cluster, "-v", "exec", "--", f"[ $(hostname) != {names[1]} ] || sleep 99; hostname")
    assert stuck.stderr is not None
    wanted = {names[0], names[2]}
    while wanted:
        words = stuck.stderr.readline().split()
        assert words
        wanted -= {words[0]} if words[1] == "exec" else set()
    os.kill(stuck.pid, signal.SIGINT)
    told = stuck.communicate(timeout=HANG)
    assert (stuck.returncode, told[0]) == (130, f"{names[0]}: {names[0]}\n{names[2]}: {names[2]}\n")
    assert f"no result yet: {names[1]}" in told[1]
    running = start_cctl(
        cluster, "exec", "--no-fold", "--", "trap '' TERM; echo up; sleep 99 & wait; sleep 99"
    )
    assert running.stdout is not None
    for _ in names:
        assert running.stdout.readline().endswith("up\n")
    os.kill(running.pid, signal.SIGINT)
    assert running.wait(HANG) == 130
    running.communicate()
    wait_until_gone(cluster)


def test_who_reads_enough_of_an_answer_may_leave(cluster: Lab) -> None:
    """`exec --no-fold ... | head` is no bug, and the commands end on every node."""
    running = start_cctl(cluster, "exec", "--no-fold", "--", "seq 200000; sleep 99")
    assert running.stdout is not None
    assert running.stdout.readline().endswith(" | 1\n")
    running.stdout.close()
    assert running.stderr is not None
    told = running.stderr.read()
    assert (running.wait(HANG), "error" in told) == (0, False), told
    wait_until_gone(cluster)


def test_a_shared_home_and_a_node_that_does_not_answer(make_lab: Callable[..., Bed]) -> None:
    """On a home that two nodes share: code and results travel once, and the second node takes the first one's place."""
    lab = make_lab(n=2, shared_home=True)
    first, second = (node.name for node in lab.nodes)
    top = lab.home / "job"
    job = make_project(top, WRITES, name="results", launcher="python")
    (top / "data.bin").write_bytes(os.urandom(500_000))
    sent = [node["sent"] for node in json.loads(cctl(lab, "sync", job, "--json").out)["nodes"]]
    assert (sorted(sent)[0], sorted(sent)[1] > 500_000) == (0, True)
    put = "cd ~/.clusterctl && mkdir -p outputs/results && head -c 1000000 /dev/urandom > outputs/results/model.pt"
    assert cctl(lab, "exec", "--nodes", "0", "--", put).code == 0
    brought = cctl(lab, "pull", "--job", "results", cwd=top)
    assert (brought.code, brought.out) == (0, f"{first}: 1 file, 1.0 MB -> outputs/results/{first}\n")
    assert "share one work directory" in brought.err
    break_node(lab, first, "sshd")
    rest = cctl(lab, "pull", "--job", "results", cwd=top)
    assert (rest.code, rest.out) == (
        5,
        f"{second}: nothing new; 1 file unchanged -> outputs/results/{first}\n",
    )
    asked = cctl(lab, "exec", "--", "hostname")
    assert (asked.code, asked.out) == (5, f"{second}: {second}\n")
    assert cctl(lab, "clean", "--dry-run").code == 5
