"""A whole run over the user's own ssh program, and what is left of it on this side."""

from __future__ import annotations

from pathlib import Path

from driving import STUBBED, cctl, leftovers, make_project, said

from clusterctl.lab.labs import Lab


def test_check_and_launch_over_openssh(cluster: Lab, tmp_path: Path, place: Path) -> None:
    """One line in the inventory, and the same run comes out; no master and no socket outlive the command."""
    inventory = tmp_path / "inventory.yaml"
    text = cluster.inventory.read_text(encoding="utf-8")
    inventory.write_text(text.replace("\nssh:\n", "\nssh:\n  transport: openssh\n"), encoding="utf-8")
    job = make_project(tmp_path / "job", "import os; print(os.environ['RANK'])", env=STUBBED)
    done = cctl(cluster, "-i", inventory, "launch", job, "--json", XDG_RUNTIME_DIR=str(place))
    assert done.code == 0, done.err
    assert sorted(said(done.json_lines())) == ["0", "1", "2"]
    assert leftovers(cluster) == {}
    assert list(place.iterdir()) == []
