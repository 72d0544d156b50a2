"""What a user gets: commands that start fast, metadata that agrees, scripts that any sh can read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import clusterctl

ROOT = Path(__file__).parent.parent
HEAVY = {"fabric", "invoke", "paramiko", "cryptography", "pydantic", "rich", "ruamel", "torch", "asyncio"}
SCRIPTS = ["demo", "test", "tests/under-load", "tools/bootstrap.sh"]


def modules_after(code: str) -> set[str]:
    """Run the code in a fresh interpreter and name the top-level modules that it leaves behind."""
    report = "import json, sys\nprint(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    command = [sys.executable, "-c", f"{code}\n{report}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_imports_nothing_heavy() -> None:
    """`clusterctl --help` must come at once: it finds no inventory, lab or directory of the user's."""
    loaded = modules_after("from clusterctl.cli.main import run\nassert run(['--help']) == 0")

    assert "click" in loaded
    assert loaded & {*HEAVY, "platformdirs"} == set()


def test_the_package_itself_imports_nothing_else() -> None:
    """`import clusterctl` costs nothing but the standard library."""
    assert modules_after("import clusterctl") & {*HEAVY, "click", "platformdirs"} == set()


def test_both_names_of_the_command_lead_to_the_same_function() -> None:
    """`cctl` stands in where another clusterctl is installed."""
    found = {entry.name: entry.value for entry in entry_points(group="console_scripts")}

    assert found["clusterctl"] == found["cctl"] == "clusterctl.__main__:main"


def test_the_version_is_reported_once() -> None:
    """The installed metadata reports what the source reports."""
    assert version("clusterctl") == clusterctl.__version__


def test_the_changelog_knows_this_version() -> None:
    """No release without a word to its users."""
    assert f"## [{clusterctl.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_builds_carry_the_compiled_catalogue(tmp_path: Path) -> None:
    """A checkout does not have it: git holds its text."""
    tree, built = tmp_path / "tree", tmp_path / "built"
    for name in (".gitignore", "LICENSE", "README.md", "clusterctl", "docs/man", "pyproject.toml", "tools"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, tree / name)
    catalogue = Path("clusterctl/locale/zh_CN/LC_MESSAGES/clusterctl.mo")
    expected = (tree / catalogue).read_bytes()
    (tree / catalogue).unlink()

    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", built], cwd=tree, check=True)

    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as packed:
        assert packed.read(str(catalogue)) == expected
    with tarfile.open(sdist) as archive:
        inside = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/{catalogue}")
        assert inside is not None and inside.read() == expected


def test_without_the_compiled_catalogue_all_is_english(tmp_path: Path) -> None:
    """As in a checkout that nothing has set up."""
    program = (
        "import clusterctl.translation as language, pathlib\n"
        f"language.CATALOGUES = pathlib.Path({str(tmp_path)!r})\n"
        "language.use_language('zh')\n"
        "from clusterctl.cli.main import run\n"
        "assert run(['--help']) == 0"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "Show this message and exit." in done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_plain_sh(script: str) -> None:
    """They must run where /bin/sh is dash."""
    file = ROOT / script

    assert file.read_text(encoding="utf-8").startswith("#!/bin/sh\n")
    assert os.access(file, os.X_OK)
    assert subprocess.run(["sh", "-n", file], check=False).returncode == 0


@pytest.mark.parametrize("words", [[], ["tests"]])
def test_bootstrap_refuses_what_it_does_not_know(words: list[str]) -> None:
    """A wrong word is answered with the right ones, and nothing is installed."""
    done = subprocess.run([ROOT / "tools/bootstrap.sh", *words], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "demo|check|test|all" in done.stderr
