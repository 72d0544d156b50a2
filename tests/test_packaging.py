"""What a user gets: commands that start fast, metadata that agrees, scripts that any sh can read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
    """`clusterctl --help` must come at once."""
    loaded = modules_after("from clusterctl.cli.main import run\nassert run(['--help']) == 0")

    assert "click" in loaded
    assert loaded & HEAVY == set()


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
