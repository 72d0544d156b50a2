"""What is sent is defined: by the type checker where it is built and compared, by these scans where it is read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from clusterctl.client.rpc.bundle import PACKAGE
from clusterctl.lab import messages as lab_messages
from clusterctl.protocol.messages import (
    allocation,
    checks,
    contents,
    evidence,
    facts,
    files,
    local,
    network,
    stored,
    verbs,
)
from clusterctl.protocol.messages.record import Record, fields_of
from clusterctl.protocol.untrusted import Untrusted

MODULES = (files, allocation, checks, contents, local, evidence, facts, network, stored, verbs)
READERS = {name for name in vars(Untrusted) if not name.startswith("_")}


def keys_of(*modules: ModuleType) -> frozenset[str]:
    """Return the keys of all messages and records that some modules define."""
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    messages = [kind.__annotations__ for kind in kinds if hasattr(kind, "__total__")]
    return frozenset().union(*messages, *(fields_of(kind) for kind in kinds if issubclass(kind, Record)))


def sources(*layers: str) -> dict[str, ast.Module]:
    """Give the modules of some layers, by their path in the package."""
    return {path: tree for layer in layers for path, tree in parsed(layer).items()}


@cache
def parsed(layer: str) -> dict[str, ast.Module]:
    """Parse the modules of a layer, without the definitions of messages."""
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in sorted((PACKAGE / layer).rglob("*.py"))}
    return {
        name: ast.parse(path.read_text())
        for name, path in paths.items()
        if not name.startswith("protocol/messages/")
    }


@cache
def walk(tree: ast.AST) -> list[ast.AST]:
    """List the nodes of a tree; most tests go through all of them."""
    return list(ast.walk(tree))


def texts(nodes: list[Any]) -> Iterator[str]:
    """Yield those that are texts."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def read_keys(tree: ast.AST) -> Iterator[str]:
    """Yield the keys that a module gives to the methods of Untrusted."""
    for node in walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
            yield from (key for key in texts(node.args[:1]) if re.fullmatch(r"[a-z_]\w*", key))


def test_what_is_read_is_defined() -> None:
    """A key that is misspelled where it is read is in no message."""
    known = keys_of(*MODULES)
    undefined = {
        (path, key)
        for path, tree in sources("client", "plans", "node", "protocol", "cli", "console").items()
        for key in read_keys(tree)
        if key not in known
    }
    assert undefined == set()


# What is looked for in something else than a message.
NO_KEYS = {
    *(
        "container",
        "go",
        "invoke",
        "loss",
        "nccl",
        "refused",
        "rsa",
    ),  # in variables, and in texts of other programs
    *(
        "inactive",
        "lo",
        "node_lost",
        "triton",
        "wire",
    ),  # states of links, names of NICs, reasons, packages, topics
}


def test_keys_that_are_looked_for_are_defined() -> None:
    """A misspelled `"key" in message` would be false for ever; mypy reads subscripts and `get` (tools/mypy_keys.py)."""
    defined = keys_of(*MODULES, lab_messages)
    found = {
        (path, key)
        for path, tree in sources("client", "plans", "node", "lab", "cli").items()
        for node in walk(tree)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn))
        for key in texts([node.left])
        if re.fullmatch(r"[a-z][a-z_]+", key) and key not in defined | NO_KEYS
    }
    assert found == set()


# Records of other programs and libraries, whose literal keys mypy cannot check.
FOREIGN_RECORDS = {
    "cli/options.py": "options as click gives them",
    "console/documents/schema.py": "JSON Schema, by pydantic",
    "node/diagnose/breakpoint.py": "what the rank gives to the file that it executes",
    "node/fork/imports.py": "variables of a module of any library",
    "node/supervise/gate.py": "arguments of subprocess.Popen",
    "specs/json_schema.py": "JSON Schema, and any value as JSON: written and read there alone",
}


def test_records_without_a_definition_are_those_of_others() -> None:
    """Where mypy does not check a literal key (tools/mypy_keys.py): nowhere else."""
    texts_of = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert {name for name, text in texts_of.items() if "record-key" in text} == FOREIGN_RECORDS.keys()
