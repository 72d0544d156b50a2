"""A function as the text of a script that calls it: by import where it has a module, else by its source.

Nothing is pickled. The source of a function of a notebook or of the program itself is taken with what it uses from
there: modules and what is imported from them, other functions and classes, and plain values.
"""

from __future__ import annotations
import __future__

import ast
import importlib.util
import inspect
import json
import linecache
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from pathlib import Path
from symtable import SymbolTable, symtable
from tokenize import TokenError
from types import CodeType, FunctionType, ModuleType
from typing import Any

from clusterctl.api import on_rank
from clusterctl.errors import UsageError

_LAZY = "from __future__ import annotations\n"  # names that only annotations use are not needed
LIBRARIES = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class SourceSpan:
    """Lines of the script that are those of another file, from `first` on."""

    start: int
    count: int
    file: str
    first: int


@dataclass(frozen=True)
class CallScript:
    """The script, the folder of modules that it needs (None: none of this machine), and whose lines it has."""

    name: str
    text: str
    folder: str | None
    spans: tuple[SourceSpan, ...] = ()

    def locate(self, file: str, line: int) -> tuple[str, int]:
        """Return which file and line of the user a line of the script is."""
        for span in self.spans:
            if file == self.name and span.start <= line < span.start + span.count:
                return span.file, line - span.start + span.first
        return file, line


@dataclass(frozen=True)
class _Source:
    """The text of a function or class, and where it begins."""

    text: str
    file: str
    first: int


@dataclass
class _Parts:
    """What is found for a script: lines of imports and values, sources in the order of need, and folders of modules."""

    lines: dict[str, str] = field(default_factory=dict)  # by name
    sources: list[_Source] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)


