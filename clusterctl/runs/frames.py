"""Frames as the node's side of the conversation writes them, and the search for where they begin."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Frame = tuple[dict[str, Any], bytes]

MAX_HEADER = 64 << 20  # the names of a million contents
MAX_BODY = 64 << 20
MAX_NOISE = 1 << 20
NOISE_KEPT = 4 << 10
MAX_SIZES = 32  # bytes of the line that tells the two sizes


class FrameError(Exception):
    """What arrived is not what the node's side writes."""


def encode_frame(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Render one frame; ValueError beyond the limits that the other side has too."""
    text = json.dumps(header).encode("utf-8")
    if len(text) > MAX_HEADER or len(body) > MAX_BODY:
        raise ValueError(f"frame too large: header {len(text)} bytes, body {len(body)} bytes")
    return b"%d %d\n" % (len(text), len(body)) + text + body


class FrameReader:
    """Cuts bytes into frames; everything before the sentinel's line is noise, of which the end is kept."""

    def __init__(self, sentinel: str) -> None:
        self._marker = f"\n{sentinel}\n".encode("ascii")
        self._buffer = bytearray()
        self._sizes: tuple[int, int] | None = None
        self._noise_size = 0
        self.noise = b""
        self.begun = False

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Add bytes that arrived and yield the frames that are complete; FrameError if they are none."""
        self._buffer += piece
        if not self.begun:
            self._seek()
        while self.begun:
            frame = self._take()
            if frame is None:
                return
            yield frame

    def _seek(self) -> None:
        place = self._buffer.find(self._marker)
        self.begun = place >= 0
        # A marker may have arrived in part: that much stays in the buffer.
        noise = place if self.begun else max(0, len(self._buffer) - len(self._marker) + 1)
        self._noise_size += noise
        self.noise = (self.noise + bytes(self._buffer[:noise]))[-NOISE_KEPT:]
        del self._buffer[: noise + (len(self._marker) if self.begun else 0)]
        if self._noise_size > MAX_NOISE:
            raise FrameError(f"more than {MAX_NOISE} bytes came before the first answer")

    def finish(self) -> None:
        """Count what is left in the buffer as noise when no answer will come any more."""
        if not self.begun:
            self.noise = (self.noise + bytes(self._buffer))[-NOISE_KEPT:]
            self._buffer.clear()

    def _take(self) -> Frame | None:
        if self._sizes is None:
            self._sizes = self._take_sizes()
        if self._sizes is None or len(self._buffer) < sum(self._sizes):
            return None
        middle, end = self._sizes[0], sum(self._sizes)
        text, body = bytes(self._buffer[:middle]), bytes(self._buffer[middle:end])
        del self._buffer[:end]
        self._sizes = None
        return _parse_header(text), body

    def _take_sizes(self) -> tuple[int, int] | None:
        line_end = self._buffer.find(b"\n", 0, MAX_SIZES)
        if line_end < 0:
            if len(self._buffer) >= MAX_SIZES:
                raise FrameError(f"not a frame: {bytes(self._buffer[:MAX_SIZES])!r}")
            return None
        words = bytes(self._buffer[:line_end]).split(b" ")
        if len(words) != 2 or not all(word.isdigit() for word in words):
            raise FrameError(f"not a frame: {bytes(self._buffer[:line_end])!r}")
        sizes = int(words[0]), int(words[1])
        if sizes[0] > MAX_HEADER or sizes[1] > MAX_BODY:
            raise FrameError(f"frame too large: header {sizes[0]} bytes, body {sizes[1]} bytes")
        del self._buffer[: line_end + 1]
        return sizes


def _parse_header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame's header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise FrameError("a frame's header is not an object")
    return header
