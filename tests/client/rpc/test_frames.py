"""Frames as the node writes them, however the bytes are cut."""

from __future__ import annotations

import json

import pytest

from clusterctl.client.rpc import frames
from clusterctl.client.rpc.frames import FrameReader
from clusterctl.protocol.frames import MAX_BODY, FrameError, encode_frame
from clusterctl.protocol.untrusted import Untrusted

START = b"\n5e47\n"


def reader(after: bytes = START) -> FrameReader:
    """Return a reader that has seen the sentinel."""
    fresh = FrameReader("5e47")
    assert list(fresh.feed(after)) == []
    return fresh


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_survive_any_cut(size: int) -> None:
    """Pieces of any size give the same frames, noise before the sentinel is passed over."""
    sent = [({"a": "é\n1 2\n"}, b""), ({}, b"\n5e47\n\0body"), ({"end": True}, b"")]
    raw = b"Welcome!\r\n1 2\n{}" + START + b"".join(encode_frame(header, body) for header, body in sent)
    fresh = FrameReader("5e47")
    got = [frame for at in range(0, len(raw), size) for frame in fresh.feed(raw[at : at + size])]
    assert got == [(Untrusted(header), body) for header, body in sent]
    assert fresh.noise == b"Welcome!\r\n1 2\n{}"


@pytest.mark.parametrize(
    "raw",
    [
        b"hello\n",
        b"1 2 3\n",
        b"-1 2\n",
        b"1\n",
        b"\n",
        b"x" * 40,
        b"99999999999 0\n",
        b"0 99999999999\n",
        b"2 0\n[]",
        b"3 0\n{x}",
        b"1 0\n\xff",
        b"%d 0\n" % 200_000 + b"[" * 200_000,
    ],
)
def test_what_is_no_frame_is_refused(raw: bytes) -> None:
    """Garbage after the sentinel is an error, not a wait for more."""
    with pytest.raises(FrameError):
        list(reader().feed(raw))


def test_flood_before_the_sentinel_is_refused() -> None:
    """Noise has a limit; what is kept of it is its end."""
    fresh = FrameReader("5e47")
    with pytest.raises(FrameError):
        for _ in range(100):
            list(fresh.feed(b"spam spam spam\n" * 1000))
    assert len(fresh.noise) == frames.NOISE_KEPT


def test_noise_without_sentinel_is_all_kept() -> None:
    """When no answer comes, the last words are evidence."""
    fresh = FrameReader("5e47")
    list(fresh.feed(b"This account is not available."))
    fresh.finish()
    assert fresh.noise == b"This account is not available."


def test_too_large_is_refused_before_sending() -> None:
    """A frame that the node would refuse is not sent."""
    with pytest.raises(ValueError, match="too large"):
        encode_frame({}, b"x" * (MAX_BODY + 1))


def test_large_body_in_small_pieces() -> None:
    """A large body costs no more than its size."""
    body = bytes(range(256)) * (4 << 10)
    raw = encode_frame({"log": 1}, body)
    fresh = reader()
    got = [frame for at in range(0, len(raw), 32 << 10) for frame in fresh.feed(raw[at : at + (32 << 10)])]
    assert got == [(Untrusted({"log": 1}), body)]


@pytest.mark.parametrize("verb", [*frames.LIMITS, "exec", "files", "top"])
def test_no_frame_of_any_verb_is_worth_much(verb: str) -> None:
    """What a header may hold is counted before it is parsed, and what an answer may be in all before it is taken."""
    limits = frames.limits_for(verb)
    assert limits.header <= 8 << 20
    assert limits.body < 2 << 20
    header = b'{"a":[' + b"{}," * limits.values + b"{}]}"
    fresh = FrameReader("5e47", frames.FrameLimits(len(header), 0, limits.values))
    list(fresh.feed(START))
    with pytest.raises(FrameError, match="values"):
        list(fresh.feed(b"%d 0\n" % len(header) + header))


def test_what_comes_in_all_is_bounded() -> None:
    """Small frames without end are an error too, where the verb has one answer."""
    fresh = FrameReader("5e47", frames.FrameLimits(total=1000))
    list(fresh.feed(START))
    with pytest.raises(FrameError, match="in all"):
        for _ in range(1000):
            list(fresh.feed(encode_frame({"beat": 1})))


def test_what_a_sync_may_name_goes_with_the_tree() -> None:
    """Every content can be named, and not much more."""
    few, many = frames.sync_limits(10), frames.sync_limits(100_000)
    names = json.dumps({"missing": ["0" * 64] * 100_000}).encode()
    assert few.header < 100_000 < len(names) < many.header < 2 * len(names)
    assert sum(map(names.count, (b",", b":", b"[", b"{"))) < many.values