def plan_script(function: Callable[..., Any], arguments: Sequence[Any], folder: str | None) -> CallScript:
    """Return the script that calls a function with arguments; `folder` holds its modules, else it is found.

    Raises UsageError for what cannot be imported or written as source, and for arguments that are no JSON.
    """
    name = getattr(function, "__name__", type(function).__name__)
    try:
        arguments_text = json.dumps(list(arguments), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError("CC-USE-099", "arguments", name=name, reason=error) from None
    parts = _Parts()
    if (place := _import_path_of(function)) is not None:
        module, path = place
        parts.folders |= _folders_of(module)
        parts.lines[""] = f"import {module} as clusterctl_module"
        target = f"clusterctl_module.{path}"
    else:
        _add_source(parts, name, function)
        target = name
    if folder is None and len(parts.folders) > 1:
        raise UsageError("CC-USE-099", "folders", name=name, folders=", ".join(sorted(parts.folders)))
    folder = folder or next(iter(parts.folders), None)
    return _write(name, parts, f"clusterctl_call({target}, {arguments_text!r})", folder)


def _write(name: str, parts: _Parts, call: str, folder: str | None) -> CallScript:
    ours = inspect.getsource(on_rank.clusterctl_call)
    lines = [_LAZY.rstrip(), *ours.splitlines(), *parts.lines.values()]
    spans = []
    for source in parts.sources:
        own = source.text.rstrip("\n").split("\n")  # other separators of lines stay inside of texts
        spans.append(SourceSpan(len(lines) + 1, len(own), source.file, source.first))
        lines += own
    lines += ['if __name__ == "__main__":', f"    {call}"]
    word = "".join(sign if sign.isalnum() and sign.isascii() else "_" for sign in name)
    return CallScript(f"clusterctl_call_{word}.py", "\n".join(lines) + "\n", folder, tuple(spans))


def _import_path_of(value: Any) -> tuple[str, str] | None:
    """Return module and path by which other processes import it; None where there are none."""
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(path, str) or module == "__main__":
        return None
    try:
        return (module, path) if attrgetter(path)(sys.modules[module]) is value else None
    except (AttributeError, KeyError):
        return None


def _add_source(parts: _Parts, name: str, value: Any) -> None:
    """Add the source of a function or class, and what it uses of its module."""
    inner = inspect.unwrap(value) if callable(value) else value
    if not isinstance(inner, (FunctionType, type)):
        raise UsageError("CC-USE-099", "kind", name=name, kind=type(value).__name__)
    if name == "<lambda>":
        raise UsageError("CC-USE-099", "closure", name=name)
    try:
        source = _source_of(inner)
        written = _written_in(inner, source.file)
        _check_current(written, source.file)
        tree, table = ast.parse(source.text), symtable(_LAZY + source.text, name, "exec")
    except (OSError, TypeError, SyntaxError, TokenError) as error:
        raise UsageError("CC-USE-099", "source", name=name, reason=error) from None
    if any(set(one.__code__.co_freevars) - {"__class__"} for one in written):
        raise UsageError("CC-USE-099", "closure", name=name)
    parts.seen.add(name)
    scope = _scope_of(inner)
    _add_used(parts, name, set(_globals_in(table, called=False)), scope)
    parts.sources.append(source)  # behind what its definition uses, before what it uses when it is called
    _add_used(parts, name, set(_globals_in(table)), scope)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            parts.folders |= {folder for alias in node.names for folder in _folders_of(alias.name)}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            parts.folders |= _folders_of(node.module)
        elif isinstance(node, ast.Attribute):
            _add_submodule(parts, ast.unparse(node), scope)


def _written_in(value: FunctionType | type, file: str) -> list[FunctionType]:
    """Return a function, or the methods of a class that its file has: a decorator may have made others."""
    functions = [value] if isinstance(value, FunctionType) else vars(value).values()
    return [one for one in functions if isinstance(one, FunctionType) and one.__code__.co_filename == file]


def _check_current(functions: Sequence[FunctionType], file: str) -> None:
    """Raise OSError unless a file has what is loaded of it: it may have been edited since."""
    text = "".join(linecache.getlines(file))
    for code in (function.__code__ for function in functions):
        if _instructions(code) not in map(_instructions, _compile(text, file, code)):
            raise OSError(f"{code.co_name}() has been changed in its file since it was loaded")


def _compile(text: str, file: str, like: CodeType) -> Iterator[CodeType]:
    """Yield the codes of a file, then of its statements: IPython compiles each of a cell by itself.

    A call of `time.sleep` has other instructions where the compiler sees that `time` is a module. A cell may await, and
    `from __future__ import annotations` of an earlier one is in force.
    """
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | (like.co_flags & __future__.annotations.compiler_flag)
    tree = ast.parse(text)
    for module in (tree, *(ast.Module([node], []) for node in tree.body)):
        yield from _codes_in(compile(module, file, "exec", flags, dont_inherit=True))


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)


def _instructions(code: CodeType) -> tuple[object, ...]:
    constants = [repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]
    return code.co_name, code.co_firstlineno, code.co_code, constants


def _add_used(parts: _Parts, owner: str, names: set[str], scope: Mapping[str, Any]) -> None:
    for used in sorted(names - parts.seen):
        if used in scope and not used.startswith("__"):
            parts.seen.add(used)
            _add_name(parts, owner, used, scope[used])


def _scope_of(value: FunctionType | type) -> Mapping[str, Any]:
    """Return the names of the module around a function or class."""
    if isinstance(value, FunctionType):
        return value.__globals__
    methods = [part for part in vars(value).values() if isinstance(part, FunctionType)]
    scopes = [method.__globals__ for method in methods if method.__globals__.get(value.__name__) is value]
    return scopes[0] if scopes else vars(sys.modules[value.__module__])


def _source_of(value: FunctionType | type) -> _Source:
    """Return the text of a function or class; a class of a notebook is found by its methods, or in its newest cells."""
    if isinstance(value, type) and (source := _find_class(value)) is not None:
        return source
    lines, first = inspect.getsourcelines(value)
    return _Source(_outdent("".join(lines)), inspect.getsourcefile(value) or "", max(first, 1))


