"""Mesh test from here, facts of this machine, and what was expensive in a check that passed a moment ago.

Of that, one file is kept for each set of nodes and questions, in a directory of ours: the test of the network, GPU
health, the version of NCCL. All else is asked again, in the same round trip. Nothing is kept of a check that found an
error or lacked an answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import selectors
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterctl.client.local.private_files import keep_newest, read_own, remove_older, write_own
from clusterctl.client.rpc.bundle import payload_zip
from clusterctl.client.rpc.session import Session
from clusterctl.errors import ClusterctlError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.checks.framework import LocalFacts
from clusterctl.plans.diagnose.network_tests import (
    parse_listener,
    parse_paths,
    plan_mesh_connections,
)
from clusterctl.plans.facts.facts import probe_request
from clusterctl.plans.facts.untrusted import clean_text
from clusterctl.protocol.messages.checks import MeshPath, MeshPorts, MeshResult
from clusterctl.protocol.messages.facts import Facts
from clusterctl.protocol.messages.record import (
    MAX_ITEMS,
    Reading,
    Record,
    moment,
    named,
    optional,
    read,
    record,
    string,
    to_json,
)
from clusterctl.protocol.untrusted import MalformedError, Untrusted, parse_json
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.client.rpc.session import Interpreter
    from clusterctl.plans.launch.script import JobCode
    from clusterctl.protocol.messages.network import MeshCallOrder, MeshListen


SEND_LIMIT = 2.0  # seconds for a node to take an order of a few KiB
LISTEN_LIMIT = 3.0
REPORT_LIMIT = 9.0  # a call may connect for 2.5 s, wait 4 s for a slow process, and 2.5 s for a byte
Answers = dict[str, Untrusted]


@dataclass(frozen=True)
class MeshMember:
    """A node that takes part: its open probe, its addresses by rail, the ports from which its master port comes."""

    session: Session
    addresses: Mapping[str, str]
    ports: tuple[int, int] | None = None


def run_mesh_test(members: Mapping[str, MeshMember]) -> MeshResult:
    """Make the nodes connect to each other, and return the results. A hanging node costs its limit only.

    Closes the sessions; no listener is left when they have ended.
    """
    try:
        return _MeshTest(members).run()
    finally:
        for member in members.values():
            member.session.close()


class _MeshTest:
    def __init__(self, members: Mapping[str, MeshMember]) -> None:
        self._members = members
        self.absent: dict[str, str] = {}
        self._ports_taken = ""

    def run(self) -> MeshResult:
        began = time.monotonic()
        listening = self._listen()
        results, master_port = self._call(listening), _master_port(listening)
        seconds = time.monotonic() - began
        names = tuple(self._members)
        return MeshResult(
            nodes=names,
            paths=tuple(results),
            absent=self.absent,
            master_port=master_port,
            seconds=seconds,
            ports_taken=self._ports_taken,
        )

    def _listen(self) -> dict[str, MeshPorts]:
        """Have all listen; returns where, in the order of the nodes."""
        token = secrets.token_hex(32)
        for index, (name, member) in enumerate(self._members.items()):
            order: MeshListen = {
                "mesh": "listen",
                "token": token,
                "name": name,
                "addresses": dict(member.addresses),
                "ports": member.ports,
                "master": index == 0,
            }
            self._send(name, order)
        answers = self._receive_answers(self._members, {"listening", "problem"}, LISTEN_LIMIT)
        listeners: dict[str, MeshPorts] = {}
        for name in (name for name in self._members if name in answers):
            result = parse_listener(
                answers[name].unread("listening"),
                translate_node_text(answers[name].text("problem", 200)),
                self._members[name].addresses,
            )
            if isinstance(result, MeshPorts):
                listeners[name] = result
            else:
                self.absent[name] = result
                is_master = name == next(iter(self._members))
                self._ports_taken = name if is_master and answers[name].flag("taken") else self._ports_taken
        return listeners

    def _call(self, listening: Mapping[str, MeshPorts]) -> list[MeshPath]:
        orders = plan_mesh_connections(listening) if len(listening) > 1 else {}
        for name, peers in orders.items():
            self._send(name, {"mesh": "call", "peers": peers})
        answers = self._receive_answers(orders, {"paths"}, REPORT_LIMIT)
        return [
            result
            for name in orders
            if name in answers
            for result in parse_paths(answers[name].unread("paths"), name, orders[name])
        ]

    def _send(self, name: str, order: MeshListen | MeshCallOrder) -> None:
        try:
            self._members[name].session.send(order, timeout=SEND_LIMIT)
        except ClusterctlError as error:
            self.absent[name] = error.message

    def _receive_answers(self, names: Iterable[str], keys: set[str], limit: float) -> Answers:
        """Wait for one frame of each node; who sends none within the limit is absent from then on."""
        answers: Answers = {}
        deadline = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            waiting = {name for name in names if name not in self.absent}
            for name in waiting:
                selector.register(self._members[name].session, selectors.EVENT_READ, name)
            ready: Sequence[str] = tuple(
                waiting
            )  # no descriptor is ready for what arrived before the selector watched it
            first = True  # also where the time is up: what is here is taken in
            while waiting and (first or time.monotonic() < deadline):
                first = False
                for name in ready:
                    answer = self._read_answer(name, keys)
                    if answer is not None or name in self.absent:
                        waiting.discard(name)
                        selector.unregister(self._members[name].session)
                    if answer is not None:
                        answers[name] = answer
                remaining = max(0.0, deadline - time.monotonic())
                ready = [key.data for key, _ in INTERRUPTS.select(selector, remaining)] if waiting else []
        for name in waiting:
            self.absent[name] = tr("it did not answer within {limit:g} s", limit=limit)
        return answers

    def _read_answer(self, name: str, keys: set[str]) -> Untrusted | None:
        session = self._members[name].session
        try:
            for header, _ in session.pump():
                if any(key in header for key in keys):
                    return header
            if session.ended:  # its descriptor stays readable for ever
                self.absent[name] = tr("its part of the network test ended too early")
        except ClusterctlError as error:
            self.absent[name] = error.message
        return None


def _master_port(listening: Mapping[str, MeshPorts]) -> int | None:
    return next((listener.master_port for listener in listening.values() if listener.master_port), None)


MAX_NAMES = 2000


def read_local_facts(nodes: Sequence[Node], job: Job | None, code: JobCode | None) -> LocalFacts:
    """Look at the keys that the inventory names and at the directory of the job's script; never raises."""
    keys = {node.ssh.key for node in nodes if node.ssh.key}
    modes = {path: mode for path in sorted(keys) if (mode := _mode(path)) & 0o077}
    return LocalFacts(modes, tuple(_list_sibling_modules(job)) if job is not None else (), code)


