"""Small things that a user must not wait for: hostile texts, versions, goodbyes.

    python -m tests.bench small [-r ROUNDS]

Tests count the work of each, which is the same on every machine; here is what it takes on this one. Times are of the
processor, except for closing connections, whose harm would be waiting.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "specs" / "yaml"))
sys.path.insert(0, str(Path(__file__).parents[1] / "specs" / "importers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import test_detect_fuzz
import test_reader
from measuring import Bar, Table, options_for, report, tell
from servers import make_client, start_server

from clusterctl.errors import SpecError

ROOT = Path(__file__).parents[2]
VERSIONS = """
import sys, time; sys.path.insert(0, sys.argv[1]); began = time.process_time()
from clusterctl.node.probe import python, system
python.torch(), python.packages(), python._nccl(), python.installed()
system.interpreter(), system.platform()
print(time.process_time() - began)
"""


def main() -> None:
    """Measure all of them."""
    asked = options_for(__doc__, rounds=3).parse_args()
    found = [
        ("the most work of a wrong job or inventory, s", 8.0, refuse_texts),
        ("the most work of a file to import, s", 4.0, import_files),
        ("versions of torch and all packages, ms", 50.0, tell_versions),
        ("8 connections are closed, ms", 400.0, close_connections),
    ]
    bars = []
    for what, limit, measure in found:
        bars.append(Bar(what.rpartition(",")[0], min(measure() for _ in range(asked.rounds)), limit))
        tell(f"{what}: {bars[-1].value:.3g}")
    rows = [(what, round(bar.value, 3), bar.limit) for (what, *_), bar in zip(found, bars, strict=True)]
    sys.exit(report("small", [Table("small things", ("what", "least", "bar"), rows)], bars, asked))


def spent(work: Callable[[], object]) -> float:
    """Give the processor's time of some work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def refuse_texts() -> float:
    """Parse every huge text of the tests; gives the longest time."""
    texts = [text for text, _ in test_reader.TOO_MUCH.values()]
    texts += [text(size) for size, text in test_reader.HUGE.values()]
    return max(spent(lambda text=text: test_reader.refuse(text)) for text in texts)


def import_files() -> float:
    """Import every huge file of the tests; gives the longest time."""

    def judge(text: str) -> None:
        with suppress(SpecError):
            test_detect_fuzz.judge_import(text, "f", "auto", None)

    texts = [text(size) for size, text in test_detect_fuzz.HUGE.values()]
    return max(spent(lambda text=text: judge(text)) for text in texts)


def tell_versions() -> float:
    """Ask a fresh interpreter, as the probe does."""
    words = [sys.executable, "-c", VERSIONS, str(ROOT)]
    return 1000 * float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def close_connections() -> float:
    """Close eight connections one after the other."""
    with tempfile.TemporaryDirectory(prefix="cb-") as folder:
        server, client = start_server(Path(folder, "sshd")), make_client(Path(folder, "home"))
        try:
            connections = [client.connect(server.node(f"n{place}")) for place in range(8)]
            began = time.monotonic()
            for connection in connections:
                connection.close()
            return 1000 * (time.monotonic() - began)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
