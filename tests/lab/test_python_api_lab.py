"""Runs and functions from Python: in this process, in a thread of it, and in a program that Ctrl-C reaches."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from driving import STUBBED, leftovers, make_project, read_until
from waiting import HANG, wait_until

import clusterctl
from clusterctl.lab.labs import Lab

JOB = """
import os, sys, time
rank = int(os.environ["RANK"])
print("hello of", rank, os.environ["SEED"], *sys.argv[1:], flush=True)
open(os.environ["CLUSTERCTL_OUTPUT_DIR"] + "/made.txt", "w").write("x")
while rank == 0 or not os.path.exists(os.path.expanduser("~/fail")):
    time.sleep(0.05)
raise ValueError("bad batch")
"""

LONG = (1 << 18) - 10  # as in the program

PROGRAM = """
import io, json, os, sys, time
from dataclasses import dataclass
import clusterctl
import beside

BASE = 10
LONG = (1 << 18) - 10  # a reader of the log cuts at 1 << 18

@dataclass
class Place:
    rank: int

def where(more):
    print("on", os.environ["RANK"])
    return [Place(int(os.environ["RANK"])).rank + BASE, beside.twice(more), None, {"ä": 0.5}]

def fail():
    if os.environ["RANK"] == "1":
        raise ValueError("bad batch")
    time.sleep(600)

def large():
    return "x" * 2_000_000

def unwritable():
    return {1, 2}

def unfinished():
    print("x" * LONG, end="")
    return "y" * 40_000

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(clusterctl.run(where, 4, **asked)))
    shown = io.StringIO()
    print(json.dumps([clusterctl.run(unfinished, output=shown, **asked), shown.getvalue()]))
    for function in (fail, large, unwritable):
        try:
            clusterctl.run(function, **asked)
        except clusterctl.RunFailed as error:
            cause = error.cause
            place = os.path.basename(cause.file), cause.line
            print(json.dumps([cause.node, cause.rank, *place, cause.text, str(error)]))
        except clusterctl.ClusterctlError as error:
            print(json.dumps([error.code, error.message]))
"""

FOLLOWER = """
import json, sys, time
import clusterctl

def slow(seconds):
    print("begun", flush=True)
    time.sleep(seconds)
    return seconds

try:
    clusterctl.run(slow, 600, output=sys.stdout, **json.loads(sys.argv[1]))
except clusterctl.Detached as left:
    print(json.dumps([left.run.id, str(left)]))
"""


def chosen(cluster: Lab, **keys: object) -> dict[str, object]:
    """Return the arguments of a call in this lab, without torch."""
    return {
        "inventory": str(cluster.inventory),
        "nodes": 2,
        "nproc_per_node": 1,
        "env": STUBBED,
        "grace": "2s",
        **keys,
    }


def write_program(folder: Path, text: str) -> Path:
    """Write a program and a module beside it."""
    (folder / "beside.py").write_text("def twice(value): return 2 * value\n")
    (folder / "program.py").write_text(textwrap.dedent(text), encoding="utf-8")
    return folder / "program.py"


def test_a_run_and_its_cause(cluster: Lab, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In a thread that is not the main one: launch, wait, cause, logs, status, pull; nothing is printed."""
    job, handler = make_project(tmp_path, JOB, env=STUBBED, nodes=2), signal.getsignal(signal.SIGINT)

    def drive() -> clusterctl.Run:
        settings = {"env.SEED": "1", "name": "true"}
        return clusterctl.launch(job, inventory=cluster.inventory, set=settings, args=["--lr", 0.1])

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(drive).result(HANG)
        wait_until(
            lambda: list(run.logs(rank=0, stream="stdout", follow=False)), "a line of rank 0", every=0.2
        )
        cluster.nodes[1].run(["sh", "-c", "touch ~/fail"])  # sooner it could end rank 0 before its first line
        verdict = pool.submit(run.wait, HANG).result(2 * HANG)

    again = clusterctl.attach(run.id, inventory=cluster.inventory)
    with pytest.raises(clusterctl.RunFailed) as raised:
        run.wait(check=True)
    cause = run.cause
    assert cause is not None and raised.value.cause == cause == again.cause
    name = cluster.nodes[1].name
    assert (cause.node, cause.rank, cause.file, cause.line) == (name, 1, "train.py", 8)
    assert (cause.text, verdict["state"], run.id[:5]) == ("ValueError: bad batch", "FAILED", "true-")
    assert (
        raised.value.message == f"rank 1 on {name}, train.py:8: ValueError: bad batch (run {run.id}: FAILED)"
    )
    assert [line["line"] for line in run.logs(rank=0, stream="stdout")] == ["hello of 0 1 --lr 0.1"]
    assert [line["rank"] for line in run.logs(grep="hello of", follow=False)] == [0, 1]
    assert [node["node"] for node in again.status()["nodes"]] == [node.name for node in cluster.nodes[:2]]
    assert sum(node["files"] for node in run.pull(tmp_path / "out")["nodes"]) == 2
    assert (tmp_path / "out" / name / "made.txt").exists()
    assert signal.getsignal(signal.SIGINT) is handler
    assert capfd.readouterr() == ("", "")
    assert leftovers(cluster) == {}


