"""What is sent to the nodes: the few modules that a verb needs, or the whole payload as one zip.

Two packages travel, under the names that they have here: `clusterctl.node` and, of what both sides share,
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

PACKAGE = Path(__file__).parents[2]
SHIPPED = ("node", "protocol")
MAIN = "from clusterctl.node.main import main\n\nmain()\n"
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest that a zip can hold
PACK_LOCK = threading.Lock()  # many threads call it at once: the first packs, the others wait for it

# What only people read: a quarter of a bundle. A test compares the syntax trees with and without it.
DOCSTRING = re.compile(r'^([ \t]*)"""(?:[^"\\]|\\.|"(?!""))*"""$', re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
# What only a type checker reads: of `cast("Type", value)` the value stays.
# The module `typing` takes a node as long to load as all of a verb's own work.
FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+[^\n]*\n|\n)+(?=\S|\Z)(?!else:)", re.MULTILINE)
CAST = re.compile(r'\bcast\("[^"\n]+", ')
TYPING = re.compile(r"^from typing import [^\n(]*$", re.MULTILINE)
INNER = r"[^\[\]]*"
for _ in range(4):  # brackets within brackets
    INNER = rf"(?:[^\[\]]|\[{INNER}\])*"
ALIAS = re.compile(
    rf"^(\w+) = (?:Callable|Dict|Generator|Iterator|List|Literal|Optional|Tuple|Union)\[{INNER}\]",
    re.MULTILINE,
)
USED_AT_RUN_TIME = re.compile(
    r"\b(?:NamedTuple|NewType|TypedDict|TypeVar)\b|\bcast\(|\(Protocol\)|, Protocol\)"
)

# from .stream import Stream | from . import stream | from ...protocol.untrusted import Untrusted
RELATIVE = re.compile(r"^[ \t]*from[ \t]+(\.+)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)", re.MULTILINE)


@cache
def boot_program() -> bytes:
    """Return the program that the node's interpreter runs first."""
    return (PACKAGE / "node" / "boot.py").read_bytes()


def bundle(verb: str) -> bytes:
    """Return a verb's modules, compressed: a JSON object from module name to source."""
    with PACK_LOCK:
        return _bundle(verb)


def payload_zip() -> tuple[str, bytes]:
    """Return the SHA-256 of the whole payload as a zip, and the zip: same files, same bytes."""
    with PACK_LOCK:
        return _payload_zip()


@cache
def _bundle(verb: str) -> bytes:
    sources = {f"clusterctl.{name}": _stripped(name) for name in sorted(list_modules(verb))}
    return zlib.compress(json.dumps(sources).encode("utf-8"), 9)


@cache
def list_modules(verb: str) -> frozenset[str]:
    """Name the modules that a verb needs, as `node.runtime.stream`; itself and what carries frames included."""
    pending, names = {f"node.verbs.{verb}", "node.runtime.stream"}, set[str]()
    while pending:
        name = pending.pop()
        names.add(name)
        pending |= _imports(name) - names
    return frozenset(names)


@cache
def _payload_zip() -> tuple[str, bytes]:
    texts = {"__main__.py": MAIN, "clusterctl/__init__.py": ""}  # the package's own is for this machine
    for folder in SHIPPED:
        for path in (PACKAGE / folder).rglob("*.py"):
            texts[f"clusterctl/{path.relative_to(PACKAGE).as_posix()}"] = path.read_text(encoding="utf-8")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(texts):
            entry = zipfile.ZipInfo(name, ZIP_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, texts[name])
    return hashlib.sha256(packed.getvalue()).hexdigest(), packed.getvalue()


def strip_source(source: str) -> str:
    """Leave out docstrings, comments on lines of their own and what only annotations need; lines keep their numbers."""
    source = FOR_TYPES.sub(_blank_lines, DOCSTRING.sub(_strip_docstring, COMMENT.sub("", source)))
    source = CAST.sub("(", source)
    if USED_AT_RUN_TIME.search(source):
        return source
    return ALIAS.sub(_strip_value, TYPING.sub("TYPE_CHECKING = False", source))


def _strip_docstring(docstring: re.Match[str]) -> str:
    return f'{docstring[1]}""{_blank_lines(docstring)}'


def _blank_lines(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _strip_value(alias: re.Match[str]) -> str:
    return f"{alias[1]} = None{_blank_lines(alias)}"


def clear_cache() -> None:
    """Drop what was packed, as when the files have changed."""
    for cached in (boot_program, _bundle, list_modules, _payload_zip, _stripped):
        cached.cache_clear()


def _imports(name: str) -> set[str]:
    """Name the modules that a module imports from the packages that are sent."""
    imported = set()
    for dots, module, names in RELATIVE.findall(_stripped(name)):
        above = name.split(".")[: -len(dots)]
        base = ".".join([*above, *filter(None, [module])])
        candidates = [f"{base}.{word}" for word in re.findall(r"\w+", names)]
        imported |= {base} if _is_module(base) else set(filter(_is_module, candidates))
    return imported


def _is_module(name: str) -> bool:
    return PACKAGE.joinpath(*name.split(".")).with_suffix(".py").is_file()


@cache
def _stripped(name: str) -> str:
    return strip_source(PACKAGE.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
