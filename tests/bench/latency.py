"""Round trips of each verb: one node behind a TCP proxy that delays every byte in both directions.

    python -m tests.bench latency [-r ROUNDS] [--only VERB ...] [--delays SECONDS SECONDS]

A verb that waits for the node so many times, one after the other, takes that many round trips longer when a round trip
is longer. So the number is (time at the longer delay - time at the shorter one) / (difference of the round trips):
what does not depend on the delay cancels out. On a busy machine only the turns are of use. They are what the proxy
counts: how often the client sent something after the node had, over all connections. `ssh node true` runs beside it.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

from loopback import Nodes, loopback_nodes
from measuring import Bar, Cell, Sample, Table, options_for, report, tell, time_commands

JOB = "{name: job, script: job.py, launcher: python, backend: gloo, nproc_per_node: 1}\n"
SCRIPT = "print('done')\n"
DELAYS = (0.05, 0.15)  # seconds each way
CHUNK = 1 << 16
# of check and launch the last only closes what has ended
MAX_TURNS = {"exec": 7, "check": 7, "ps": 6, "launch": 12, "logs": 8}  # turns


class DelayingProxy:
    """Forwards connections to one address; every byte arrives `delay` seconds later."""

    def __init__(self, target: tuple[str, int], address: str) -> None:
        self.delay = 0.0
        self.turns = self.connections = 0
        self._target = target
        self._server = socket.create_server((address, 0))
        self.port = int(self._server.getsockname()[1])
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self, delay: float) -> None:
        """Begin to count again."""
        self.delay, self.turns, self.connections = delay, 0, 0

    def close(self) -> None:
        """Accept no more connections."""
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._server.accept()[0]
                self.connections += 1
                threading.Thread(target=self._connect, args=(client, time.monotonic()), daemon=True).start()

    def _connect(self, client: socket.socket, began: float) -> None:
        """Let the connection itself take a round trip too: what the client sends before that waits for it."""
        node = socket.create_connection(self._target)
        for one in (client, node):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        last = [""]  # who has sent last
        for name, source, sink in (("client", client, node), ("node", node, client)):
            extra = 2 * self.delay if name == "client" else self.delay
            queue: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
            threading.Thread(target=self._send, args=(queue, sink), daemon=True).start()
            threading.Thread(
                target=self._read, args=(name, source, queue, last, began + extra), daemon=True
            ).start()

    def _read(
        self,
        name: str,
        source: socket.socket,
        queue: SimpleQueue[tuple[float, bytes]],
        last: list[str],
        earliest: float,
    ) -> None:
        chunk = b"."
        while chunk:
            try:
                chunk = source.recv(CHUNK)
            except OSError:
                chunk = b""
            with self._lock:
                if chunk and last[0] == "node" and name == "client":
                    self.turns += 1
                last[0] = name if chunk else last[0]
            queue.put((max(time.monotonic(), earliest) + self.delay, chunk))

    @staticmethod
    def _send(queue: SimpleQueue[tuple[float, bytes]], sink: socket.socket) -> None:
        with suppress(OSError):
            while True:
                due, chunk = queue.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not chunk:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(chunk)


def main() -> int:
    """Measure, and print the table."""
    options = options_for(__doc__, rounds=3)
    options.add_argument("--only", nargs="+", metavar="VERB", help="these verbs alone")
    options.add_argument("--delays", nargs=2, type=float, default=DELAYS, metavar="SECONDS")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="cb-") as folder, distant_node(Path(folder)) as (nodes, proxy):
        verbs = verbs_of(nodes, Path(folder))
        rows = [
            measure(name, run, proxy, asked.delays, asked.rounds)
            for name, run in verbs.items()
            if not asked.only or name in asked.only
        ]
    note = "Medians, in seconds; the delay is that of each direction. `launch` ends when its run has."
    first, second = (f"{delay * 1000:g} ms" for delay in asked.delays)
    table = Table("Round trips", ("verb", first, second, "round trips", "connections", "turns"), rows, note)
    bars = [
        Bar(f"{row[0]}: turns", float(row[5] or 0), MAX_TURNS[str(row[0])])
        for row in rows
        if str(row[0]) in MAX_TURNS
    ]
    return report("latency", [table], bars, asked)


@contextmanager
def distant_node(folder: Path) -> Iterator[tuple[Nodes, DelayingProxy]]:
    """Start one node, and the proxy before it."""
    with loopback_nodes(folder, 1) as nodes:
        (address,) = nodes.addresses.values()
        proxy = DelayingProxy(("127.0.0.1", nodes.server.port), address)
        for file in (nodes.inventory, nodes.ssh_config, folder / "known_hosts"):
            text = file.read_text().replace(str(nodes.server.port), str(proxy.port))
            file.write_text(text)
        try:
            yield nodes, proxy
        finally:
            proxy.close()


def verbs_of(nodes: Nodes, folder: Path) -> dict[str, Callable[[], Sample]]:
    """Give what is measured; `logs` is of a run that has ended."""
    (name,) = nodes.addresses
    project = folder / "project"
    project.mkdir()
    (project / "job.py").write_text(SCRIPT)
    (project / "job.yaml").write_text(JOB)

    def ours(*words: str | Path, codes: Sequence[int] = (0,)) -> Callable[[], Sample]:
        return lambda: time_commands([nodes.command(*words)], env=nodes.environment, codes=codes)

    launch = ours("launch", "--ignore-checks", project / "job.yaml")
    return {
        "ssh": lambda: time_commands([nodes.ssh(name, "true")], env=dict(os.environ)),
        "exec": ours("exec", "--", "true"),
        "check": ours("check", codes=(0, 3)),
        "ps": ours("ps"),
        "launch": launch,
        "logs": ours("logs"),
    }


def measure(
    name: str, run: Callable[[], Sample], proxy: DelayingProxy, delays: Sequence[float], rounds: int
) -> list[Cell]:
    """Measure one verb at both delays, in turns."""
    walls: dict[float, list[float]] = {delay: [] for delay in delays}
    proxy.reset(0.0)
    run()
    for _ in range(rounds):
        for delay in delays:
            proxy.reset(delay)
            walls[delay].append(run().wall)
    shorter, longer = (statistics.median(walls[delay]) for delay in delays)
    trips = (longer - shorter) / (2 * (delays[1] - delays[0]))
    tell(
        f"{name}: {trips:.1f} round trips, {proxy.turns} turns, {' '.join(f'{wall:.2f}' for wall in walls[delays[1]])}"
    )
    return [name, round(shorter, 2), round(longer, 2), round(trips, 1), proxy.connections, proxy.turns]


if __name__ == "__main__":
    sys.exit(main())
