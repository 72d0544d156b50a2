"""What invoke and paramiko import, but clusterctl never uses, is not loaded; nothing else is different."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

CHECK = """
import sys
loaded = {"asyncio", "unittest", "unittest.mock", "importlib.metadata", "invoke.vendor.yaml"} & set(sys.modules)
import inspect, unittest.mock, importlib.metadata, fabric, invoke, paramiko
from invoke.vendor import yaml
print(sorted(loaded), paramiko.__version__, unittest.mock.Mock.__module__, yaml.safe_load("[1]"))
print(*(inspect.getsource(module) != "" for module in (invoke, paramiko)), type(invoke.__spec__.loader).__name__)
"""


def run(code: str) -> list[str]:
    """Run a program in an interpreter of its own; gives the lines that it prints."""
    done = subprocess.run([sys.executable, "-c", code + CHECK], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("first", ["fabric", "invoke", "paramiko", "clusterctl.client.rpc.tasks"])
def test_whoever_imports_it_first(first: str) -> None:
    """The real modules are there for a later import, versions and sources are as ever."""
    lean = "from clusterctl.client.ssh.lean_import import import_lean\nimport_lean()\n"
    assert run(f"{lean}import_lean()\nimport {first}") == [
        f"[] {version('paramiko')} unittest.mock [1]",
        "True True SourceFileLoader",
    ]


def test_what_is_there_already_stays() -> None:
    """A program that has imported the real modules keeps them."""
    lean = "from clusterctl.client.ssh.lean_import import import_lean\nimport_lean()\n"
    code = f"import unittest.mock, importlib.metadata\nkept = unittest.mock\n{lean}import fabric\n"
    lines = run(f"{code}import invoke.context\nassert invoke.context.Mock is kept.Mock\n")
    assert lines[1] == "True True SourceFileLoader"


def test_every_command_begins_with_it() -> None:
    """`main` sees to it before it knows the verb."""
    code = "import clusterctl.cli.main as cli\ncli.run = lambda argv: 0\n"
    leave = "try:\n    cli.main([])\nexcept SystemExit:\n    pass\nimport clusterctl.client.rpc.tasks\n"
    assert run(code + leave)[0].startswith("[] ")
