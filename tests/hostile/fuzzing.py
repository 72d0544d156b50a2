"""Structure-aware fuzz of all that reads frames on the client: honest frames, changed as no honest node would.

    frames/VERB.json --mutate--> bytes --a session over no network--> the verb's own functions --> value or error

Only the SSH channel is replaced: the bytes go through the session's own reader, and what it gives to the functions that
the commands call. Nothing may come out but a ClusterctlError, or a value with bounds.
"""

from __future__ import annotations

import json
import math
import os
import signal
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

from invoke import Context

from clusterctl.client import cleanup, preflight, slurm
from clusterctl.client.cleanup import read_storage, remove_stored_runs
from clusterctl.client.files.node_files import list_request, open_node_files, protocol_error, relayed
from clusterctl.client.files.receiver import (
    DownloadReport,
    choose_requests,
    fetch_files,
    make_folders_and_links,
)
from clusterctl.client.files.target_dir import (
    TargetDirectory,
    UsersDirectory,
    group_by_workdir,
    prepare_target,
)
from clusterctl.client.rpc import session as sessions
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.session import Interpreter
from clusterctl.client.rpc.tasks import OutputCollector, measure_clock
from clusterctl.client.run_evidence import HistoryChoice, history
from clusterctl.client.sync.scan import ScanResult, scan_source
from clusterctl.client.sync.upload import TreeUpload
from clusterctl.client.watch.event_texts import describe_log_event
from clusterctl.client.watch.follower import FollowParser, LogLines, NodeEvent, StateChange
from clusterctl.client.watch.monitor import AttemptTracker, NodeReport
from clusterctl.client.watch.streams import Streams
from clusterctl.console.cleanup import staged_to_json
from clusterctl.errors import ClusterctlError
from clusterctl.plans.cleanup import RetentionPolicy, plan_cleanup, select_orphans
from clusterctl.plans.diagnose.hang import judge
from clusterctl.plans.diagnose.slow import judge_slowness
from clusterctl.plans.report.page import render_report
from clusterctl.plans.report.reported_run import ReportedRun
from clusterctl.plans.runs.cause import Explanation
from clusterctl.plans.runs.checkpoints import describe_checkpoints
from clusterctl.plans.runs.checkpoints import describe_event as describe_checkpoint_event
from clusterctl.plans.runs.judge_speed import judge_speed, judge_waiting
from clusterctl.plans.runs.rows import newest_entry
from clusterctl.plans.runs.selection import (
    Owner,
    gather_runs,
    is_complete,
    owner_of,
    sort_own_first,
    submitted_at,
)
from clusterctl.plans.runs.state import (
    attempt_of,
    attempts_of,
    find_checkpoints,
    live_state,
    node_ranks,
    parse_state,
)
from clusterctl.plans.runs.verdict import conclude_over
from clusterctl.plans.slurm.judge import to_findings
from clusterctl.plans.sync.listed_files import MAX_NAMES, FileSource, plan_download, plan_relay
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import RUNNING
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node, Ssh

FRAMES = Path(__file__).parent / "frames"
MAX_INTEGER = 1 << 65
MAX_TEXT = 70_000  # characters of one text; a line of a log may be long
MAX_ITEMS = 250_000
MAX_REPEATED = 10_000  # bytes of JSON of a list that is repeated up to 3000 times
MAX_CASE = 2.0  # seconds of the processor; a case takes some milliseconds
ME = Owner("ada@laptop", "0123456789abcdef")
NUMBERS: tuple[Any, ...] = (
    10**400,
    -(10**30),
    2**64,
    2**63,
    -1,
    0,
    1e308,
    -1e308,
    float("inf"),
    float("nan"),
    1.5,
    True,
)
TEXTS = (
    "",
    "x" * 100_000,
    "\ud800",
    "\U0001f4a3" * 5000,
    "../../x",
    "/etc/passwd",
    "\x1b]0;x\x07\x9b\x00",
    "nan",
    "1e999",
    "9" * 30,
)
OTHERS: tuple[Any, ...] = (None, [], {}, [[]], {"": {}}, "7", 7, -7, [None], {"x": [1]}, False)
Saved = tuple[dict[str, Any], str]


def node_named(name: str = "gpu02") -> Node:
    """Describe a node."""
    ssh = Ssh(user="ada", key=None, proxy_command=None, known_hosts=None, host_keys="strict")
    return Node(name=name, index=1, host="192.0.2.2", ssh=ssh)


