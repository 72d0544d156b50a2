"""Stands in for torch.distributed.run where torch is not the point: starts the script once, passes SIGTERM on."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


def main(argv: list[str]) -> None:
    """Do what torchrun does of its options: listen on rank 0, redirect, start the worker, end as it does."""
    rank, size = argv[argv.index("--node-rank") + 1], argv[argv.index("--nnodes") + 1]
    if rank == "0":
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", int(argv[argv.index("--master-port") + 1])))
            listener.listen()
        except OSError as error:
            raise SystemExit(f"DistNetworkError: name: {errno.errorcode[error.errno or 0]}") from None
    folder = Path(argv[argv.index("--log-dir") + 1], "attempt_0", "0")
    folder.mkdir(parents=True)
    env = {**os.environ, "RANK": rank, "LOCAL_RANK": "0", "WORLD_SIZE": size}
    env["TORCHELASTIC_ERROR_FILE"] = f"{folder}/error.json"
    words = argv[argv.index("--log-dir") + 2 :]
    with (folder / "stdout.log").open("wb") as out, (folder / "stderr.log").open("wb") as err:
        worker = subprocess.Popen(
            [sys.executable, *words], env=env, start_new_session=True, stdout=out, stderr=err
        )
    signal.signal(signal.SIGTERM, lambda *_: worker.terminate())
    raise SystemExit(1 if worker.wait() else 0)
