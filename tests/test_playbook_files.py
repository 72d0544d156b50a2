"""The playbooks' readers of data take the real formats, and refuse what is broken with the file's name."""

from __future__ import annotations

import gzip
import importlib.util
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

PLAYBOOKS = Path(__file__).parent.parent / "playbooks"


def load_module(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a playbook's module as its script does: from its own folder."""
    monkeypatch.syspath_prepend(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def idx(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The reader of MNIST's format."""
    return load_module(PLAYBOOKS / "tcp-init-mnist" / "idx.py", monkeypatch)


@pytest.fixture
def cifar(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The reader of CIFAR-10's binary format."""
    return load_module(PLAYBOOKS / "private-network" / "cifar.py", monkeypatch)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
def test_an_idx_file_as_it_is_described(
    idx: ModuleType, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    """Two pictures of 2 x 3, put together by hand."""
    file = tmp_path / "images-idx3-ubyte"
    file.write_bytes(pack(b"\0\0\x08\x03" + struct.pack(">III", 2, 2, 3) + bytes(range(12))))

    assert idx.read_idx(file).tolist() == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]


def test_what_is_written_is_read_again(idx: ModuleType, tmp_path: Path) -> None:
    """Packed and plain."""
    import torch

    numbers = torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4)
    for name in ("a.gz", "a"):
        idx.write_idx(tmp_path / name, numbers)
        assert idx.read_idx(tmp_path / name).equal(numbers)
    assert (tmp_path / "a.gz").read_bytes()[:2] == b"\x1f\x8b"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an IDX file"),
        (b"<!DOCTYPE html>", "not an IDX file"),
        (b"\0\0\x0d\x01\0\0\0\1\0\0\0\0", "of type 13"),
        (b"\0\0\x08\x03\0\0", "ends within its head"),
        (b"\0\0\x08\x01\0\0\0\5abc", "3 numbers, expected 5"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\2ab", mtime=0)[:-9], "damaged"),
    ],
    ids=["empty", "a page", "floats", "a head cut off", "numbers missing", "gzip cut off"],
)
def test_a_broken_idx_file_is_refused_by_name(
    idx: ModuleType, tmp_path: Path, content: bytes, words: str
) -> None:
    """An error page that was saved as data, half a download, another type of numbers."""
    file = tmp_path / "labels"
    file.write_bytes(content)

    with pytest.raises(ValueError, match=words) as caught:
        idx.read_idx(file)
    assert str(file) in str(caught.value)


def test_cifar_records_as_they_are_described(cifar: ModuleType, tmp_path: Path) -> None:
    """One byte of label, then the red, green and blue planes."""
    planes = bytes([255]) * 1024 + bytes([0]) * 1024 + bytes([51]) * 1024
    (tmp_path / "one.bin").write_bytes(bytes([7]) + planes)

    pictures, labels = cifar.load(tmp_path, ("one.bin",))

    assert labels.tolist() == [7]
    assert pictures.shape == (1, 3, 32, 32)
    assert [round(float(plane.mean()), 3) for plane in pictures[0]] == [1.0, -1.0, -0.6]


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "0 bytes"), (bytes(3000), "3000 bytes"), (bytes([10]) + bytes(3072), "label 10")],
    ids=["empty", "cut off", "another data set"],
)
def test_a_broken_cifar_file_is_refused(
    cifar: ModuleType, tmp_path: Path, content: bytes, words: str
) -> None:
    """Empty, cut off, of another data set."""
    (tmp_path / "data.bin").write_bytes(content)

    with pytest.raises(ValueError, match=words):
        cifar.load(tmp_path, ("data.bin",))


def test_data_that_are_in_place_stay(
    cifar: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files are made once; the second time, and where the real ones lie, nothing is changed."""
    monkeypatch.setattr(sys, "argv", ["cifar.py", str(tmp_path)])
    cifar.main()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    cifar.main()

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert set(before) == {*cifar.TRAIN, *cifar.TEST, "batches.meta.txt"}
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[2] for line in said] == [
        "made small files in CIFAR-10's format",
        "all files are there",
    ]
