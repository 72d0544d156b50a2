"""The table of attacks: what a node in hostile hands can do to the client, verb by verb; the other nodes are honest.

Every row is one command of a user, as a process of its own. Whatever the node sends: nothing is run or written that
the user did not ask for, the honest nodes are served, the liar is named where it was refused, no terminal sequence
and no traceback reaches the screen, memory stays small, and the command ends by itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import password_servers
import pytest
from ground import CONTROLS, LIAR, MAX_MEMORY, NODES, Ground, Seen, World
from variants import VARIANT

OK, PARTLY, FAILED, CHECKS, UNREACHABLE, USAGE, INTERRUPTED = 0, 5, 1, 3, 4, 2, 130
MAX_CRASH = 64 << 10
OURS = re.compile(
    r"state/clusterctl/(checks|packed|specs|trees|ssh|stat)/.*|state/clusterctl/(ends|crashes|known_runs)"
)

NAMED_ROW = re.compile(r"`([a-z][a-z ,-]*: [a-z]+\.[\w-]+)`")  # `verb: payload.case`, in FINDINGS.md


@dataclass(frozen=True)
class Verb:
    """A command: its words, which honest nodes its output shows, how it ends if a node is refused, what it writes."""

    words: tuple[str, ...]
    served: Callable[[Seen], set[str]]
    refused: tuple[int, ...] = (PARTLY,)
    writes: str = ""

    def argv(self, ground: Ground, python: str) -> list[str]:
        """Complete the words."""
        names = {
            "run": ground.runs["demo"],
            "kept": ground.runs["kept"],
            "config": str(ground.lab.directory / "ssh_config"),
            "python": python,
        }
        return [word.format(**names) for word in self.words]


def listed(key: str, name: str) -> Callable[[Seen], set[str]]:
    """Find the nodes of a JSON document that have no error."""
    return lambda seen: {
        one[name]
        for document in seen.documents
        for one in document.get(key, ())
        if one.get("answered", True) and not one.get("error")
    }


def lines(pattern: str) -> Callable[[Seen], set[str]]:
    """Find nodes on lines of text."""
    return lambda seen: {f"gpu0{found}" for found in re.findall(pattern, seen.out)}


def everywhere(pattern: str) -> Callable[[Seen], set[str]]:
    """Find what stands for all nodes."""
    return lambda seen: set(NODES) if re.search(pattern, seen.both) else set()


def brought(seen: Seen) -> set[str]:
    """Find the nodes whose results are here now."""
    return {one["node"] for one in seen.documents[0]["nodes"] if one["files"] or one["unchanged"]}


PULLED = r"work/outputs/demo/(gpu0[123]/.*|\.clusterctl/.*|\.gitignore)"
VERBS = {
    "check": Verb(("check", "--json"), listed("nodes", "name"), (FAILED, CHECKS, UNREACHABLE)),
    "discover": Verb(
        ("inventory", "discover", "gpu[01-03]", "--ssh-config", "{config}", "--python", "{python}"),
        lines(r"(?m)^ +- .*gpu0(\d)"),
    ),
    "init": Verb(
        ("init", "gpu[01-03]", "--ssh-config", "{config}", "--python", "{python}"),
        everywhere("."),
        writes=r"work/(inventory|job)\.yaml",
    ),
    "launch": Verb(("launch", "job.yaml"), everywhere("."), (FAILED, CHECKS, UNREACHABLE, PARTLY)),
    # how a node's part has ended its peers know too
    "launch, followed": Verb(("launch", "job.yaml"), everywhere("."), (OK, FAILED)),
    "ps": Verb(("ps",), everywhere(r"(?m)^[0-9a-f]{4} +demo +\S+ +\w+ +[23]/3")),
    "ps --json": Verb(
        ("ps", "--json"), lambda seen: {node for run in seen.documents[0]["runs"] for node in run["nodes"]}
    ),
    "ps --orphans": Verb(("ps", "--orphans"), everywhere(".")),
    "status": Verb(("status", "{run}", "--json"), listed("nodes", "node")),
    "status as text": Verb(("status", "{run}"), lines(r"(?m)^\d +gpu0(\d) +SUCCEEDED")),
    # that the run had ended well its nodes may have said before one of them was refused
    "attach": Verb(("attach", "{run}"), everywhere(r"(?m)^\S+ \w+ after"), (OK, FAILED)),
    "attach any": Verb(("attach",), everywhere("."), (OK, FAILED, USAGE)),
    "stop": Verb(
        ("stop", "-y", "{run}"), lines(r"(?m)^gpu0(\d): nothing was running"), (UNREACHABLE, PARTLY)
    ),
    "logs": Verb(("logs", "{run}", "--json"), lambda seen: {one["node"] for one in seen.documents}),
    "logs as text": Verb(("logs", "{run}"), lines(r"(?m)^gpu0(\d) .* hello")),
    "logs -f": Verb(("logs", "-f", "{run}"), lines(r"(?m)^gpu0(\d) .* hello")),
    "logs -t": Verb(("logs", "-t", "{run}"), lines(r"(?m)gpu0(\d) .* hello")),
    "pull": Verb(("pull", "--json", "{run}"), brought, (PARTLY,), PULLED),
    "pull as text": Verb(("pull", "{run}"), lines(r"(?m)^gpu0(\d): .* -> "), (PARTLY,), PULLED),
    # its parts are on other nodes too
    "pull --checkpoint": Verb(
        ("pull", "{kept}", "mine", "--json", "--checkpoint"),
        everywhere("."),
        (OK, PARTLY, USAGE),
        r"work/mine/(step-1/([012]|done)|\.clusterctl/.*|\.gitignore)",
    ),
    "cp": Verb(
        ("cp", "--json", "--run", "{run}", "all:${{output_dir}}/.", "mine/"),
        lambda seen: {one["node"] for one in seen.documents[0]["received"]},
        (PARTLY,),
        r"work/mine/.*",
    ),
    "clean": Verb(("clean", "-y", "--json"), listed("nodes", "node")),
    "clean --staged": Verb(("clean", "--staged", "-y", "--json"), listed("nodes", "node")),
    "clean as text": Verb(("clean", "-y"), everywhere(".")),
    "sync": Verb(("sync", "job.yaml"), everywhere(r"(?m)^gpu\[?01.*03\]: \d files"), (FAILED, PARTLY)),
    "exec": Verb(("exec", "--json", "--", "echo", "hi"), listed("nodes", "node"), (PARTLY, FAILED)),
    "exec as text": Verb(("exec", "--", "echo", "hi"), everywhere(r"(?m): hi$"), (PARTLY, FAILED)),
    "top": Verb(("top", "--once", "--json"), listed("nodes", "name")),
    "top as text": Verb(("top", "--once"), lines(r"(?m)^gpu0(\d) +[^ ]")),
    "diagnose": Verb(("diagnose", "{run}", "--json"), listed("nodes", "name")),
    "diagnose as text": Verb(("diagnose", "{run}", "--stacks"), everywhere(".")),
    "report": Verb(("report", "{run}"), everywhere(r"html"), writes=r"work/\w+\.html"),
    "keys push": Verb(
        ("keys", "push", "-y", "--accept-new", "--password-from", "SECRET"),
        lines(r"(?m)^gpu0(\d): installed in"),
        writes=r"home/\.ssh/(id_ed25519(\.pub)?|known_hosts)",
    ),
}


@dataclass(frozen=True)
class Row:
    """One attack on one verb; a node that is `refused` is named, and the exit code says that not all answered."""

    verb: str
    lie: str
    refused: bool | None = None  # None: it may as well be taken for what little of it can be believed
    liar: str = LIAR

    def __str__(self) -> str:
        return f"{self.verb}: {self.lie}"

    @property
    def case(self) -> str:
        """The lie without the verb of the payload."""
        return self.lie.partition(".")[2]

    @property
    def is_open_ended(self) -> bool:
        """Tell whether the stream may go on for as long as the user looks, as that of a live run does."""
        streams = self.lie.partition(".")[0] in ("follow", "exec")
        return streams and self.case in ("endless", "endless-unknown", "giant", "beats")


ANY_FIELD = (
    "wrong-types",
    "wrong-all",
    "lists-tables",
    "lists-mixed",
    "numbers-huge",
    "texts-astral",
    "texts-escapes",
    "crowded",
    "endless",
)
ANY_FRAME = (
    "deep",
    "giant",
    "endless-unknown",
    "garbage",
    "oversize",
    "no-object",
    "error-trace",
    "error-types",
)
NEVER_BELIEVED = (
    "numbers-huge",
    "crowded",
    "deep",
    "garbage",
    "oversize",
    "no-object",
    "error-flood",
    "error-trace",
    "no-processes",
)


# Where a frame is read field by field: by which verb of the payload, for which verb of the client.
FIELDS = (
    ("check", "probe"),
    ("ps", "ps"),
    ("attach", "follow"),
    ("logs", "follow"),
    ("stop", "stop"),
    ("pull", "files"),
    ("clean", "clean"),
    ("clean --staged", "staged"),
    ("sync", "sync"),
    ("exec", "exec"),
    ("top", "top"),
    ("diagnose", "diagnose"),
    ("report", "history"),
)
ALWAYS = ("numbers-huge", "crowded")  # what did most harm
SOME_SERVERS = (  # of the servers that `keys push` may meet
    "claims-flood",
    "claims-present",
    "claims-at-length",
    "mute",
    "narrow",
    "takes-any-key",
    "asks-again",
    "asks-at-length",
    "asks-much",
    "other-host-key",
    "home-pipe",
)
# What ./test runs of it: at least the attacks of the first review, and one of each kind. The bench runs all.
SOME: dict[tuple[str, str], tuple[str, ...]] = {
    ("exec", "exec"): ("deep", "oversize", "endless-unknown", "error-flood", "error-escapes"),
    ("attach", "follow"): (
        "error-trace",
        "events-no-tables",
        "events-wrong",
        "events-deep",
        "positions-wrong",
        "log-wrong",
        "roster",
    ),
    ("logs -f", "follow"): ("error-flood", "endless"),
    ("logs -t", "follow"): ("numbers-inf",),
    ("logs as text", "follow"): ("log-escapes",),
    ("ps", "ps"): ("run-up", "run-absolute", "run-cwd", "run-escapes", "lists-tables"),
    ("ps --json", "ps"): ("texts-escapes",),
    ("status", "ps"): ("roster", "texts-astral"),
    ("status as text", "ps"): ("texts-escapes", "node-shell"),
    ("attach any", "ps"): ("stolen-run", "stolen-file", "stolen-well-formed"),
    ("stop", "ps"): ("run-up",),
    ("pull", "ps"): ("stolen-run",),
    ("pull", "files"): ("claim", "rows-up", "rows-long", "empty-pieces"),
    ("pull as text", "files"): ("texts-escapes",),
    ("pull --checkpoint", "files"): (
        "parts-up",
        "parts-absolute",
        "parts-link",
        "parts-claim",
        "parts-hash",
        "parts-content",
        "parts-other",
        "rows-long",
        "empty-rows",
    ),
    ("clean as text", "clean"): ("crowd",),
    ("clean", "orphans"): ("crowded", "numbers-huge", "no-processes"),
    ("ps --orphans", "orphans"): ("no-processes",),
    ("sync", "sync"): ("missing-again", "endless-unknown"),
    ("top as text", "top"): ("texts-escapes",),
    ("diagnose as text", "diagnose"): ("texts-escapes",),
    ("report", "history"): ("texts-escapes",),
    ("check", "probe"): ("endless", "error-escapes"),
    ("discover", "probe"): ("texts-escapes", "error-escapes"),
    ("init", "probe"): ("error-escapes",),
    ("launch", "start"): ("numbers-huge", "endless-unknown"),
    ("launch, followed", "follow"): ("roster",),
}
MORE: dict[tuple[str, str], tuple[str, ...]] = {
    ("attach", "follow"): (
        "deep",
        "giant",
        "endless-unknown",
        "garbage",
        "oversize",
        "no-object",
        "error-trace",
        "error-types",
        "log-escapes",
        "positions-huge",
        "run-up",
    ),
    ("logs -f", "follow"): (
        "deep",
        "giant",
        "endless-unknown",
        "garbage",
        "oversize",
        "no-object",
        "error-trace",
        "error-types",
        "numbers-huge",
    ),
    ("logs -t", "follow"): (
        "wrong-types",
        "endless",
        "log-wrong",
    ),
    ("status", "ps"): (
        "wrong-types",
        "wrong-all",
        "lists-tables",
        "lists-mixed",
        "numbers-huge",
        "texts-astral",
        "texts-escapes",
        "crowded",
        "endless",
        "node-shell",
        "state-other",
        "node-other",
    ),
    ("status as text", "ps"): (
        "roster",
        "wrong-types",
    ),
    ("ps", "ps"): (
        "node-other",
        "state-other",
        "numbers-inf",
        "run-line",
        "run-shell",
        "run-long",
        "run-word",
        "job-up",
        "lists-more",
    ),
    ("pull", "ps"): (
        "job-up",
        "numbers-huge",
        "run-up",
    ),
    ("clean", "orphans"): (
        "texts-escapes",
        "wrong-types",
        "wrong-all",
        "endless-unknown",
    ),
    ("ps --orphans", "orphans"): ("numbers-huge", "texts-escapes", "wrong-all"),
    ("discover", "probe"): (
        "wrong-types",
        "texts-astral",
    ),
    ("launch", "probe"): (
        "wrong-types",
        "numbers-huge",
    ),
    ("launch", "start"): (
        "texts-escapes",
        "garbage",
        "wrong-types",
    ),
    ("launch, followed", "follow"): (
        "events-wrong",
        "run-up",
        "deep",
        "numbers-huge",
    ),
    ("exec", "exec"): (
        "giant",
        "garbage",
        "no-object",
        "error-trace",
        "error-types",
    ),
    ("logs as text", "follow"): ("error-escapes",),
    ("ps --json", "ps"): ("run-escapes",),
    ("attach any", "ps"): ("texts-escapes",),
    ("attach", "ps"): (
        "roster",
        "numbers-huge",
    ),
    ("stop", "ps"): ("numbers-huge",),
    ("logs", "ps"): (
        "run-up",
        "roster",
    ),
    ("clean", "clean"): ("run-up",),
    ("clean as text", "clean"): ("run-escapes",),
    ("exec as text", "exec"): ("error-escapes",),
    ("check", "probe"): ("deep",),
    ("launch", "sync"): ("missing-again",),
    ("pull", "files"): ("empty-rows",),
    ("cp", "files"): (
        *ANY_FIELD,
        *ANY_FRAME,
        "claim",
        "rows-up",
        "rows-git",
        "rows-meta",
        "rows-long",
        "empty-rows",
        "empty-pieces",
        "error-flood",
    ),
}


def rows(*, everything: bool) -> Iterator[Row]:
    """Give the table; without `everything` the verbs share the cases that fit any field."""
    shared = [case for case in ANY_FIELD if case not in ALWAYS]
    wanted: dict[tuple[str, str], list[str]] = {}
    for number, pair in enumerate(FIELDS):
        own = ANY_FIELD if everything else (ALWAYS[number % 2], shared[number % len(shared)])
        wanted.setdefault(pair, []).extend(own)
    for table in (SOME, MORE) if everything else (SOME,):
        for pair, cases in table.items():
            wanted.setdefault(pair, []).extend(cases)
    for (verb, on), cases in wanted.items():
        for case in dict.fromkeys(cases):
            yield Row(verb, f"{on}.{case}", True if case in NEVER_BELIEVED else None)
    yield Row("pull", "files.first-gpu02", False, liar="gpu01")
    for case in password_servers.CASES if everything else SOME_SERVERS:
        yield Row("keys push", f"ssh.{case}", case not in password_servers.BELIEVED)


TABLE = tuple(rows(everything=False))
# Rows whose lie is one of the kind that another row has on another verb.
VARIANTS = {
    ("exec", "exec.deep"),
    ("attach", "follow.log-wrong"),
    ("ps", "ps.run-cwd"),
    ("status", "ps.texts-astral"),
    ("status as text", "ps.texts-escapes"),
    ("pull", "files.rows-long"),
    ("pull", "files.empty-pieces"),
    ("sync", "sync.endless-unknown"),
    ("launch", "start.endless-unknown"),
    ("ps", "ps.crowded"),
    ("ps", "ps.run-absolute"),
    ("ps --json", "ps.texts-escapes"),
    ("logs", "follow.crowded"),
    ("pull", "files.crowded"),
    ("sync", "sync.numbers-huge"),
    ("stop", "stop.numbers-huge"),
    ("exec", "exec.numbers-huge"),
    ("top", "top.crowded"),
    ("exec", "exec.error-escapes"),
    ("clean", "orphans.numbers-huge"),
    ("report", "history.crowded"),
    ("diagnose", "diagnose.numbers-huge"),
    ("keys push", "ssh.claims-present"),
    ("keys push", "ssh.narrow"),
    ("keys push", "ssh.takes-any-key"),
    ("keys push", "ssh.asks-again"),
    ("discover", "probe.error-escapes"),
    ("clean", "orphans.no-processes"),
    # those over OpenSSH's sshd
    ("check", "probe.numbers-huge"),
    ("ps", "ps.run-up"),
    ("attach any", "ps.stolen-run"),
}
NUMBERS = count()


@pytest.fixture(scope="session")
def outcomes(
    ground: Ground, request: pytest.FixtureRequest
) -> Iterator[Mapping[Row, Future[tuple[World, Seen]]]]:
    """Run the rows that are wanted side by side."""
    here = [
        item for item in request.session.items if item.path == Path(__file__) and hasattr(item, "callspec")
    ]
    wanted = [item.callspec.params["row"] for item in here]
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        yield {row: pool.submit(attack, ground, row) for row in wanted if isinstance(row, Row)}
        pool.shutdown(cancel_futures=True)


def attack(ground: Ground, row: Row) -> tuple[World, Seen]:
    """Run one row in a world of its own."""
    verb = VERBS[row.verb]
    if row.verb == "keys push":
        return password_servers.run_push(ground, f"row-{next(NUMBERS)}", verb.words, row.case, row.liar)
    world = ground.world(f"row-{next(NUMBERS)}", row.lie, row.liar)
    world.plant(
        world.folder / "work/outputs/demo" / row.liar / "hook.json"
    )  # as a `pull` would have brought it
    if verb.words[0] in ("launch", "sync"):
        ground.project(world, "demo" if verb.words[0] == "sync" else "other")
        (world.folder / "state/clusterctl/id").write_text("another\n", encoding="ascii")
    words = verb.argv(ground, f"~/lies-{row.liar}/{row.lie}")
    return world, world.run(words, interrupt=row.is_open_ended)


def is_variant(row: Row) -> bool:
    """Tell whether a row of the table is left to `./test --all`."""
    on, _, case = row.lie.partition(".")
    return (
        (row.verb, on) in FIELDS
        and case in ANY_FIELD
        and case not in ALWAYS
        and case not in SOME.get((row.verb, on), ())
    ) or (row.verb, row.lie) in VARIANTS


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=str(row), marks=[VARIANT] if is_variant(row) else []) for row in TABLE],
)
def test_attack(row: Row, ground: Ground, outcomes: Mapping[Row, Future[tuple[World, Seen]]]) -> None:
    """Every row holds all that the module's first lines say."""
    world, seen = outcomes[row].result()

    wrong = list(judge(row, ground, world, seen))

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "row", [Row("pull --checkpoint", f"files.parts-{case}") for case in ("content", "other")], ids=str
)
def test_what_a_node_sends_wrong_of_a_checkpoint_comes_from_another(
    row: Row, outcomes: Mapping[Row, Future[tuple[World, Seen]]]
) -> None:
    """The download is whole, as another node has a copy of each file, and the liar is named."""
    world, seen = outcomes[row].result()

    folder = world.folder / "work/mine/step-1"
    parts = {str(rank): b"part of rank " + str(rank).encode() * 4096 for rank in range(3)}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {**parts, "done": b""}
    errors = {node["node"] for node in seen.documents[0]["nodes"] if node["error"]}
    assert (seen.code, errors) == (OK, {LIAR}), seen.both
    assert f"CC-PULL-003: {LIAR}" in seen.err


