"""What a node may send, and the search for where its frames begin.

A node may be broken or hostile: how large a frame may be, how many values its header may hold and how much may come in
all is decided by the verb, so that no answer of any node costs this machine more than it is worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clusterctl.protocol.frames import Decoder, FrameError
from clusterctl.protocol.untrusted import MalformedError, Untrusted, parse_object
from clusterctl.translation import tr

Frame = tuple[Untrusted, bytes]

MAX_NOISE = 1 << 20
NOISE_KEPT = 4 << 10


@dataclass(frozen=True)
class FrameLimits:
    """What a node may send: bytes of a header and of a body, values in a header, and bytes in all (None: a stream)."""

    header: int = 1 << 20
    body: int = (1 << 20) + (1 << 16)  # a piece of a file, which compression has made a little longer
    values: int = 100_000
    total: int | None = None


STREAM_LIMITS = FrameLimits()
ANSWER_LIMITS = FrameLimits(total=16 << 20)  # with the beats of an hour
# Honest answers that are larger: the facts of a machine with many packages, and its calls to hundreds of peers; two
# hundred runs, or some with the record of their end, which is at most 512 KiB; a thousand runs and their sizes;
# 64 KiB of each rank.
LIMITS: Mapping[str, FrameLimits] = {
    "probe": FrameLimits(header=4 << 20, total=16 << 20),
    "ps": FrameLimits(header=8 << 20, values=300_000, total=16 << 20),
    "pulse": FrameLimits(header=8 << 20, values=300_000, total=16 << 20),
    "slurm_pulse": FrameLimits(header=8 << 20, values=300_000, total=16 << 20),
    "clean": FrameLimits(header=8 << 20, values=300_000, total=32 << 20),
    "diagnose": FrameLimits(header=8 << 20, values=300_000, total=16 << 20),
    "follow": FrameLimits(header=2 << 20),
    "history": FrameLimits(header=4 << 20, values=400_000, total=16 << 20),
    "stop": FrameLimits(header=2 << 20, total=16 << 20),
    "orphans": ANSWER_LIMITS,
    "pythons": ANSWER_LIMITS,
    "warm": ANSWER_LIMITS,
    "staged": FrameLimits(header=8 << 20, values=300_000, total=32 << 20),
    "start": FrameLimits(total=64 << 20),  # the progress of a setup that takes hours
}


def limits_for(verb: str) -> FrameLimits:
    """Return what a node may send in answer to a verb."""
    return LIMITS.get(verb, STREAM_LIMITS)


def sync_limits(contents: int) -> FrameLimits:
    """Return what a node may send that names the contents which it lacks, some times over."""
    header = (64 << 10) + 70 * contents
    return FrameLimits(header, values=1000 + 2 * contents, total=(16 << 20) + 8 * header)


class FrameReader:
    """Cuts bytes into frames; everything before the sentinel's line is noise, of which the end is kept."""

    def __init__(self, sentinel: str, limits: FrameLimits = STREAM_LIMITS) -> None:
        self._limits = limits
        self._decoder = Decoder(self._parse_header)
        self._decoder.most_header, self._decoder.most_body = limits.header, limits.body
        self._decoder.most_total = limits.total
        self._marker = f"\n{sentinel}\n".encode("ascii")
        self._buffer = bytearray()
        self._noise_size = 0
        self.noise = b""
        self.started = False

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Add bytes that arrived and yield the frames that are complete; FrameError if they are none."""
        if not self.started:
            self._buffer += chunk
            self._find_marker()
            if not self.started:
                return
            chunk = bytes(self._buffer)
            self._buffer.clear()
        self._decoder.feed(chunk)
        while frame := self._decoder.next_frame():
            yield frame

    def _find_marker(self) -> None:
        position = self._buffer.find(self._marker)
        self.started = position >= 0
        # A marker may have arrived in part: that much stays in the buffer.
        noise_length = position if self.started else max(0, len(self._buffer) - len(self._marker) + 1)
        self._noise_size += noise_length
        self.noise = (self.noise + bytes(self._buffer[:noise_length]))[-NOISE_KEPT:]
        del self._buffer[: noise_length + (len(self._marker) if self.started else 0)]
        if self._noise_size > MAX_NOISE:
            raise FrameError(tr("more than {limit} bytes arrived before the first answer", limit=MAX_NOISE))

    def finish(self) -> None:
        """Count what is left in the buffer as noise when no answer will come any more."""
        if not self.started:
            self.noise = (self.noise + bytes(self._buffer))[-NOISE_KEPT:]
            self._buffer.clear()

    def _parse_header(self, text: bytes) -> Untrusted:
        try:
            return parse_object(text, self._limits.header, self._limits.values)
        except MalformedError as error:
            raise FrameError(tr("the header of a frame: {reason}", reason=error)) from error
