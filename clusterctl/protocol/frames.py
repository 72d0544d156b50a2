"""Frames between client and node: `HEADER_BYTES BODY_BYTES\\n`, a JSON header, bytes.

The same bytes go over SSH, between a node's relay and its agent, and between nodes that pass code on. The reader sets
what a header may be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

MAX_HEADER = 64 << 20  # the names of a million contents
MAX_BODY = 64 << 20
BEAT_INTERVAL = 2.0  # seconds between signs of life
SILENCE_LIMIT = 20.0  # seconds without one: lost
CLOCK_SLACK = 0.2  # seconds by which a node's clock may be misjudged
SIZE_LINE = 32  # bytes of the line with the two sizes, at most


class FrameError(ValueError):
    """What arrived is no frame, or more than it may be."""


def encode_frame(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Render one frame; ValueError if it is beyond the limits of either side."""
    text = json.dumps(header).encode("utf-8")
    if len(text) > MAX_HEADER or len(body) > MAX_BODY:
        raise ValueError(f"frame too large: header {len(text)} bytes, body {len(body)} bytes")
    return b"%d %d\n" % (len(text), len(body)) + text + body


class Decoder:
    """Cuts a stream of bytes into frames; `total` limits the bytes of all of them."""

    def __init__(self, parse: Callable[[bytes], Any], pending: bytes = b"") -> None:
        self.parse = parse
        self.most_header, self.most_body = MAX_HEADER, MAX_BODY
        self.most_total: int | None = None
        self._total = 0
        self.buffer = bytearray(pending)
        self._sizes: tuple[int, int] | None = None

    def feed(self, chunk: bytes) -> None:
        """Add bytes that arrived."""
        self.buffer += chunk

    def next_frame(self) -> tuple[Any, bytes] | None:
        """Return the next header and body, or None while they are incomplete; FrameError if they are none."""
        if self._sizes is None:
            self._sizes = self.read_sizes()
        if self._sizes is None or len(self.buffer) < sum(self._sizes):
            return None
        middle, end = self._sizes[0], sum(self._sizes)
        header, body = self.parse(bytes(self.buffer[:middle])), bytes(memoryview(self.buffer)[middle:end])
        del self.buffer[:end]
        self._sizes = None
        return header, body

    def read_sizes(self) -> tuple[int, int] | None:
        """Take the line with the sizes; None while it is incomplete."""
        line_end = self.buffer.find(b"\n", 0, SIZE_LINE)
        if line_end < 0 and len(self.buffer) < SIZE_LINE:
            return None
        line = bytes(self.buffer[: SIZE_LINE if line_end < 0 else line_end])
        fields = line.split(b" ") if line_end >= 0 else []
        if len(fields) != 2 or not all(word.isdigit() for word in fields):
            raise FrameError(f"not a frame: {line!r}")
        sizes = int(fields[0]), int(fields[1])
        if sizes[0] > self.most_header or sizes[1] > self.most_body:
            raise FrameError(f"frame too large: header {sizes[0]} bytes, body {sizes[1]} bytes")
        self._total += sum(sizes)
        if self.most_total is not None and self._total > self.most_total:
            raise FrameError(f"more than {self.most_total} bytes came in all")
        del self.buffer[: line_end + 1]
        return sizes
