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


def test_another_version_may_need_more_of_them() -> None:
    """What a stand-in does not have comes from the real module, and so does all that is asked for later."""
    code = (
        "import invoke.context, sys\n"
        "from clusterctl.client.ssh.lean_import import LeanLoader\n"
        "class Loader:\n"
        "    def exec_module(self, module):\n"
        "        from unittest.mock import Mock, patch\n"
        "        from importlib.metadata import PackageNotFoundError\n"
        "        module.found = Mock is object, patch.__module__, PackageNotFoundError.__module__\n"
        "stand_ins = {'unittest.mock': {'Mock': object}, 'importlib.metadata': {'version': str}}\n"
        "loader, module = LeanLoader(Loader(), stand_ins), type(sys)('sample')\n"
        "loader.exec_module(module)\n"
        "assert module.found == (True, 'unittest.mock', 'importlib.metadata'), module.found\n"
        "assert sys.modules['unittest.mock'].Mock is not object\n"
        "assert invoke.util.yaml.safe_load('[2]') == [2], 'a settings file, if one were read'\n"
    )
    lean = "from clusterctl.client.ssh.lean_import import import_lean\nimport_lean()\n"
    assert run(lean + code)[1] == "True True SourceFileLoader"


def test_its_loader_answers_before_the_import() -> None:
    """Who looks for a file of the package without importing it finds it."""
    code = (
        "from clusterctl.client.ssh.lean_import import import_lean\n"
        "import_lean()\n"
        "import copy, importlib.util, pkgutil\n"
        "loader = importlib.util.find_spec('paramiko').loader\n"
        "assert loader.get_filename('paramiko').endswith('__init__.py')\n"
        "assert copy.copy(loader).is_package('paramiko')\n"
        "assert pkgutil.get_data('invoke', '__init__.py')\n"
    )
    assert run(code)[1] == "True True SourceFileLoader"


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
