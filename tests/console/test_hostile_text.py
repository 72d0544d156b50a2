"""Hostile text and numbers in every field of all that is shown: no traceback, nothing that a terminal acts on."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import io
import json
import pkgutil
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import typing_extensions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console, Group

import clusterctl
import clusterctl.cli
import clusterctl.console
from clusterctl.cli.actions.stop import render_stopped
from clusterctl.cli.actions.sync import show_synced
from clusterctl.cli.context.nodes import notice, report_failures
from clusterctl.client.rpc.tasks import CommandEnd, StopReport
from clusterctl.client.sync.upload import SyncResult
from clusterctl.client.watch.follower import LogLines
from clusterctl.codes.lookup import REPORTED
from clusterctl.console.lines import JsonLogPrinter, LinePrinter, LogPrinter
from clusterctl.console.run.hang import deep_to_json, render_deep
from clusterctl.console.terminal import stdout
from clusterctl.console.text import json_text, make_visible
from clusterctl.console.top import TopLayout, render_top, top_to_json
from clusterctl.errors import ClusterctlError, Issue, Location, NodeError, SpecError
from clusterctl.plans.checks.framework import Observations
from clusterctl.plans.checks.registry import evaluate
from clusterctl.plans.diagnose.hang import Judgement
from clusterctl.plans.diagnose.network_tests import LINE_PREFIX, DeepCheckResult, parse_deep_result
from clusterctl.plans.explain import Explanation
from clusterctl.plans.facts.utilization import NodeUsage, parse_sample
from clusterctl.plans.runs.state import NodeState
from clusterctl.protocol.messages.files import AloneRecord, EndState, KeptReason
from clusterctl.protocol.messages.record import Record, fields_of
from clusterctl.protocol.messages.verbs import StreamName
from clusterctl.specs.inventory.model import Node, Ssh
from clusterctl.specs.json_schema import KeyEntry

PACKAGE = Path(clusterctl.__file__).parent
CONTROLS = "".join(map(chr, [*range(9), *range(11, 32), *range(0x7F, 0xA0)]))
BIDI = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HIDDEN = (
    "\xad\u180e\u200b\u200c\u200d\u2060\u2064\u206a\u206f\ufeff\ufff9\ufffb\U000e0001\U000e0041\U000e007f"
)
HOSTILE = f"a\x1b]52;c;YQ==\x07b\x1b[2Jc\x9b2Jd\x9d0;t\x9ce\x1b[31mf\rg{CONTROLS}{BIDI}{HIDDEN}h"
ACTED_ON = re.compile(f"[{re.escape(CONTROLS + BIDI + HIDDEN)}]")
UNSEEN = re.compile(f"[\x7f-\x9f{BIDI}{HIDDEN}\ud800-\udfff]")


def hostile(kind: Any, deep: int = 0) -> Any:
    """Build a value of a type with hostile text wherever text may stand."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return hostile(next(arg for arg in args if arg is not types.NoneType), deep)
    if origin is typing.Literal:
        return args[0]
    if origin is typing.Annotated:
        return hostile(args[0], deep)
    if origin in (tuple, list, Sequence, Iterable, Collection, set, frozenset) and args:
        return tuple(hostile(arg, deep) for arg in args if arg is not Ellipsis)
    if origin in (dict, Mapping):
        return {hostile(args[0], deep): hostile(args[1], deep)}
    return _generic(origin, args, deep) if dataclasses.is_dataclass(origin) else _plain(kind, deep)


def _generic(origin: Any, args: tuple[Any, ...], deep: int) -> Any:
    """Build a generic dataclass with the types that it has in this place."""
    kinds = dict(zip(origin.__parameters__, args, strict=True))
    values = {}
    for name, hint in typing.get_type_hints(origin).items():
        free = getattr(hint, "__parameters__", ())
        values[name] = hostile(hint[tuple(kinds[one] for one in free)] if free else hint, deep + 1)
    return origin(**values)


