"""Samples of a run in files of bounded size: what is kept, what is thinned, what is left of a spoiled file."""

from __future__ import annotations

import math
import struct
from pathlib import Path

from clusterctl.node.history import ring
from clusterctl.node.history.ring import NAN, RingSet, Samples, pack, read_file, read_samples, thin

CPU, XID = ("node", "", "cpu"), ("gpu", "0", "xid")


def fill(folder: Path, samples: int, begin: float = 1000.0) -> None:
    """Write samples every two seconds: the number of each, and once a peak."""
    kept = RingSet(str(folder), [CPU, XID], {"cores": 4, "memory": 1 << 30, "gpus": []})
    for number in range(samples):
        kept.add(begin + 2 * number, [float(number), 79.0 if number == 7 else 0.0])
    kept.close()


def test_a_day_fits_into_few_megabytes_and_is_there(tmp_path: Path) -> None:
    """Of the last two hours every sample, of the time before one every 30 s, of which a peak stays."""
    fill(tmp_path / "s", 24 * 1800)
    assert sum(path.stat().st_size for path in (tmp_path / "s").iterdir()) < 200_000
    (found,) = read_samples(str(tmp_path / "s"), 0.0, 1e9)
    times = [record[0] for record in found.records]
    assert times == sorted(times) and times[-1] == 1000.0 + 2 * (24 * 1800 - 1)
    assert times[0] < 1000.0 + 600 and len(times) > 3600 + 2600
    assert max(record[2] for record in found.records) == 79.0
    assert found.about["cores"] == 4


def test_many_columns_do_not_make_a_file_longer(tmp_path: Path) -> None:
    """A file has at most so many bytes; the number of records follows."""
    columns = [("gpu", str(number), "busy") for number in range(500)]
    kept = RingSet(str(tmp_path / "s"), columns, {})
    for number in range(1500):
        kept.add(1000.0 + number, [1.0] * 500)
    kept.close()
    assert (tmp_path / "s" / "0.0").stat().st_size < ring.MAX_BYTES + ring.MAX_HEADER


def test_sets_of_columns_come_and_the_oldest_go(tmp_path: Path) -> None:
    """A new column begins a new set of files; their samples are read together."""
    for number in range(ring.MAX_SETS + 3):
        kept = RingSet(str(tmp_path), [("rank", str(number), "rss")], {})
        kept.add(1000.0 + number, [float(number)])
        kept.close()
    found = read_samples(str(tmp_path), 0.0, 1e9)
    assert [samples.columns[0][1] for samples in found] == ["3", "4", "5", "6", "7", "8"]
    thinned = thin(found, 1000.0, 1010.0, 100)
    assert len(thinned.columns) == ring.MAX_SETS
    assert [row for row in thinned.rows if row[1][0] == 3.0]


def test_samples_are_thinned_to_means_and_peaks() -> None:
    """What is unknown does not count."""
    records = [(1000.0 + number, number % 2 * 1.0, NAN if number < 8 else 31.0) for number in range(10)]
    thinned = thin([Samples([CPU, XID], {}, records)], 1000.0, 1010.0, 1)
    ((time, (busy, xid)),) = thinned.rows
    assert (time, busy, xid) == (1004.5, 0.5, 31.0)
    packed = pack(thinned)
    assert struct.unpack("<dff", packed) == (1004.5, 0.5, 31.0)
    assert pack(thin([], 0.0, 1.0, 10)) == b""


def test_a_spoiled_file_is_read_as_far_as_it_makes_sense(tmp_path: Path) -> None:
    """Another node that shares the home may have written anything."""
    fill(tmp_path, 20)
    path = tmp_path / "0.0"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    found = read_file(str(path))
    assert found is not None and len(found.records) == 19
    head = whole.partition(b"\n")[0] + b"\n"
    path.write_bytes(
        head + struct.pack("<dff", math.nan, 1, 1) + struct.pack("<dff", 1e300, 1, 1) + bytes(16)
    )
    found = read_file(str(path))
    assert found is not None and found.records == []
    for content in (b"", b"\n", b"[]\n", b'{"columns": 3}\n', b"{" * 100_000, b'{"columns": [["a"]]}'):
        path.write_bytes(content)
        assert read_file(str(path)) is None
