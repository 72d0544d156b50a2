"""Inventories and jobs remembered by their text: reading YAML and its models is a third of a command's start."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from clusterctl.client.local.private_files import keep_newest, read_own, write_own
from clusterctl.specs.serialization import from_plain, to_plain

MAX_TEXTS = 50  # texts that are remembered
SPECS = Path(__file__).parents[2] / "specs"

T = TypeVar("T")


def parse_once(folder: Path, text: str, file: str, kind: type[T], parse: Callable[[str, str], T]) -> T:
    """Return what a text was parsed to before, else parse it, and remember it if nothing was wrong with it.

    `kind` is what the parser returns, one of the models of `specs`. A cache that is damaged is no cache, and one that
    cannot be written is only slower.
    """
    cache_file = folder / f"{_key(text, file, kind)}.json"
    cached = _load(cache_file, kind)
    if cached is not None:
        return cached
    value = parse(text, file)
    try:
        write_own(cache_file, json.dumps(to_plain(value)))
    except OSError:
        return value
    keep_newest(folder, MAX_TEXTS)
    return value


def _key(text: str, file: str, kind: type[object]) -> str:
    """Name a text by all that its value depends on: where it stands, and the code that parses it."""
    parts = (sys.version, _specs_version(), kind.__name__, file, text)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _specs_version() -> str:
    """Identify this version of the specs, installed or being worked on, as Python does."""
    stats = sorted((str(path), path.stat()) for path in SPECS.rglob("*.py"))
    return f"{SPECS} {[(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]}"


def _load(cache_file: Path, kind: type[T]) -> T | None:
    try:
        value = from_plain(json.loads(read_own(cache_file)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return value if isinstance(value, kind) else None
