"""What is recorded: the machine's processors, memory, disks, NICs and RDMA ports, and the run's ranks, each 2 s.

A thread of the agent samples, because a driver or a file server that hangs must not keep the agent from its work; it
shares nothing with the agent but the list of ranks. Files of /proc and /sys stay open and are read again from their
beginning: that is the cheapest way, and it matters for the ranks, of which each costs one read. GPUs are in gpus.py.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from ...protocol.run_paths import RunPaths
from ..probe.questions import list_folder, read_memory
from ..probe.utilization import parse_processors
from .gpus import Gpus
from .ring import INTERVAL, MAX_COLUMNS, NAN, RingSet

if TYPE_CHECKING:
    from .ring import Column


MAX_ERRORS = 5  # after which nothing is sampled any more
MAX_FILE = 1 << 16  # bytes
MAX_NICS, MAX_RANKS, MAX_PORTS = 32, 64, 16
SECTOR = 512
RDMA_EVERY, DISK_EVERY = 5, 15  # samples; the firmware of a NIC, or a file server, may take its time
PROCESSORS, MEMORY, NICS, DISKS = "/proc/stat", "/proc/meminfo", "/proc/net/dev", "/proc/diskstats"
MACHINE_FILES = (PROCESSORS, MEMORY, NICS, DISKS)
RDMA = "/sys/class/infiniband"
RDMA_COUNTERS = {  # quantity: counters, and bytes of each count
    "received": (("port_rcv_data",), 4),
    "sent": (("port_xmit_data",), 4),
    "errors": (("symbol_error", "port_rcv_errors", "link_downed", "local_link_integrity_errors"), 1),
}
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class OpenFiles:
    """Files that are read again and again."""

    def __init__(self) -> None:
        self._descriptors: Dict[str, int] = {}

    def read(self, path: str) -> bytes:
        """Read the beginning of a file; nothing if it is gone."""
        descriptor = self._descriptors.get(path)
        try:
            if descriptor is None:
                descriptor = self._descriptors[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(descriptor, MAX_FILE, 0)
        except OSError:
            self.forget(path)
            return b""

    def forget(self, path: str) -> None:
        """Close a file."""
        descriptor = self._descriptors.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def keep_only(self, prefix: str, paths: Iterable[str]) -> None:
        """Close the files below `prefix` but these."""
        kept = set(paths)
        for path in [path for path in self._descriptors if path.startswith(prefix) and path not in kept]:
            self.forget(path)


class Rates:
    """Counters before and now, by column."""

    def __init__(self) -> None:
        self._before: Dict[Column, Tuple[float, float]] = {}

    def add(self, values: Dict[Column, float], column: Column, count: float, now: float) -> None:
        """Put what happened per second since the last time into `values`; of a new counter that is unknown."""
        before = self._before.get(column)
        self._before[column] = now, count
        values[column] = NAN
        if before is not None and now > before[0] and count >= before[1]:
            values[column] = (count - before[1]) / (now - before[0])


class MachineSampler:
    """Reads all but the GPUs; `disk` is a path on the file system whose free space counts."""

    def __init__(self, disk: str) -> None:
        self._disk = disk
        self._files, self._rates = OpenFiles(), Rates()
        self._ticks: Optional[Tuple[int, int]] = None
        self._count = 0
        self._free: Optional[float] = None
        self._disks = {name for name in map(os.path.basename, list_folder("/sys/block")) if _is_disk(name)}
        self._ports = _find_ports()

    def about(self) -> Dict[str, object]:
        """Return what does not change."""
        memory = read_memory(self._files.read(MEMORY).decode("ascii", "replace"))
        return {"cores": os.cpu_count(), "memory": memory.get("MemTotal")}

    def sample(self, ranks: Mapping[int, int]) -> Dict[Column, float]:
        """Read everything once; `ranks` are the pids of the run's ranks on this node."""
        now = time.monotonic()
        values: Dict[Column, float] = {}
        self._sample_processors(values)
        self._sample_memory(values)
        self._sample_nics(values, now)
        self._sample_disks(values, now)
        if self._count % RDMA_EVERY == 0:
            self._sample_ports(values, now)
        self._sample_ranks(values, ranks, now)
        self._count += 1
        return values

    def _sample_processors(self, values: Dict[Column, float]) -> None:
        ticks = parse_processors(self._text(PROCESSORS))
        before, self._ticks = self._ticks, ticks
        if before is not None and ticks[1] > before[1]:
            values["node", "", "cpu"] = (ticks[0] - before[0]) / (ticks[1] - before[1])

    def _sample_memory(self, values: Dict[Column, float]) -> None:
        memory = read_memory(self._text(MEMORY))
        if "MemTotal" in memory:
            free = memory.get("MemAvailable", memory.get("MemFree", 0))
            values["node", "", "memory"] = memory["MemTotal"] - free

    def _sample_nics(self, values: Dict[Column, float], now: float) -> None:
        for name, counts in parse_nics(self._text(NICS)):
            for quantity, count in counts.items():
                self._rates.add(values, ("nic", name, quantity), count, now)

    def _sample_disks(self, values: Dict[Column, float], now: float) -> None:
        read, written = parse_disks(self._text(DISKS), self._disks)
        self._rates.add(values, ("disk", "", "read"), read, now)
        self._rates.add(values, ("disk", "", "written"), written, now)
        if self._count % DISK_EVERY == 0:
            try:
                status = os.statvfs(self._disk)
                self._free = float(status.f_bavail * status.f_frsize)
            except OSError:
                self._free = None
        if self._free is not None:
            values["disk", "", "free"] = self._free

    def _sample_ports(self, values: Dict[Column, float], now: float) -> None:
        for name, folder in self._ports:
            for quantity, (counters, size) in RDMA_COUNTERS.items():
                texts = [self._files.read(os.path.join(folder, counter)) for counter in counters]
                counts = [int(text) for text in texts if text.strip().isdigit()]
                if counts:
                    self._rates.add(values, ("rdma", name, quantity), sum(counts) * size, now)

    def _sample_ranks(self, values: Dict[Column, float], ranks: Mapping[int, int], now: float) -> None:
        paths = {rank: "/proc/%d/stat" % ranks[rank] for rank in sorted(ranks)[:MAX_RANKS]}
        for rank, path in paths.items():
            usage = parse_usage(self._files.read(path))
            if usage is not None:
                values["rank", str(rank), "rss"] = usage[1]
                self._rates.add(values, ("rank", str(rank), "cpu"), usage[0], now)
        self._files.keep_only("/proc/", [*paths.values(), *MACHINE_FILES])

    def _text(self, path: str) -> str:
        return self._files.read(path).decode("ascii", "replace")


