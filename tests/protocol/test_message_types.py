"""What is sent is defined: by the type checker where it is built, by these scans where it is read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, get_args

from clusterctl.client.rpc.bundle import PACKAGE
from clusterctl.lab import messages as lab_messages
from clusterctl.node.state import locks
from clusterctl.protocol.messages import (
    allocation,
    checks,
    evidence,
    facts,
    files,
    local,
    network,
    verbs,
)
from clusterctl.protocol.messages.record import Record, fields_of
from clusterctl.protocol.untrusted import Untrusted

MODULES = (files, allocation, local, evidence, facts, network, verbs)
READERS = {name for name in vars(Untrusted) if not name.startswith("_")}
# Keys that one side writes and the other does not read, or the reverse, and why they stay.
UNREAD_BY_NODE = {
    "beat": "any frame is a sign of life",
    **dict.fromkeys(
        ("cause_reason", "local_rank", "stopped"),
        "of `earlier` in spec.json: the agent copies it to its state",
    ),
    "check_store": "the node waits for this frame and for no other",
}
UNSENT_BY_CLIENT = {
    **dict.fromkeys(
        (
            "agent_limit",
            "alarm",
            "gang_limit",
            "handshake_limit",
            "hub_limit",
            "join_limit",
            "overdue_limit",
            "pause",
        ),
        "of spec.json and of the mesh test, set by tests",
    ),
    "cold": "of the agent's first frame: set by the verb `start`",
    **dict.fromkeys(("earlier", "cause_reason", "starttime"), "of spec.json: set by the task of a Slurm job"),
    "outside_stop": "of spec.json: set by the task of a Slurm job",
    "unfit": "of the roster: set by the nodes",
}
UNREAD_BY_CLIENT = {
    "grace": "of the journal, for people",
    "held": "of the journal and of `locks`: who reads looks at the holders",
    "port_taken": "of `failed`: the text says it too",
    "used": "of `gpu_memory`: for people who read the record",
    **dict.fromkeys(("agent", "guardian", "gang_done", "releasing"), "the node reads its own state"),
}


@cache
def definitions() -> dict[str, frozenset[str]]:
    """Give the keys of every message, by its name."""
    return {
        name: frozenset(kind.__annotations__)
        for module in MODULES
        for name, kind in vars(module).items()
        if isinstance(kind, type) and hasattr(kind, "__total__")
    }


def definitions_of(module: ModuleType) -> frozenset[str]:
    """Give the keys of the records that one module defines."""
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and hasattr(kind, "__total__")]
    return frozenset().union(*(kind.__annotations__ for kind in kinds))


def known_keys() -> frozenset[str]:
    """Return the keys of all messages and records."""
    return frozenset().union(*definitions().values()) | record_fields()


def record_fields() -> frozenset[str]:
    """Return the fields of all records, whose writers and readers the type checker knows."""
    values = [value for module in (checks, facts) for value in vars(module).values()]
    records = [kind for kind in values if isinstance(kind, type) and issubclass(kind, Record)]
    return frozenset().union(*map(fields_of, records))


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


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """Yield the calls of a function or method of this name."""
    for node in walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == name:
            yield node


def fills_text(call: ast.Call) -> bool:
    """Tell calls whose keyword arguments fill placeholders of a text for people."""
    return getattr(call.func, "attr", getattr(call.func, "id", "")) in ("tr", "trn")


def sent_keys(*layers: str) -> set[str]:
    """Collect the keys of dictionaries, keyword arguments, keys that are set, and names that a loop goes through."""
    found: set[str] = set()
    for tree in sources(*layers).values():
        for node in walk(tree):
            if isinstance(node, ast.Dict):
                found |= set(texts([key for key in node.keys if key is not None]))
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                found |= set(texts([node.slice]))
            elif isinstance(node, ast.Call) and not fills_text(node):
                found |= {word.arg for word in node.keywords if word.arg}
            elif isinstance(node, ast.Tuple):
                found |= set(texts(node.elts))
    return found


def named_keys(*layers: str) -> set[str]:
    """Collect the keys that are read: subscripts, keys given to a reader, `in`, and names that a loop goes through.

    A text in another place, as an argument of any function, reads nothing.
    """
    found: set[str] = set()
    for tree in sources(*layers).values():
        for node in walk(tree):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                found |= set(texts([node.slice]))
            elif isinstance(node, ast.Call):
                found |= set(
                    texts([*node.args, *(word.value for word in node.keywords)] if takes_key(node) else [])
                )
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
                found |= set(texts([node.left]))
            elif isinstance(node, (ast.For, ast.comprehension)):
                found |= set(texts(looped(tree, node.iter)))
    return found


def takes_key(call: ast.Call) -> bool:
    """Tell whether a function reads the key that is its argument."""
    name = str(getattr(call.func, "attr", getattr(call.func, "id", "")))
    return name in READERS | KEY_TAKERS


KEY_TAKERS = {
    "get",
    "pop",
    *("_receive_record", "_request_orphans", "render_processes"),
    *("_required_integer", "required"),
}


def looped(tree: ast.Module, values: ast.expr) -> list[ast.expr]:
    """Give what a loop goes through, where that is written down in the module."""
    if isinstance(values, ast.Name):
        assigned = [one for one in tree.body if isinstance(one, ast.Assign)]
        named = {getattr(one.targets[0], "id", ""): one.value for one in assigned}
        values = named.get(values.id, values)
    entries = values.elts if isinstance(values, (ast.Tuple, ast.List)) else []
    return [part for one in entries for part in (one.elts if isinstance(one, ast.Tuple) else [one])]


def mentioned(*layers: str) -> set[str]:
    """Collect the names of events and orders that a layer knows: compared, given to a function, or in a tuple."""
    found: set[str] = set()
    for tree in sources(*layers).values():
        for node in walk(tree):
            if isinstance(node, ast.Call):
                found |= set(texts(node.args))
            elif isinstance(node, ast.Compare):
                found |= set(texts([node.left, *node.comparators]))
            elif isinstance(node, ast.Tuple):
                found |= set(texts(node.elts))
    return found


def reachable(*roots: str) -> set[str]:
    """Name the messages that are these, or a part of them."""
    found: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        kind = next((vars(module)[name] for module in MODULES if name in vars(module)), None)
        annotations: Mapping[str, Any] = getattr(kind, "__annotations__", {})
        parts = [str(getattr(value, "__forward_arg__", value)) for value in annotations.values()]
        parts += [str(getattr(member, "__name__", member)) for member in get_args(kind)]
        pending += [word for part in parts for word in re.findall(r"\w+", part) if word in definitions()]
    return found


def keys_of(*roots: str) -> set[str]:
    """Give the keys of some messages and all their parts."""
    return {key for name in reachable(*roots) for key in definitions().get(name, ())}


JUDGE = "plans/slurm"  # what judges the nodes of an allocation is sent there
TO_NODE = ("Request", "ClientFrame", "Secrets")
TO_CLIENT = ("NodeFrame", "State", "JournalEntry", "GangRecord", "AttemptRecord")


def test_what_is_read_is_defined() -> None:
    """A key that is misspelled where it is read is in no message."""
    undefined = {
        (path, key)
        for path, tree in sources("client", "plans", "node", "protocol", "cli", "console").items()
        for key in read_keys(tree)
        if key not in known_keys()
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
    defined = known_keys() | definitions_of(lab_messages)
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
    "cli/completion.py": "options as click gives them",
    "console/documents/schema.py": "JSON Schema, by pydantic",
    "node/diagnose/breakpoint.py": "what the rank gives to the file that it executes",
    "node/fork/imports.py": "variables of a module of any library",
    "node/supervise/gate.py": "arguments of subprocess.Popen",
    "specs/inventory/render.py": "settings that all hosts of an imported inventory share",
    "specs/json_schema.py": "JSON Schema, and any value as JSON: written and read there alone",
}


def test_records_without_a_definition_are_those_of_others() -> None:
    """Where mypy does not check a literal key (tools/mypy_keys.py): nowhere else."""
    texts_of = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert {name for name, text in texts_of.items() if "record-key" in text} == FOREIGN_RECORDS.keys()


def test_what_the_client_sends_is_read_and_the_reverse() -> None:
    """Each key of a request, a spec or an order is known to both sides."""
    sent, read = sent_keys("client", "plans", "cli"), named_keys("node", "protocol", JUDGE)
    keys = keys_of(*TO_NODE)
    assert {"run", "spec", "listeners", "blobs", "roster"} <= keys
    assert keys - read == UNREAD_BY_NODE.keys()
    assert keys - sent == UNSENT_BY_CLIENT.keys()


def test_what_a_node_sends_is_read_and_the_reverse() -> None:
    """Each key of an answer, an event, a state or a record is known to both sides."""
    sent, read = sent_keys("node", "protocol", JUDGE), named_keys("client", "plans", "cli", "protocol")
    read |= record_fields()
    keys = keys_of(*TO_CLIENT)
    assert {"stopped", "ranks", "time_marks", "differs", "failures"} <= keys
    assert keys - sent == set()
    assert keys - read == UNREAD_BY_CLIENT.keys()


def test_names_of_events_are_sent_and_read() -> None:
    """Each event of an agent and of the journal is sent; the client, or another event's reader, names it."""
    journal, events = set(get_args(files.JournalEvent)), set(get_args(verbs.EventName))
    node = sources("node").values()

    def named(*names: str) -> set[str]:
        found = [call.args for name in names for tree in node for call in calls(tree, name)]
        return {text for args in found for text in texts(args[:2])}  # the first of some is the run

    assert named("add_event", "journal", "abort_start") == journal
    sent = named("send_event", "report", "_send_event", "send_client", "abort_start")
    assert sent | {"workdir"} == events  # which the verb `start` itself sends
    assert events <= mentioned("client", "plans", "cli")


def test_orders_are_sent_and_read() -> None:
    """Each order to an agent is sent by the client, and the agent knows it."""
    orders = {"join", "listeners", "go", "cancel", "setup", "before", *get_args(verbs.LockOrder)}
    assert orders <= sent_values("client") | mentioned("client")
    assert orders <= mentioned("node") | set(locks.ORDERS)


def sent_values(layer: str) -> set[str]:
    """Collect the values of dictionaries."""
    return {
        text
        for tree in sources(layer).values()
        for node in walk(tree)
        if isinstance(node, ast.Dict)
        for text in texts(node.values)
    }