NODE, INTERPRETER = node_named(), Interpreter("python3", None)


# how honest frames are changed


def mutate(chance: Random, value: Any) -> Any:
    """Change one place of a JSON value, mostly, and sometimes several."""
    for _ in range(1 + (chance.random() < 0.3) * chance.randrange(1, 6)):
        value = _change(chance, value)
    return value


def _change(chance: Random, value: Any) -> Any:
    """Go down to some place, and change what is there."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        return {**value, key: _change(chance, value[key])}
    if isinstance(value, list) and value and chance.random() < 0.85:
        place = chance.randrange(len(value))
        return [*value[:place], _change(chance, value[place]), *value[place + 1 :]]
    return _another(chance, value)


def _another(chance: Random, value: Any) -> Any:
    """Put something else in the place of a value."""
    inside = [value] if chance.random() < 0.5 else {"x": value}
    nested = _nested(chance.choice((10, 900, 5000)), chance.random() < 0.5)
    ways = (chance.choice(NUMBERS), chance.choice(TEXTS), nested, inside, chance.choice(OTHERS))
    if isinstance(value, (list, dict)) and value and chance.random() < 0.3:
        return _rearranged(chance, value)
    return chance.choice(ways)


def _rearranged(chance: Random, value: Any) -> Any:
    """Drop, double and reorder what a list or an object holds."""
    if isinstance(value, list):
        once = value[1:], value[::-1]
        if len(_dump(value)) > MAX_REPEATED:  # several changes in one another would make gigabytes
            return chance.choice(once)
        return chance.choice((*once, value * 2, value * (3000 // len(value)), value[:1] * 3000))
    gone = chance.choice(list(value))
    less = {key: one for key, one in value.items() if key != gone}
    other_keys = {key + "\x00": one for key, one in value.items()}
    return chance.choice((less, {**value, "another": value[gone]}, other_keys))


def _nested(depth: int, in_tables: bool) -> Any:
    value: Any = 7
    for _ in range(depth):
        value = {"x": value} if in_tables else [value]
    return value


def render(header: Any, body: bytes) -> bytes:
    """Write a frame as a node does; what JSON has no word for is written as Python writes it."""
    text = _dump(header)
    return b"%d %d\n" % (len(text), len(body)) + text + body


def _dump(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except RecursionError:
        return b'{"deep":' + b"[" * 5000 + b"]" * 5000 + b"}"


def change_frame(chance: Random, saved: Saved) -> bytes:
    """Change a frame: its header, what its body holds, or the order of its bytes."""
    header, body = saved[0], saved[1].encode("latin-1")
    if chance.random() < 0.25 and ("events" in header or "rows" in header):
        body = _change_body(chance, header, body)
    elif chance.random() < 0.05:
        body = chance.choice((b"", body * 2, body[: len(body) // 2], os.urandom(64)))
    else:
        header = mutate(chance, header)
    frame = render(header, body)
    if chance.random() < 0.02:
        place = chance.randrange(len(frame))
        frame = frame[:place] + bytes([chance.randrange(256)]) + frame[place + 1 :]
    return frame


def _change_body(chance: Random, header: Mapping[str, Any], body: bytes) -> bytes:
    if "rows" in header:
        return zlib.compress(_dump(mutate(chance, json.loads(zlib.decompress(body)))))
    lines = [_dump(mutate(chance, json.loads(line))) for line in body.splitlines()]
    return b"\n".join(chance.sample(lines, len(lines))) + b"\n"


def conversation(chance: Random, talks: Sequence[Sequence[Saved]]) -> bytes:
    """Give an honest conversation in which some frames are changed, doubled, dropped or exchanged."""
    chosen = list(chance.choice(talks))
    if chance.random() < 0.2:
        chance.shuffle(chosen)
    if chance.random() < 0.1:
        chosen.insert(0, chance.choice(chosen))
    changed = chance.sample(range(len(chosen)), min(len(chosen), chance.choice((1, 1, 1, 2, 5))))
    pieces = [
        change_frame(chance, one) if place in changed else render(one[0], one[1].encode("latin-1"))
        for place, one in enumerate(chosen)
    ]
    if chance.random() < 0.1:
        del pieces[chance.randrange(len(pieces))]
    return b"".join(pieces) + render({"end": True}, b"")


# a session without a network


class Pipe:
    """The channel of a session: what the client sends is dropped, what a node would send is there at once."""

    node = "gpu02"
    status = 0

    def __init__(self, answer: bytes) -> None:
        self._answer, self._heard, self._begun = bytearray(answer), b"", False
        self._read, self._write = os.pipe()
        os.write(self._write, b".")  # always readable

    @property
    def at_eof(self) -> bool:
        """All that will come is here."""
        return True

    def fileno(self) -> int:
        """Give a descriptor that is readable."""
        return self._read

    def read_stdout(self) -> bytes:
        """Take a piece."""
        piece = bytes(self._answer[: 1 << 16])
        del self._answer[: 1 << 16]
        return piece

    def read_stderr(self) -> bytes:
        """There is none."""
        return b""

    def send(self, data: bytes) -> int:
        """Look for the sentinel in what the client sends, and drop the rest."""
        if not self._begun:
            self._heard += data
            place = self._heard.find(b'{"sentinel": "')
            if place >= 0:
                self._begun = True
                sentinel = self._heard[place + 14 : place + 46]
                self._answer[:0] = b"\n" + sentinel + b"\n"
        return len(data)

    def find_failure(self) -> ClusterctlError | None:
        """Nothing was cut."""
        return None

    def abort(self) -> None:
        """There is nothing that waits."""

    def close(self) -> None:
        """Let go; more than once does no harm."""
        for number in (self._read, self._write):
            with suppress(OSError):
                os.close(number)
        self._read = self._write = -1


class Line(Context):
    """What stands for the connection, as Fabric's tasks want it."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self._set(answer=answer)


