"""Import invoke and paramiko without what only tests with them, settings files and version numbers need.

invoke imports unittest.mock, and with it asyncio, for a class that only tests use, and YAML for settings files, which
are not read here; paramiko imports importlib.metadata for its own version. Together 65 of 135 ms (paramiko 5.1, invoke
2.2). Whichever module of ours is the first to import one of the two, the finder is asked for it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

StandIns = Mapping[str, Mapping[str, Any]]


def import_lean() -> None:
    """Let invoke and paramiko be imported like this from now on."""
    if not any(isinstance(finder, LeanFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, LeanFinder())


class LeanFinder:
    """Finds the two where Python does, and has each executed with stand-ins for some modules."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for the two only."""
        if name not in STAND_INS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LeanLoader(spec.loader, STAND_INS[name])  # type: ignore[assignment]  # a loader by shape
        return spec


class LeanLoader:
    """Executes a module in place of its own loader, which the module has from then on."""

    def __init__(self, loader: Any, stand_ins: StandIns) -> None:
        self._loader, self._stand_ins = loader, stand_ins

    def __getattr__(self, name: str) -> Any:
        """Answer as the module's own loader does, when the file is looked for and not imported."""
        if name == "_loader":  # which a copy has not yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to the module's own loader."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Execute it while the stand-ins are there; a later import gets the real ones."""
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        placed = {name: _make_stand_in(name, values) for name, values in self._stand_ins.items()}
        placed = {name: stand_in for name, stand_in in placed.items() if name not in sys.modules}
        sys.modules.update(placed)
        try:
            self._loader.exec_module(module)
        finally:
            for name, stand_in in placed.items():
                if sys.modules.get(name) is stand_in:
                    del sys.modules[name]


def _make_stand_in(name: str, values: Mapping[str, Any]) -> ModuleType:
    """Make a module of these values; all others come from the real one, so another version may ask for more."""
    stand_in = ModuleType(name)

    def find(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
        return getattr(import_module(name), attribute)

    vars(stand_in).update(values, __getattr__=find)
    return stand_in


def read_version(package: str) -> str:
    """Give the version of a package that is being imported, by the name of the directory of its metadata."""
    folder = Path(sys.modules[package].__path__[0]).parent
    found = [entry.stem.partition("-")[2] for entry in folder.glob(f"{package}-*.dist-info")]
    if len(found) == 1:
        return found[0]
    sys.modules.pop("importlib.metadata", None)
    version: str = import_module("importlib.metadata").version(package)
    return version


STAND_INS: Mapping[str, StandIns] = {
    "invoke": {"unittest.mock": {"Mock": object}, "invoke.vendor.yaml": {}},
    "paramiko": {"importlib.metadata": {"version": read_version}},
}
