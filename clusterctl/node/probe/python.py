"""What `activate` has left behind for Python, the installed packages, torch and NCCL; none of them is imported.

Directory names and `torch/version.py` are read as text: importlib.metadata alone costs 30 ms, torch a second. Programs
are run for their version only where there is an `activate`, and no file has it.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Iterator

from ...protocol.messages.facts import ActivateResult, InstalledPackages, Nccl, OtherNccl, SetupFacts, Torch
from ...protocol.messages.record import to_json
from ..state.environments import environment_folder, find_environment
from .nvidia_smi import find
from .questions import find_assigned, list_folder, problem_of, read_text

if TYPE_CHECKING:
    from ...protocol.messages.files import SetupQuery

COMPILER_LIMIT = 1.0  # seconds for a compiler to say its version
MAX_ENTRIES = 60  # entries of a path
COMPILERS = ("cc", "gcc", "clang")
MAX_PACKAGES = 2000  # packages reported; the digest is over all
LIBRARIES = ("site-packages", "dist-packages")
INTERESTING = re.compile(r"(torch|numpy|triton|torch-npu|nvidia-(nccl|cudnn|cuda-runtime)(-cu\d+)?)$")
NCCL_LIMIT = 1.5  # seconds


def activate() -> ActivateResult:
    """Return how `activate` ended and what it gave; nothing where there is none."""
    status = os.environ.get("CLUSTERCTL_ACTIVATE_STATUS", "")
    if not status.isdigit():
        return ActivateResult(status=None)
    nvcc = find("nvcc", ())
    compiler = next(filter(None, (find(name, ()) for name in COMPILERS)), None)
    cuda_home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or None
    return ActivateResult(
        status=int(status),
        path=tuple(path_entries("PATH")),
        libraries=tuple(path_entries("LD_LIBRARY_PATH")),
        conda=os.environ.get("CONDA_PREFIX") or None,
        venv=os.environ.get("VIRTUAL_ENV") or None,
        inside=is_inside_environment(),
        cuda_home=cuda_home,
        nvcc=nvcc,
        cuda=cuda_version(cuda_home, nvcc),
        compiler=compiler,
        compiler_version=version_of([compiler, "-dumpfullversion", "-dumpversion"]) if compiler else None,
    )


def is_inside_environment() -> bool | None:
    """Whether this Python is of an active environment; None if none is active."""
    active = [os.path.realpath(path) for path in map(os.environ.get, ("CONDA_PREFIX", "VIRTUAL_ENV")) if path]
    return os.path.realpath(sys.prefix) in active if active else None


def path_entries(name: str) -> list[str]:
    """Split a search path."""
    return [entry for entry in os.environ.get(name, "").split(os.pathsep) if entry][:MAX_ENTRIES]


def cuda_version(home: str | None, nvcc: str | None) -> str | None:
    """Read the toolkit's version from its own file, else ask nvcc; the nvcc on PATH is what builds will use."""
    if nvcc:
        home = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    text = read_text(os.path.join(home, "version.json")) if home else None
    match = re.search(r'"cuda"\s*:\s*\{[^}]*?"version"\s*:\s*"([\d.]+)"', text or "")
    if match:
        return match.group(1)
    release = re.search(r"release ([\d.]+)", run_for_output([nvcc, "--version"])) if nvcc else None
    return release.group(1) if release else None


def version_of(command: list[str]) -> str | None:
    """Ask a compiler for its version."""
    match = re.match(r"\d[\d.]*", run_for_output(command).strip())
    return match.group() if match else None


def run_for_output(command: list[str]) -> str:
    """Run a program for a moment and return what it prints."""
    import subprocess

    null = subprocess.DEVNULL
    try:
        child = subprocess.Popen(
            command,
            stdin=null,
            stdout=subprocess.PIPE,
            stderr=null,
            start_new_session=True,
            env=dict(os.environ, LC_ALL="C"),
        )
    except OSError:
        return ""
    with child:
        assert child.stdout is not None
        try:
            return _read_output(child.stdout.fileno()).decode("utf-8", "replace")
        finally:
            os.killpg(
                child.pid, signal.SIGKILL
            )  # it has printed its version, or prints nothing; it may be a script


def _read_output(reader: int) -> bytes:
    content, deadline = b"", time.monotonic() + COMPILER_LIMIT
    while len(content) < 65536:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(reader, 4096) if ready else b""
        if not chunk:
            break
        content += chunk
    return content


def installed() -> InstalledPackages:
    """Read every package as `name version`, sorted, and a digest of them all."""
    lines = ["%s %s" % pair for pair in sorted(package_versions().items())]
    digest = "%08x" % zlib.crc32("\n".join(lines).encode("utf-8", "replace"))  # hashlib costs 5 ms to import
    return InstalledPackages(digest=digest, packages=tuple(lines[:MAX_PACKAGES]))


def package_versions() -> dict[str, str]:
    """Read the version of every package on the path by its normalised name; of two of one name the first counts."""
    versions: dict[str, str] = {}
    for folder in _import_path():
        for path in list_folder(folder, "*-info"):
            name, version = split_name(os.path.basename(path))
            if version:
                versions.setdefault(name, version)
    return versions