@contextmanager
def without_network() -> Iterator[None]:
    """Let sessions speak to what is given as their connection."""
    boot = mock.patch.object(sessions.bundle, "pack", return_value=(frozenset(), b""))
    zips = mock.patch.multiple(slurm, payload_zip=lambda: ("", b""), judge_zip=lambda: ("", b""))
    quick = mock.patch.multiple(preflight, LISTEN_LIMIT=0.02, REPORT_LIMIT=0.02)  # all that will come is here
    owner = mock.patch.object(sessions, "_idle_processes", lambda _: deque())
    with (
        boot,
        zips,
        quick,
        owner,
        mock.patch.object(sessions, "_open_channel", lambda line, *_: Pipe(line.answer)),
    ):
        yield


# what the commands do with a conversation


def drive_probe(line: Line, _: Place) -> object:
    """Ask for the facts, and whether the node takes part in the proof on the wire."""
    facts, session = tasks.probe_and_stay(line, NODE, INTERPRETER, (NODE,), tasks.ProbeOptions())
    wire = preflight.run_mesh_test({"gpu02": preflight.MeshMember(session, {"": "192.0.2.2"})})
    return facts, wire


def drive_ps(line: Line, _: Place) -> object:
    """List the runs, and decide what they are."""
    listing = tasks.ps(line, NODE, INTERPRETER, None, 200, pulse=True)
    runs = gather_runs({"gpu02": listing.runs}, ["gpu01"])
    known = [(live_state(parts), node_ranks(parts), attempts_of(parts)) for parts in runs.values()]
    told = [(submitted_at(parts), is_complete(parts), owner_of(parts)) for parts in runs.values()]
    ends = [conclude_over(run_id, parts, {"gpu01", "gpu02", "gpu03"}) for run_id, parts in runs.items()]
    return listing, known, told, ends, list(sort_own_first(runs, ME))


def drive_stop(line: Line, _: Place) -> object:
    """Stop a run."""
    return tasks.stop(line, NODE, INTERPRETER, "demo", tasks.StopOptions(1.0, "stopped"))


def drive_start(line: Line, _: Place) -> object:
    """Start a run, up to the moment when all are ready."""
    session = tasks.start(line, NODE, INTERPRETER, {"run": "demo"}, {})
    with session:
        return [
            tasks.await_event(session, word, 5.0, node="gpu02")
            for word in ("workdir", "ready", "go_received")
        ]


