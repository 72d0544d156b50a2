"""What `stage` has copied to real nodes: continued, compared by `check`, and removed by `clean --staged`."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

from driving import cctl, leftovers, make_project, start_cctl
from waiting import wait_until

from clusterctl.lab.labs import Lab


def staged_path(lab: Lab, index: int) -> Path:
    """Return where a node of the lab has what jobs stage."""
    return Path(lab.plan.home_directory(lab.nodes[index].plan)) / ".clusterctl/stage"


def test_check_compares_and_clean_removes_it(cluster: Lab, tmp_path: Path) -> None:
    """A file that is missing on one node is named; nothing is left afterwards."""
    job = make_project(tmp_path, "", stage=[{"from": "./corpus"}])
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a").write_bytes(os.urandom(100_000))
    (tmp_path / "corpus/b").symlink_to("a")
    staged = cctl(cluster, "stage", job)
    assert staged.code == 0, staged.err
    (staged_path(cluster, 1) / "corpus/a").unlink()

    found = json.loads(cctl(cluster, "check", job, "--only", "STAGE", "--json").out)["findings"]
    assert [(one["code"], one["nodes"]) for one in found] == [("CC-STAGE-020", [cluster.nodes[1].name])]
    assert "stage: corpus/a is missing" in found[0]["evidence"]

    listed = json.loads(cctl(cluster, "clean", "--staged", "--dry-run", "--json").out)
    names = [node.name for node in cluster.nodes]
    assert {one["node"]: one["state"] for one in listed["staged"]} == {
        name: "missing" if name == names[1] else "whole" for name in names
    }
    removed = cctl(cluster, "clean", "--staged", "-y")
    assert removed.code == 0, removed.err
    assert f"{names[0]}: 100.0 kB staged in all" in removed.out
    for index in range(len(names)):
        assert list(staged_path(cluster, index).iterdir()) == []


def test_nodes_with_one_home_and_a_disk_each(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """Each remembers what is on its own disk: all of it is removed, and a node that only gives reads it once."""
    lab = make_lab(n=3, shared_home=True)
    giver, *others = lab.nodes
    made = "mkdir -p ~/corpus && head -c 100000 /dev/urandom > ~/corpus/a && touch -d yesterday ~/corpus/a"
    giver.run(["sh", "-c", made])
    stage = [{"from": f"{giver.name}:corpus", "to": "/tmp/data/"}]
    job = make_project(tmp_path, "", nodes=2, stage=stage)
    names = ",".join(node.name for node in others)
    staged = [cctl(lab, "stage", job, "--nodes", names, "--json") for _ in range(2)]
    files = [
        [node["files"] for node in json.loads(one.out)["staged"][0]["nodes"]]
        for one in staged
        if not one.code
    ]
    assert files == [[1, 1], [0, 0]], staged[0].err
    assert giver.run(["sh", "-c", "ls ~/.clusterctl/staged/$(uname -n)"]).stdout == "hashes\n"
    removed = cctl(lab, "clean", "--staged", "--nodes", names, "-y")
    assert removed.code == 0, removed.err
    left = [node.run(["sh", "-c", "find /tmp/data -type f"]).stdout for node in others]
    assert (left, leftovers(lab)) == (["", ""], {})


def test_a_killed_command_is_continued(cluster: Lab, tmp_path: Path) -> None:
    """Its nodes keep what has come of a file; the next one sends the rest."""
    size = 64 << 20
    job = make_project(tmp_path, "", stage=[{"from": "./weights"}])
    (tmp_path / "weights").write_bytes(os.urandom(size))
    folder = staged_path(cluster, 0)

    def parts() -> list[Path]:
        return [path for path in folder.glob(".clusterctl-part-*") if path.stat().st_size > 4 << 20]

    command = start_cctl(cluster, "stage", job)
    wait_until(
        lambda: parts() or (folder / "weights").exists() or command.poll() is not None, "a part is there"
    )
    command.send_signal(signal.SIGKILL)
    command.communicate()
    wait_until(lambda: not any(is_open(part) for part in parts()), "the node notices it")
    kept = sum(part.stat().st_size for part in parts())
    was_whole = (folder / "weights").exists()
    again = cctl(cluster, "stage", job, "--json")
    assert again.code == 0, again.err
    assert (folder / "weights").read_bytes() == (tmp_path / "weights").read_bytes()
    assert not list(folder.glob(".clusterctl-*"))
    sent = json.loads(again.out)["staged"][0]["nodes"][0]["sent"]
    assert sent == (0 if was_whole else size - kept)
    assert cctl(cluster, "clean", "--staged", "-y").code == 0


def is_open(path: Path) -> bool:
    """Return whether a process has a file open."""
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if descriptor.readlink() == path:
                return True
        except OSError:
            continue
    return False
