"""The job of a script that has none: its environment from what lies in the folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clusterctl.cli.actions.init.machines import has_gpus
from clusterctl.cli.actions.init.script import SetupDraft, draft_job, draft_setup
from clusterctl.protocol.messages.facts import Facts, Gpu, Gpus
from clusterctl.specs.job.parse import parse_job
from clusterctl.specs.render import render_brief_job, render_job


@pytest.mark.parametrize(
    ("files", "keys", "new"),
    [
        ({}, {"venv": "requirements.txt"}, "torch==2.13.0\nnumpy\npillow\n"),
        ({"requirements.txt": "torch\n"}, {"venv": "requirements.txt"}, None),
        (
            {"requirements.txt": "numpy\n"},
            {"venv": "requirements.txt", "run": ["python -m pip install torch==2.13.0"]},
            None,
        ),
        ({"uv.lock": "", "requirements.txt": "torch\n"}, {"uv": "uv.lock"}, None),
        ({"environment.yml": "name: x\n"}, {"conda": "environment.yml"}, None),
    ],
)
def test_a_setup_from_the_lock_file_of_the_folder(
    tmp_path: Path, files: dict[str, str], keys: dict[str, object], new: str | None
) -> None:
    """The most exact one is taken; only where there is none a requirements file is made from the imports."""
    (tmp_path / "train.py").write_text("import torch, PIL, helper\n")
    (tmp_path / "helper.py").write_text("")
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    setup = draft_setup(tmp_path, "train.py", "2.13.0+cu128")

    assert setup.keys == keys
    assert setup.new_files == ({} if new is None else {"requirements.txt": new})
    draft = draft_job(tmp_path, "train.py", "job", has_gpus=False, setup=setup)
    whole, brief = (parse_job(text, "job.yaml") for text in (render_job(draft), render_brief_job(draft)))
    assert replace(whole, sync=brief.sync) == brief


def test_a_long_line_keeps_its_comment_apart(tmp_path: Path) -> None:
    """YAML begins a comment only after a space."""
    (tmp_path / "t.py").write_text("p.add_argument('--output-dir')")

    text = render_job(draft_job(tmp_path, "t.py", "job", has_gpus=True, setup=SetupDraft()))

    assert 'args: [--output-dir, "${output_dir}"]  # found in the script\n' in text
    assert parse_job(text, "job.yaml").args == ("--output-dir", "${output_dir}")


def test_one_machine_with_a_gpu_makes_a_job_for_gpus() -> None:
    """A machine whose driver is broken is then named by `check`; it must not turn the training to processors."""
    with_gpu, without = Facts(gpus=Gpus(count=1, devices=(Gpu(name="A100"),))), Facts()

    assert has_gpus({"a": with_gpu, "b": without})
    assert not has_gpus({"a": without, "b": without})
