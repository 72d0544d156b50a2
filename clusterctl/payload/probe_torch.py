"""torch, NCCL and cuDNN as installed, without importing any of them.

Directory names and `torch/version.py` are read as text: importlib.metadata alone costs 30 ms, torch a second.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
from contextlib import suppress
from typing import Any, Callable, Iterator

from .probe_ask import list_folder, problem_of, read_text

INTERESTING = re.compile(
    r"(torch|numpy|triton|torch[-_]npu|nvidia[-_](nccl|cudnn|cuda[-_]runtime)([-_]cu\d+)?)$"
)
NCCL_LIMIT = 1.5  # seconds


def packages() -> dict[str, str]:
    """Tell the installed versions of what must be equal on all nodes, by normalised name."""
    found: dict[str, str] = {}
    for folder in _import_path():
        for path in list_folder(folder, "*-info"):
            name, mark, rest = os.path.basename(path).partition("-")
            version, suffix = os.path.splitext(rest)
            if mark and suffix in (".dist-info", ".egg-info") and INTERESTING.match(name.lower()):
                found.setdefault(name.lower().replace("_", "-"), version.split("-py")[0])
    return found


def torch() -> dict[str, Any] | None:
    """Tell the torch that `import torch` would find; `None` if there is none."""
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)  # importlib.util costs 3 ms
    spec = next(filter(None, (find("torch", None) for find in finders if find)), None)
    if spec is None or not spec.origin:
        return None
    folder = os.path.dirname(spec.origin)
    text = read_text(os.path.join(folder, "version.py")) or ""
    return {
        "version": _assigned("__version__", text) or _declared_version(),
        "cuda": _assigned("cuda", text),
        "hip": _assigned("hip", text),
        "git": _assigned("git_version", text),
        "location": folder,
        "installed": packages().get("torch") or _declared_version(),
    }


def _assigned(name: str, text: str) -> str | None:
    found = re.search(r"^%s\s*(?::[^=\n]*)?=\s*['\"]([^'\"]*)['\"]" % name, text, re.M)
    return found.group(1) if found else None


def _declared_version() -> str | None:
    """Ask importlib.metadata, for the rare installation that leaves no directory of the usual name."""
    import importlib.metadata

    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def _import_path() -> list[str]:
    return [folder for folder in sys.path if folder and os.path.isdir(folder)]


def ask_nccl_in_child() -> Callable[[], Any]:
    """Ask the NCCL library for its version in a child: it alone suffers if loading crashes or hangs."""
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        told = problem_of(error)
        return lambda: told
    if child == 0:
        _answer_and_exit(writer)
    os.close(writer)
    return lambda: _collect(reader, child)


def _answer_and_exit(writer: int) -> None:
    try:
        answer = json.dumps(_nccl()).encode()
    except BaseException as error:
        answer = json.dumps(problem_of(error)).encode()
    os.write(writer, answer[:60000])
    os._exit(0)


def _collect(reader: int, child: int) -> Any:
    ready = select.select([reader], [], [], NCCL_LIMIT)[0]
    answer = os.read(reader, 65536) if ready else b""
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    if ready:
        os.waitpid(child, 0)
    if not answer:
        return {"problem": "loading the library crashed" if ready else "no answer within %g s" % NCCL_LIMIT}
    return json.loads(answer.decode())


def _nccl() -> dict[str, Any] | None:
    preloaded = [path for path in re.split(r"[ :]", os.environ.get("LD_PRELOAD", "")) if "nccl" in path]
    wheels = ("nvidia/nccl/lib/libnccl.so.2", "torch/lib/librccl.so*", "torch/lib/libnccl.so*")
    found = preloaded + _installed(*wheels)
    if found:
        own = {"library": found[0], "version": _library_version(found[0]), "preloaded": bool(preloaded)}
        return {**own, "others": list(_others(found[0]))}
    return _system_nccl() if _installed("torch/lib/libtorch_cuda.so") else None


def _others(own: str) -> Iterator[dict[str, str]]:
    """Give the NCCLs that variables lead other programs, or torch built without a path of its own, to."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    places = [("LD_LIBRARY_PATH", os.path.join(folder, "libnccl.so.2")) for folder in folders if folder]
    for name, path in [("VLLM_NCCL_SO_PATH", os.environ.get("VLLM_NCCL_SO_PATH", "")), *places]:
        with suppress(OSError):  # one that cannot be loaded is in nobody's way
            if path and not os.path.samefile(path, own):
                yield {"by": name, "library": path, "version": _library_version(path)}


def _system_nccl() -> dict[str, Any] | None:
    """Ask the library that the loader would find, as builds of conda, NGC and distributions do."""
    for library in (os.path.join(sys.prefix, "lib", "libnccl.so.2"), "libnccl.so.2"):
        try:
            return {"library": library, "version": _library_version(library), "preloaded": False}
        except OSError:
            continue
    return None  # linked into torch itself


def _installed(*places: str) -> list[str]:
    split = [os.path.split(place) for place in places]
    return [
        path
        for folder in _import_path()
        for place, name in split
        for path in list_folder(os.path.join(folder, place), name)
    ]


def _library_version(path: str) -> str:
    import ctypes

    number = ctypes.c_int()
    ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
    value = number.value
    if value < 10000:  # before 2.9 the number was major * 1000 + minor * 100 + patch
        return "%d.%d.%d" % (value // 1000, value % 1000 // 100, value % 100)
    return "%d.%d.%d" % (value // 10000, value % 10000 // 100, value % 100)