def drive_follow(line: Line, _: Place) -> object:
    """Follow a run, and collect the evidence."""
    session = tasks.follow(line, NODE, INTERPRETER, "demo", {"events": 0})
    parser = FollowParser()
    streams = Streams([NODE], lambda *_: session, parser.parse, pauses=(1.0, 1.0))
    notices: list[Any] = []
    part, attempts = NodeReport(NODE, 0.0), AttemptTracker({}, notices.append)
    streams.add("gpu02", session)
    updates = []
    while streams.open:
        updates += streams.updates(0.0)
    for update in updates:
        if isinstance(update, LogLines):
            notices.append(str(attempt_of(update.file)))
        elif isinstance(update, NodeEvent):
            notices += [str(part.on_event(update.event) or ""), describe_log_event(update.event) or ""]
            notices.append(describe_checkpoint_event(update.event)[0])
            attempts.on_event(update.event)
        elif isinstance(update, StateChange):
            attempts.on_state({"gpu02": update.state}, update.state)
            notices.append(describe_checkpoints(find_checkpoints({"gpu02": update.state}), 0.0))
            part.newly_frozen(update.state)
            part.state = update.state
    streams.close()
    return updates, notices, parser.offsets, parser.event_offsets


def drive_clock(line: Line, _: Place) -> object:
    """Ask a node for its time."""
    session = tasks.follow(line, NODE, INTERPRETER, "demo", {"clock": True})
    with session:
        return measure_clock(session)


def drive_exec(line: Line, _: Place) -> object:
    """Run a command."""
    kept = OutputCollector()
    return kept.finish(tasks.execute(line, NODE, INTERPRETER, ["echo"], 1 << 20, kept.append)).end


def drive_top(line: Line, _: Place) -> object:
    """Hear the gauges."""
    from clusterctl.plans.facts.utilization import NodeUsage, parse_sample

    known, heard = NodeUsage(NODE), []
    with tasks.top(line, NODE, INTERPRETER, 1.0) as session:
        for header, _body in session.pump():
            sample = parse_sample(
                header.get("sample") if isinstance(header, dict) else header.unread("sample")
            )
            if sample is not None:
                known = known.with_sample(sample, 1.0)
                heard.append((sample.gpu_busy, sample.memory_used, known.traffic, known.history))
    return heard


def drive_diagnose(line: Line, _: Place) -> object:
    """Ask where the ranks are, and judge."""
    node = tasks.diagnose(line, NODE, INTERPRETER, "demo", 12)
    judgement, slow = judge(node.ranks, [], 4), judge_slowness([node])
    return (
        judgement.sentence,
        judgement.fix,
        slow.judgement.sentence,
        slow.rows,
        [(rank.where, newest_entry(rank)) for rank in node.ranks],
    )


def drive_history(line: Line, _: Place) -> object:
    """Ask for what was sampled and recorded of a run, judge how fast it was, and draw it."""
    record = history(
        line, NODE, INTERPRETER, "demo", HistoryChoice(None, 50, details=True, lines=5, code=True)
    )
    times = record.history.times or (1.0, 1.0)
    ran = {"run": "demo", "node": "gpu02", "state": "SUCCEEDED", "began": times[0], "since": times[-1]}
    records, slow = {"gpu02": record}, judge_waiting({"gpu02": record})
    speed = judge_speed(RUNNING, {"gpu02": parse_state(Untrusted(ran))}, records, slow)
    run = ReportedRun(RunId("demo"), {}, None, Explanation(), records, 1.0, str, slow=slow, speed=speed)
    return record.history, render_report(run, run, "clusterctl", ()).encode("utf-8")


def drive_clean(line: Line, _: Place) -> object:
    """Ask what could go, choose, and have it removed."""
    with tasks.clean(line, NODE, INTERPRETER, 1.0) as session:
        found = read_storage(session, "gpu02")
        if found is None:
            return None
        choice = plan_cleanup(found.stored_runs, RetentionPolicy(0), ME)
        gone = [part for part, _ in choice.removals]
        return found, choice, remove_stored_runs(session, gone, "gpu02") if gone else None


def drive_orphans(line: Line, _: Place) -> object:
    """Find and end what crashed runs have left."""
    found = cleanup.find_orphans(line, NODE, INTERPRETER)
    return found, select_orphans(found.own, ME), cleanup.stop_orphans(line, NODE, INTERPRETER, found.own)


def drive_pull(line: Line, place: Place) -> object:
    """List results and bring them."""
    places = [FileSource("outputs", "demo", ""), FileSource("logs", "", "logs-demo")]
    return drive_download(line, place, places, "gpu02", None)