def _mode(path: str) -> int:
    with suppress(OSError, RuntimeError, ValueError):
        file_stat = Path(path).expanduser().stat()
        return stat.S_IMODE(file_stat.st_mode) if stat.S_ISREG(file_stat.st_mode) else 0
    return 0


def _list_sibling_modules(job: Job) -> Iterator[str]:
    """Name the Python files, and the directories with Python files, in the directory that Python looks in first."""
    if job.script is None:
        return
    folder = Path(job.file).parent / job.sync.source / Path(job.script).parent
    with suppress(OSError), os.scandir(folder) as entries:
        for entry, _ in zip(entries, range(MAX_NAMES), strict=False):
            if entry.name.endswith(".py"):
                yield entry.name
            elif (folder / entry.name / "__init__.py").is_file():
                yield f"{entry.name}/"


# seconds from a check to its launch. In that time a cable or a GPU seldom breaks, and a run whose network does break
# meanwhile fails as one that was launched before. After a launch nothing is reused, as its run may have crashed because
# of a GPU or the network, unless it has succeeded.
MAX_AGE = 60.0
MAX_KEPT = 20  # files
MAX_BYTES, MAX_VALUES = 8 << 20, 500_000
REUSED = ("gpu_health", "nccl")
UNCHANGED = ("torch", "setup", "interpreter")  # what these depend on, and what is asked again

Rails = Mapping[str, Mapping[str, str]]


class RecentCheck(Record):
    """The facts of `REUSED` and `UNCHANGED` and the boot of each node, its addresses by rail, and what they tested."""

    time: float = moment(0.0)
    facts: Mapping[str, Facts] = named(record(Facts))
    rails: Rails = named(named(string()))
    mesh: MeshResult | None = optional(MeshResult)


def name_check(nodes: Sequence[Node], interpreters: Mapping[str, Interpreter], *, test_mesh: bool) -> str:
    """Name a check by all that its answers depend on here: what is asked of which nodes, by which code and Python."""
    digest = payload_zip()[0]
    questions = [
        [asdict(node), asdict(interpreters[node.name]), probe_request(node, tuple(nodes), digest)]
        for node in nodes
    ]
    text = json.dumps([questions, test_mesh])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def load_check(folder: Path, name: str, now: float) -> RecentCheck | None:
    """Return what was kept of a check, if that is young enough; a damaged file is none."""
    reading = Reading(clean_text)
    try:
        document = parse_json(read_own(folder / f"{name}.json", MAX_BYTES), MAX_BYTES, MAX_VALUES)
        check = read(RecentCheck, document, reading)
    except (OSError, MalformedError):
        return None
    return check if check and not reading.notes and 0 <= now - check.time < MAX_AGE else None


def remove_check(folder: Path, name: str) -> None:
    """Remove what was kept of a check."""
    remove_older(folder, f"{name}.json", math.inf)


def save_check(folder: Path, name: str, check: RecentCheck) -> None:
    """Keep what a check found; what cannot be written is asked again."""
    if check.mesh is not None and len(check.mesh.paths) > MAX_ITEMS:
        return
    document = {
        "time": check.time,
        "facts": {name: _facts_to_plain(facts) for name, facts in check.facts.items()},
        "rails": to_json(check.rails),
        "mesh": to_json(check.mesh),
    }
    content = json.dumps(document)
    if len(content) <= MAX_BYTES:
        with suppress(OSError):
            write_own(folder / f"{name}.json", content)
            keep_newest(folder, MAX_KEPT)


def merge_facts(check: RecentCheck, fresh: Mapping[str, Facts]) -> dict[str, Facts] | None:
    """Complete fresh facts by those of a check; None if a node has been started again or was changed meanwhile."""
    merged = {}
    for name, facts in fresh.items():
        known = check.facts.get(name)
        if known is None or not facts.machine.boot_id or known.machine.boot_id != facts.machine.boot_id:
            return None
        if any(getattr(known, key) != getattr(facts, key) for key in UNCHANGED):
            return None
        reused: dict[str, Any] = {key: getattr(known, key) for key in REUSED}
        merged[name] = facts.replace(**reused)
    return merged


def _facts_to_plain(facts: Facts) -> dict[str, Any]:
    kept = {key: getattr(facts, key) for key in (*REUSED, *UNCHANGED)}
    return {
        **{key: to_json(value) for key, value in kept.items()},
        "machine": {"boot_id": facts.machine.boot_id},
    }
