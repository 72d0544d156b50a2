"""The client side of one verb, written from the protocol's description: no code of the payload is used.

Every frame that a node sends in a test is compared with its definition.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import time
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from conformity import frame_problems
from waiting import HANG

PAYLOAD = Path(__file__).resolve().parents[2] / "clusterctl" / "node"
BOOT = (
    'import sys;b=getattr(sys.stdin,"buffer",sys.stdin);'
    'exec(compile(b.read(int(b.readline())),"clusterctl-boot","exec"))'
)
Frame = tuple[dict[str, Any], bytes]


def part(content: bytes) -> bytes:
    """Prefix one part of the bootstrap with its length."""
    return b"%d\n" % len(content) + content


@cache
def bundle() -> bytes:
    """Compress every module of the payload, as the client ships a subset of them."""
    package = PAYLOAD.parent
    shipped = [path for name in ("node", "protocol") for path in (package / name).rglob("*.py")]
    names = {
        path: ".".join(("clusterctl", *path.relative_to(package).with_suffix("").parts)) for path in shipped
    }
    sources = {names[path]: path.read_text() for path in shipped if path.stem != "__init__"}
    return zlib.compress(json.dumps(sources).encode())


class Session:
    """One verb, started as SSH would start it and talked to over pipes."""

    def __init__(
        self,
        verb: str,
        request: dict[str, Any],
        *,
        modules: bytes | None = None,
        command: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        payload: str = "",
    ) -> None:
        self.sentinel = secrets.token_hex(8)
        self._verb = verb
        self.process = subprocess.Popen(
            command or (sys.executable, "-c", BOOT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            bufsize=0,
        )
        self.noise: bytes | None = None
        self._buffer = b""
        header = {"sentinel": self.sentinel, "verb": verb, "request": request, "payload": payload}
        folder = next((path.parent.name for path in (PAYLOAD / "verbs").glob(f"*/{verb}.py")), None)
        header.update({"module": f"{folder}.{verb}"} if folder else {})
        self._write(part((PAYLOAD / "boot.py").read_bytes()) + part(json.dumps(header).encode()))
        self._write(part(bundle() if modules is None else modules))

    def _write(self, content: bytes) -> None:
        assert self.process.stdin is not None
        rest = memoryview(content)
        while rest:
            rest = rest[self.process.stdin.write(rest) or 0 :]

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send one frame."""
        text = json.dumps(header).encode()
        self._write(b"%d %d\n" % (len(text), len(body)) + text + body)

    def receive(self, timeout: float = HANG) -> Frame | None:
        """Wait for the next frame; None at the end of the stream."""
        deadline = time.monotonic() + timeout
        if self.noise is None:
            mark = f"\n{self.sentinel}\n".encode()
            if not self._fill(lambda: mark in self._buffer, deadline):
                return None
            self.noise, self._buffer = self._buffer.split(mark, 1)
        if not self._fill(lambda: b"\n" in self._buffer, deadline):
            return None
        line, rest = self._buffer.split(b"\n", 1)
        header_size, body_size = map(int, line.split())
        whole = len(line) + 1 + header_size + body_size
        assert self._fill(lambda: len(self._buffer) >= whole, deadline), "the stream ended inside a frame"
        rest, self._buffer = self._buffer[len(line) + 1 : whole], self._buffer[whole:]
        header, body = json.loads(rest[:header_size]), rest[header_size:]
        wrong = frame_problems(self._verb, header, body)
        assert not wrong, f"not as protocol/messages says: {wrong}"
        return header, body

    def continue_with(self, verb: str, request: dict[str, Any], modules: bytes) -> None:
        """Send a further verb to the same process."""
        self.sentinel, self._verb, self.noise = secrets.token_hex(8), verb, None
        self.send({"sentinel": self.sentinel, "verb": verb, "request": request}, modules)

    def _fill(self, enough: Any, deadline: float) -> bool:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while not enough():
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"no frame in time; stderr: {self.stderr_so_far()!r}")
            piece = os.read(descriptor, 1 << 20)
            if not piece:
                return False
            self._buffer += piece
        return True

    def stderr_so_far(self) -> bytes:
        """Return what has come on stderr, without waiting."""
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        return self.process.stderr.read() or b""

    def frames(self, timeout: float = HANG) -> list[Frame]:
        """Collect every frame up to and including the end frame."""
        found: list[Frame] = []
        while not found or "end" not in found[-1][0]:
            frame = self.receive(timeout)
            assert frame is not None, f"no end frame; stderr: {self.stderr_so_far()!r}"
            found.append(frame)
        return found

    def hang_up(self) -> None:
        """Close our end as a client that leaves does."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def close(self) -> None:
        """End the process if it is still there and free its pipes."""
        self.hang_up()
        try:
            self.process.wait(HANG)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