def _plain(kind: Any, deep: int) -> Any:  # noqa: PLR0911 - a table of kinds of values
    simple = {
        str: HOSTILE,
        bytes: HOSTILE.encode("utf-8", "replace"),
        bool: True,
        int: 7,
        float: 7.0,
    }
    if kind in simple:
        return simple[kind]
    if kind is Any or kind is object:
        return HOSTILE
    if typing.get_origin(kind) is Callable:
        return lambda *_: None
    if kind is Path:
        return Path(HOSTILE.replace("\0", ""))
    if isinstance(kind, typing.NewType):
        return hostile(kind.__supertype__, deep)
    if inspect.isclass(kind) and issubclass(kind, Console):
        return stdout()
    if kind is Judgement:
        facts = dict.fromkeys(("ranks", "operation", "where", "waiting"), HOSTILE)
        return Judgement("CC-HANG-004", "", facts)
    if kind is SpecError:
        place = Location(HOSTILE, 1, 1)
        return SpecError([Issue(HOSTILE, HOSTILE, place, HOSTILE)])
    if inspect.isclass(kind) and issubclass(kind, ClusterctlError):
        error = kind(HOSTILE, REPORTED, node=HOSTILE, evidence=f"{HOSTILE}\n{HOSTILE}", message=HOSTILE)
        error.fix = HOSTILE
        return error
    if inspect.isclass(kind) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    if typing_extensions.is_typeddict(kind) or (inspect.isclass(kind) and issubclass(kind, Record)):
        hints = typing.get_type_hints(kind)
        names = hints if typing_extensions.is_typeddict(kind) else fields_of(kind)
        return kind(**{name: hostile(hints[name], deep + 1) for name in names})
    if dataclasses.is_dataclass(kind):
        assert deep < 12, kind
        names = {
            "AloneRecord": AloneRecord,
            "EndState": EndState,
            "NodeState": NodeState,
            "StreamName": StreamName,
            "KeptReason": KeptReason,
            "Literal": Literal,
        }
        hints = typing.get_type_hints(kind, localns=names)
        named = [field.name for field in dataclasses.fields(kind) if field.init]
        return kind(**{name: hostile(hints[name], deep + 1) for name in named})
    raise TypeError(f"do not know how to build {kind}")


# What is built in another way, or shows nothing that comes from elsewhere.
OTHERWISE = {
    "console.terminal.print_fitted_table": "shows a table of others",
    "console.terminal.print_table": "shows a table of others",
    "console.findings.print_behind": "its label is made by who calls it",
    "console.explanation.render_codes": "shows the texts of our own catalogue, by codes that are in it",
}


def _shows() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Give every function of console that prints."""
    for info in pkgutil.walk_packages(clusterctl.console.__path__, "clusterctl.console."):
        module = importlib.import_module(info.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            own = function.__module__ == module.__name__ and not name.startswith("_")
            if own and re.match(r"show_|tell_|say$|render_|print_", name):
                yield f"{info.name.removeprefix('clusterctl.')}.{name}", function


SHOWS = dict(_shows())


@pytest.mark.parametrize("name", sorted(set(SHOWS) - set(OTHERWISE)))
def test_nothing_that_a_terminal_acts_on_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By any function of console, whatever a node, a peer or a repository has put into any field."""
    function = SHOWS[name]
    positional, named = _arguments(function)
    function(*positional, **named)
    captured = capsys.readouterr()

    assert not ACTED_ON.search(captured.out), captured.out
    assert not ACTED_ON.search(captured.err), captured.err


def _arguments(function: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    hints = typing.get_type_hints(
        function,
        localns={"Console": Console, "Explanation": Explanation, "Group": Group, "KeyEntry": KeyEntry},
    )
    given = [(one, hostile(hints[one.name])) for one in inspect.signature(function).parameters.values()]
    positional = [value for one, value in given if one.kind != one.KEYWORD_ONLY]
    return positional, {one.name: value for one, value in given if one.kind == one.KEYWORD_ONLY}


def test_a_function_that_shows_is_not_forgotten() -> None:
    """The list is what the modules hold."""
    assert len(SHOWS) > 25
    assert set(OTHERWISE) < set(SHOWS)


def test_the_lines_of_a_log_and_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Printed as they come, or as JSON; the fields of JSON are as they were."""
    data = HOSTILE.encode("utf-8", "surrogatepass")
    for as_json in (False, True):
        printer = LinePrinter([HOSTILE], as_json=as_json)
        for stream in ("stdout", "stderr"):
            printer.on_output(HOSTILE, stream, data + b"\n" + data)
        printer.on_exit(HOSTILE, hostile(CommandEnd))
    entry = replace(
        hostile(LogLines),
        lines=(HOSTILE, HOSTILE),
        sizes=(len(data), len(data)),
        line_offsets=(),
        times=(7.0, 8.0),
    )
    LogPrinter({HOSTILE: 1}, 2).show(entry)
    JsonLogPrinter("run", {HOSTILE: 1}).show(entry)
    shown = capsys.readouterr()

    assert shown.out.count("\n") >= 10
    assert not ACTED_ON.search(shown.out + shown.err)
    assert any(json.loads(line).get("node") == HOSTILE for line in shown.out.splitlines() if line[0] == "{")


def test_json_is_the_same_to_a_program_and_harmless_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands in keys and values, and whatever the terminal's encoding is."""
    everything = " ".join(
        map(chr, [*range(0x3000), *range(0xD800, 0x10000), *range(0xE0000, 0xE0080), 0x1F680])
    )
    document = {everything: [everything, {"a": HOSTILE}]}
    for encoding in ("utf-8", "ascii"):
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        text = json_text(document)
        assert json.loads(text) == document
        assert not UNSEEN.search(text)
        text.encode(encoding)
    assert ("中文" in json_text("中文")) is False
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    assert json_text("中文 é") == '"中文 é"'


def test_every_json_goes_through_the_one_place() -> None:
    """No verb and no screen writes JSON by itself; what `on_end` reads goes into a pipe."""
    others = {}
    for layer in ("cli", "console"):
        for file in sorted((PACKAGE / layer).rglob("*.py")):
            calls = [
                node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call)
            ]
            dumps = [call for call in calls if ast.unparse(call.func) in ("json.dumps", "json.dump", "dumps")]
            if dumps:
                others[file.relative_to(PACKAGE).as_posix()] = len(dumps)
    assert others == {"console/text.py": 1, "cli/actions/notify.py": 1}


