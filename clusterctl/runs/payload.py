"""What is sent to the nodes: the few modules that a verb needs, or the whole payload as one zip.

Two packages travel, under the names that they have here: `clusterctl.payload` and, of what both sides share,
`clusterctl.protocol`. They are read as files, never imported. A verb's modules are found by following its relative
imports, so that no list can fall behind the code.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
import zipfile
import zlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
SHIPPED = ("payload", "protocol")
MAIN = "from clusterctl.payload.main import main\n\nmain()\n"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest that a zip can hold
ONE_AT_A_TIME = threading.Lock()  # many threads ask at once: the first packs, the others wait for it

# What only a type checker reads. The module `typing` takes a node as long to load as all of a verb's own work.
TYPING = re.compile(r"^from typing import [^\n(]*$", re.MULTILINE)
INNER = r"[^\[\]]*"
for _ in range(4):  # brackets within brackets
    INNER = rf"(?:[^\[\]]|\[{INNER}\])*"
ALIAS = re.compile(
    rf"^(\w+) = (?:Callable|Dict|Generator|Iterator|List|Optional|Tuple|Union)\[{INNER}\]", re.MULTILINE
)
USED_AT_RUN_TIME = re.compile(r"\b(?:NamedTuple|NewType|cast|TypeVar)\b|\(Protocol\)|, Protocol\)")

# from .wire import Stream | from . import wire | from ..protocol.untrusted import Untrusted | from ..protocol import x
RELATIVE = re.compile(
    r"^[ \t]*from[ \t]+\.(?:\.(\w+)\.?)?(\w*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)", re.MULTILINE
)


@cache
def boot() -> bytes:
    """Return the program that the node's interpreter runs first."""
    return (PACKAGE / "payload" / "boot.py").read_bytes()


def bundle(verb: str) -> bytes:
    """Return a verb's modules, compressed: a JSON object from module name to source."""
    with ONE_AT_A_TIME:
        return _bundle(verb)


def payload_zip() -> tuple[str, bytes]:
    """Return the SHA-256 of the whole payload as a zip, and the zip: same files, same bytes."""
    with ONE_AT_A_TIME:
        return _payload_zip()


@cache
def _bundle(verb: str) -> bytes:
    sources = {f"clusterctl.{name}": without_types(_source(name)) for name in sorted(modules(verb))}
    return zlib.compress(json.dumps(sources).encode("utf-8"), 9)


@cache
def modules(verb: str) -> frozenset[str]:
    """Name the modules that a verb needs, as `payload.wire`; itself and what carries frames included."""
    wanted, found = {f"payload.{verb}", "payload.wire"}, set[str]()
    while wanted:
        name = wanted.pop()
        found.add(name)
        wanted |= _imports(name) - found
    return frozenset(found)


@cache
def _payload_zip() -> tuple[str, bytes]:
    texts = {"__main__.py": MAIN, "clusterctl/__init__.py": ""}  # the package's own is for this machine
    for folder in SHIPPED:
        for path in (PACKAGE / folder).glob("*.py"):
            texts[f"clusterctl/{folder}/{path.name}"] = path.read_text(encoding="utf-8")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(texts):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, texts[name])
    return hashlib.sha256(packed.getvalue()).hexdigest(), packed.getvalue()


def without_types(source: str) -> str:
    """Leave out what a module needs of `typing` for annotations alone; every line keeps its number."""
    if USED_AT_RUN_TIME.search(source):
        return source
    return ALIAS.sub(_without_value, TYPING.sub("TYPE_CHECKING = False", source))


def _without_value(alias: re.Match[str]) -> str:
    return f"{alias[1]} = None" + "\n" * alias[0].count("\n")


def forget() -> None:
    """Drop what was packed, as when the files have changed."""
    for kept in (boot, _bundle, modules, _payload_zip, _source):
        kept.cache_clear()


def _imports(name: str) -> set[str]:
    """Name the modules that a module imports from its own package or from one beside it."""
    found = set()
    for beside, module, names in RELATIVE.findall(_source(name)):
        folder = beside or name.partition(".")[0]
        words = [module] if module else re.findall(r"\w+", names)
        found |= {f"{folder}.{word}" for word in words if (PACKAGE / folder / f"{word}.py").is_file()}
    return found


@cache
def _source(name: str) -> str:
    return PACKAGE.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
