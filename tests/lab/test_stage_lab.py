"""A launch stages what its job names before its workers start; the next finds it there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from driving import cctl, leftovers, make_project, run_id

from clusterctl.lab.labs import Lab
from clusterctl.specs.nodeset import fold_names

READS = """
import os
place = os.environ["CORPUS"]
print("read", sum(len(open(os.path.join(place, name), "rb").read()) for name in sorted(os.listdir(place))))
"""


def damage(lab: Lab, index: int, name: str) -> None:
    """Change a byte of a staged file of a node in place: size and mtime stay."""
    path = Path(lab.plan.home_directory(lab.nodes[index].plan)) / ".clusterctl/stage" / name
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """Make a directory that all nodes of a lab see: not below /tmp, which each has for itself."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_a_directory_that_only_the_target_shares_is_filled_once(
    cluster: Lab, tmp_path: Path, shared_folder: Path
) -> None:
    """Each node has its own home; one of them writes, the others find it there, and no lock stays."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a").write_bytes(os.urandom(4_000_000))
    shared = shared_folder / "data"
    job = make_project(tmp_path, READS, launcher="python", stage=[{"from": "./corpus", "to": f"{shared}/"}])
    done = cctl(cluster, "stage", job, "--json")
    assert done.code == 0, done.err
    (entry,) = json.loads(done.out)["staged"]
    assert sorted(node["files"] for node in entry["nodes"]) == [0, 0, 1]
    assert sum(node["sent"] + node["taken"] for node in entry["nodes"]) == 4_000_000
    assert [path.name for path in shared.iterdir()] == ["corpus"]
    assert cctl(cluster, "stage", job, "--verify").code == 0
    removed = cctl(cluster, "clean", "--staged", "-y")
    assert (removed.code, list(shared.iterdir())) == (0, []), removed.err
    assert leftovers(cluster) == {}


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
    preview = cctl(cluster, "launch", job, "--dry-run").out
    assert f"# stage: ./corpus -> {fold_names(names)}:${{stage_dir}}/corpus: 1 file, 200.0 kB\n" in preview
    assert f"{names[0]}:held.bin -> {fold_names(names)}:${{stage_dir}}/corpus/held.bin: " in preview

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
    staged = f"./corpus (tree {compared[0]['tree'][:12]}); {names[0]}:held.bin (tree "
    assert staged in page
    assert f"staged {staged}" in cctl(cluster, "status", run_id(first.err)).out

    verified = cctl(cluster, "stage", job, "--verify")
    assert verified.code == 0, verified.err
    assert f"{fold_names(names)}: 1 file, 200.0 kB, as it was staged; tree " in verified.out
    damage(cluster, 1, "corpus/a")
    found = cctl(cluster, "stage", job, "--verify", "--json")
    assert found.code == 3, found.err
    (finding,) = json.loads(found.out)["findings"]
    assert (finding["code"], finding["nodes"]) == ("CC-STAGE-020", [names[1]])
    assert finding["evidence"].startswith(f"{names[1]}: ./corpus in ")
    assert finding["evidence"].endswith("/.clusterctl/stage: corpus/a was changed")
    assert {
        (one["node"], one["differing"]) for one in json.loads(found.out)["staged"] if one["differing"]
    } == {(names[1], 1)}
    copied = json.loads(cctl(cluster, "stage", job, "--json").out)["staged"][0]["nodes"]
    assert [node["replaced"] for node in copied] == [0, 1, 0]
    assert cctl(cluster, "stage", job, "--verify").code == 0

    held.unlink()
    for entry, problem in (("./absent", "CC-SYNC"), (f"{names[0]}:held.bin", "CC-COPY-002")):
        wrong = make_project(tmp_path / problem, READS, launcher="python", stage=[{"from": entry}])
        refused = cctl(cluster, "launch", wrong)
        assert refused.code != 0 and problem in refused.err and "stage[0]" in refused.err, refused.err
        assert "Traceback" not in refused.err
    assert cctl(cluster, "clean", "--staged", "-y").code == 0
    assert leftovers(cluster) == {}