def test_a_function_of_a_program(cluster: Lab, tmp_path: Path) -> None:
    """What each rank returns in their order; a failure has node, rank and line of the program; results are bounded."""
    program = write_program(tmp_path, PROGRAM)
    words = [sys.executable, str(program), json.dumps(chosen(cluster))]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/", timeout=4 * HANG)

    assert (done.returncode, done.stderr) == (0, "")
    values, (long, shown), failed, large, unwritable = map(json.loads, done.stdout.splitlines())
    name, (node, rank, *place, text, message) = cluster.nodes[1].name, failed
    assert values == [[10, 8, None, {"ä": 0.5}], [11, 8, None, {"ä": 0.5}]]
    assert long == ["y" * 40_000] * 2
    pieces = [line.partition(" | ")[2] for line in shown.splitlines() if " | " in line]
    assert "".join(pieces) == "x" * (2 * LONG)
    assert all(pieces)
    line = program.read_text().splitlines().index('        raise ValueError("bad batch")') + 1
    assert (node, rank, place, text) == (name, 1, ["program.py", line], "ValueError: bad batch")
    assert message.startswith(f"rank 1 on {name}, {program}:{line}: ValueError: bad batch (run fail-")
    assert large[0] == unwritable[0] == "CC-RUN-061"
    assert "the result has 2000002 characters, the limit is 1 MiB" in large[1]
    assert (
        "the result cannot be written as JSON: Object of type set is not JSON serializable" in unwritable[1]
    )
    assert leftovers(cluster) == {}


def test_ctrl_c_leaves_the_run(cluster: Lab, tmp_path: Path) -> None:
    """The message shows how to come back, the run continues, and is stopped from here."""
    program = write_program(tmp_path, FOLLOWER)
    words = [sys.executable, str(program), json.dumps(chosen(cluster))]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
    ) as process:
        read_until(process, "begun")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        left = json.loads(process.stdout.read().splitlines()[-1])
    run = clusterctl.attach(left[0], inventory=cluster.inventory)
    state = run.status()["run"]["state"]
    with pytest.raises(TimeoutError):
        run.wait(0.0)
    run.stop(grace=1)
    with pytest.raises(clusterctl.RunFailed, match="ended as STOPPED"):
        run.results()

    expected = f"to come back: clusterctl.attach({left[0]!r}, inventory={str(cluster.inventory)!r})"
    assert left[1] == f"the run continues; {expected}"
    assert (process.returncode, state) == (0, "RUNNING")
    assert leftovers(cluster) == {}


def test_results_of_a_run_that_was_left(cluster: Lab) -> None:
    """They are read from the log of the run; a check and an error of the command are values and exceptions."""
    import platform

    values = clusterctl.run(platform.node, **chosen(cluster))  # type: ignore[arg-type]  # keys of a job
    newest = clusterctl.attach("node", inventory=cluster.inventory)

    assert values == newest.results() == [node.name for node in cluster.nodes[:2]]
    checked = clusterctl.check(inventory=cluster.inventory)
    assert [node["answered"] for node in checked["nodes"]] == [True] * 3
    with pytest.raises(clusterctl.ClusterctlError) as raised:
        clusterctl.launch("no-such-job.yaml", inventory=cluster.inventory)
    assert (raised.value.code, raised.value.exit_code) == ("CC-SPEC-007", 2)
    with pytest.raises(clusterctl.ClusterctlError) as raised:
        clusterctl.attach("nothing-here", inventory=cluster.inventory).status()
    assert raised.value.fix
    assert leftovers(cluster) == {}