def split_name(folder: str) -> tuple[str, str]:
    """Read `Name_x-1.2.dist-info` or `name-1.2-py3.11.egg-info` as normalised name and version; "" if it is neither."""
    base, suffix = os.path.splitext(folder)
    name, dash, rest = base.partition("-")
    if suffix not in (".dist-info", ".egg-info") or not dash:
        return "", ""
    return re.sub("[-_.]+", "-", name).lower(), re.split("-py[0-9]", rest)[0]


def enter_environment(workdir: str, request: SetupQuery | None) -> SetupFacts | None:
    """Look for the environment, and from now on for packages where its Python would; `None` if none is wished for."""
    if not request:
        return None
    environment = find_environment(
        environment_folder(os.path.realpath(os.path.expanduser(workdir)), str(request["content"]))
    )
    if environment is None:
        return SetupFacts(made=False)
    use_packages_of(environment.prefix)
    return SetupFacts(made=True, prefix=environment.prefix)


def use_packages_of(prefix: str) -> None:
    """Find packages as the environment's Python does: its own first, the others only if it sees them."""
    settings = read_text(os.path.join(prefix, "pyvenv.cfg")) or ""
    sees_others = "include-system-site-packages = true" in settings
    remaining = [path for path in sys.path if sees_others or os.path.basename(path) not in LIBRARIES]
    folders = [path for lib in ("lib", "lib64") for path in list_folder(os.path.join(prefix, lib), "python*")]
    own_folders = [os.path.join(folder, "site-packages") for folder in folders]
    sys.path[:] = [*dict.fromkeys(filter(os.path.isdir, map(os.path.realpath, own_folders))), *remaining]


def packages() -> dict[str, str]:
    """Read the installed versions of what must be equal on all nodes, by normalised name."""
    return {name: version for name, version in package_versions().items() if INTERESTING.match(name)}


def torch() -> Torch | None:
    """Read the torch that `import torch` would find; `None` if there is none."""
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)  # importlib.util costs 3 ms
    spec = next(filter(None, (finder("torch", None) for finder in finders if finder)), None)
    if spec is None or not spec.origin:
        return None
    folder = os.path.dirname(spec.origin)
    text = read_text(os.path.join(folder, "version.py")) or ""
    return Torch(
        version=find_assigned("__version__", text) or _declared_version(),
        cuda=find_assigned("cuda", text),
        hip=find_assigned("hip", text),
        git=find_assigned("git_version", text),
        location=folder,
        installed=packages().get("torch") or _declared_version(),
    )


def _declared_version() -> str | None:
    """Ask importlib.metadata, for the rare installation that leaves no directory of the usual name."""
    import importlib.metadata

    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def _import_path() -> list[str]:
    return [folder for folder in sys.path if folder and os.path.isdir(folder)]


def query_nccl_in_child() -> Callable[[], Any]:
    """Ask the NCCL library for its version in a child: it alone suffers if loading crashes or hangs."""
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        problem = problem_of(error)
        return lambda: problem
    if child == 0:
        _answer_and_exit(writer)
    os.close(writer)
    return lambda: _collect(reader, child)


def _answer_and_exit(writer: int) -> None:
    try:
        answer = json.dumps(to_json(_nccl())).encode()
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


def _nccl() -> Nccl | None:
    preloaded = [path for path in re.split(r"[ :]", os.environ.get("LD_PRELOAD", "")) if "nccl" in path]
    wheels = ("nvidia/nccl/lib/libnccl.so.2", "torch/lib/librccl.so*", "torch/lib/libnccl.so*")
    libraries = preloaded + _installed(*wheels)
    if libraries:
        return Nccl(
            library=libraries[0],
            version=_library_version(libraries[0]),
            preloaded=bool(preloaded),
            others=tuple(_other_libraries(libraries[0])),
        )
    return _system_nccl() if _installed("torch/lib/libtorch_cuda.so") else None


def _other_libraries(library: str) -> Iterator[OtherNccl]:
    """Yield the NCCLs that variables lead other programs, or torch built without a path of its own, to."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    candidates = [("LD_LIBRARY_PATH", os.path.join(folder, "libnccl.so.2")) for folder in folders if folder]
    for name, path in [("VLLM_NCCL_SO_PATH", os.environ.get("VLLM_NCCL_SO_PATH", "")), *candidates]:
        with suppress(OSError):  # one that cannot be loaded has no effect
            if path and not os.path.samefile(path, library):
                yield OtherNccl(by=name, library=path, version=_library_version(path))


def _system_nccl() -> Nccl | None:
    """Ask the library that the loader would find, as builds of conda, NGC and distributions do."""
    for library in (os.path.join(sys.prefix, "lib", "libnccl.so.2"), "libnccl.so.2"):
        try:
            return Nccl(library=library, version=_library_version(library), preloaded=False)
        except OSError:
            continue
    return None  # linked into torch itself


def _installed(*relative_paths: str) -> list[str]:
    split = [os.path.split(relative) for relative in relative_paths]
    return [
        path
        for folder in _import_path()
        for relative, name in split
        for path in list_folder(os.path.join(folder, relative), name)
    ]


def _library_version(path: str) -> str:
    import ctypes

    number = ctypes.c_int()
    ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
    value = number.value
    if value < 10000:  # before 2.9 the number was major * 1000 + minor * 100 + patch
        return "%d.%d.%d" % (value // 1000, value % 1000 // 100, value % 100)
    return "%d.%d.%d" % (value // 10000, value % 10000 // 100, value % 100)
