"""Run a program on this machine and read what it writes, with limits on time and size."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from clusterctl.translation import tr


@dataclass(frozen=True)
class ProgramLimits:
    """How long a program may run, in seconds, and how many bytes it may write."""

    seconds: float
    size: int


def run_program(
    command: Sequence[str], limits: ProgramLimits, environment: Mapping[str, str]
) -> tuple[int, bytes, bytes]:
    """Run a program in a session of its own and return its exit code and both outputs.

    What it started ends with it. Raises OSError and subprocess.TimeoutExpired.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = _read_outputs(process, limits)
            process.wait(limits.seconds)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, stdout, stderr


def _read_outputs(process: subprocess.Popen[bytes], limits: ProgramLimits) -> tuple[bytes, bytes]:
    """Read both outputs to their end, as long and as much as the limits allow."""
    pipes = [pipe.fileno() for pipe in (process.stdout, process.stderr) if pipe is not None]
    outputs: dict[int, bytearray] = {pipe: bytearray() for pipe in pipes}
    deadline = time.monotonic() + limits.seconds
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, limits.seconds)
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                outputs[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
            if sum(map(len, outputs.values())) > limits.size:
                raise OSError(tr("it wrote more than {limit} MiB", limit=limits.size >> 20))
    return bytes(outputs[pipes[0]]), bytes(outputs[pipes[1]])
