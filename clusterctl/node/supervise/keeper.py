"""The agent's end of the keeper, the process that keeps checkpoints beside the ranks; the orders and reports between.

A keeper that has ended in the middle of an attempt costs the checkpoint of that moment, not the run: what it was
asked is answered here, and a new one follows, which finds on the disk what the one before has kept.
"""

from __future__ import annotations

import hmac
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Callable, Dict, Optional, Set, Tuple

from ...protocol.messages.checkpoints import (
    MAX_LINE,
    Address,
    KeeperOrder,
    KeeperReport,
    KeeperSettings,
    Restore,
)
from ...protocol.messages.record import Record, read, to_json
from ...protocol.run_paths import RunPaths
from ...protocol.untrusted import parse_object
from ..runtime.children import start_child
from ..runtime.connections import LineSocket
from ..runtime.processes import interpreter_options
from .spawn import make_paths, render_template

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec
    from ...protocol.ranks import NodeRank
    from ..runtime.event_loop import Loop

Question = Tuple[str, str, int, int]  # that an order asks, and a report answers


MAX_STARTS = 4
LOOK_INTERVAL = 2.0  # seconds
# Seconds without a report of a keeper that restores. It sends one every 5 s, and waits for no node longer than 20 s; a
# disk or network file system that lets it wait for a minute does not answer.
SILENT_LIMIT = 60.0
FRESH = ("begin", "conclude", "restore")  # orders for which an ended keeper is started again
ANSWERS = {
    "begin": "begun",
    "collect": "part",
    "take": "held",
    "conclude": "kept",
    "restore": "restored",
    "finish": "finished",
}
FAILED = "CC-CKPT-014"
ENDED = "the process that keeps checkpoints has ended"


