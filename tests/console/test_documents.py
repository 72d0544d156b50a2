"""What `--json` writes is what is declared: each verb has a schema, and documents have its keys and types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import click
import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter, ValidationError

from clusterctl.cli.actions.sync import synced_to_json
from clusterctl.cli.context.run_output import RunOutput
from clusterctl.cli.main import root
from clusterctl.cli.main import run as main
from clusterctl.client.cleanup import EndedOrphans, NodeStorage, RemovalReport, UnusedStorage
from clusterctl.client.files.receiver import DownloadReport
from clusterctl.client.rpc.cluster import Answers
from clusterctl.client.rpc.tasks import CommandEnd, CommandOutput
from clusterctl.client.sync.upload import SentFiles, SyncResult
from clusterctl.client.watch.follower import LogLines
from clusterctl.console import cleanup
from clusterctl.console.documents import nodes, runs
from clusterctl.console.documents.output import errors_to_json
from clusterctl.console.documents.runs import (
    CodesDocument,
    CommandEndLine,
    CommandLine,
    ErrorDocument,
    ExplanationDocument,
    KeysDocument,
    LogLine,
)
from clusterctl.console.documents.schema import ERROR, PROMISE, VERBS, Document, make_schema
from clusterctl.console.findings import check_to_json
from clusterctl.console.inventory import inventory_to_json
from clusterctl.console.lines import JsonLogPrinter, LinePrinter, answers_to_json
from clusterctl.console.results import copies_to_json, pull_to_json
from clusterctl.console.run import hang
from clusterctl.console.run.listing import runs_to_json
from clusterctl.console.run.status import status_to_json
from clusterctl.console.text import json_text
from clusterctl.console.top import history_to_json, top_to_json
from clusterctl.errors import NodeError
from clusterctl.plans.checks.framework import Finding
from clusterctl.plans.cleanup import CleanupPlan, Orphans, WarmServer, parse_stored_run
from clusterctl.plans.diagnose.evidence import Entry, Frame, GroupRecord, NodeEvidence, RankEvidence
from clusterctl.plans.diagnose.hang import Judgement, judge
from clusterctl.plans.diagnose.kept import judge_kept, parse_kept
from clusterctl.plans.diagnose.network_tests import DeepCheckResult
from clusterctl.plans.diagnose.slow import Lateness, Slowness
from clusterctl.plans.facts.facts import parse_facts
from clusterctl.plans.facts.utilization import NodeUsage, parse_sample
from clusterctl.plans.launch.placement import plan_placement
from clusterctl.plans.launch.plan import offline, plan_launch, plan_to_json
from clusterctl.plans.notify import hooks_to_json
from clusterctl.plans.runs.history import History
from clusterctl.plans.runs.selection import Owner
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.plans.runs.verdict import conclude, verdict_to_json
from clusterctl.plans.sync.listed_files import OutsideFiles, RefusedEntry
from clusterctl.plans.sync.staging import plan_staging
from clusterctl.protocol.messages.checks import GroupResult, MeshPath, MeshResult, RoundEntry, SearchReport
from clusterctl.protocol.messages.facts import GpuUsage, Orphan
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.model import Job, Notify, OnEnd
from clusterctl.specs.job.stage import Stage

RUN = RunId("digits-20261121T101500-ab12")
ME = Owner("ann@laptop")
ERRORS = {"gpu02": NodeError("CC-RUN-004", node="gpu02")}
OUTSIDE = OutsideFiles(1, 9, ("model.pt",))
INVENTORY = parse_inventory(
    "cluster: c\nnodes: [{host: 10.0.0.1, gpus: 8, ports: 29500-29510}, {host: gpu02}]", "-"
)
STATE: Mapping[str, Any] = {
    "run": RUN,
    "job": "digits",
    "nnodes": 2,
    "node": "gpu01",
    "node_rank": 0,
    "since": 10,
    "submitted": 1.5,
    "world_size": 2,
    "outside": {"files": 1, "bytes": 9, "names": ["model.pt"]},
}
RUNNING = parse_state(
    Untrusted(
        {
            **STATE,
            "state": "RUNNING",
            "began": 2.0,
            "time_limit": 60.0,
            "ranks": {"0": {"local_rank": 0, "pid": 7, "exit": None, "signal": None}},
            "activity": {"0": {"line": "step 1", "written": 9.0, "process": "S", "started": 2.0}},
            "halted": [{"process": "agent", "pid": 8}],
            "attempts": [{"attempt": 1, "reason": "node_lost", "text": "lost", "node": "gpu02", "began": 1}],
        }
    )
)
LIVE: Mapping[str, NodeState | None] = {"gpu01": RUNNING, "gpu02": None}


def ended() -> dict[str, NodeState | None]:
    """Return a run of one rank that failed, with the complete record of its end."""
    lines = ["Traceback (most recent call last):", "RuntimeError: no"]
    failure = {"rank": 0, "exit": 1, "time": 9.0, "last_at": 9.0, "tail": lines}
    failure["tracebacks"] = [{"at": 9.0, "lines": lines}]
    part = {"node": "gpu01", "node_rank": 0, "state": "FAILED", "reason": "rank 0", "time": 9.1}
    gang = {"hub": "gpu01", "whole": True, "parts": [{**part, "stopped_at": None, "failures": [failure]}]}
    return {"gpu01": parse_state(Untrusted({**STATE, **part, "nnodes": 1, "gang": gang}))}


def kept_hang() -> Any:
    """Return what the nodes have kept of ranks that made no progress."""
    raw = {"why": "stall", "time": 90.0, "since": 30.0, "diagnosis": {"ranks": [{"rank": 0, "pid": 7}]}}
    kept = parse_kept(Untrusted(raw), "gpu01")
    return judge_kept([kept] if kept else [], [], 2)


def verdict_line() -> dict[str, Any]:
    """Return the last line of `launch --json`."""
    verdict = conclude(RUN, ended())
    assert verdict is not None
    return {"schema": 1, "run": RUN, "verdict": verdict_to_json(verdict)}


def dry_run() -> dict[str, Any]:
    """Return what `launch --dry-run` would start."""
    job = Job(name="a", file="job.yaml", script="train.py")
    members = plan_placement(INVENTORY, job)
    plan = plan_launch(job, members, {member.name: offline(member) for member in members}, run_id=None)
    hooks = hooks_to_json(OnEnd(command=("true",)), [Notify(to="slack", url_from="URL")])
    setup = {"content": "ab", "files": 1, "bytes": 2, "steps": ["pip install x"]}
    staged = plan_staging(Job(name="a", file="job.yaml", stage=(Stage(source="./corpus"),)), ["gpu01"], {})
    return {"schema": 1, "plan": {**plan_to_json(plan), "setup": setup, "stage": staged, **hooks}}


def checked() -> dict[str, Any]:
    """Return the document of `check`, with the test of the network and the deep check."""
    nic = {"name": "eth0", "up": True, "addresses": [{"ip": "10.0.0.1", "prefix": 24, "family": 4}]}
    facts = parse_facts({"torch": {"version": "2.7"}, "nics": [nic], "gpus": {"count": 1}})
    finding = Finding("CC-NET-001", "error", ("gpu02",), "no eth9", "Because.", "", "a NIC")
    paths = (
        MeshPath(caller="gpu01", peer="gpu02", step="done", connect=0.1, least_rtt=90),
        MeshPath(caller="gpu02", peer="gpu01"),
    )
    mesh = MeshResult(nodes=("gpu01", "gpu02"), paths=paths, absent={"gpu02": "no answer"}, seconds=1.0)
    groups = (GroupResult(nodes=(0, 1), ranks=2, ok=True, rows=((8, 0.1),)),)
    rounds = (RoundEntry(round="all", seconds=1.0, groups=groups),)
    deep = DeepCheckResult(
        "nccl", ("gpu01", "gpu02"), 2, rounds, SearchReport(ok=False, nodes=(0,), links=((0, 1),))
    )
    return {
        **check_to_json(INVENTORY.nodes, {INVENTORY.nodes[0].name: facts}, [finding]),
        "wire": hang.mesh_to_json(mesh),
        "age": None,
        "deep": hang.deep_to_json(deep),
    }


def clean_document() -> dict[str, Any]:
    """Return the document of `clean`."""
    raw = {"run": RUN, "age": 9.0, "bytes": 10, "outside": {"files": 1, "bytes": 9, "names": ["a"]}}
    part = parse_stored_run("gpu01", Untrusted(raw))
    assert part is not None
    unused = UnusedStorage(1, 2)
    stored = {name: NodeStorage("id", (part,), unused, unused, unused) for name in ("gpu01", "gpu02")}
    removed = {"gpu01": RemovalReport(1, 2, 3, ("a: no",))}
    plan = CleanupPlan(((part, "old"),), ((part, "it lives"),))
    orphans = {"gpu01": [Orphan(run=RUN, pid=7, starttime=8, age=9.0, command="python")], "gpu02": [Orphan()]}
    ended = cleanup.ended_orphans_to_json(orphans, {"gpu01": EndedOrphans(("7",), ())})
    return {**cleanup.cleanup_to_json(plan, stored, removed, ERRORS, ended, warm())}


def warm() -> Any:
    """Return the entries of processes that wait for the next launch."""
    return cleanup.warm_to_json({"gpu01": [WarmServer(7, "python", "2.7", ("numpy",), 1.0, 2.0, 3)]})


def listed_orphans() -> Any:
    """Return the document of `clean --orphans --dry-run`."""
    return cleanup.orphans_to_json({"gpu01": Orphans((Orphan(run=RUN, pid=7),), {"bob": 2})})


def pulled() -> Any:
    """Return the document of `pull`: one node that sent files, and one that failed."""
    report = DownloadReport(1, 2, 3, ["kept"], ["changing"], [RefusedEntry("a\nb", "no")])
    names, outside = ["gpu01", "gpu02"], {"gpu01": OUTSIDE}
    return pull_to_json(RUN, "digits", Path("out"), {"gpu01": report}, ERRORS, names, outside)


def copied() -> Any:
    """Return the document of `cp`."""
    received = {"gpu01": (DownloadReport(1, 2), Path("here"))}
    sent = {("gpu02", "there"): SentFiles(1, 2, 3, ("a",), 1, 4, 5)}
    return copies_to_json(received, sent, list(ERRORS.values()), ["a\nb"])


def synced() -> Any:
    """Return the document of `sync`."""
    scan: Any = SimpleNamespace(manifest=SimpleNamespace(hash="ab", files=1, size=2))
    answers = Answers({"gpu01": SyncResult("ab", 1, 2, 3)}, ERRORS)
    return synced_to_json(scan, answers, ["gpu01", "gpu02"])


def executed() -> Any:
    """Return the document of `exec`."""
    output = CommandOutput(b"a", b"b", CommandEnd(1, None, ("stdout",), ("7 sleep",)))
    return answers_to_json({"gpu01": output}, {"gpu02": "no answer"}, ["gpu01", "gpu02"])


def usage() -> Any:
    """Return the document of `top`."""
    raw = {"cpu": 0.5, "nics": {"eth0": {"received": 1.0}}, "gpus": [{"index": 0, "busy": 97, "power": 300}]}
    sample = parse_sample(raw)
    assert sample is not None
    first, second = (NodeUsage(node) for node in INVENTORY.nodes)
    return top_to_json([first.with_sample(sample, 99.0), second.with_error("no")], 100.0)


def evidence() -> RankEvidence:
    """Return what is known of a rank that waits in a collective."""
    group = GroupRecord("0", "default_pg", (0, 1), (Entry(1, None, "all_reduce", "[]", "Float", False, 9.0),))
    return RankEvidence(0, "gpu01", 7, silent=60.0, frames=(Frame("a.py", 1, "f"),), groups=(group,))


def diagnosis() -> dict[str, Any]:
    """Return the document of `diagnose`."""
    ranks = [evidence(), RankEvidence(1, "gpu02", problem="no answer")]
    nodes = {"gpu01": NodeEvidence("gpu01", (ranks[0],), 0.1)}
    gpus = {"gpu01": [GpuUsage(index=0, busy=100)]}
    return {**hang.diagnosis_to_json(RUN, judge(ranks, [], 2), ranks, nodes, ERRORS, gpus)}


def slowness() -> Any:
    """Return the document of `diagnose --slow`."""
    rows = (Lateness(0, "gpu01", 0.9, 0.1, 0.2),)
    return hang.slowness_to_json(RUN, Slowness(Judgement("CC-HANG-012", "clocks"), rows, 20, 1.0))


def explained(*words: str) -> Any:
    """Return what `explain --json` prints."""
    return json.loads(CliRunner().invoke(root, ["explain", "--json", *words]).output)


DOCUMENTS: list[tuple[Any, Callable[[], Any]]] = [
    (runs.StatusDocument, lambda: status_to_json(RUN, LIVE, hang=kept_hang())),
    (runs.StatusDocument, lambda: status_to_json(RUN, ended())),
    (runs.PsDocument, lambda: runs_to_json({RUN: LIVE, RunId("b"): ended()}, ME, warm=warm())),
    (runs.VerdictLine, verdict_line),
    (runs.DryRunDocument, dry_run),
    (runs.CheckDocument, checked),
    (nodes.InventoryDocument, lambda: inventory_to_json(INVENTORY)),
    (nodes.ExecDocument, executed),
    (nodes.TopDocument, usage),
    (
        nodes.HistoryDocument,
        lambda: history_to_json(RUN, {"gpu01": History((1.0,), {("gpu", "0", "busy"): (None,)})}),
    ),
    (nodes.PullDocument, pulled),
    (nodes.CopyDocument, copied),
    (nodes.SyncDocument, synced),
    (nodes.CleanDocument, clean_document),
    (nodes.OrphansDocument, listed_orphans),
    (runs.DiagnoseDocument, diagnosis),
    (runs.SlownessDocument, slowness),
    (ExplanationDocument, lambda: explained("CC-NET-003")),
    (CodesDocument, lambda: explained("NET")),
    (KeysDocument, lambda: explained("job.restart")),
    (ErrorDocument, lambda: errors_to_json(list(ERRORS.values()))),
]


def check_fits(kind: Any, document: Any) -> None:
    """Raise an error if a document has other keys, or values of other types, than are declared."""
    adapter = TypeAdapter(kind)
    text = json_text(document)
    assert json.loads(adapter.dump_json(adapter.validate_json(text, strict=True))) == json.loads(text)


@pytest.mark.parametrize(("kind", "make"), DOCUMENTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_document_is_as_declared(kind: Any, make: Callable[[], Any]) -> None:
    """It has the keys and types of its declaration, and no others."""
    check_fits(kind, make())


def test_a_document_that_differs_is_noticed() -> None:
    """A key that is missing, that is not declared, or whose value is of another type."""
    document: dict[str, Any] = {**pulled()}
    with pytest.raises(ValidationError):
        check_fits(nodes.PullDocument, {key: value for key, value in document.items() if key != "job"})
    with pytest.raises(ValidationError):
        check_fits(nodes.PullDocument, {**document, "job": 1})
    with pytest.raises(AssertionError):
        check_fits(nodes.PullDocument, {**document, "more": 1})


def test_lines_are_as_declared(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of logs, of a command, and the last line of a run that was not followed to its end."""
    lines = LogLines("gpu01", None, "stderr", "torchrun.log", 5, None, ("a", "b"), (2, 2), continues=True)
    JsonLogPrinter(RUN, {}).show(lines.cut(slice(0, 2), (0, 5)))
    printer = LinePrinter(["gpu01"], as_json=True)
    printer.on_output("gpu01", "stdout", b"a\n")
    printer.on_exit("gpu01", CommandEnd(0, None))
    output = RunOutput(True, "clusterctl")
    output.write_end("UNKNOWN", 130, run_id=RUN)
    output.write_failure("FAILED_SETUP", ERRORS["gpu02"])
    output.write_json({"schema": 1, "run": RUN, "detached": True})
    written = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    kinds = [LogLine] * 3 + [CommandLine, CommandEndLine] + [runs.EarlyEndLine] * 2 + [runs.DetachedLine]
    assert len(written) == len(kinds)
    for kind, line in zip(kinds, written, strict=True):
        check_fits(kind, line)


