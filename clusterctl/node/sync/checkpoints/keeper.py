"""The process beside an agent that keeps checkpoints: orders come as lines, reports go back; see the messages.

    main thread   reads orders, and passes them on
    scanning       looks at what the script writes, every 2 s
    work          hashes, takes and removes, one after the other, what can wait: nice 19, input and output when idle
    urgent        concludes and restores while `work` waits: no rank runs then
    Provider      gives to other nodes

It ends with the agent; a fault of it ends no run.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Set, Tuple

from ....protocol.manifest import ManifestError, TreeEntry
from ....protocol.messages import record
from ....protocol.messages.checkpoints import (
    MAX_LINE,
    MAX_WHY,
    Held,
    KeeperOrder,
    KeeperReport,
    KeeperSettings,
    Part,
    Restore,
    Seal,
)
from ....protocol.ranks import NodeRank
from ....protocol.run_paths import RunPaths
from ....protocol.untrusted import MalformedError, parse_json
from ...runtime.processes import set_parent_death_signal
from ...runtime.stream import DISK_ERRORS, VerbError, describe_failure
from ..staging.remembered_hashes import RememberedHashes
from ..transfer import Provider
from .claim import Claim
from .io_class import IDLE, set_io_class
from .manifests import pack_part
from .mirror import Mirror, make_mirror_folder
from .scanning import UNCHANGED, Found, Scanner, Stamps, UnusableError, read_match
from .transfers import CancelledError, Restoring, Transfer, mirror_part, parts_needed, remove_parts

if TYPE_CHECKING:
    from ....protocol.messages.contents import Offer

NICE = 19
PROGRESS_INTERVAL = (
    5.0  # seconds between two reports of a restore; the agent waits longer (supervise/keeper.py)
)
RETAKE_LOOKS = 5  # looks before the first time that a part is taken again, twice as many before the second
FINAL_SCANS = UNCHANGED + 2  # after the last rank, until it is known that it has written no other checkpoint
FINAL_PAUSE = 0.2  # seconds between them
LOOK_SHARE = 20  # a look that takes long is followed by a pause so many times as long

Job = Callable[[], None]


class KeeperProvider(Provider):
    """Gives to all nodes of a restart at once: one that is turned away would lose the checkpoint."""

    most = 64


class ChangedError(Exception):
    """A file is not any more as it was when it had settled."""


class Keeper:
    """The checkpoints of one run on one node."""

    def __init__(self, rundir: str, channel: socket.socket, settings: KeeperSettings) -> None:
        paths = RunPaths(rundir)
        self._workdir, self._run_id = paths.workdir, paths.run_id
        self._channel, self._settings = channel, settings
        self._sending = threading.Lock()
        self._scanner = Scanner(settings.path, settings.complete)
        hashes = RememberedHashes(self._workdir)
        self._mirror = Mirror(make_mirror_folder(rundir), self._scanner.folder, hashes)
        self._scans: queue.Queue[Job] = queue.Queue()
        self._work: queue.Queue[Job] = queue.Queue()
        self._attempt, self._node_rank = 0, NodeRank(-1)
        self._turn = 0  # what was begun in an earlier one is given up
        self._turning = threading.Lock()  # a `begin` that takes long must not undo the `pause` behind it
        self._claim = Claim(self._workdir, self._scanner.folder, self._run_id)
        self._rival = ""  # why nothing is kept: another run writes there
        self._unwanted: Dict[str, int] = {}  # generations that need not be hashed, with their attempts
        self._shared: Dict[int, Optional[Stamps]] = {}  # by seal, of what all nodes see
        self._scan_due = 0.0
        self._is_finishing = False  # what is written by ranks that have ended well is looked for
        self._is_awaited = False  # the agent waits for that
        self._scans_left = 0  # that are left until it is known which checkpoint is the last
        self._unsealed: Set[str] = set()  # that were seen here or are collected, in this attempt
        self._port = 0
        self._noted: Set[Tuple[str, str, int]] = set()
        self._restoring = threading.Lock()
        self._awaited = -1  # the turn in which the agent waits for a restore
        self._progress_due = 0.0
        self._mirror.step = self._show_progress

    def start(self) -> None:
        """Begin to give, look and work."""
        ports = self._settings.ports
        offer: Offer = {
            "address": self._settings.address,
            "ports": (ports[0], ports[1]) if len(ports) == 2 else None,
            "token": self._settings.token,
        }
        self._port = KeeperProvider(self._mirror.given, self._mirror.sizes, offer).port
        self.send(KeeperReport(event="listening", port=self._port))
        threading.Thread(target=self._serve_scans, daemon=True).start()
        threading.Thread(target=self._serve_work, daemon=True).start()

    def send(self, report: KeeperReport) -> None:
        """Send a report to the agent; without one there is nothing left to do."""
        line = json.dumps(record.to_json(report)).encode("ascii") + b"\n"
        with self._sending:
            try:
                self._channel.sendall(line)
            except OSError:
                os._exit(0)

    def send_note(self, name: str, code: str, why: str) -> None:
        """Report what people should know, once in an attempt: a part that does not fit is taken again and again."""
        note = name or why, code, self._attempt
        if note in self._noted:
            return
        self._noted.add(note)
        self.send(
            KeeperReport(event="note", attempt=max(1, self._attempt), name=name, code=code, why=why[:MAX_WHY])
        )

    def on_order(self, order: KeeperOrder) -> None:
        """Pass an order on; the main thread calls this, and waits for nothing."""
        handlers: Dict[str, Callable[[KeeperOrder], None]] = {
            "begin": self._on_begin,
            "collect": self._on_collect,
            "pause": self._on_pause,
            "conclude": self._on_conclude,
            "seal": self._on_seal,
            "skip": lambda order: self._scans.put(partial(self._settle, order)),
            "take": self._on_take,
            "safe": lambda order: self._work.put(partial(self._prune, order)),
            "void": lambda order: self._work.put(partial(self._remove_void, order)),
            "restore": self._on_restore,
            "finish": self._on_finish,
        }
        if order.do in handlers:
            handlers[order.do](order)

    def _on_begin(self, order: KeeperOrder) -> None:
        self._turn += 1
        self._attempt, self._node_rank = order.attempt, NodeRank(order.node_rank)
        begin = partial(self._begin, order.attempt, self._turn, is_late=order.serial > 0)
        self._scans.put(begin if order.node_rank >= 0 else self._scanner.paused.set)

    def _on_collect(self, order: KeeperOrder) -> None:
        if order.attempt == self._attempt:
            self._unwanted.pop(order.name, None)
            self._scans.put(partial(self._collect, order))

    def _on_pause(self, _: KeeperOrder) -> None:
        with self._turning:
            self._turn += 1
            self._scanner.paused.set()

    def _on_conclude(self, order: KeeperOrder) -> None:
        self._on_pause(order)
        self._schedule_urgent(partial(self._conclude, order))

    def _on_take(self, order: KeeperOrder) -> None:
        """Take a part, at once or, where that has failed before, after a while in which something may have changed."""
        job = partial(self._fetch_part, order, self._turn)
        if not order.serial:
            self._work.put(job)
            return
        timer = threading.Timer(order.serial * RETAKE_LOOKS * self._settings.look, self._work.put, (job,))
        timer.daemon = True
        timer.start()

    def _on_seal(self, order: KeeperOrder) -> None:
        if order.seal is not None:
            if order.seal.shared:
                self._unwanted[order.seal.name] = order.seal.attempt
            self._work.put(partial(self._add_seal, order.seal))
            self._work.put(partial(self._scans.put, partial(self._settle, order)))  # once it is on the disk

    def _on_finish(self, order: KeeperOrder) -> None:
        self._scans.put(partial(self._finish, order.attempt))

    def _on_restore(self, order: KeeperOrder) -> None:
        self._awaited = self._turn
        self._schedule_urgent(partial(self._restore, order, self._turn))

    # scanning

    def _serve_scans(self) -> None:
        while True:
            try:
                job = self._scans.get(timeout=max(0.0, self._scan_due - time.monotonic()))
            except queue.Empty:
                began = time.monotonic()
                self._guard(self._scan)
                now = time.monotonic()
                pause = max(self._settings.look, LOOK_SHARE * (now - began))
                self._scans_left = max(0, self._scans_left - 1)
                self._scan_due = now + (FINAL_PAUSE if self._is_in_haste else pause)
                self._report_finished()
            else:
                self._guard(job)

    def _finish(self, attempt: int) -> None:
        """Look more often from now on: no rank of this node runs any more, and what they wrote is whole."""
        if attempt == self._attempt:
            self._is_finishing = self._is_awaited = True
            self._scans_left, self._scan_due = FINAL_SCANS, time.monotonic()
        else:
            self.send(KeeperReport(event="finished", attempt=attempt))

    @property
    def _is_in_haste(self) -> bool:
        """Whether the end of a run waits for the next looks; none counts while `paused` is set."""
        may_find = self._is_finishing and not self._scanner.paused.is_set()
        return may_find and bool(self._scans_left or self._unsealed)

    def _report_finished(self) -> None:
        """Report once that what this node has seen of the attempt is sealed, or will not be."""
        if self._is_awaited and not self._is_in_haste:
            self._is_awaited = False
            self.send(KeeperReport(event="finished", attempt=self._attempt))

    def _collect(self, order: KeeperOrder) -> None:
        is_first = order.node_rank == self._node_rank
        self._scanner.collect(order.name, order.identity, is_first=is_first)
        self._unsealed.add(order.name)
        if self._is_finishing:
            self._scan_due = time.monotonic()

    def _settle(self, order: KeeperOrder) -> None:
        """Wait no longer for a generation."""
        if order.attempt == self._attempt:
            self._unsealed.discard(order.name)
            self._report_finished()

    def _begin(self, attempt: int, turn: int, *, is_late: bool) -> None:
        with self._restoring:  # a file that a given-up restore still writes is no checkpoint of this attempt
            if turn == self._turn:
                self._rival = self._find_rival()
                remove_parts(self._scanner.folder)
                self._is_finishing = self._is_awaited = False
                self._unsealed = set()
                self._scanner.begin(is_late=is_late)
        with self._turning:
            if turn == self._turn:
                self._scanner.paused.clear()
        self.send(KeeperReport(event="begun", attempt=attempt))

    def _find_rival(self) -> str:
        """Claim the directory of the checkpoints once it is there; return and note why none can be kept now."""
        rival = self._claim.find_rival()
        if not rival:
            return ""
        why = f"run {rival} writes its checkpoints to the same directory"
        self.send_note("", "CC-CKPT-012", why)
        return why

    def _scan(self) -> None:
        if self._scanner.paused.is_set():
            return
        found = self._scanner.scan()
        before, self._rival = self._rival, self._find_rival()  # after the look, which may have seen its files
        for one in self._scanner.refuse(found, self._rival or before) if self._rival or before else found:
            self._on_found(one)
        if before and not self._rival:  # what the other run has written is no checkpoint of this one
            self._scanner.begin(is_late=True)

    def _on_found(self, found: Found) -> None:
        attempt = self._attempt
        report = KeeperReport(
            event="part",
            attempt=attempt,
            name=found.name,
            node_rank=self._node_rank,
            identity=found.identity,
        )
        if found.event in ("marked", "late"):
            if found.event == "marked":
                self._unsealed.add(found.name)
            self.send(report.replace(event=found.event))
        elif found.event == "unusable":
            self.send_note(found.name, "CC-CKPT-011", found.why)
        elif found.event == "same":
            self.send(report)
        elif found.event == "absent":
            part = Part(node_rank=self._node_rank)
            self.send(report.replace(part=None if found.why else part, why=found.why))
            if found.why:
                self.send_note(found.name, "CC-CKPT-011", found.why)
        else:
            self._work.put(partial(self._hash, report, found.stamps))

    # work

    def _schedule_urgent(self, job: Job) -> None:
        """Run a job in its turn, but by a thread that does not leave the processor to others."""
        turn, done = threading.Event(), threading.Event()

        def wait() -> None:
            turn.set()
            done.wait()

        def run() -> None:
            turn.wait()
            self._guard(job)
            done.set()

        self._work.put(wait)
        threading.Thread(target=run, daemon=True).start()

    def _serve_work(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)  # on Linux of this thread alone
        set_io_class(IDLE)
        while True:
            self._guard(self._work.get())

    def _guard(self, job: Job) -> None:
        """Run a job; an error of ours costs this job only."""
        try:
            job()
        except CancelledError:
            pass
        except Exception as error:  # noqa: BLE001, RUF100 - whatever it is, the others go on
            failure = describe_failure(error)
            print(failure["traceback"] or failure["message"], file=sys.stderr, flush=True)
            self.send_note("", failure["code"] or "CC-CKPT-014", failure["message"])

    def _hash(self, report: KeeperReport, stamps: Stamps) -> None:
        """Report this node's part of a generation whose files have settled."""
        name, attempt = report.name, report.attempt

        def step() -> None:
            self._show_progress()
            if self._attempt != attempt or self._unwanted.get(name) == attempt:
                raise CancelledError

        try:
            rows = [self._row(path, stamps, step) for path in sorted(stamps)]
            now = read_match(self._scanner.folder, name)[0]
            if any(now.get(path) != stamp for path, stamp in stamps.items()):
                raise ChangedError("its files changed or were removed while they were read")
            part, manifest = pack_part(self._node_rank, rows)
            self._mirror.add_own(name, part, manifest)
        except (ChangedError, ManifestError, UnusableError, OSError, VerbError) as error:
            why = (describe_failure(error)["message"] if isinstance(error, OSError) else str(error))[:MAX_WHY]
            self.send(report.replace(why=why))
            self.send_note(name, "CC-CKPT-011", why)
            return
        self.send(report.replace(part=part))

    def _row(self, path: str, stamps: Stamps, step: Callable[[], None]) -> TreeEntry:
        stamp = stamps[path]
        if stamp.link:
            return TreeEntry(path, "link", 0, stamp.link, 0)
        step()
        row = TreeEntry(path, "file", 0o755 if stamp.is_executable else 0o644, "", stamp.size)
        try:
            sha, size = self._mirror.hashes.hash(self._mirror.path_of(row), step)
        except FileNotFoundError:
            raise ChangedError("its files were removed while they were read") from None
        if size != stamp.size:
            raise ChangedError("its files changed while they were read")
        return row._replace(content=sha)

    def _check_name(self, seal: Seal) -> None:
        """Raise VerbError where a seal names anything but a checkpoint: other files must not be replaced."""
        if not self._scanner.is_match(seal.name):
            raise VerbError("CC-CKPT-013", f"{seal.name} is no checkpoint of the pattern")

    def _add_seal(self, seal: Seal) -> None:
        self._check_name(seal)
        self._mirror.add_seal(seal)
        if seal.shared:
            self._shared[seal.number] = self._read_shared(seal)
        self._mirror.prune(self._settings.keep)
        self._shared = {
            number: stamps for number, stamps in self._shared.items() if number in self._mirror.seals
        }

    def _read_shared(self, seal: Seal) -> Optional[Stamps]:
        try:
            return read_match(self._scanner.folder, seal.name)[0] or None
        except (OSError, UnusableError):
            return None

    def _fetch_part(self, order: KeeperOrder, turn: int) -> None:
        part = order.part
        if part is None or turn != self._turn:
            return
        report = KeeperReport(event="held", attempt=order.attempt, name=order.name, node_rank=part.node_rank)
        transfer = Transfer(
            self._settings.token, lambda: turn != self._turn, self._settings.rate, self._show_progress
        )
        try:
            why = mirror_part(self._mirror, transfer, order.name, part, order.sources)
        except VerbError as error:
            why = str(error)
            self.send_note(order.name, error.code, why)
        except OSError as error:
            why = describe_failure(error)["message"]
            self.send_note(order.name, "CC-CKPT-010" if error.errno in DISK_ERRORS else "CC-CKPT-011", why)
        self.send(report.replace(why=why[:MAX_WHY]))

    def _prune(self, order: KeeperOrder) -> None:
        seal = self._mirror.find_seal(order.name, order.attempt)
        if seal is not None and not order.lost:
            self._mirror.add_safe(seal.number)
            self._mirror.prune(self._settings.keep)

    def _remove_void(self, order: KeeperOrder) -> None:
        if order.seal is not None:
            self._mirror.remove_seal(order.seal)

    def _conclude(self, order: KeeperOrder) -> None:
        """Report what is here of sealed generations, after all that was begun."""
        for found in self._scanner.find_late() if order.attempt == self._attempt else ():
            self._on_found(found)
        held = tuple(map(self._with_shared, self._mirror.held(self._settings.keep)))
        self.send(
            KeeperReport(event="kept", attempt=order.attempt, held=held, port=self._port, serial=order.serial)
        )

    def _with_shared(self, held: Held) -> Held:
        """Add the parts of a generation that all nodes see, if it has not changed since."""
        seal = held.seal
        if not seal.shared:
            return held
        sealed, now = self._shared.get(seal.number), self._read_shared(seal)
        return held.replace(
            parts=tuple(part.node_rank for part in seal.parts) if now and now == sealed else ()
        )

    def _show_progress(self) -> None:
        """Report that what a restore waits for, or the restore itself, goes on."""
        now = time.monotonic()
        if self._awaited == self._turn and now >= self._progress_due:
            self._progress_due = now + PROGRESS_INTERVAL
            self.send(KeeperReport(event="restoring"))

    def _restore(self, order: KeeperOrder, turn: int) -> None:
        with self._restoring:
            if order.restore is not None and turn == self._turn:
                self._restore_from(order, order.restore, turn)

    def _restore_from(self, order: KeeperOrder, restore: Restore, turn: int) -> None:
        seal, began = restore.seal, time.monotonic()
        report = KeeperReport(event="restored", attempt=order.attempt, name=seal.name, serial=order.serial)
        try:
            self._check_name(seal)
            self._mirror.add_seal(seal)
            self._mirror.restored = seal.number
            transfer = Transfer(self._settings.token, lambda: turn != self._turn, None, self._show_progress)
            restoring = Restoring(self._mirror, transfer, self._scanner.folder, self._settings)
            parts = [] if seal.shared else parts_needed(seal, order.node_rank, self._settings.needs)
            restored = restoring.restore(restore, parts)
            if seal.shared and self._read_shared(seal) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), restored.path)
        except (VerbError, OSError) as error:
            failure = describe_failure(error)
            code = failure["code"] or "CC-CKPT-014"
            self.send(report.replace(code=code, why=failure["message"][:MAX_WHY]))
            return
        seconds = time.monotonic() - began
        self.send(
            report.replace(path=restored.path, files=restored.files, bytes=restored.bytes, seconds=seconds)
        )


def main(arguments: List[str]) -> None:
    """Serve the agent at the other end of a socket pair until it closes that."""
    rundir, descriptor = arguments[0], int(arguments[1])
    set_parent_death_signal(signal.SIGKILL)
    channel = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    channel.setblocking(True)
    lines = channel.makefile("rb")
    settings = record.read(KeeperSettings, _parse(lines.readline(MAX_LINE)))
    if settings is None or not settings.path.startswith("/"):
        sys.exit("no settings came")
    keeper = Keeper(rundir, channel, settings)
    keeper.start()
    while True:
        line = lines.readline(MAX_LINE)
        if not line:
            os._exit(0)  # what the threads do ends with the agent
        order = record.read(KeeperOrder, _parse(line))
        if order is not None:
            keeper.on_order(order)


def _parse(line: bytes) -> object:
    try:
        return parse_json(line, MAX_LINE)
    except MalformedError:
        return None
