"""The proof on the wire as this side leads it: real probes over a real sshd, and nodes that hang or die meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Client, Server
from waiting import wait_until

from clusterctl.client import preflight
from clusterctl.client.preflight import MeshMember, run_mesh_test
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.session import Interpreter
from clusterctl.plans.diagnose.network_tests import MASTER, MESH
from clusterctl.specs.inventory.model import Node

Take = Callable[[int], tuple[MeshMember, int]]


@pytest.fixture
def take(server: Server, client: Client) -> Take:
    """Probe a node of this machine at 127.0.1.N; gives its part and the pid of its process."""

    def make(number: int) -> tuple[MeshMember, int]:
        before = set(server.children())
        node: Node = server.node(f"n{number}")
        connection = client.connect(node)
        _, session = tasks.probe_and_stay(
            connection, node, Interpreter("python3", None), [node], tasks.ProbeOptions()
        )
        fresh = set(server.children()) - before
        pid = next(
            pid for pid in sorted(fresh) if b"clusterctl-boot" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        return MeshMember(session, {"": f"127.0.1.{number}"}), pid

    return make


def test_all_take_part_and_leave(take: Take) -> None:
    """Every caller reports it; then their processes have ended."""
    parts = {f"n{number}": take(number) for number in (1, 2, 3)}
    wire = run_mesh_test({name: taker for name, (taker, _) in parts.items()})
    assert wire.absent == {}
    assert {way.ends for way in wire.select_paths(MESH)} == {(a, b) for a in parts for b in parts if a != b}
    assert {way.ends for way in wire.select_paths(MASTER)} == {("n2", "n1"), ("n3", "n1")}
    assert all(way.open for way in wire.paths), wire.paths
    pids = [pid for _, pid in parts.values()]
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of all")


def test_one_that_hangs_costs_its_limit_only(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped is absent; the others prove their ways without it."""
    monkeypatch.setattr(preflight, "LISTEN_LIMIT", 4.0)
    parts = {f"n{number}": take(number) for number in (1, 2, 3)}
    os.kill(parts["n1"][1], signal.SIGSTOP)
    try:
        wire = run_mesh_test({name: taker for name, (taker, _) in parts.items()})
    finally:
        os.kill(parts["n1"][1], signal.SIGCONT)
    assert wire.absent == {"n1": "it did not answer within 4 s"}
    assert {way.ends for way in wire.paths} == {("n2", "n3"), ("n3", "n2")}
    assert wire.seconds >= 4.0


def test_one_that_dies_or_cannot_listen_is_told(take: Take) -> None:
    """A killed process and an address that is not the node's are told, and stop nobody."""
    parts = {f"n{number}": take(number) for number in (1, 2, 3, 4)}
    os.kill(parts["n2"][1], signal.SIGKILL)
    takers = {name: taker for name, (taker, _) in parts.items()}
    takers["n3"] = MeshMember(takers["n3"].session, {"": "192.0.2.7"})
    wire = run_mesh_test(takers)
    assert wire.absent["n3"] == "it cannot listen on 192.0.2.7: Cannot assign requested address"
    assert "n2" in wire.absent
    assert {way.ends for way in wire.select_paths(MESH)} == {("n1", "n4"), ("n4", "n1")}
    assert all(way.open for way in wire.paths)
