"""What the page of one run is drawn from: the states as they come, and the records that were read last."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.cli.actions.find_runs import FoundRuns
from clusterctl.cli.actions.monitor.ui import source
from clusterctl.cli.actions.monitor.ui.feed import View
from clusterctl.cli.actions.monitor.ui.source import RunFollower
from clusterctl.client.run_evidence import Records
from clusterctl.plans.report.markup import Html
from clusterctl.plans.runs.history import NodeRecord, Progress
from clusterctl.plans.runs.state import parse_state
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted

RUN = RunId("digits-20261123T070708-923c")


class Shown(View):
    """The newest part of each place of the page, as markup."""

    def __init__(self) -> None:
        super().__init__(RUN)
        self.parts: dict[str, str] = {}

    def publish(self, name: str, html: Html) -> None:
        """Note it."""
        super().publish(name, html)
        self.parts[name] = html.markup


def test_the_head_shows_the_epoch_of_the_last_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state alone has none; it stays when the next state comes."""
    progress = Progress(step=40, total=200, epoch=1.5, epochs=3)
    records = Records({"gpu01": NodeRecord("gpu01", progress=progress)}, {})
    monkeypatch.setattr(source, "fetch_records", lambda *_: records)
    inventory: Any = SimpleNamespace(nodes=(), slurm=None)
    cluster: Any = SimpleNamespace(inventory=inventory, cluster=None, command="cctl", label="cctl")
    view = Shown()
    follower = RunFollower(cluster, view)
    raw = {"run": RUN, "job": "digits", "node": "gpu01", "nnodes": 1, "node_rank": 0, "state": "STOPPED"}
    follower._found = 0.0, FoundRuns({RUN: {"gpu01": parse_state(Untrusted(raw))}}, (), 1, {}, {})
    follower._publish_state()
    assert "1.5 of 3" not in view.parts["head"]
    follower._draw()
    follower._publish_state()
    assert "1.5 of 3" in view.parts["head"] and "40 of 200" in view.parts["head"]
