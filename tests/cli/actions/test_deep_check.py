"""The notices of a deep check: the commands in them begin as the one in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ends import judge

from clusterctl.cli.actions import deep_check
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.watch.monitor import MonitorOptions
from clusterctl.plans.runs.verdict import Verdict
from clusterctl.protocol.run_id import RunId

RUN = RunId("deep-20261123T070708-923c")


def test_a_notice_names_the_command_with_its_inventory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It can be pasted, as of every other verb that follows a run."""

    class Monitor:
        """Reports what to do, and ends."""

        def __init__(self, *_: Any, notice: Callable[[str], None], **__: Any) -> None:
            self._notice = notice

        def watch(self) -> Verdict:
            """Report it."""
            self._notice("next: `clusterctl diagnose 923c`")
            return judge(RUN, {}, [])

    monkeypatch.setattr(deep_check, "RunMonitor", Monitor)
    deep_check.follow_rounds(Cluster(print), MonitorOptions(RUN, (), {}, {}), "clusterctl -i lab.yaml")
    assert "next: `clusterctl -i lab.yaml diagnose 923c`" in capsys.readouterr().err
