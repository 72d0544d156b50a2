"""A launch stages what its job names before its workers start; the next finds it there."""

from __future__ import annotations

import json
import os
from pathlib import Path

from driving import cctl, leftovers, make_project, run_id

from clusterctl.lab.labs import Lab

READS = """
import os
place = os.environ["CORPUS"]
print("read", sum(len(open(os.path.join(place, name), "rb").read()) for name in sorted(os.listdir(place))))
"""


def test_a_launch_stages_first(cluster: Lab, tmp_path: Path) -> None:
    """From this machine and from a node; every rank finds it, the report names it, and nothing is sent again."""
    names = [node.name for node in cluster.nodes]
    held = Path(cluster.plan.home_directory(cluster.nodes[0].plan)) / "held.bin"
    held.write_bytes(os.urandom(300_000))
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a").write_bytes(os.urandom(200_000))
    job = make_project(
        tmp_path,
        READS,
        launcher="python",
        env={"CORPUS": "${stage_dir}/corpus"},
        stage=[{"from": "./corpus"}, {"from": f"{names[0]}:held.bin", "to": "${stage_dir}/corpus/"}],
    )
    planned = json.loads(cctl(cluster, "stage", job, "--dry-run", "--json").out)
    assert [len(entry["nodes"]) for entry in planned["staged"]] == [3, 3]
    assert {node["files"] for entry in planned["staged"] for node in entry["nodes"]} == {1}

    first = cctl(cluster, "launch", job)
    assert (first.code, first.out.count("read 500000")) == (0, 3), first.err
    again = cctl(cluster, "launch", job, "--json")
    assert again.code == 0, again.err
    assert "500.0 kB, already there" in again.err and " code    3/3 nodes" in again.err, again.err
    assert "2 files, " in again.err  # job and script: what is staged is no code
    compared = json.loads(cctl(cluster, "stage", job, "--json").out)["staged"]
    assert {(node["files"], node["sent"]) for entry in compared for node in entry["nodes"]} == {(0, 0)}
    report = cctl(cluster, "report", run_id(first.err), "-o", tmp_path / "report.html")
    assert report.code == 0, report.err
    page = (tmp_path / "report.html").read_text()
    assert f"./corpus ({compared[0]['tree'][:12]}); {names[0]}:held.bin (" in page

    held.unlink()
    for entry, problem in (("./absent", "CC-SYNC"), (f"{names[0]}:held.bin", "CC-COPY-002")):
        wrong = make_project(tmp_path / problem, READS, launcher="python", stage=[{"from": entry}])
        refused = cctl(cluster, "launch", wrong)
        assert refused.code != 0 and problem in refused.err and "stage[0]" in refused.err, refused.err
        assert "Traceback" not in refused.err
    assert cctl(cluster, "clean", "--staged", "-y").code == 0
    assert leftovers(cluster) == {}
