"""The verb `pythons`: which interpreters a node has, and the torch of each; read from files, no interpreter is started.

request {"code": folder}
node    {"pythons": [{"path": ..., "version": "3.11", "torch": "2.13.0+cpu" or null}], "modules": [name]}

Looked for where installers put them: conda environments, venvs in the home and next to the code, uv, pyenv, /usr.
Environment modules are listed by name only; what one of them holds is not known before it is loaded.
"""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING, Iterator, cast

from ....protocol.messages.facts import FoundPython
from ....protocol.messages.record import to_json
from ...probe.questions import answer_all, find_assigned, read_text

if TYPE_CHECKING:
    from ....protocol.messages.verbs import PythonsAnswer, PythonsRequest
    from ...runtime.stream import Stream

LIMIT = 6.0  # seconds; a home on a dead server must not hold up the answer
MAX_PYTHONS = 60
MAX_MODULES = 20
MODULES_LIMIT = 5.0  # seconds
CONDA_BASES = (
    *("~/miniconda3", "~/anaconda3", "~/miniforge3", "~/mambaforge", "~/micromamba", "~/conda", "~/.conda"),
    *("~/miniconda", "~/anaconda", "/opt/conda", "/opt/miniconda3", "/opt/anaconda3", "/opt/miniforge3"),
    *("/usr/local/miniconda3", "/usr/local/anaconda3", "/data/miniconda3", "/root/miniconda3"),
)
ENVIRONMENTS = (
    *("~/.venv", "~/venv", "~/env", "~/*/.venv", "~/*/venv", "~/venvs/*", "~/envs/*", "~/.virtualenvs/*"),
    *("~/.venvs/*", "~/.pyenv/versions/*", "~/.local/share/uv/python/*", "/opt/*venv*"),
)
NEXT_TO_CODE = (".venv", "venv", "env")
SYSTEM = ("/usr/local", "/usr")


def run(request: PythonsRequest, stream: Stream) -> None:
    """Answer with what is found in time."""
    code = str(request.get("code") or "")
    questions = {"pythons": lambda: find_pythons(code), "modules": list_modules}
    stream.answer(cast("PythonsAnswer", to_json(answer_all(questions, {}, LIMIT))))


def find_pythons(code: str) -> list[FoundPython]:
    """Return the Pythons of this node, those with torch first; `code` is the folder of the code, if it is here."""
    found: dict[str, FoundPython] = {}
    for prefix in _prefixes(code):
        if len(found) >= MAX_PYTHONS * 4:
            break
        for python in _pythons_of(prefix):
            found.setdefault(os.path.realpath(prefix) + (python.path or "").rpartition("/")[2], python)
    return sorted(found.values(), key=lambda python: python.torch is None)[:MAX_PYTHONS]


def _prefixes(code: str) -> Iterator[str]:
    """Yield the folders that may be an environment: what is active, next to the code, in the home, of the system."""
    yield from (os.environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name))
    yield from (os.path.join(code, name) for name in NEXT_TO_CODE if code)
    bases = [os.path.expanduser(base) for base in CONDA_BASES]
    for base in bases:
        yield base
        yield from _expand(os.path.join(base, "envs", "*"))
    listed = read_text(os.path.expanduser("~/.conda/environments.txt")) or ""
    yield from (line.strip() for line in listed.splitlines()[: MAX_PYTHONS * 4] if line.startswith("/"))
    for pattern in ENVIRONMENTS:
        yield from _expand(os.path.expanduser(pattern))
    yield from SYSTEM


def _expand(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern))[: MAX_PYTHONS * 4]


def _pythons_of(prefix: str) -> Iterator[FoundPython]:
    """Yield the interpreters of a prefix: one of an environment, one for each version of the system."""
    if prefix not in SYSTEM:
        library = next(iter(_expand(os.path.join(prefix, "lib", "python3*"))), "")
        version = os.path.basename(library)[len("python") :]
        yield from _describe(
            os.path.join(prefix, "bin", "python"), version, [os.path.join(library, "site-packages")]
        )
        return
    for path in _expand(os.path.join(prefix, "bin", "python3.[0-9]*")):
        version = os.path.basename(path)[len("python") :]
        if not re.match(r"3\.\d+$", version):
            continue
        libraries = ["/usr/local/lib/python%s/%s-packages" % (version, kind) for kind in ("dist", "site")]
        libraries += ["/usr/lib/python3/dist-packages", "/usr/lib/python%s/site-packages" % version]
        yield from _describe(
            path, version, [os.path.expanduser("~/.local/lib/python%s/site-packages" % version), *libraries]
        )


def _describe(path: str, version: str, libraries: list[str]) -> Iterator[FoundPython]:
    if not version or not os.access(path, os.X_OK) or os.path.isdir(path):
        return
    texts = (read_text(os.path.join(library, "torch", "version.py")) for library in libraries)
    torch = find_assigned("__version__", next(filter(None, texts), ""))
    yield FoundPython(path=_from_home(path), version=version, torch=torch)


def _from_home(path: str) -> str:
    """Write a path in the home as `~/...`, which is the same on nodes whose homes have other names."""
    home = os.path.expanduser("~").rstrip("/")
    return "~" + path[len(home) :] if home and path.startswith(home + "/") else path


def list_modules() -> list[str]:
    """Return the environment modules with torch in their name, as `module avail` of a login shell lists them."""
    import signal
    import subprocess

    command = ["bash", "-lc", "type module >/dev/null 2>&1 && module -t avail 2>&1"]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        child = subprocess.Popen(command, start_new_session=True, **quiet)  # type: ignore[call-overload]  # keywords
    except OSError:
        return []
    try:
        output = child.communicate(timeout=MODULES_LIMIT)[0]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return []
    names = output[:65536].decode("utf-8", "replace").split()
    return sorted({name for name in names if "torch" in name.lower() and re.match(r"[\w./+-]+$", name)})[
        :MAX_MODULES
    ]
