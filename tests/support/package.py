"""The modules of the package, parsed: for the rules that a machine can check."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Import:
    """One imported name in full: `from a import b` is `a.b`."""

    name: str
    relative: bool = False
    lazy: bool = False

    @property
    def top(self) -> str:
        """What stands before the first dot."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, eq=False)
class Module:
    """A parsed source file of the package."""

    path: PurePosixPath
    text: str
    tree: ast.Module

    @property
    def layer(self) -> str:
        """The room that it stands in: a sub-package, or the name of a module beside them."""
        return PurePosixPath(self.path.parts[1]).stem

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree: most rules look at them all."""
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return [node for node in self.nodes if isinstance(node, kinds)]

    @property
    def name(self) -> str:
        """The name under which it is imported."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def code_lines(self) -> int:
        """How many lines hold code: no blank lines, comments or docstrings."""
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docs = [node.body[0] for node in self.nodes if isinstance(node, kinds) and ast.get_docstring(node)]
        lines = {
            line
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline)
            if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
            for line in range(token.start[0], token.end[0] + 1)
        }
        return len(lines - {line for doc in docs for line in range(doc.lineno, (doc.end_lineno or 0) + 1)})

    @cached_property
    def imports(self) -> list[Import]:
        """Every import, at the top and inside functions."""
        return list(self._find_imports())

    def _find_imports(self) -> Iterator[Import]:
        in_functions = {node for function in self.functions for node in ast.walk(function)}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (Import(alias.name, lazy=node in in_functions) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = self.path.parts[: len(self.path.parts) - node.level] if node.level else ()
                base = ".".join((*above, *filter(None, [node.module])))
                for alias in node.names:
                    yield Import(f"{base}.{alias.name}", node.level > 0, node in in_functions)


def parse(path: str, text: str) -> Module:
    """Make a module from a path below the repository's root and its text."""
    return Module(PurePosixPath(path), text, ast.parse(text, path))


@cache
def modules() -> list[Module]:
    """Read the whole package; only for the tests here, since every process of a test run imports this file."""
    return [
        parse(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8"))
        for file in sorted(ROOT.glob("clusterctl/**/*.py"))
    ]
