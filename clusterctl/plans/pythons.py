"""Which Python of each node has torch, so that all have the same; nodes report them (node/verbs/machine/pythons.py)."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from clusterctl.errors import InvalidValueError
from clusterctl.plans.facts.untrusted import read_clean_many
from clusterctl.protocol.messages.facts import Facts, FoundPython
from clusterctl.protocol.messages.record import MAX_ITEMS
from clusterctl.specs.values import parse_python

ACTIVE = "python3"  # what runs where the inventory names no Python
MAX_PATH = 255  # characters; longer texts of nodes are cut
_VERSION = re.compile(r"[\w.+!-]{1,64}")
_PATH = re.compile(r"[\w./~+@ -]+")


@dataclass(frozen=True)
class FoundPythons:
    """The interpreters of a node, and environment modules with torch in their name."""

    pythons: tuple[FoundPython, ...] = ()
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class PythonChoice:
    """The Python of each node, and their torch; `without` are nodes without it, or with another one."""

    pythons: Mapping[str, FoundPython]
    torch: str | None
    without: tuple[str, ...]


def parse_pythons(raw_pythons: object, raw_modules: object) -> FoundPythons:
    """Read a node's answer; never raises. What cannot stand in an inventory is left out."""
    pythons = read_clean_many(FoundPython, raw_pythons)
    modules = raw_modules[:MAX_ITEMS] if isinstance(raw_modules, list) else []
    names = tuple(
        name for name in modules if isinstance(name, str) and re.fullmatch(r"[\w./+-]{1,128}", name)
    )
    return FoundPythons(tuple(filter(_is_usable, pythons)), names)


def _is_usable(python: FoundPython) -> bool:
    """Whether the path can stand in an inventory, and the versions are some."""
    try:
        path = parse_python(python.path or "")
    except InvalidValueError:
        return False
    versions = (python.version or "", *([python.torch] if python.torch is not None else []))
    return bool(_PATH.fullmatch(path)) and len(path) <= MAX_PATH and all(map(_VERSION.fullmatch, versions))


def choose_pythons(facts: Mapping[str, Facts], found: Mapping[str, FoundPythons]) -> PythonChoice:
    """Choose the torch that most nodes have, and on each node a Python that has it; `python3` where that does.

    Of several torches that equally many nodes have, the one of `python3` is chosen, then the newest. Where no torch is
    the same on all nodes, Pythons of one version are chosen, from which equal environments can be made.
    """
    options = {name: _options(facts[name], found.get(name, FoundPythons())) for name in facts}
    torch = _most_common_torch(options)
    having = {name: [one for one in own if torch and one.torch == torch] for name, own in options.items()}
    without = tuple(name for name, own in having.items() if not own)
    candidates = options if without else having
    version = _most_common_version(candidates)
    pythons = {name: _prefer(own, version, torch) for name, own in candidates.items()}
    return PythonChoice(pythons, torch, without)


def _options(facts: Facts, found: FoundPythons) -> list[FoundPython]:
    """List the Pythons of a node, first the one that answered."""
    version = ".".join((facts.interpreter.version or "").split(".")[:2])
    return [FoundPython(path=ACTIVE, version=version, torch=facts.torch.version), *found.pythons]


def _most_common_torch(options: Mapping[str, Sequence[FoundPython]]) -> str | None:
    counts = Counter(torch for own in options.values() for torch in {one.torch for one in own} if torch)
    active = Counter(own[0].torch for own in options.values())
    return max(counts, key=lambda torch: (counts[torch], active[torch], _numbers(torch)), default=None)


def _most_common_version(options: Mapping[str, Sequence[FoundPython]]) -> str | None:
    counts = Counter(version for own in options.values() for version in {one.version for one in own})
    active = Counter(own[0].version for own in options.values() if own)
    return max(
        counts, key=lambda version: (counts[version], active[version], _numbers(version or "")), default=None
    )


def _prefer(pythons: Sequence[FoundPython], version: str | None, torch: str | None) -> FoundPython:
    """Return the Python of the common version, with the common torch if possible; of several the first."""
    return min(pythons, key=lambda one: (one.version != version, one.torch != torch))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:4])


def list_imports(source: bytes, local: Collection[str]) -> tuple[str, ...]:
    """List the packages that a script imports: not of the standard library, not `local`, which lie next to it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return tuple(sorted(names - {"", *local} - sys.stdlib_module_names))


# What a package is called where it is installed from, if that is not the name that is imported.
PACKAGES: Mapping[str, str] = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
    "dotenv": "python-dotenv",
    "tensorboardX": "tensorboardX",
    "pytorch_lightning": "pytorch-lightning",
    "hydra": "hydra-core",
    "omegaconf": "omegaconf",
    "git": "gitpython",
    "bs4": "beautifulsoup4",
}
COMES_WITH_TORCH = frozenset({"torch", "functorch", "torchgen"})


def list_requirements(imports: Iterable[str], torch: str | None) -> tuple[str, ...]:
    """List what an environment for a script needs: torch, and the packages that it imports at the top.

    `imports` are names of modules that are neither in the standard library nor next to the script; of torch the public
    version is required, since its builds have names that only PyTorch's own index knows.
    """
    public = (torch or "").partition("+")[0]
    packages = {PACKAGES.get(name, name) for name in imports if name not in COMES_WITH_TORCH}
    return (f"torch=={public}" if public else "torch", *sorted({*packages, "numpy"}))
