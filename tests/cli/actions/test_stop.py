"""What `stop` reports when a run belongs to another account, or to another client of the same user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.cli.actions import stop
from clusterctl.client.rpc.cluster import Outcome, Steps
from clusterctl.client.rpc.tasks import RunHandle, StopReport
from clusterctl.errors import NodeError, UsageError
from clusterctl.plans.runs.selection import Owner
from clusterctl.plans.runs.state import parse_state
from clusterctl.protocol.run_id import parse_run_id
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.parse import parse_inventory

RUN = parse_run_id("a-20260101T000000-0001")
assert RUN is not None
NODES = parse_inventory("cluster: c\nnodes: [{host: gpu01}]", "-").nodes


@pytest.fixture(autouse=True)
def me(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be someone whom the tests know."""
    monkeypatch.setattr(stop, "current_owner", lambda: Owner("ann@x", "id-1"))


def test_a_run_of_another_account_is_not_called_ended(capsys: pytest.CaptureFixture[str]) -> None:
    """It is an error with a code and the account, the exit code is 5, and the summary names the node."""
    report = StopReport((), (), None, "nobody")
    cluster: Any = SimpleNamespace(
        each=lambda *_, **__: [Outcome(NODES[0], report, None, 0.0)], steps=Steps()
    )

    assert stop.stop_run(RunHandle(cluster, RUN, NODES, {}), stop.KnownParts(), None) == 5

    said = capsys.readouterr()
    assert "CC-RUN-018" in said.err
    assert "account nobody" in said.err
    assert said.out == f"{RUN}: not stopped on gpu01\n"


@pytest.mark.parametrize("interrupted", [False, True])
def test_results_are_printed_once_the_progress_is_gone(
    capsys: pytest.CaptureFixture[str], interrupted: bool
) -> None:
    """A line of stdout between two of the progress would be cut by the next; on Ctrl-C what is known is not lost."""
    printed: list[str] = []

    def each(*_: Any, **__: Any) -> Iterator[Outcome[StopReport]]:
        yield Outcome(NODES[0], StopReport(("rank 0 (pid 7)",), (), None), None, 0.0)
        printed.append(capsys.readouterr().out)
        if interrupted:
            raise KeyboardInterrupt

    cluster: Any = SimpleNamespace(each=each, steps=Steps())
    code = stop.stop_run(RunHandle(cluster, RUN, NODES, {}), stop.KnownParts(), None)

    out = capsys.readouterr().out.splitlines()
    assert (code, printed) == (130 if interrupted else 0, [""])
    assert out[0].startswith("gpu01: stopped rank 0 (pid 7)")
    assert interrupted or out[1:] == [f"{RUN}: stopped"]


def test_ctrl_c_leaves_one_document_with_every_node(capsys: pytest.CaptureFixture[str]) -> None:
    """A node that has not answered is among the missed, whether its connection was tried or not."""
    nodes = parse_inventory("cluster: c\nnodes: [{host: gpu01}, {host: gpu02}, {host: gpu03}]", "-").nodes

    def each(*_: Any, **__: Any) -> Iterator[Outcome[StopReport]]:
        state = parse_state(Untrusted({"run": str(RUN), "state": "STOPPED"}))
        yield Outcome(nodes[0], StopReport(("rank 0 (pid 7)",), (), state), None, 0.0)
        yield Outcome(nodes[2], None, NodeError("CC-RUN-018", node="gpu03", account="bob"), 0.0)
        raise KeyboardInterrupt

    cluster: Any = SimpleNamespace(each=each, steps=Steps())
    assert stop.stop_run(RunHandle(cluster, RUN, nodes, {}), stop.KnownParts(), None, as_json=True) == 130

    said = json.loads(capsys.readouterr().out)
    assert said["nodes"]["gpu01"] == {"ended": ["rank 0 (pid 7)"], "left": [], "state": "STOPPED"}
    assert said["missed"] == ["gpu03", "gpu02"]


def test_the_same_name_from_another_machine_is_distinguished() -> None:
    """A run of `ann@x` that another state directory launched is not stopped without a question."""
    sent = {"run": RUN, "node": "gpu01", "nnodes": 1, "state": "RUNNING"}
    owner = {"launched_by": "ann@x", "launched_id": "id-2"}
    parts = {"gpu01": parse_state(Untrusted({**sent, **owner}))}

    with pytest.raises(UsageError, match="but from another machine or state directory") as caught:
        stop.confirm_stop(RUN, parts, named=True, label="p", command="clusterctl")

    assert caught.value.code == "CC-USE-025"


def test_a_part_that_the_other_nodes_have_ended_was_stopped_too() -> None:
    """They may have the order first; where nothing ended anywhere, or by another order, nothing was running."""

    def report(ended: tuple[str, ...], reason: str = "stopped by ann@x") -> StopReport:
        state = parse_state(Untrusted({"run": str(RUN), "state": "STOPPED", "reason": reason}))
        return StopReport(ended, (), state)

    def listed(*reports: StopReport, before: tuple[str, ...] = ()) -> list[str]:
        by_node = {f"gpu0{number}": one for number, one in enumerate(reports, start=1)}
        lines = stop.render_all_stopped(by_node, "stopped by ann@x", before)
        return [line.partition(": ")[2] for line in lines]

    one = report(("rank 0 (pid 7)",))
    assert listed(report(()), one) == ["stopped by the other nodes", "stopped rank 0 (pid 7)"]
    assert listed(report(()), report(())) == ["nothing was running"] * 2
    assert listed(report(()), one, before=("gpu01",))[0] == "nothing was running"
    assert listed(report((), "rank 0 failed"), one)[0] == "nothing was running"
