"""Import paramiko without what only tests with it, settings files and version numbers need."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def import_paramiko() -> None:
    """Import paramiko and invoke, which it uses, without unittest.mock, asyncio, YAML and importlib.metadata.

    invoke imports the first three for a class that only tests use and for settings files, which are not read here;
    paramiko imports the last for its own version. Together 65 of 135 ms (paramiko 5.1, invoke 2.2).
    """
    if "invoke" in sys.modules:
        return
    contents: dict[str, dict[str, Any]] = {
        "unittest.mock": {"Mock": object},
        "invoke.vendor.yaml": {},
        "importlib.metadata": {"version": read_version},
    }
    stand_ins = {
        name: make_module(name, values) for name, values in contents.items() if name not in sys.modules
    }
    sys.modules.update(stand_ins)
    try:
        import_module("paramiko")
    finally:
        for name, module in stand_ins.items():  # a later import gets the real one
            if sys.modules.get(name) is module:
                del sys.modules[name]


def make_module(name: str, values: dict[str, Any]) -> ModuleType:
    """Make a module of these values."""
    module = ModuleType(name)
    vars(module).update(values)
    return module


def read_version(package: str) -> str:
    """Give the version of a package that is being imported, by the name of the directory of its metadata."""
    folder = Path(sys.modules[package].__path__[0]).parent
    found = [entry.stem.partition("-")[2] for entry in folder.glob(f"{package}-*.dist-info")]
    if len(found) == 1:
        return found[0]
    sys.modules.pop("importlib.metadata", None)
    version: str = import_module("importlib.metadata").version(package)
    return version