def test_what_the_verbs_print_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a verb has no screen of its own."""
    show_synced({HOSTILE: hostile(SyncResult)})
    print(render_stopped(HOSTILE, hostile(StopReport)))
    report_failures([hostile(NodeError), hostile(SpecError)])
    notice(HOSTILE)
    shown = capsys.readouterr()

    assert shown.out
    assert shown.err
    assert not ACTED_ON.search(shown.out + shown.err)


def test_what_is_looked_through_shows_what_is_hidden() -> None:
    """`launch --dry-run` shows a control character of a job as an escape."""
    assert make_visible("a\x1b[2Jb\u202ec\n\td\x9b") == "a\\x1b[2Jb\\u202ec\n\td\\x9b"
    assert not ACTED_ON.search(make_visible(HOSTILE))


def test_only_the_screen_makes_consoles() -> None:
    """Every text that rich prints goes through it."""
    makers = {
        file.name
        for layer in ("cli", "console", "client")
        for file in (PACKAGE / layer).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Console", "SanitizedConsole")
    }
    assert makers == {"terminal.py"}


NODES = tuple(Node(name=f"gpu{n}", index=n, host=f"10.0.0.{n}", ssh=Ssh()) for n in range(3))
few = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

leaf = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from([0, 1, 2, -1])
)
junk = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
number = st.one_of(junk, st.integers(-2, 4), st.floats(1e-9, 1e9))
gpu = st.fixed_dictionaries(dict.fromkeys(("index", "busy", "memory_used", "memory", "temperature"), number))
sample = st.fixed_dictionaries(
    {
        **dict.fromkeys(("cpu", "memory", "memory_free"), number),
        "gpus": st.one_of(junk, st.lists(gpu, max_size=3)),
        "nics": st.one_of(
            junk, st.dictionaries(st.text(max_size=4), st.fixed_dictionaries({"sent": number}), max_size=2)
        ),
        "gpu_problem": junk,
    }
)
rows = st.lists(st.one_of(junk, st.tuples(number, number)), max_size=3)
group = st.fixed_dictionaries(
    {
        "nodes": st.one_of(junk, st.lists(st.integers(-1, 3), max_size=3)),
        "ranks": number,
        "ok": junk,
        "rows": rows,
        "at": number,
    }
)
numbers = st.one_of(junk, st.lists(st.integers(-1, 3), max_size=3))
found = st.fixed_dictionaries(
    {
        "ok": junk,
        "nodes": numbers,
        "slow_nodes": numbers,
        "links": st.lists(numbers, max_size=2),
        "slow_links": st.lists(numbers, max_size=2),
    }
)
kind = st.sampled_from(["all", "pairs", "again", "alone", "rest", "x"])
entry = st.one_of(
    junk,
    st.fixed_dictionaries({"round": kind, "groups": st.lists(group, max_size=3)}),
    st.fixed_dictionaries({"found": found}),
)


@few
@given(st.one_of(junk, sample))
def test_gauges(raw: Any) -> None:
    """A sample is shown, or none."""
    read = parse_sample(json.loads(json.dumps(raw)))
    known = [NodeUsage(node) if read is None else NodeUsage(node).with_sample(read, 1.0) for node in NODES]
    console = Console(file=io.StringIO(), width=100)
    for part in render_top(known, 9.0, 5.0, TopLayout(max_rows=2)):
        console.print(part)
    json.dumps(top_to_json(known, 9.0), allow_nan=False)


@few
@given(st.lists(entry, max_size=4))
def test_deep_checks(entries: list[Any]) -> None:
    """Findings name our nodes only, whatever a leader reports."""
    lines = [LINE_PREFIX + json.dumps(one) for one in entries]
    deep = parse_deep_result(lines, DeepCheckResult("gloo", tuple(node.name for node in NODES), 3))
    for finding in evaluate(NODES, Observations({}, {}, deep=deep)):
        assert set(finding.nodes) <= {node.name for node in NODES}
    render_deep(Console(file=io.StringIO()), deep)
    json.dumps(deep_to_json(deep), allow_nan=False)
