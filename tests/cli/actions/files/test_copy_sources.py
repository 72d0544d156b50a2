"""`cp` from several nodes to others: what becomes of the rest if one fails, and of what cannot be copied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clusterctl.cli.actions.files.copy import Copy, CopyOptions, Results
from clusterctl.client.sync.upload import SentFiles
from clusterctl.errors import NodeError
from clusterctl.plans.sync.listed_files import parse_copy_path
from clusterctl.specs.inventory.parse import parse_inventory

INVENTORY = parse_inventory("cluster: c\nnodes: [{host: gpu01}, {host: gpu02}, {host: gpu03}]", "-")
SENT = SentFiles(1, 1, 0, (), 0, 1, 0)


def test_a_source_that_fails_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one error among the results; the only one ends the command."""
    copy, relayed = Copy(INVENTORY, CopyOptions()), list[tuple[str, str]]()

    def relay(_: Any, source: Any, *others: Any) -> None:
        if source.name == "gpu01":
            raise NodeError("CC-COPY-002", "reported", node="gpu01", message="log does not exist")
        relayed.append((source.name, others[2].path))

    monkeypatch.setattr(copy, "_relay_from", relay)
    no_cluster: Any = SimpleNamespace(open_early=lambda *_, **__: None)
    copy._relay(no_cluster, parse_copy_path("gpu[01-02]:log"), parse_copy_path("gpu03:"), folder=True)
    assert relayed == [("gpu02", "gpu02/")]
    assert [error.node for error in copy._results.errors] == ["gpu01"]
    with pytest.raises(NodeError, match="log does not exist"):
        copy._relay(no_cluster, parse_copy_path("gpu01:log"), parse_copy_path("gpu03:"), folder=True)


@pytest.mark.parametrize(("left_out", "code"), [(False, 0), (True, 5)])
def test_what_was_left_out_is_not_everything(left_out: bool, code: int) -> None:
    """A script sees that a link that leads out, or a device, is not there."""
    results = Results(left_out=left_out)
    results.add_sent("/data/", "gpu03", SENT)
    assert results.exit_code == code
