"""What `activate` gave on the nodes: the environment, CUDA, the compiler, the paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.text import Text

from clusterctl.console.sanitize import sanitize
from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_records import Activate
from clusterctl.specs.nodeset import fold_names

FIRST = 3  # entries of a path that are shown


def render_activated(console: Console, facts: Mapping[str, Facts]) -> None:
    """Print what `activate` gave, equal nodes as one; nothing where there is none."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, one in facts.items():
        if one.activate.status is not None:
            groups.setdefault(tuple(describe(one.activate)), []).append(name)
    for lines, names in groups.items():
        console.print(Text.assemble("activate gave ", (f"({fold_names(names)})", "bold")))
        for line in lines:
            console.print(Text(f"  {sanitize(line)}"), soft_wrap=True)


def describe(given: Activate) -> Iterator[str]:
    """Say it in lines."""
    if given.conda:
        yield f"conda environment {given.conda}"
    if given.venv:
        yield f"venv {given.venv}"
    yield f"CUDA toolkit {given.cuda or 'none'}" + _at(given.nvcc or given.cuda_home)
    yield f"compiler {given.compiler_version or 'none'}" + _at(given.compiler)
    yield f"PATH {shorten(given.path)}"
    if given.libraries:
        yield f"LD_LIBRARY_PATH {shorten(given.libraries)}"


def _at(place: str | None) -> str:
    return f" at {place}" if place else ""


def shorten(entries: tuple[str, ...]) -> str:
    """Join the first entries of a path and count the others."""
    more = len(entries) - FIRST
    return ":".join(entries[:FIRST]) + (f" and {more} more" if more > 0 else "")