def json_verbs(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Return the verbs that have `--json`."""
    if any("--json" in param.opts for param in command.params):
        yield " ".join(path)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from json_verbs(found, (*path, name))


def test_each_verb_with_json_has_a_schema() -> None:
    """And no other has one; what they write are the types that may be written."""
    assert sorted(json_verbs(root)) == sorted(set(VERBS) - {ERROR})
    assert {kind for entry in VERBS.values() for kind in entry.kinds} == set(get_args(Document))


@pytest.mark.parametrize("verb", VERBS)
def test_a_schema_has_what_a_program_needs(verb: str) -> None:
    """Its dialect, the promise, and a description of every kind of object."""
    schema = make_schema(verb)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert PROMISE in schema["description"]
    assert ("anyOf" in schema) == (len(VERBS[verb].kinds) > 1)
    assert [name for name, kind in schema.get("$defs", {}).items() if not kind.get("description")] == []


def test_the_schema_of_a_dataclass_is_what_is_written() -> None:
    """Each field is always there, so no default is named."""
    schema = make_schema("top")["$defs"]["GpuUsage"]
    assert schema["required"] == list(schema["properties"])
    assert not any("default" in kind for kind in schema["properties"].values())


def test_help_json_prints_the_schema_of_a_verb() -> None:
    """As JSON, with the keys that the verb writes."""
    shown = CliRunner().invoke(root, ["help", "json", "status"])
    schema = json.loads(shown.output)
    assert schema["title"] == "clusterctl status --json"
    assert list(schema["properties"]) == list(status_to_json(RUN, ended()))
    assert set(schema["required"]) == set(schema["properties"])
    assert "STALLED" in schema["$defs"]["RunStatus"]["properties"]["state"]["enum"]
    assert json.loads(CliRunner().invoke(root, ["help", "json", "lab", "up"]).output) == make_schema("lab up")


def test_help_json_lists_the_verbs() -> None:
    """With one line for each."""
    shown = CliRunner().invoke(root, ["help", "json"], terminal_width=120).output
    lines = {line.strip() for line in shown.splitlines()}
    assert "ps              Write the runs as JSON." in lines
    assert all(any(line.startswith(f"{verb} ") for line in lines) for verb in VERBS)


def test_a_verb_without_json_is_an_error_that_lists_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """It is an error of usage."""
    assert main(["help", "json", "ssh"]) == 2
    assert "no JSON Schema for 'ssh'; available: init, check, launch" in capsys.readouterr().err
