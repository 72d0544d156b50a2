"""The Pythons that a node finds, in a home made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from session import Session

from clusterctl.node.verbs.machine import pythons


def make_python(prefix: Path, version: str = "3.11", torch: str | None = None) -> None:
    """Make what looks like an environment."""
    packages = prefix / "lib" / f"python{version}" / "site-packages"
    packages.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").write_text("#!/bin/sh\n")
    (prefix / "bin" / "python").chmod(0o755)
    if torch is not None:
        (packages / "torch").mkdir()
        (packages / "torch" / "version.py").write_text(
            f"from typing import Optional\n__version__ = '{torch}'\n"
        )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and nothing of the system."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pythons, "SYSTEM", ())
    monkeypatch.setattr(
        pythons, "CONDA_BASES", [base for base in pythons.CONDA_BASES if base.startswith("~")]
    )
    monkeypatch.setattr(pythons, "ENVIRONMENTS", [one for one in pythons.ENVIRONMENTS if one.startswith("~")])
    return tmp_path


def test_environments_are_found_where_installers_put_them(home: Path) -> None:
    """Conda's base and environments, those that conda lists, venvs in the home and next to the code; torch first."""
    make_python(home / "miniconda3", "3.12")
    make_python(home / "miniconda3" / "envs" / "train", torch="2.13.0+cu128")
    make_python(home / "far" / "away" / "env", torch="2.4.0")
    make_python(home / "project" / ".venv", "3.10", "2.9.1")
    make_python(home / "deep" / "code" / "venv", torch="2.1.0")
    (home / ".conda").mkdir()
    (home / ".conda" / "environments.txt").write_text(f"{home}/far/away/env\n{home}/gone\nrelative\n")

    found = pythons.find_pythons(str(home / "deep" / "code"))

    assert {(one.path, one.version, one.torch) for one in found} == {
        ("~/miniconda3/envs/train/bin/python", "3.11", "2.13.0+cu128"),
        ("~/far/away/env/bin/python", "3.11", "2.4.0"),
        ("~/project/.venv/bin/python", "3.10", "2.9.1"),
        ("~/deep/code/venv/bin/python", "3.11", "2.1.0"),
        ("~/miniconda3/bin/python", "3.12", None),
    }
    assert found[-1].torch is None


def test_what_is_no_environment_is_left_out(home: Path) -> None:
    """A folder of that name, one whose Python cannot be run, and the same one by a link."""
    (home / "venv").mkdir()
    make_python(home / "a" / "venv")
    (home / "a" / "venv" / "bin" / "python").chmod(0o644)
    make_python(home / "b" / "venv", torch="2.0.0")
    (home / "c").mkdir()
    (home / "c" / "venv").symlink_to(home / "b" / "venv")

    assert [one.path for one in pythons.find_pythons("")] == ["~/b/venv/bin/python"]


def test_many_environments_are_cut(home: Path) -> None:
    """A home with hundreds of them: those with torch stay."""
    for number in range(80):
        make_python(home / "envs" / f"e{number:02}", torch="2.0.0" if number % 40 == 39 else None)

    found = pythons.find_pythons("")

    assert len(found) == pythons.MAX_PYTHONS
    assert [one.torch for one in found[:3]] == ["2.0.0", "2.0.0", None]


def test_the_verb_answers_with_both_lists(tmp_path: Path) -> None:
    """One frame; a venv next to the code is among the Pythons, whatever else this machine has."""
    make_python(tmp_path / "code" / ".venv", torch="2.13.0")
    request = {"workdir": str(tmp_path), "node": "one", "code": str(tmp_path / "code")}
    with Session("pythons", request) as session:
        header, _ = session.receive()

    found = {
        "path": str(tmp_path / "code" / ".venv" / "bin" / "python"),
        "version": "3.11",
        "torch": "2.13.0",
    }
    assert found in header["pythons"] and isinstance(header["modules"], list)
