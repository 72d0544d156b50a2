"""The folders of the package and the imports between them, read from the sources: for docs/inside/architecture.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "clusterctl"
LAYERS = (
    "api",
    "cli",
    "console",
    "client",
    "plans",
    "specs",
    "protocol",
    "interrupts",
    "errors",
    "codes",
    "node_texts",
    "translation",
    "lab",
    "node",
)
FILES = ("errors.py", "interrupts.py", "node_texts.py", "translation.py")
SENT = (("client", "node"), ("client", "protocol"))  # read as files and sent, besides what is imported
PER_LINE = 5  # folders beside each other in a box of the picture

Pair = tuple[str, str]


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name below the package, its folder, and the modules that it imports."""

    name: str
    folder: str
    imports: frozenset[str]

    @property
    def layer(self) -> str:
        """Give the first level of the tree."""
        return self.name.partition(".")[0]


@cache
def modules() -> tuple[Module, ...]:
    """Read every module of the package; an `__init__.py` holds no code and is left out."""
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]
    names = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in paths}
    return tuple(
        Module(
            name, path.parent.relative_to(PACKAGE).as_posix(), frozenset(_imports(name, path, names.keys()))
        )
        for name, path in names.items()
    )


def _imports(name: str, path: Path, known: object) -> Iterator[str]:
    """Name the modules of the package that a module imports, also inside functions and for types."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        above = name.split(".")[: -node.level] if node.level else []
        base = [*above, *filter(None, (node.module or "").split("."))]
        if not node.level and base[0] != "clusterctl":
            continue
        place = ".".join(base if node.level else base[1:])
        for alias in node.names:
            inner = f"{place}.{alias.name}".lstrip(".")
            yield from (one for one in (place, inner) if one in known and one != name)  # type: ignore[operator]


def layers(_: str) -> str:
    """Draw the layers with their folders as a Mermaid graph: an arrow is an import, a dotted one is sent."""
    lines = ["```mermaid", "flowchart TD"]
    for layer in LAYERS:
        lines.append(f'    {layer}["<b>{layer}</b>: {_count(layer)}{_boxes(layer)}"]')
    lines += [f"    {above} --> {below}" for above, below in shortest(layer_imports())]
    lines += [f"    {sender} -. sends .-> {sent}" for sender, sent in SENT]
    return "\n".join([*lines, "```"])


def _boxes(layer: str) -> str:
    inner = [
        f"{folder.partition('/')[2]} {_held(folder)}"
        for folder in folders()
        if folder.startswith(f"{layer}/")
    ]
    rows = [inner[place : place + PER_LINE] for place in range(0, len(inner), PER_LINE)]
    return "".join("<br>" + " · ".join(row) for row in rows)


def _count(layer: str) -> str:
    count = sum(module.layer == layer for module in modules())
    return f"{count} module{'s' * (count != 1)}"


def _held(folder: str) -> int:
    return sum(module.folder == folder for module in modules())


def layer_imports() -> set[Pair]:
    """Give the layers that import each other."""
    found = {(one.layer, other.partition(".")[0]) for one in modules() for other in one.imports}
    return {(above, below) for above, below in found if above != below and {above, below} <= set(LAYERS)}


def shortest(pairs: set[Pair]) -> list[Pair]:
    """Leave out the arrows that a chain of other arrows shows as well; the layers have no circle."""

    def reaches(above: str, below: str) -> bool:
        return any(mid == below or reaches(mid, below) for start, mid in pairs if start == above)

    return sorted(
        (above, below)
        for above, below in pairs
        if not any(mid != below and reaches(mid, below) for start, mid in pairs if start == above)
    )


def folders() -> list[str]:
    """Name all folders that hold modules, each layer before its folders."""
    return sorted(path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py"))[1:]


def tree(_: str) -> str:
    """Write the tree: each folder with its modules and the first sentence of its docstring."""
    found = folders()
    order = sorted(found, key=lambda one: (LAYERS.index(one.partition("/")[0]), one))
    rows = [(f"{'  ' * one.count('/')}{one.rpartition('/')[2]}/", _held(one), purpose(one)) for one in order]
    width = max(len(name) for name, _, _ in rows)
    lines = [f"  {name:{width}} {count:3}  {text}" for name, count, text in rows]
    lines += [f"  {file:{width + 4}}  {_purpose_of_file(file)}" for file in FILES]
    return "\n".join(["```text", "clusterctl/", *lines, "```"])


def purpose(folder: str) -> str:
    """Give the first sentence of a folder's docstring."""
    source = (PACKAGE / folder / "__init__.py").read_text(encoding="utf-8")
    return _first_sentence(ast.get_docstring(ast.parse(source)) or "")


def _purpose_of_file(name: str) -> str:
    return _first_sentence(ast.get_docstring(ast.parse((PACKAGE / name).read_text("utf-8"))) or "")


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n", maxsplit=1)[0].split()).partition(". ")[0].rstrip(".").replace("`", "")


def inside(_: str) -> str:
    """List which folder imports which other one of its own layer."""
    homes = {module.name: module.folder for module in modules()}
    pairs = {(one.folder, homes[other]) for one in modules() for other in one.imports}
    lines = []
    for folder in sorted(folders(), key=lambda one: (LAYERS.index(one.partition("/")[0]), one)):
        layer = folder.partition("/")[0]
        below = sorted(
            to for start, to in pairs if start == folder and to.startswith(f"{layer}/") and to != folder
        )
        if below and "/" in folder:
            lines.append(f"{folder:15} -> {', '.join(to.partition('/')[2] for to in below)}")
    return "\n".join(["```text", *lines, "```"])
