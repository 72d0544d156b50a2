"""What a sample holds: the kernel's texts, counters that become rates, and a real look at this machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

from clusterctl.node.history.machine import MachineSampler, Rates, parse_disks, parse_nics, parse_usage
from clusterctl.node.history.ring import NAN

NET = """Inter-|   Receive                            |  Transmit
 face |bytes    packets errs drop fifo frame ... |bytes    packets errs drop fifo colls ...
    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0
  eth0: 1899840763 61934 2 5 0 0 0 0 4576979 41651 1 7 0 0 0 0
 bad0: 1 2
"""
DISKS = """ 259 0 nvme0n1 100 0 2000 5 50 0 4000 5 0 0 0
 259 1 nvme0n1p1 100 0 2000 5 50 0 4000 5 0 0 0
 7 0 loop0 1 0 8 0 0 0 0 0 0 0 0
"""


def test_the_kernels_tables() -> None:
    """Bytes, lost packets, sectors of whole disks, ticks and pages of a process."""
    ((name, counts),) = parse_nics(NET)
    assert name == "eth0"
    assert counts == {"received": 1899840763, "sent": 4576979, "errors": 3, "drops": 12}
    assert parse_disks(DISKS, {"nvme0n1"}) == (2000 * 512, 4000 * 512)
    line = b"7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 99 1000 3 0 0"
    assert parse_usage(line) == (200 / os.sysconf("SC_CLK_TCK"), 3 * os.sysconf("SC_PAGE_SIZE"))
    assert parse_usage(b"") is None and parse_usage(b"7 (x) R") is None


def test_counters_become_rates() -> None:
    """A new one has none yet, nor has one that began again."""
    rates, column = Rates(), ("nic", "eth0", "sent")
    seen = []
    for now, count in ((1.0, 100.0), (3.0, 300.0), (5.0, 10.0), (7.0, 30.0)):
        values = {column: NAN}
        rates.add(values, column, count, now)
        seen.append(values[column])
    assert seen[1::2] == [100.0, 10.0] and seen[0] != seen[0] and seen[2] != seen[2]


def test_this_machine_and_a_process(tmp_path: Path) -> None:
    """Processors, memory, NICs, and the work of this very process as a rank; one that is gone is left out."""
    sampler = MachineSampler(str(tmp_path))
    sampler.sample({3: os.getpid(), 4: 1 << 22})
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    values = sampler.sample({3: os.getpid(), 4: 1 << 22})
    assert 0 <= values["node", "", "cpu"] <= 1 and values["node", "", "memory"] > 0
    assert values["rank", "3", "cpu"] > 0 and values["rank", "3", "rss"] > 1 << 20
    assert ("rank", "4", "rss") not in values and values["disk", "", "free"] > 0
    assert sampler.about()["cores"] == os.cpu_count()
