"""The verbs sync and files over pipes instead of SSH: the real payload, one process for each node."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import HANG

from clusterctl.client.rpc import bundle
from clusterctl.client.rpc.frames import Frame, FrameReader, sync_limits
from clusterctl.codes.lookup import REPORTED
from clusterctl.errors import ConnectionLost, NodeError
from clusterctl.plans.ssh import BOOT
from clusterctl.protocol.frames import encode_frame

RUN = "digits-20261120T110000-ab12"


class PipeSession:
    """The verb `sync`, or `files` with its own request, in a process; what it reports as wrong is raised, as usual."""

    def __init__(  # noqa: PLR0913 - what a verb is asked for, by name
        self,
        workdir: Path,
        *,
        run: str | None = RUN,
        node: str = "gpu01",
        rank: int = 0,
        give: Mapping[str, Any] | None = None,
        files: Mapping[str, Any] | None = None,
        command: Sequence[str] = (),
        stderr: int | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [*command, sys.executable, "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
        )
        sentinel = secrets.token_hex(8)
        self._reader = FrameReader(sentinel, sync_limits(100_000))
        self._arrived: list[Frame] = []
        self.blobs: list[str] = []
        request = {"workdir": str(workdir), "run": run, "node": node, "node_rank": rank, "provide": give}
        verb = (
            "sync"
            if files is None
            else "files"
            if "sources" in files
            else "download"
            if "kind" in files
            else "take"
        )
        header = {"sentinel": sentinel, "verb": verb, "request": {**request, **(files or {})}}
        header["module"] = bundle.verb_module(verb)
        for part in (bundle.boot_program(), json.dumps(header).encode(), bundle.pack(verb)[1]):
            self._write(b"%d\n" % len(part) + part)

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self.process.stdin.write(rest) or 0 :]
        except BrokenPipeError:
            while self.receive(HANG) is not None:
                pass
            raise ConnectionLost("CC-SSH-015") from None

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a frame."""
        self.blobs += [header["blob"]] if header.get("last") else [sha for sha, _ in header.get("blobs", ())]
        self._write(encode_frame(header, body))

    def receive(self, timeout: float) -> Frame | None:
        """Wait for a frame; raise what the node reports as wrong."""
        assert self.process.stdout is not None
        while not self._arrived:
            assert select.select([self.process.stdout], [], [], timeout)[0], "no frame in time"
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                return None
            self._arrived += self._reader.feed(piece)
        header, body = self._arrived.pop(0)
        if "error" in header:
            error = header.record("error")
            raise NodeError(error.text("code"), REPORTED, message=error.text("message"))
        return None if header.flag("end") else (header, body)

    def hang_up(self) -> None:
        """Send no more: the process, which waits for the next verb, ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> None:
        """Hang up and wait for the end of the verb."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait(HANG)


@contextmanager
def session(workdir: Path, **how: Any) -> Iterator[PipeSession]:
    """Open a session that is closed in the end."""
    opened = PipeSession(workdir, **how)
    try:
        yield opened
    finally:
        opened.close()