class Keeper:
    """Starts the keeper of a node when it is needed, and talks to it; `on_report` takes what it reports."""

    def __init__(
        self,
        loop: Loop,
        rundir: str,
        spec: Spec,
        token: bytes,
        spared: Set[int],
        on_report: Callable[[KeeperReport], None],
    ) -> None:
        """`spared`: the pids that must not be signalled when an attempt ends."""
        self._loop, self._rundir, self._spec = loop, rundir, spec
        self._token = hmac.new(token, b"checkpoints", sha256).hexdigest()
        self._spared, self._on_report = spared, on_report
        self._socket: Optional[LineSocket] = None
        self._pid: Optional[int] = None
        self._children: Set[int] = set()
        self._began: Optional[KeeperOrder] = None  # of the attempt that is watched now
        self._port = 0
        self._starts = 0
        self._open: Dict[Question, KeeperOrder] = {}  # what it has not answered

    def start(self) -> None:
        """Start it early, beside what a start waits for."""
        if self._socket is None:
            self._start()

    # orders

    def begin(self, attempt: int, node_rank: int) -> None:
        """Watch for the checkpoints of an attempt; a spare has no node rank, but -1."""
        self._began = KeeperOrder(do="begin", attempt=attempt, node_rank=node_rank)
        self.send(self._began)

    def pause(self) -> None:
        """Take nothing as complete any more; a restore that was asked for before has no answer."""
        self._open = {question: order for question, order in self._open.items() if order.do != "restore"}
        self._expect_no_progress()
        self.send(KeeperOrder(do="pause"))

    def finish(self, attempt: int) -> None:
        """Have what the ranks of this node wrote last sealed; none has failed."""
        self.send(KeeperOrder(do="finish", attempt=attempt))

    def restore(self, resume: Restore, attempt: int, node_rank: NodeRank) -> None:
        """Put a checkpoint in its place, for an attempt."""
        order = KeeperOrder(do="restore", attempt=resume.seal.attempt, name=resume.seal.name)
        parts = tuple(part.replace(sources=rotate(part.sources, node_rank)) for part in resume.parts)
        self.send(order.replace(restore=resume.replace(parts=parts), node_rank=node_rank, serial=attempt))
        if self._socket is not None:
            self._socket.set_timeout("it reports no progress", SILENT_LIMIT, idle=True)

    def _expect_no_progress(self) -> None:
        if self._socket is not None:
            self._socket.clear_timeout()

    def send(self, order: KeeperOrder) -> None:
        """Send an order; where no keeper runs, and this begins nothing new, it is answered here."""
        if order.do in ("pause", "conclude"):
            self._began = None
        if self._socket is None and order.do in FRESH:
            self._start()
        question = find_question(ANSWERS.get(order.do, ""), order)
        if question is not None:
            self._open[question] = order
        if self._socket is None:
            self._answer_all()
        else:
            self._send(order)

    def _send(self, record: Record) -> None:
        if self._socket is not None:
            self._socket.send(json.dumps(to_json(record)).encode("ascii") + b"\n")

    # the process

    def _start(self) -> None:
        if self._starts == MAX_STARTS:
            return
        self._starts += 1
        ours, its = socket.socketpair()
        argv = [
            sys.executable,
            *interpreter_options(),
            sys.argv[0],
            "keeper",
            self._rundir,
            str(its.fileno()),
        ]
        log = RunPaths(self._rundir).agent_log
        self._pid = start_child(argv, None, (log, log), kept=[its.fileno()], is_bound=True)
        self._children.add(self._pid)
        self._spared.add(self._pid)
        its.close()
        self._port = 0
        self._socket = LineSocket(self._loop, ours, self._on_line, self._on_close)
        self._socket.trust(self._on_line, self._on_close, MAX_LINE)
        self._send(self._make_settings())

    def _make_settings(self) -> KeeperSettings:
        spec, wanted = self._spec, self._spec["checkpoints"]
        return KeeperSettings(
            path=render_template(wanted["path"], make_paths(self._rundir, spec).values),
            complete=wanted["complete"],
            keep=wanted["keep"],
            rate=wanted["rate"],
            needs=wanted["needs"],
            address=str(spec.get("address") or spec["master_addr"]),
            ports=tuple(spec.get("ports") or ()),
            token=self._token,
            look=float(spec.get("checkpoint_look") or LOOK_INTERVAL),
        )

    def on_child_exit(self, pid: int) -> None:
        """Take the end of a child."""
        if pid in self._children:
            self._children.discard(pid)
            self._spared.discard(pid)
            self._pid = None if pid == self._pid else self._pid

    def stop(self) -> None:
        """End it: nothing of the run follows. What it has on the disk is whole at any moment."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._pid = None

    # reports

    def _on_line(self, line: bytes) -> None:
        report = read(KeeperReport, parse_object(line, MAX_LINE))
        if report is None or not report.event:
            return
        if report.event == "listening":
            self._port = report.port
            return
        if report.event == "restoring":
            return  # its bytes have shown that it lives
        question = find_question(report.event, report)
        if question is not None and self._open.pop(question, None) is None:
            return
        if report.event == "restored":
            self._expect_no_progress()
        self._on_report(report.replace(port=self._port))

    def _on_close(self, why: str) -> None:
        """Answer what is open, and watch on with another one; the end of a process is seen as that of any child.

        The last start is left for what an attempt cannot do without, a restore.
        """
        ended = f"{ENDED}: {why}"
        self._socket = None
        if self._pid is not None:  # it may have closed its end only
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._on_report(KeeperReport(event="note", code=FAILED, why=ended))
        self._answer_all(ended)
        if self._began is not None and self._starts < MAX_STARTS - 1:
            self._start()
            self._send(self._began.replace(serial=1))

    def _answer_all(self, why: str = ENDED) -> None:
        orders = list(self._open.values())
        self._open.clear()
        for order in orders:
            report = KeeperReport(
                event=ANSWERS[order.do],
                attempt=order.attempt,
                name=order.name,
                node_rank=part_rank(order),
                serial=order.serial,
                code=FAILED,
                why=why,
            )
            self._on_report(report)


def rotate(sources: Tuple[Address, ...], receiver: int) -> Tuple[Address, ...]:
    """Return the sources from another one on for each receiver of the same order."""
    start = receiver % len(sources) if sources else 0
    return sources[start:] + sources[:start]


def part_rank(order: KeeperOrder) -> int:
    """Return the node rank whose part an order is about."""
    return order.node_rank if order.part is None else order.part.node_rank


def find_question(answer: str, record: KeeperOrder | KeeperReport) -> Optional[Question]:
    """Return what an order asks or a report answers; None if it is neither."""
    if answer == "part":
        return answer, record.name, record.attempt, 0
    if answer == "held":
        rank = part_rank(record) if isinstance(record, KeeperOrder) else record.node_rank
        return answer, record.name, record.attempt, rank
    if answer in ("begun", "finished"):
        return answer, "", record.attempt, 0
    return (answer, "", 0, record.serial) if answer in ("kept", "restored") else None
