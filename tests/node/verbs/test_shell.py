"""The variables of a program that is started in a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterctl.node.verbs.shell import render_known, run_environment


def test_a_shell_has_the_jobs_variables_and_none_of_a_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that has ended."""
    spec = {"run": "r-1", "node": "gpu01", "env": {"A": "b"}, "output_dir": "/out", "python": "/py"}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("PET_LOG_DIR", "/x")
    env = run_environment(str(tmp_path))
    assert (env["A"], env["CLUSTERCTL_OUTPUT_DIR"], env["CLUSTERCTL_PYTHON"]) == ("b", "/out", "/py")
    assert not {"RANK", "PET_LOG_DIR", "CLUSTERCTL_RUN"} & set(env)
    assert render_known({"A": ["x", {"fill": "b"}], "C": [{"fill": "d"}]}, {"b": "y"}) == {"A": "xy"}
