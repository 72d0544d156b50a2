"""Scalars of TensorBoard's event files: TFRecords that hold protobuf messages, of which three fields are read.

    record    length (8 bytes), its checksum (4), the message, its checksum (4)
    Event     1: wall_time (double)   2: step (varint)   5: summary
    Summary   1: value, repeated
    Value     1: tag (text)   2: simple_value (float)   8: tensor { 1: type   4: bytes or 5: floats }

A file may be anything: every length is checked before it is used, and nothing is read beyond MOST_BYTES.
"""

from __future__ import annotations

import os
import struct
from typing import Dict, Iterator, List, Tuple, Union

from ...protocol.untrusted import LATEST
from .scalars import LONGEST_NAME, MOST_KEPT, MOST_NAMES, Scalar

MARK = "events.out.tfevents."
MOST_FILES, MOST_FOLDERS, DEEPEST = 8, 400, 5
MOST_BYTES = 16 << 20
MOST_RECORD = 1 << 20
Field = Tuple[int, Union[int, bytes]]


def find_files(folders: List[str]) -> List[str]:
    """Find event files below some directories, the newest; no link is followed."""
    found: List[Tuple[float, str]] = []
    for folder in folders:
        for count, (path, folders_inside, names) in enumerate(os.walk(folder)):
            if count >= MOST_FOLDERS:
                break
            if path[len(folder) :].count(os.sep) >= DEEPEST:
                folders_inside.clear()
            for name in names:
                file = os.path.join(path, name)
                if MARK in name and os.path.isfile(file) and not os.path.islink(file):
                    found.append((os.stat(file).st_mtime, file))
    return [file for _, file in sorted(found)[-MOST_FILES:]]


def read_scalars(content: bytes) -> Dict[str, List[Scalar]]:
    """Read the scalars of one file by tag."""
    values: Dict[str, List[Scalar]] = {}
    for message in records(content):
        try:
            time, step, summaries = 0.0, 0, []
            for number, value in fields(message):
                if number == 1 and isinstance(value, bytes) and len(value) == 8:
                    time = struct.unpack("<d", value)[0]
                elif number == 2 and isinstance(value, int):
                    step = value
                elif number == 5 and isinstance(value, bytes):
                    summaries.append(value)
            if not 0.0 < time < LATEST or step >= 1 << 63:
                continue
            for summary in summaries:
                for tag, number_seen in _values(summary):
                    if (tag in values or len(values) < MOST_NAMES) and len(values.get(tag, ())) < MOST_KEPT:
                        values.setdefault(tag, []).append(Scalar(time, step, number_seen))
        except ValueError:  # not a message: the next record may be one
            continue
    return values


def records(content: bytes) -> Iterator[bytes]:
    """Yield the messages of a file; the first length that cannot be right ends it."""
    offset = 0
    while offset + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, offset)
        if length > MOST_RECORD or offset + 16 + length > len(content):
            return
        yield content[offset + 12 : offset + 12 + length]
        offset += 16 + length


def fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of a protobuf message: numbers as int, all else as bytes; ValueError where it is none."""
    offset = 0
    while offset < len(message):
        key, offset = _varint(message, offset)
        kind, size = key & 7, 0
        if kind == 0:
            value, offset = _varint(message, offset)
            yield key >> 3, value
            continue
        if kind == 2:
            size, offset = _varint(message, offset)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("no such kind of field")
        if offset + size > len(message):
            raise ValueError("a field that is too long")
        yield key >> 3, message[offset : offset + size]
        offset += size


def _varint(message: bytes, offset: int) -> Tuple[int, int]:
    value = 0
    for count in range(10):
        if offset + count >= len(message):
            break
        byte = message[offset + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, offset + count + 1
    raise ValueError("a number without an end")


def _values(summary: bytes) -> Iterator[Tuple[str, float]]:
    for number, value in fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        tag, scalar = "", b""
        for inner, content in fields(value):
            if inner == 1 and isinstance(content, bytes):
                tag = content.decode("utf-8", "replace")[:LONGEST_NAME]
            elif inner == 2 and isinstance(content, bytes):
                scalar = content
            elif inner == 8 and isinstance(content, bytes):
                scalar = _tensor(content) or scalar
        if tag and len(scalar) == 4:
            yield tag, struct.unpack("<f", scalar)[0]


def _tensor(content: bytes) -> bytes:
    """Return the only float of a tensor, as newer writers store a scalar; nothing of another tensor."""
    found = dict(fields(content))
    data = found.get(4, found.get(5))
    return data if found.get(1) == 1 and isinstance(data, bytes) and len(data) == 4 else b""