def drive_copy(line: Line, place: Place) -> object:
    """Copy a directory from a node, under another name."""
    places = [FileSource("path", "~/ckpt", "mine", modes=True)]
    return drive_download(line, place, places, "", UsersDirectory({"mine"}))


def drive_download(
    line: Line, place: Place, places: Sequence[FileSource], inner: str, users: UsersDirectory | None
) -> object:
    """List files and bring them."""
    request = list_request(NODE, places, 1000, run_id="demo", shared_home=("b", "m"))
    files, listed = open_node_files(line, INTERPRETER, request, places, MAX_NAMES)
    with files:
        plan = plan_download(listed.entries, ignores_case=True)
        target, report = place.fresh(), DownloadReport()
        prepare_target(target)
        try:
            with TargetDirectory(target, inner, "gpu02", users) as directory:
                requests = list(choose_requests(plan, directory, report, overwrite=False))
                fetch_files(files, requests, directory, report)
                make_folders_and_links(plan, directory, report)
                directory.remove_partials()
        finally:
            place.check(target)
    return listed, group_by_workdir({"gpu02": listed}, {"gpu02": "m"}), report


def drive_sync(line: Line, place: Place) -> object:
    """Bring code to a node."""
    return tasks.sync(
        line, NODE, INTERPRETER, "demo-20261122T000000-abcd", 1, TreeUpload(place.scan), lambda _: None
    )


def drive_give(line: Line, _: Place) -> object:
    """Read what a node gives to others, and contents that are passed on."""
    places = [FileSource("path", "~/ckpt", "ckpt", modes=True)]
    request = list_request(NODE, places, 1000, hashed=True)
    files, listed = open_node_files(line, INTERPRETER, request, places, MAX_NAMES)
    with files:
        try:
            plan = plan_relay(listed.entries)
        except ValueError as error:
            raise protocol_error("gpu02", str(error)) from error
        port = files.provide({"address": "192.0.2.2", "ports": None, "token": "t"})
        contents = relayed(files, plan, plan.manifest).contents
        passed = [part.size for part in contents.shipments(list(plan.manifest.blobs))]
    return plan, port, passed


class Login:
    """A login node whose answers are these."""

    node, interpreter = NODE, INTERPRETER

    def __init__(self, line: Line) -> None:
        self.cluster = SimpleNamespace(connection=lambda _: line)


SUBMISSION: Any = slurm.Submission({"check": {"only": True}}, [], "")  # type: ignore[arg-type]  # never read


def drive_queue(line: Line, _: Place) -> object:
    """Wait in the queue of a Slurm cluster, and read what the check in the allocation found."""
    login: Any = Login(line)
    states = list(slurm.watch_queue(login, "demo", 2))
    return states, [to_findings(state["check"]) for state in states if state["check"]]


def drive_check(line: Line, _: Place) -> object:
    """Read the facts of the nodes of a Slurm job."""
    login: Any = Login(line)
    return list(slurm.gather_facts(login, SUBMISSION, 2))


def drive_submit(line: Line, _: Place) -> object:
    """Submit a job."""
    login: Any = Login(line)
    return slurm.submit_job(login, SUBMISSION, {})


def drive_cancel(line: Line, _: Place) -> object:
    """Take a job out of Slurm."""
    login: Any = Login(line)
    return slurm.cancel_job(login, "demo", 1.0)


def drive_warm(line: Line, _: Place) -> object:
    """Describe what waits for the next launch."""
    return cleanup.query_warm(line, NODE, INTERPRETER)


def drive_staged(line: Line, _: Place) -> object:
    """Show what was staged, and have it removed."""
    found = cleanup.query_staged(line, NODE, INTERPRETER)
    return (
        found,
        staged_to_json({"gpu02": found}, {}, {}),
        cleanup.remove_staged(line, NODE, INTERPRETER, found),
    )


