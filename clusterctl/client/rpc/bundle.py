"""What is sent to the nodes: the few modules that a verb needs, or the whole payload as one zip.

Two packages travel, under the names that they have here: `clusterctl.node` and, of what both sides share,
`clusterctl.protocol`. They are read as files, never imported. A verb's modules are found by following its imports, so
that no list can fall behind the code. To a Slurm cluster a second zip goes: the checks, which are judged there.
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
JUDGE = "plans.slurm.judge"
JUDGE_MAIN = f"""import json
import sys

from clusterctl.{JUDGE} import judge_allocation

json.dump(judge_allocation(json.load(sys.stdin)), sys.stdout)
"""
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest that a zip can hold
PACK_LOCK = threading.Lock()  # many threads pack at once: the first does, the others wait for it

# what only a type checker reads is sent with its module, but what it imports is not
FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+[^\n]*\n|\n)+(?=\S|\Z)(?!else:)", re.MULTILINE)

# from .stream import Stream | from . import stream | from ...protocol.untrusted import Untrusted
# from clusterctl.plans.facts import facts | from clusterctl.plans.checks import (access, ...)
IMPORT = re.compile(
    r"^[ \t]*from[ \t]+(\.+|clusterctl\.)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)", re.MULTILINE
)


@cache
def boot_program() -> bytes:
    """Return the program that the node's interpreter runs first."""
    return (PACKAGE / "node" / "boot.py").read_bytes()


def pack(verb: str, sent: frozenset[str] = frozenset()) -> tuple[frozenset[str], bytes]:
    """Return the names of all modules of a verb, and those that were not sent before, compressed.

    Unpacked they are a JSON object from module name to source.
    """
    with PACK_LOCK:
        return _pack(verb, sent)


@cache
def _pack(verb: str, sent: frozenset[str]) -> tuple[frozenset[str], bytes]:
    modules = list_modules(verb)
    sources = {f"clusterctl.{name}": _source(name) for name in sorted(modules - sent)}
    return modules, zlib.compress(json.dumps(sources).encode("utf-8"), 9)


def list_modules(verb: str) -> frozenset[str]:
    """Name the modules that a verb needs, as `node.runtime.stream`; itself and what carries frames included."""
    return _with_imports("node.runtime.stream", f"node.verbs.{verb_module(verb)}")


@cache
def verb_module(verb: str) -> str:
    """Name a verb's module below `node.verbs`: of some it is in a folder."""
    verbs = PACKAGE / "node" / "verbs"
    found = next(verbs.glob(f"*/{verb}.py"), None)
    return verb if found is None else f"{found.parent.name}.{verb}"


def payload_zip() -> tuple[str, bytes]:
    """Return the SHA-256 of the whole payload as a zip, and the zip: same files, same bytes."""
    with PACK_LOCK:
        return _payload_zip()


@cache
def _payload_zip() -> tuple[str, bytes]:
    files = [path for folder in SHIPPED for path in (PACKAGE / folder).rglob("*.py")]
    return _zip(
        MAIN, {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in files}
    )


def judge_zip() -> tuple[str, bytes]:
    """Return the SHA-256 of the program that judges the nodes of a Slurm job, and its zip; packed once a launch."""
    names = _with_imports(JUDGE)
    packages = {name.rsplit(".", count)[0] for name in names for count in range(1, name.count(".") + 1)}
    sources = {f"{name}.__init__": "" for name in packages} | {name: _source(name) for name in names}
    return _zip(JUDGE_MAIN, {f"{name.replace('.', '/')}.py": source for name, source in sources.items()})


def _zip(main: str, files: dict[str, str]) -> tuple[str, bytes]:
    """Pack files of our package with the program that is run: same texts, same bytes."""
    texts = {"__main__.py": main, "clusterctl/__init__.py": ""}  # the package's own is for this machine
    texts |= {f"clusterctl/{path}": text for path, text in files.items()}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(texts):
            entry = zipfile.ZipInfo(name, ZIP_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, texts[name])
    return hashlib.sha256(packed.getvalue()).hexdigest(), packed.getvalue()


@cache
def _with_imports(*first: str) -> frozenset[str]:
    """Name these modules and all of ours that they import."""
    pending, names = set(first), set[str]()
    while pending:
        name = pending.pop()
        names.add(name)
        pending |= _imports(name) - names
    return frozenset(names)


def _imports(name: str) -> set[str]:
    """Name the modules of ours that a module imports, without those that only a type checker reads."""
    imported = set()
    for start, module, names in IMPORT.findall(FOR_TYPES.sub("", _source(name))):
        above = name.split(".")[: -len(start)] if start.startswith(".") else []
        base = ".".join([*above, *filter(None, [module])])
        candidates = [f"{base}.{word}" for word in re.findall(r"\w+", names)]
        imported |= {base} if _is_module(base) else set(filter(_is_module, candidates))
    return imported


def _is_module(name: str) -> bool:
    return PACKAGE.joinpath(*name.split(".")).with_suffix(".py").is_file()


@cache
def _source(name: str) -> str:
    return PACKAGE.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
