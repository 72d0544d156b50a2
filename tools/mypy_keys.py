"""Part of mypy here: a literal key of a message, a state file or a record is one that its definition has.

mypy checks subscripts of a TypedDict by itself. What it leaves out is an error here:
- `.get("key")` on a TypedDict that has no such key,
- a literal key of a record without a definition: of a dict whose values are of any kind.

What stays has `# type: ignore[record-key]` and a reason on its line: values of other programs and libraries. Tests may
read any key: they make records of all versions, and broken ones.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.errorcodes import ErrorCode
from mypy.nodes import Expression, StrExpr
from mypy.plugin import MethodContext, Plugin
from mypy.plugins.default import typed_dict_get_callback
from mypy.types import AnyType, Instance, Type, TypedDictType, get_proper_type

RECORD_KEY = ErrorCode("record-key", "Check literal keys of records", "General")
METHODS = ("__getitem__", "get", "pop")
MAPPINGS = ("builtins.dict", "typing.Mapping", "typing.MutableMapping")


class KeyPlugin(Plugin):
    """Reads the first argument of the methods that take a key."""

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """Give mypy the check of a method, if it has one."""
        owner, _, method = fullname.rpartition(".")
        if owner not in MAPPINGS or method not in METHODS:
            return None
        return _check_get if method == "get" else _check


def _check_get(context: MethodContext) -> Type:
    """Check a key, and give `get` on a TypedDict the type that mypy itself gives it."""
    _check(context)
    is_defined = isinstance(get_proper_type(context.type), TypedDictType)
    return typed_dict_get_callback(context) if is_defined else context.default_return_type


def _check(context: MethodContext) -> Type:
    """Check the first argument, where it is a literal."""
    for key in context.args[0] if context.args else []:
        if isinstance(key, StrExpr):
            _check_key(context, key, key.value)
    return context.default_return_type


def _check_key(context: MethodContext, place: Expression, key: str) -> None:
    kind = get_proper_type(context.type)
    if isinstance(kind, TypedDictType):
        if key not in kind.items:
            name = kind.fallback.type.name
            context.api.fail(f'TypedDict "{name}" has no key "{key}"', place, code=RECORD_KEY)
    elif isinstance(kind, Instance) and _is_record(kind) and not context.api.path.startswith("tests/"):
        context.api.fail(f'key "{key}" of a record without a TypedDict', place, code=RECORD_KEY)


def _is_record(kind: Instance) -> bool:
    """Whether the values of a mapping are of any kind: it is a record, whose keys are fixed."""
    value = get_proper_type(kind.args[-1]) if kind.args else None
    return isinstance(value, AnyType) or (
        isinstance(value, Instance) and value.type.fullname == "builtins.object"
    )


def plugin(version: str) -> type[Plugin]:  # noqa: ARG001 - the signature that mypy expects
    """Give mypy the plugin."""
    return KeyPlugin
