"""Stands in for torch.distributed.run: starts the ranks once, passes SIGTERM on, ends as they do."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FLAGS = ("--log-dir", "--node-rank", "--nnodes", "--nproc-per-node", "--master-port")


def main(argv: list[str]) -> None:
    """Do what torchrun does of its options: listen on rank 0, redirect, start the ranks, end as they do."""
    flags = {name: argv.index(name) + 1 for name in FLAGS}
    node, nodes, count, port = (int(argv[flags[name]]) for name in FLAGS[1:])
    store = listen(port) if node == 0 else None
    rest = argv[flags["--log-dir"] + 1 :]
    words = [sys.executable, *(rest[1:] if rest[:1] == ["--"] else rest)]
    folder = Path(argv[flags["--log-dir"]], "attempt_0")
    workers = [start(words, folder, node * count + local, local, nodes * count) for local in range(count)]
    signal.signal(signal.SIGTERM, lambda *_: terminate(workers))
    failed = outlast(workers)
    if store is not None:
        store.close()
    raise SystemExit(1 if failed else 0)


def listen(port: int) -> socket.socket:
    """Take the port, as torch's store does."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("", port))
        listener.listen()
    except OSError as error:
        raise SystemExit(f"DistNetworkError: name: {errno.errorcode[error.errno or 0]}") from None
    return listener


def start(words: list[str], folder: Path, rank: int, local: int, size: int) -> Any:
    """Start a rank with its output in files."""
    place = folder / str(local)
    place.mkdir(parents=True)
    env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": str(size)}
    env["TORCHELASTIC_ERROR_FILE"] = f"{place}/error.json"
    with (place / "stdout.log").open("wb") as out, (place / "stderr.log").open("wb") as err:
        return subprocess.Popen(words, env=env, start_new_session=True, stdout=out, stderr=err)


def outlast(workers: list[Any]) -> bool:
    """Wait for all ranks, and end the others when one fails; reports whether one did."""
    if len(workers) == 1:
        return bool(workers[0].wait())
    while None in [worker.poll() for worker in workers]:
        if any(worker.poll() for worker in workers):
            terminate(workers)
        time.sleep(0.02)
    return any(worker.poll() for worker in workers)


def terminate(workers: list[Any]) -> None:
    """End the ranks that live."""
    for worker in workers:
        worker.terminate()