@pytest.mark.parametrize("row", [Row("pull --checkpoint", "files.parts-other", liar="all")], ids=str)
def test_a_checkpoint_that_no_node_sends_right_is_not_written(
    row: Row, outcomes: Mapping[Row, Future[tuple[World, Seen]]]
) -> None:
    """Each file is requested of each node that has it; none gets its name, and all three nodes are named."""
    world, seen = outcomes[row].result()

    assert [path.name for path in (world.folder / "work/mine/step-1").iterdir()] == ["done"]  # it is empty
    nodes = seen.documents[0]["nodes"]
    assert (seen.code, {node["node"] for node in nodes if node["error"]}) == (PARTLY, set(NODES)), seen.both
    tried = sorted(refusal["path"] for node in nodes for refusal in node["refused"])
    assert tried == [f"step-1/{rank}" for rank in (0, 0, 1, 1, 2, 2)], "the job has two copies"


OVER_SSHD = (
    Row("attach any", "ps.stolen-run"),
    Row("ps", "ps.run-up"),
    Row("exec", "exec.garbage", True),
    Row("check", "probe.numbers-huge", True),
)


@pytest.mark.parametrize("row", OVER_SSHD, ids=str)
def test_attack_over_sshd(row: Row, real_ground: Ground) -> None:
    """A few rows again, with OpenSSH's own server between the liar and us."""
    wrong = list(judge(row, real_ground, *attack(real_ground, row)))

    assert not wrong, "\n".join(wrong)


