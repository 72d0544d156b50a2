"""What a setup sends along: all that the lock file leads to, and nothing is sent before all of it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.client.launch.setup import read_setup_files
from clusterctl.errors import UsageError
from clusterctl.specs.job.model import Setup

VENV = Setup(venv="requirements.txt")


def write(folder: Path, **files: str) -> None:
    """Write files, `__` in a name for a slash."""
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_all_that_belongs_to_it(tmp_path: Path) -> None:
    """Included files, the wheelhouse behind a link, folders that are named; hidden files stay."""
    write(tmp_path / "shared", **{"a-1-py3-none-any.whl": "a", ".hidden": "x"})
    write(
        tmp_path / "job",
        **{"requirements.txt": "-r more/base.txt\n-e ./pkg\n", "more__base.txt": "-r ../last.txt\n"},
    )
    write(tmp_path / "job", **{"last.txt": "a==1\n", "pkg__setup.py": "", "train.py": ""})
    (tmp_path / "job" / "wheels").symlink_to(tmp_path / "shared")
    setup = Setup(venv="requirements.txt", wheelhouse="wheels", files=("pkg",))
    found = read_setup_files(setup, {}, tmp_path / "job", None)

    assert [entry.path for entry in found.scan.manifest.entries] == [
        "last.txt",
        "more/base.txt",
        "pkg/setup.py",
        "requirements.txt",
        "wheels/a-1-py3-none-any.whl",
    ]
    assert b"".join(one.body for one in found.scan.contents.shipments(list(found.scan.manifest.blobs)))


@pytest.mark.parametrize(
    ("setup", "files", "said", "fix"),
    [
        (VENV, {}, "requirements.txt: No such file or directory", "relative to the job file"),
        (
            VENV,
            {"requirements.txt": "-r ../common.txt\n"},
            "refers to ../common.txt, which is outside",
            "copy it into the job file",
        ),
        (VENV, {"requirements.txt": "-e ./pkg\n"}, "installs from pkg, which is not sent", "files: [pkg]"),
        (VENV, {"requirements.txt": "-r a\0b\n"}, "embedded null byte", "relative to the job file"),
        (
            Setup(conda="e.yml"),
            {"e.yml": "dependencies:\n  - pip:\n    - -r r.txt\n"},
            "r.txt: No such file",
            "relative to the job file",
        ),
        (
            Setup(uv="uv.lock"),
            {"uv.lock": ""},
            "pyproject.toml: No such file",
            "relative to the job file",
        ),
        (
            Setup(venv="requirements.txt", wheelhouse="w"),
            {"requirements.txt": "", "w__readme.txt": ""},
            "setup.wheelhouse: no wheels in w",
            "pip download -r requirements.txt -d w",
        ),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, setup: Setup, files: dict[str, str], said: str, fix: str
) -> None:
    """Before any node is asked, with the way out."""
    write(tmp_path, **files)
    with pytest.raises(UsageError) as caught:
        read_setup_files(setup, {}, tmp_path, None)

    assert caught.value.code == "CC-SETUP-003"
    assert said in caught.value.message
    assert fix in caught.value.fix


def test_a_link_in_the_place_of_a_file(tmp_path: Path) -> None:
    """It is named itself, not the folder that it is in."""
    write(tmp_path, **{"requirements.txt": "", "real.whl": ""})
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "a-1-py3-none-any.whl").symlink_to(tmp_path / "real.whl")
    with pytest.raises(UsageError) as caught:
        read_setup_files(Setup(venv="requirements.txt", wheelhouse="w"), {}, tmp_path, None)

    assert "w/a-1-py3-none-any.whl: a link, or not a file" in caught.value.message
