"""Models of a hub on real nodes: one downloads, the others take it from that one; what is cut short is continued."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from driving import cctl, make_project, running_processes, start_cctl
from hub import COMMIT
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab

HUB = str(Path(__file__).parents[1] / "support/hub.py")
SIZES = {"config.json": 200, "model-1.safetensors": 64_000_000, "model-2.safetensors": 12_000_000}
SIZE = sum(SIZES.values())
AT_LEAST = 48 << 20  # bytes, of which 32 MiB at most are in segments that are not whole yet


class LabHub:
    """A stand-in for a hub, on the first node of a lab."""

    def __init__(self, lab: Lab, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = self._line().replace("0.0.0.0", lab.plan.nodes[0].ip)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the hub has ended"
        return line

    def order(self, text: str) -> dict[str, int]:
        """Give it a command, and return what it has counted."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()
        counts: dict[str, int] = json.loads(self._line())
        return counts


@contextmanager
def hub_in(lab: Lab) -> Iterator[LabHub]:
    """Serve a model in a lab."""
    command = lab.ssh_command(lab.nodes[0].name, [sys.executable, HUB, f"'{json.dumps(SIZES)}'"])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]  # keywords
        try:
            yield LabHub(lab, process)
        finally:
            process.stdin.close()
            process.wait(HANG)


@contextmanager
def staging(lab: Lab, folder: Path) -> Iterator[tuple[LabHub, Path]]:
    """Give a hub and a job that stages its model to a directory of each home, which is removed in the end."""
    with hub_in(lab) as hub:
        stage = [{"from": "hf://org/name", "to": "~/staged-hub"}]
        job = make_project(folder, "print(1)", nodes=3, env={"HF_ENDPOINT": hub.url}, stage=stage)
        try:
            yield hub, job
        finally:
            for node in lab.nodes:
                node.run(["sh", "-c", "rm -rf ~/staged-hub ~/.clusterctl/staged"])


def staged_nodes(text: str) -> dict[str, dict[str, Any]]:
    """Return what each node has got."""
    (entry,) = json.loads(text)["staged"]
    assert entry["revision"] == COMMIT
    return {node["node"]: node for node in entry["nodes"]}


def test_a_model_leaves_the_hub_once(cluster: Lab, tmp_path: Path) -> None:
    """All nodes have the same; nothing passes this machine; a second time costs one request."""
    with staging(cluster, tmp_path) as (hub, job):
        planned = cctl(cluster, "stage", job, "--dry-run", "--json")
        assert {node["bytes"] for node in staged_nodes(planned.out).values()} == {SIZE + len(COMMIT)}
        assert "bytes" not in hub.order("count")

        done = cctl(cluster, "stage", job, "--json")
        assert done.code == 0, done.err
        nodes = staged_nodes(done.out)
        assert len(nodes) == 3
        assert {node["sent"] for node in nodes.values()} == {0}
        assert sorted(node["taken"] for node in nodes.values()) == [0, *[SIZE + len(COMMIT)] * 2]
        assert hub.order("count")["bytes"] == SIZE
        sums = cctl(
            cluster, "exec", "--", f"cd ~/staged-hub/hub/models--org--name/snapshots/{COMMIT} && sha256sum *"
        )
        assert "(3 nodes)" in sums.out, sums.out  # equal output is shown once

        requests = hub.order("count")["commit"]
        again = staged_nodes(cctl(cluster, "stage", job, "--json").out)
        assert {node["files"] for node in again.values()} == {0}
        counts = hub.order("count")
        assert (counts["bytes"], counts["commit"]) == (SIZE, requests + 1)


@pytest.mark.parametrize("how", ["the node's process is killed", "Ctrl-C"])
def test_what_is_cut_short_is_continued(cluster: Lab, tmp_path: Path, how: str) -> None:
    """No node begins again: neither the one that downloads nor those that take it."""
    with staging(cluster, tmp_path) as (hub, job):
        hub.order("rate 8000000")
        running = start_cctl(cluster, "stage", job)
        wait_until(lambda: hub.order("count").get("bytes", 0) >= AT_LEAST, "half of the model", every=0.1)
        downloaders = [
            (node, str(process.pid))
            for node in cluster.nodes[:1]
            for process in node.list_processes()
            if "b=getattr(sys.stdin" in process.command
        ]
        assert downloaders
        if how == "Ctrl-C":
            running.send_signal(signal.SIGINT)
        else:
            node, pid = downloaders[0][0], [pid for _, pid in downloaders]
            node.run(["kill", "-9", *pid])
        _, err = running.communicate(timeout=HANG)
        assert running.returncode != 0
        if how != "Ctrl-C":
            assert f"CC-RUN-003: {cluster.nodes[0].name}: `download` was killed" in err, err
        wait_until(lambda: not running_processes(cluster), "no process is left")

        hub.order("rate 0")
        done = cctl(cluster, "stage", job, "--json")
        assert done.code == 0, done.err
        assert all(node["taken"] < SIZE - (8 << 20) for node in staged_nodes(done.out).values())
        assert hub.order("count")["bytes"] < SIZE + AT_LEAST, "what had come in whole segments was kept"


def test_what_no_node_can_have_is_named(cluster: Lab, tmp_path: Path) -> None:
    """With the entry of the job, the reason, and the way out; in Chinese as well."""
    with staging(cluster, tmp_path) as (hub, job):
        text = job.read_text()
        job.write_text(text.replace("hf://org/name", "hf://org/other"))
        missing = cctl(cluster, "stage", job)
        assert missing.code == 1
        assert "CC-STAGE-012" in missing.err
        assert "stage[0]: hf://org/other: " in missing.err
        assert "HTTP 404: RepoNotFound" in missing.err
        job.write_text(text.replace(hub.url, f"http://{cluster.plan.nodes[0].ip}:1"))
        unreached = cctl(cluster, "stage", job)
        assert "CC-STAGE-010" in unreached.err
        assert "no node reaches the server" in unreached.err
        assert "HF_ENDPOINT" in unreached.err
        chinese = cctl(cluster, "stage", job, CLUSTERCTL_LANG="zh")
        assert "没有节点能连接到服务器" in chinese.err, chinese.err


def test_a_download_that_fails_ends_at_once(cluster: Lab, tmp_path: Path) -> None:
    """With its cause alone: the nodes that would have taken it are not to blame, and wait for nothing."""
    with hub_in(cluster) as hub:
        url = f"{hub.url}/org/name/resolve/main/model-2.safetensors"
        stage = [{"from": url, "to": "~/staged-hub/", "sha256": "0" * 64}]
        job = make_project(tmp_path, "print(1)", nodes=3, stage=stage)
        hub.order("rate 12000000")  # the others wait for it when it fails
        failed = cctl(cluster, "stage", job)
        assert failed.code == 1
        assert "CC-STAGE-015" in failed.err, failed.err
        assert "model-2.safetensors: what came does not have the hash" in failed.err
        assert "could not fetch" not in failed.err
        assert "too slow" not in failed.err
        wait_until(lambda: not running_processes(cluster), "no process is left")