def judge(row: Row, ground: Ground, world: World, seen: Seen) -> Iterator[str]:
    """Say all that is wrong, so that one look at a row is enough."""
    yield from judge_harm(row, world, seen)
    if VERBS[row.verb].words[0] == "clean":
        job = "solo" if row.case == "crowd" else "demo"
        yield from (f"lost: {path}" for path in ground.lost(job, row.liar))
    if not seen.ended:
        yield f"it did not end by itself: {seen.both[-300:]}"
    elif seen.code != INTERRUPTED or not row.is_open_ended:
        yield from judge_answer(row, seen)


def judge_harm(row: Row, world: World, seen: Seen) -> Iterator[str]:
    """Say what the attack has done to this machine or its screen."""
    verb, reported = VERBS[row.verb], row.case == "error-trace"  # by a node that says that we have a bug
    crashes = [path for path in seen.changed if path.startswith("state/clusterctl/crashes/")]
    yield from (
        f"changed: {path}" for path in seen.changed if not is_ours(path, verb) and path not in crashes
    )
    yield from seen.leaked
    yield from (f"ran: {path.name}" for path in (world.folder / "canary").iterdir())
    if any((world.folder / path).stat().st_size > MAX_CRASH for path in crashes):
        yield "a large file of a crash"
    if "Traceback" in seen.both or (not reported and (crashes or "CC-BUG" in seen.both)):
        yield f"a bug: {seen.both[-600:]}"
    if seen.memory > MAX_MEMORY:
        yield f"memory: {seen.memory >> 20} MiB"
    if CONTROLS.search(seen.both):
        yield f"control characters: {CONTROLS.findall(seen.both)[:5]}"
    if len(seen.both) > 1 << 20 and not row.is_open_ended:
        yield f"{len(seen.both) >> 20} MiB on the screen"