def _find_class(value: type) -> _Source | None:
    for file, lines in _texts_with(value):
        try:
            tree = ast.parse("".join(lines))
        except SyntaxError:  # a cell that failed
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == value.__name__ and _has_fields(value, node):
                first = min([node.lineno, *(part.lineno for part in node.decorator_list)])
                return _Source(_outdent("".join(lines[first - 1 : node.end_lineno])), file, first)
    return None


def _texts_with(value: type) -> Iterator[tuple[str, list[str]]]:
    """Yield the files of the methods of a class, a data class has some of other files too, then IPython's cells."""
    methods = [part for part in vars(value).values() if isinstance(part, FunctionType)]
    for file in dict.fromkeys(method.__code__.co_filename for method in methods):
        yield file, linecache.getlines(file)
    main = sys.modules.get(value.__module__)
    cells = getattr(main, "In", None) if not hasattr(main, "__file__") else None
    for number, cell in reversed([*enumerate(cells)] if isinstance(cells, list) else []):
        yield f"In[{number}]", [f"{line}\n" for line in str(cell).split("\n")]


def _has_fields(value: type, node: ast.ClassDef) -> bool:
    """Return whether a class has the annotated names of a text: a later cell may have failed before it defined it."""
    names = {ast.unparse(part.target) for part in node.body if isinstance(part, ast.AnnAssign)}
    return names == {*value.__annotations__}


def _outdent(text: str) -> str:
    """Remove the indentation of a text that has some; it changes lines of blanks in long texts, too."""
    return textwrap.dedent(text) if text[:1].isspace() else text


def _globals_in(table: SymbolTable, *, called: bool = True) -> Iterator[str]:
    """Yield the names that a text uses of the module around it; without `called`, those that its definition uses."""
    yield from (
        symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()
    )
    for child in table.get_children():
        if called or child.get_type() == "class":
            yield from _globals_in(child, called=called)


def _add_name(parts: _Parts, owner: str, name: str, value: Any) -> None:
    """Add what a name of the module stands for."""
    if isinstance(value, ModuleType):
        parts.folders |= _folders_of(value.__name__)
        parts.lines[name] = f"import {value.__name__} as {name}"
    elif (place := _import_path_of(value)) is not None:
        module, path = place
        parts.folders |= _folders_of(module)
        first, _, rest = path.partition(".")
        parts.lines[name] = f"from {module} import {first} as {name}"
        parts.lines[name] += f"; {name} = {name}.{rest}" if rest else ""
    elif isinstance(value, (FunctionType, type)):
        _add_source(parts, name, value)
        if value.__name__ != name:
            raise UsageError("CC-USE-099", "name", name=owner, used=name)
    elif _is_literal(value):
        parts.lines[name] = f"{name} = {value!r}"
    else:
        raise UsageError("CC-USE-099", "name", name=owner, used=name)


def _add_submodule(parts: _Parts, path: str, scope: Mapping[str, Any]) -> None:
    """Import `a.b` where `a` is a module: the program may have imported it elsewhere."""
    first, _, rest = path.partition(".")
    module = scope.get(first)
    if isinstance(module, ModuleType) and f"{module.__name__}.{rest}" in sys.modules:
        parts.lines[path] = f"import {module.__name__}.{rest}"


def _is_literal(value: Any) -> bool:
    """Return whether a value is plain: its text in Python is the same value."""
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, RecursionError, TypeError, MemoryError):
        return False


@cache
def _library_folders() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({Path(sysconfig.get_path(name)).resolve() for name in names})


def _folders_of(module: str) -> set[str]:
    """Return the folder from which a module of this machine is imported; nothing for what is installed or built in."""
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return set()
    places = [*(spec.submodule_search_locations or ())] if spec else []
    origin = places[0] if places else spec.origin if spec and spec.has_location else None
    if origin is None or set(LIBRARIES) & set(Path(origin).parts):
        return set()
    folder = Path(origin).resolve().parent
    if any(folder.is_relative_to(library) for library in _library_folders()):
        return set()
    return {str(folder)}