def parse_nics(text: str) -> List[Tuple[str, Dict[str, int]]]:
    """Read /proc/net/dev: what each NIC has received and sent, in bytes, and the packets that it lost."""
    found = []
    for line in text.splitlines()[2:]:
        name, colon, rest = line.partition(":")
        cells = rest.split()
        if colon and len(cells) >= 12 and name.strip() != "lo":
            counts = list(map(int, cells))
            quantities = {
                "received": counts[0],
                "sent": counts[8],
                "errors": counts[2] + counts[10],
                "drops": counts[3] + counts[11],
            }
            found.append((name.strip(), quantities))
    return found[:MAX_NICS]


def parse_disks(text: str, names: Iterable[str]) -> Tuple[int, int]:
    """Read /proc/diskstats: the bytes that were read from and written to these disks."""
    rows = [line.split() for line in text.splitlines()]
    disks = [row for row in rows if len(row) >= 10 and row[2] in names]
    return sum(int(row[5]) for row in disks) * SECTOR, sum(int(row[9]) for row in disks) * SECTOR


def parse_usage(line: bytes) -> Optional[Tuple[float, float]]:
    """Read /proc/PID/stat: seconds of processor time, and bytes of memory; None of a process that is gone."""
    fields = line.rpartition(b")")[2].split()
    if len(fields) < 22:
        return None
    return (int(fields[11]) + int(fields[12])) / TICK, int(fields[21]) * float(PAGE)


def _is_disk(name: str) -> bool:
    return not name.startswith(("loop", "ram", "dm-", "md", "sr", "zram", "fd"))


def _find_ports() -> List[Tuple[str, str]]:
    """Find the counters of the RDMA ports: name, directory."""
    ports = [
        (os.path.basename(adapter) + ":" + os.path.basename(port), os.path.join(port, "counters"))
        for adapter in list_folder(RDMA)
        for port in list_folder(os.path.join(adapter, "ports"))
    ]
    return ports[:MAX_PORTS]


class HistoryRecorder:
    """Samples one run on this node; `ranks` gives the pids of its ranks, `spared` takes the sampler's."""

    def __init__(self, rundir: str, ranks: Callable[[], Mapping[int, int]], spared: Set[int]) -> None:
        self._rundir, self._ranks, self._spared = rundir, ranks, spared
        self._gpus: Optional[Gpus] = None
        self._stopped = threading.Event()
        self._columns: List[Column] = []
        self._set: Optional[RingSet] = None

    def start(self) -> None:
        """Sample from now on."""
        try:
            threading.Thread(target=self._run, daemon=True).start()
        except RuntimeError:  # no thread to be had: there will be no history
            self._stopped.set()

    def stop(self) -> None:
        """Sample no more; called from another thread than the samples are taken in; that thread is not waited for."""
        self._stopped.set()
        if self._gpus is not None:
            self._gpus.stop()

    def _run(self) -> None:
        errors = 0
        machine, gpus = MachineSampler(self._rundir), Gpus(self._spared)
        self._gpus = gpus
        machine.sample(self._ranks())  # the first rates need a moment before them
        pause = INTERVAL / 2
        try:
            while errors < MAX_ERRORS and not self._stopped.wait(pause):
                began = time.monotonic()
                try:
                    self._record({**machine.sample(self._ranks()), **gpus.source.sample()}, machine, gpus)
                except (OSError, ValueError) as error:  # a full disk, a file that is not as it should be
                    errors += 1
                    print("history: %s: %s" % (type(error).__name__, error), file=sys.stderr)
                pause = max(INTERVAL / 2, INTERVAL - (time.monotonic() - began))
        finally:
            gpus.stop()

    def _record(self, values: Dict[Column, float], machine: MachineSampler, gpus: Gpus) -> None:
        fresh = [column for column in values if column not in self._columns]
        if self._set is None or (fresh and len(self._columns) < MAX_COLUMNS):
            self._columns = (self._columns + sorted(fresh))[:MAX_COLUMNS]
            if self._set is not None:
                self._set.close()
            about = {**machine.about(), "gpus": gpus.source.about()}
            self._set = RingSet(RunPaths(self._rundir).samples, self._columns, about)
        self._set.add(time.time(), [values.get(column, NAN) for column in self._columns])
