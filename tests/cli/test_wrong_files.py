"""Files that are not what a verb wants: what is wrong, and the file or command that was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.cli.main import run as main

INVENTORY = "cluster: c\nnodes:\n  - {host: 192.0.2.1, name: gpu01, nic: eth0, gpus: 2}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a directory with an inventory and a script."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    (tmp_path / "t.py").write_text("")
    return tmp_path


def test_a_directory_stands_for_the_job_in_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`launch DIR` takes DIR/job.yaml, with the code beside it, and reports it; so does -i with the inventory."""
    project = folder / "project"
    project.mkdir()
    (project / "job.yaml").write_text("name: j\nscript: t.py\n")
    (project / "t.py").write_text("")
    (project / "inventory.yaml").write_text(INVENTORY)

    assert main(["-i", "project", "launch", "project", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "job: project/job.yaml" in err and "inventory: project/inventory.yaml" in err
    assert f"from {project}" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sync", "train.py"], "clusterctl init --script train.py"),
        (["launch", "nowhere.py"], "there is no script nowhere.py"),
        (["launch", "."], ". is a directory without job.yaml"),
        (["-i", "state", "ps"], "state is a directory without inventory.yaml"),
        (["check", "jib.yaml"], "did you mean job.yaml?"),
        (["-i", "inventry.yaml", "ps"], "did you mean inventory.yaml?"),
        (["check", "other.txt"], "give the path of an existing file"),
    ],
)
def test_the_file_that_was_meant_is_named(
    folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nearest name, the usual name, or the command that makes a job for a script."""
    (folder / "train.py").write_text("import torch\nprint(1)\n")
    (folder / "state").mkdir()
    if words != ["launch", "."]:
        (folder / "job.yaml").write_text("name: j\nscript: t.py\n")
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_a_missing_script_leads_to_its_line_and_to_the_script_that_there_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line of the job file, the directory, and the only script in it; or why a script is not sent."""
    (folder / "job.yaml").write_text("name: j\nscript: missing.py\n")
    assert main(["launch", "job.yaml", "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert f"job.yaml:2: script: missing.py not found in {folder}; there is t.py" in error

    (folder / "missing.py").write_text("")
    (folder / ".gitignore").write_text("missing.py\n")
    assert main(["launch", "job.yaml", "--dry-run"]) == 2
    assert "excluded by .gitignore or sync.exclude" in capsys.readouterr().err
    assert main(["launch", "job.yaml", "--dry-run", "--set", "script=other.py"]) == 2
    assert "job.yaml: script: other.py not found" in capsys.readouterr().err


def test_an_unknown_key_has_the_guess_or_the_list_of_keys_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list is long; where the guess is right it only hides it. And `check` starts nothing anyway."""
    (folder / "job.yaml").write_text("name: j\nscirpt: t.py\nscript: t.py\nwalltime: 1\nqueue: 1\n")
    assert main(["check", "job.yaml"]) == 2
    error = capsys.readouterr().err
    assert (
        "unknown key 'scirpt', did you mean 'script'?\n    2 | scirpt: t.py\n      | ^\njob.yaml:4:1:"
        in error
    )
    assert error.count("known keys: name, script, ") == 1
    assert "nothing was started" not in error