DRIVERS: dict[str, tuple[Callable[..., object], ...]] = {
    "probe": (drive_probe,),
    "ps": (drive_ps,),
    "stop": (drive_stop,),
    "start": (drive_start,),
    "follow": (drive_follow, drive_clock),
    "exec": (drive_exec,),
    "top": (drive_top,),
    "diagnose": (drive_diagnose,),
    "history": (drive_history,),
    "clean": (drive_clean,),
    "orphans": (drive_orphans,),
    "files": (drive_pull, drive_copy),
    "sync": (drive_sync,),
    "give": (drive_give,),
    "queue": (drive_queue,),
    "check": (drive_check,),
    "submit": (drive_submit,),
    "cancel": (drive_cancel,),
    "warm": (drive_warm,),
    "staged": (drive_staged,),
}


class Place:
    """A folder for what is brought, beside which nothing may appear, and a source tree."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0
        source = folder / "source"
        source.mkdir()
        (source / "train.py").write_text("print(1)\n", encoding="ascii")
        self.scan: ScanResult = scan_source(source)

    def fresh(self) -> Path:
        """Give an empty target."""
        self._number += 1
        return self._folder / f"target-{self._number}"

    def check(self, target: Path) -> None:
        """Fail if anything was written beside the target."""
        names = {path.name for path in self._folder.iterdir()} - {"source"}
        assert names <= {target.name}, f"written outside: {names}"
        _remove(target)


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()


# the fuzz itself


@dataclass
class Tally:
    """What came out of how many cases."""

    cases: int = 0
    refused: int = 0
    taken: int = 0


@dataclass(frozen=True)
class Fault:
    """A case that broke a rule, and how to have it again."""

    verb: str
    driver: str
    seed: str
    what: str

    def __str__(self) -> str:
        return f"{self.verb} by {self.driver}, seed {self.seed!r}: {self.what}"


def load(verb: str, scan: ScanResult | None = None) -> list[list[Saved]]:
    """Give the honest conversations of a verb; those about code are made to be about the code in `scan`."""
    talks = json.loads((FRAMES / f"{verb}.json").read_text(encoding="ascii"))
    for header in (frame[0] for talk in talks for frame in talk if scan is not None):
        header.update({"missing": list(scan.manifest.blobs)} if header.get("missing") else {})
        header.update({"tree": scan.manifest.hash} if "tree" in header else {})
    return [[(header, body) for header, body in talk] for talk in talks]


def fuzz(verb: str, count: int, seed: str, tally: Tally) -> Iterator[Fault]:
    """Let the functions of a verb read so many changed conversations."""
    with tempfile.TemporaryDirectory(prefix="ch-") as folder, without_network():
        place = Place(Path(folder))
        talks = load(verb, place.scan)
        for number in range(count):
            mine = f"{seed} {verb} {number}"
            for driver in DRIVERS[verb]:
                tally.cases += 1
                fault = one_case(driver, talks, mine, place, tally)
                if fault:
                    yield Fault(verb, driver.__name__, mine, fault)


def one_case(
    driver: Callable[..., object], talks: Sequence[Sequence[Saved]], seed: str, place: Place, tally: Tally
) -> str:
    """Run one case; says what is wrong."""
    answer = conversation(Random(seed), talks)
    signal.signal(signal.SIGVTALRM, _ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CASE)
    try:
        value = driver(Line(answer), place)
    except EndlessError:
        return f"not over after {MAX_CASE:g} s of the processor"
    except ClusterctlError as error:
        tally.refused += 1
        return "" if error.code else f"an error without a code: {error.message[:200]}"
    except Exception as error:  # whatever it is, it would end the command
        from traceback import extract_tb

        last = extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:150]} at {Path(last.filename).name}:{last.lineno}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    tally.taken += 1
    return unbounded(value)


def _ring(*_: object) -> None:
    raise EndlessError


class EndlessError(BaseException):
    """A case does not come to its end; nothing on the way may take it for an error of its own."""


def unbounded(value: object) -> str:
    """Say what in a value has no bounds; empty if all has. What is held in several places is in memory once."""
    count, waiting, seen = 0, [value], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        count += 1
        if isinstance(one, float) and not math.isfinite(one):
            return f"a number that is {one}"
        if isinstance(one, int) and abs(one) > MAX_INTEGER:
            return f"a number of {len(f'{abs(one):x}')} hexadecimal digits"
        if isinstance(one, str) and len(one) > MAX_TEXT:
            return f"a text of {len(one)} characters"
        if count > MAX_ITEMS:
            return f"more than {MAX_ITEMS} values"
        waiting += _inside(one)
    return ""


def _inside(value: object) -> list[object]:
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else []