NOTEBOOK = """
import json, time, clusterctl
from dataclasses import dataclass
@dataclass
class Place:
    rank: int
def slow(seconds):
    import os, time
    print("begun", flush=True)
    time.sleep(seconds)
    return Place(int(os.environ["RANK"])).rank
"""


def test_a_notebook(cluster: Lab) -> None:
    """A real kernel of Jupyter, where that is installed: a cell is sent, and interrupting it leaves the run."""
    pytest.importorskip("ipykernel")
    manager = pytest.importorskip("jupyter_client.manager")
    asked = ", ".join(f"{key}={value!r}" for key, value in chosen(cluster).items())
    kernel, client = manager.start_new_kernel(kernel_name="python3")

    def execute(cell: str) -> str:
        shown: list[str] = []

        def show(message: Mapping[str, Any]) -> None:
            content = message["content"]
            begun = any("begun" in text for text in shown)
            shown.append(str(content.get("text") or content.get("evalue") or ""))
            if "begun" in shown[-1] and not begun:
                kernel.interrupt_kernel()  # once: a second one may end what the first one has begun

        client.execute_interactive(cell, timeout=HANG, output_hook=show)
        return "".join(shown)

    try:
        execute(NOTEBOOK)
        values = execute(f"print(json.dumps(clusterctl.run(slow, 0, {asked})))")
        left = execute(f"import sys; clusterctl.run(slow, 600, {asked}, output=sys.stdout)")
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    back = re.search(r"the run continues; to come back: clusterctl\.attach\('(slow-.*?)'", left)
    assert back is not None, left
    run = clusterctl.attach(back[1], inventory=cluster.inventory)
    state = run.status()["run"]["state"]
    run.stop(grace=1)

    assert (json.loads(values), state) == ([0, 1], "RUNNING")
    assert leftovers(cluster) == {}


CELLS = (
    """
import json, clusterctl

def where(more):
    import os
    return [int(os.environ["RANK"]), more]
""",
    "print(json.dumps(clusterctl.run(where, 4, {asked})))",
    """
run = clusterctl.launch({job!r}, inventory={inventory!r}, args=["--lr", 0.1])
print(json.dumps([run.wait()["state"], [line["line"] for line in run.logs(stream="stdout")]]))
""",
)


def test_a_notebook_file_is_executed(cluster: Lab, tmp_path: Path) -> None:
    """By `jupyter nbconvert --execute`, where that is installed: a function of a cell, and a job file."""
    pytest.importorskip("ipykernel")
    pytest.importorskip("nbconvert")
    job = make_project(tmp_path / "job", "import sys; print(sys.argv[1:])", env=STUBBED, nodes=2)
    asked = ", ".join(f"{key}={value!r}" for key, value in chosen(cluster).items())
    texts = [cell.format(asked=asked, job=str(job), inventory=str(cluster.inventory)) for cell in CELLS]
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    cells = [{**cell, "id": f"cell-{number}", "source": text} for number, text in enumerate(texts)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "train.ipynb").write_text(json.dumps(notebook))
    words = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--stdout", "train.ipynb"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=4 * HANG)

    assert done.returncode == 0, done.stderr
    shown = [cell["outputs"] for cell in json.loads(done.stdout)["cells"]]
    assert [[output["name"] for output in outputs] for outputs in shown] == [[], ["stdout"], ["stdout"]]
    values, (state, lines) = (json.loads("".join(outputs[0]["text"])) for outputs in shown[1:])
    assert (values, state, lines) == ([[0, 4], [1, 4]], "SUCCEEDED", ["['--lr', '0.1']"] * 2)
    assert leftovers(cluster) == {}
