"""What is sent to the nodes: the few modules that a verb needs, or the whole payload as one zip.

Two packages travel, under the names that they have here: `clusterctl.node` and, of what both sides share,
`clusterctl.protocol`. They are read as files, never imported. A verb's modules are found by following its relative
imports, so that no list can fall behind the code.

To a Slurm cluster a second zip goes: the checks, which are judged there. Its modules are found in the same way.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from clusterctl.client.local.private_files import keep_newest, read_own, write_own

PACKAGE = Path(__file__).parents[2]
SHIPPED = ("node", "protocol")
MAIN = "from clusterctl.node.main import main\n\nmain()\n"
JUDGE = "plans.slurm.judge"
JUDGE_MAIN = f"""import json
import sys

from clusterctl.{JUDGE} import judge_allocation

json.dump(judge_allocation(json.load(sys.stdin)), sys.stdout)
"""
# from clusterctl.plans.facts import facts | from clusterctl.plans.checks import (access, ...)
ABSOLUTE = re.compile(
    r"^[ \t]*from[ \t]+clusterctl\.([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)", re.MULTILINE
)
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest that a zip can hold
PACK_LOCK = threading.Lock()  # many threads call it at once: the first packs, the others wait for it

# What only people read: a quarter of a bundle. A test compares the syntax trees with and without it.
DOCSTRING = re.compile(r'^([ \t]*)"""(?:[^"\\]|\\.|"(?!""))*"""$', re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
# What only a type checker reads: of `cast("Type", value)` the value stays.
# The module `typing` takes a node as long to load as all of a verb's own work.
TYPE_COMMENT = re.compile(r"  # type: .*")  # of boot.py, which Python 2 must be able to read
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
    source = (PACKAGE / "node" / "boot.py").read_text(encoding="utf-8")
    return TYPE_COMMENT.sub("", DOCSTRING.sub(_strip_docstring, source)).encode("ascii")


def bundle(verb: str, sent: frozenset[str] = frozenset()) -> bytes:
    """Return a verb's modules but those sent before, compressed: a JSON object from module name to source."""
    return pack(verb, sent)[1]


def pack(verb: str, sent: frozenset[str] = frozenset()) -> tuple[frozenset[str], bytes]:
    """Return the names of all modules of a verb, and the bundle of those that were not sent before."""
    with PACK_LOCK:
        return _pack(verb, sent)


def payload_zip() -> tuple[str, bytes]:
    """Return the SHA-256 of the whole payload as a zip, and the zip: same files, same bytes."""
    with PACK_LOCK:
        return _payload_zip()


def keep_packed(folder: Path) -> None:
    """Keep what is packed from now on in a directory of ours: packing takes the client 60 ms for a launch."""
    global _packed_folder  # noqa: PLW0603 - one for the process, as the packages that are sent are
    _packed_folder = folder


_packed_folder: Path | None = None
MOST_PACKED = 40  # files of that directory


def _pack_once(name: str, pack: Callable[[], bytes]) -> bytes:
    """Return what was packed by an earlier command from the same files, else pack it, and keep it for the next one."""
    if _packed_folder is None:
        return pack()
    file = _packed_folder / f"{_version()}-{name}"
    with suppress(OSError):
        return read_own(file)
    content = pack()
    with suppress(OSError):
        write_own(file, content)
        keep_newest(_packed_folder, MOST_PACKED)
    return content


@cache
def _version() -> str:
    """Identify the files that are sent, installed or being worked on, and this one, by size and time as Python does."""
    folders = [PACKAGE / name for name in SHIPPED]
    stats = sorted((str(path), path.stat()) for folder in folders for path in folder.rglob("*.py"))
    stats.append((__file__, Path(__file__).stat()))
    text = repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


@cache
def _pack(verb: str, sent: frozenset[str]) -> tuple[frozenset[str], bytes]:
    known = hashlib.sha256(" ".join(sorted(sent)).encode()).hexdigest()[:16] if sent else "all"
    modules, _, packed = _pack_once(f"{verb}-{known}", lambda: _pack_verb(verb, sent)).partition(b"\n")
    return frozenset(modules.decode().split(" ")), packed


def _pack_verb(verb: str, sent: frozenset[str]) -> bytes:
    modules = list_modules(verb)
    sources = {f"clusterctl.{name}": _stripped(name) for name in sorted(modules - sent)}
    packed = zlib.compress(json.dumps(sources).encode("utf-8"), 9)
    return " ".join(sorted(modules)).encode() + b"\n" + packed


@cache
def list_modules(verb: str) -> frozenset[str]:
    """Name the modules that a verb needs, as `node.runtime.stream`; itself and what carries frames included."""
    pending, names = {"node.runtime.stream"}, set[str]()
    if verb != "idle":  # for which node/boot.py has nothing to call
        pending.add(f"node.verbs.{verb_module(verb)}")
    while pending:
        name = pending.pop()
        names.add(name)
        pending |= _imports(name) - names
    return frozenset(names)


@cache
def verb_module(verb: str) -> str:
    """Name a verb's module below `node.verbs`: of some it is in a folder."""
    verbs = PACKAGE / "node" / "verbs"
    found = next(verbs.glob(f"*/{verb}.py"), None)
    return verb if found is None else f"{found.parent.name}.{verb}"


@cache
def _payload_zip() -> tuple[str, bytes]:
    packed = _pack_once("payload", _pack_payload)
    return hashlib.sha256(packed).hexdigest(), packed


def judge_zip() -> tuple[str, bytes]:
    """Return the SHA-256 of the program that judges the nodes of a Slurm job, and its zip; packed once a launch."""
    texts = {"__main__.py": JUDGE_MAIN, "clusterctl/__init__.py": ""}
    for name in _absolute_imports(JUDGE):
        module = f"{name}.__init__" if PACKAGE.joinpath(*name.split(".")).is_dir() else name
        texts[f"clusterctl/{module.replace('.', '/')}.py"] = _source(module)
    packed = _zip(texts)
    return hashlib.sha256(packed).hexdigest(), packed


def _absolute_imports(first: str) -> frozenset[str]:
    """Name all modules and packages that one needs, itself included; what only a type checker reads is left out."""
    pending, names = {first}, set[str]()
    while pending:
        name = pending.pop()
        names.add(name)
        names |= {name.rsplit(".", count)[0] for count in range(1, name.count(".") + 1)}
        source = FOR_TYPES.sub("", _source(name))
        for base, words in ABSOLUTE.findall(source):
            found = {base} if _is_module(base) else {f"{base}.{word}" for word in re.findall(r"\w+", words)}
            pending |= set(filter(_is_module, found)) - names
        pending |= _imports(name) - names  # relative ones, of `protocol`
    return frozenset(names)


def _pack_payload() -> bytes:
    texts = {"__main__.py": MAIN, "clusterctl/__init__.py": ""}  # the package's own is for this machine
    for folder in SHIPPED:
        for path in (PACKAGE / folder).rglob("*.py"):
            module = path.relative_to(PACKAGE).with_suffix("")
            texts[f"clusterctl/{module.as_posix()}.py"] = _stripped(".".join(module.parts))
    return _zip(texts)


def _zip(texts: Mapping[str, str]) -> bytes:
    """Pack texts by their paths: same texts, same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(texts):
            entry = zipfile.ZipInfo(name, ZIP_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, texts[name])
    return packed.getvalue()


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
    for cached in (boot_program, _pack, list_modules, _payload_zip, _stripped, _version, verb_module):
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
    return strip_source(_source(name))


def _source(name: str) -> str:
    return PACKAGE.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
