"""Inventories and jobs remembered by their text: reading YAML and its models is a third of a command's start."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from clusterctl.runs.aside import keep_newest, write_aside

MOST = 50  # texts that are remembered
HOMES = ("clusterctl.specs.inventory", "clusterctl.specs.job", "clusterctl.specs.waiver")
SPECS = Path(__file__).parent.parent / "specs"

T = TypeVar("T")


def parse_once(folder: Path, text: str, file: str, kind: type[T], parse: Callable[[str, str], T]) -> T:
    """Return what a text was parsed to before, else parse it, and remember it if nothing was wrong with it.

    `kind` is what the parser returns, a value from one of HOMES. A cache that is damaged is no cache, and one that
    cannot be written is only slower.
    """
    kept = folder / _key(text, file, kind)
    known = _load(kept, kind)
    if known is not None:
        return known
    value = parse(text, file)
    try:
        write_aside(kept, pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
    except OSError:
        return value
    keep_newest(folder, MOST)
    return value


def _key(text: str, file: str, kind: type[object]) -> str:
    """Name a text by all that its value depends on: where it stands, and the code that parses it."""
    parts = (sys.version, _code(), kind.__name__, file, text)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _code() -> str:
    """Tell this version of the specs from every other one, installed or being worked on, as Python does."""
    with os.scandir(SPECS) as found:
        stats = sorted((entry.name, entry.stat()) for entry in found if entry.name.endswith(".py"))
    return f"{SPECS} {[(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]}"


def _load(kept: Path, kind: type[T]) -> T | None:
    try:
        value = _Values(io.BytesIO(kept.read_bytes())).load()
    except Exception:  # whatever a damaged file does to the reader
        return None
    return value if isinstance(value, kind) else None


class _Values(pickle.Unpickler):
    """Reads our own frozen values and plain data; a file with anything else in it runs nothing and is refused."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Find one of our values by its name."""
        found = getattr(import_module(module_name), global_name) if module_name in HOMES else None
        if not (isinstance(found, type) and is_dataclass(found)):
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is no value of a spec")
        return found