def judge_answer(row: Row, seen: Seen) -> Iterator[str]:
    """Say whom the command has not served or not named, and whether its exit code is another one."""
    verb, honest = VERBS[row.verb], set(NODES) - {row.liar}
    refused = row.refused if row.refused is not None else seen.code != OK
    if refused and row.liar not in seen.both and "gpu[01-03]" not in seen.both:
        yield f"the liar is not named: {seen.err[-600:]}"
    if seen.code not in (verb.refused if row.refused else (OK, *verb.refused)):
        yield f"exit code {seen.code}: {seen.err[-600:]}"
    try:
        served = verb.served(seen) if verb.words[0] != "launch" else honest
        if not honest <= served:
            yield f"served only {sorted(served)}: {seen.both[-600:]}"
    except (ValueError, LookupError, AttributeError) as error:
        yield f"no output that can be read: {error!r}; {seen.both[-600:]}"


def is_ours(path: str, verb: Verb) -> bool:
    """Tell whether a command may have written a file."""
    return bool(OURS.fullmatch(path) or (verb.writes and re.fullmatch(verb.writes, path)))


def test_every_row_that_is_named_exists() -> None:
    """A row that is taken out is no longer reported to hold a finding; `(all)` and `(bench)` count."""
    named = NAMED_ROW.findall(Path(__file__).with_name("FINDINGS.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    assert set(named) - {str(row) for row in rows(everything=True)} == set()
