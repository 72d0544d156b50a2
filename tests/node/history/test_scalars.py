"""Numbers in logs and event files: what trainers print, patterns of a job, and files that anybody may have written."""

from __future__ import annotations

import random
import re
import struct
from itertools import pairwise
from pathlib import Path

import pytest

from clusterctl.node.history import scalars
from clusterctl.node.history.log_values import LineReader, LineValues
from clusterctl.node.history.scalars import (
    LogScalars,
    compile_patterns,
    log_files,
    thin_scalars,
)
from clusterctl.node.runtime.time_limit import TooSlowError, time_limit


def test_patterns_of_the_job_come_first(tmp_path: Path) -> None:
    """What is no pattern, or has no group, is left out; the others name what they find."""
    patterns = compile_patterns({"reward": r"R=([-.\d]+)", "loss": r"L=(\d+)", "bad": "(", "none": "x"})
    assert set(patterns) == {"reward", "loss"}
    log = tmp_path / "stdout.log"
    log.write_text("step 1 loss: 1.0 L=7\nR=-2.5\n")
    found = LogScalars(patterns)
    found.read(str(log))
    assert {name: [one.value for one in values] for name, values in found.values.items()} == {
        "loss": [7.0], "reward": [-2.5],
    }  # fmt: skip


def test_a_pattern_that_takes_forever_is_ended() -> None:
    """The timer ends a match that would take years."""
    with pytest.raises(TooSlowError), time_limit(0.1):
        re.search(r"(a+)+$", "a" * 60 + "b")


def test_a_log_is_read_with_steps_and_times(tmp_path: Path) -> None:
    """Each value has its step; of a bar that redraws itself each state counts; very long lines do not."""
    log = tmp_path / "stdout.log"
    log.write_text("step 1 loss 3.0\n" + "x" * 9000 + " loss 9\n" + "step 2 loss 2.0\rstep 3 loss 1.0\nend\n")
    found = LogScalars({})
    found.read(str(log))
    assert [(one.step, one.value) for one in found.values["loss"]] == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert all(one.time > 1e9 for one in found.values["loss"])


def read_log(tmp_path: Path, *lines: str) -> LogScalars:
    """Read a log of these lines."""
    log = tmp_path / "stderr.log"
    log.write_text("\n".join(lines) + "\n", "utf-8")
    found = LogScalars({})
    found.read(str(log))
    return found


def bar(step: int, total: int, rate: str = "2.00it/s", name: str = "") -> str:
    """Write a bar as tqdm does."""
    return f"{name}{100 * step // total:3d}%|###       | {step}/{total} [00:05<00:20, {rate}]"


def test_a_bar_without_a_name_is_the_trainings_if_it_lasts_longest(tmp_path: Path) -> None:
    """Trainer shows one for the training and one for each evaluation: only the first is the progress and the rate."""
    lines = [
        bar(10, 1000),
        bar(20, 1000),
        bar(1, 5, "90.0it/s"),
        bar(5, 5, "95.0it/s"),
        bar(30, 1000, "4.00s/it"),
    ]
    found = read_log(tmp_path, bar(1, 1, "64.68it/s", "Writing model shards: "), *lines)
    assert found.progress == {"step": 30, "total": 1000, "epoch": None, "epochs": None}
    rates = [(one.step, one.value) for one in found.values["steps_per_second"]]
    assert rates == [(10, 2.0), (20, 2.0), (30, 0.25)]


def test_a_bar_of_each_epoch_is_progress_in_epochs(tmp_path: Path) -> None:
    """Lightning and tqdm name the epoch: what is done of it counts, also where no number is shown beside the bar."""
    found = read_log(
        tmp_path, bar(0, 8, name="Epoch 0: "), bar(8, 8, name="Epoch 0: "), bar(4, 8, name="Epoch 1: ")
    )
    assert found.progress == {"step": None, "total": None, "epoch": 1.5, "epochs": None}
    assert [one.epoch for one in found.values["steps_per_second"]] == [0.0, 1.0, 1.5]


def test_progress_is_of_the_newest_numbers(tmp_path: Path) -> None:
    """The step of the last line with numbers; how many there will be may stand in the log's head."""
    found = read_log(
        tmp_path, "total steps 400 (warmup 2)", "step: 10  loss: 7", "step: 20  loss: 6", "saved"
    )
    assert found.progress == {"step": 20, "total": 400, "epoch": None, "epochs": None}
    assert read_log(tmp_path, "loss 3").progress is None
    assert read_log(tmp_path, "[Epoch 2/10] loss 3").progress == {
        "step": None, "total": None, "epoch": 2.0, "epochs": 10,
    }  # fmt: skip
    assert read_log(tmp_path, "Train Epoch: 1 [30000/60000 (50%)] Loss: 2").progress == {
        "step": None, "total": None, "epoch": 1.5, "epochs": None,
    }  # fmt: skip


def test_steps_that_begin_again_are_no_axis(tmp_path: Path) -> None:
    """Values of Epoch [2/5], Step [100/600] stand at their part of the epoch; steps after a checkpoint stay steps."""
    lines = [f"Epoch [{epoch}/5], Step [{step}/600], Loss: 0.5" for epoch in (1, 2) for step in (300, 600)]
    assert [(one.step, one.epoch) for one in read_log(tmp_path, *lines).values["loss"]] == [
        (None, 1.5), (None, 2.0), (None, 2.5), (None, 3.0),
    ]  # fmt: skip
    again = read_log(tmp_path, *(f"step {step} loss 1" for step in (800, 900, 1000, 900, 1000)))
    assert [one.step for one in again.values["loss"]] == [800, 900, 1000, 900, 1000]
    lines = [f"{bar(step, 30)[:-1]}, loss=0.5]" for _ in range(2) for step in (10, 20, 30)]
    assert {(one.step, one.epoch) for one in read_log(tmp_path, *lines).values["loss"]} == {(None, None)}


def test_a_long_log_is_read_in_pieces_over_its_whole_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beginning, the end and much between, for the price of a short one."""
    monkeypatch.setattr(scalars, "PIECE", 4000)
    monkeypatch.setattr(scalars, "MAX_READ", 40_000)
    log = tmp_path / "stdout.log"
    log.write_text("".join(f"step {number} loss {number}.5\n" for number in range(20_000)))
    found = LogScalars({})
    found.read(str(log))
    steps = [one.step for one in found.values["loss"] if one.step is not None]
    assert len(steps) < 4000 and steps == sorted(steps) and steps[0] == 0 and steps[-1] > 17_000
    assert all(one.value == one.step + 0.5 for one in found.values["loss"] if one.step is not None)


def test_a_log_that_takes_too_long_is_coarse_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is over, what was read reaches from the first step to the last, and progress is the newest."""
    monkeypatch.setattr(scalars, "PIECE", 4000)
    left = iter(range(2000))

    def read_until_the_time_is_over(reader: LineReader, line: str) -> LineValues:
        if next(left, None) is None:
            raise TooSlowError
        return read(reader, line)

    read = LineReader.read
    monkeypatch.setattr(LineReader, "read", read_until_the_time_is_over)
    log = tmp_path / "stdout.log"
    log.write_text("".join(f"step {number} loss {number}.5\n" for number in range(20_000)))
    found = LogScalars({})
    with pytest.raises(TooSlowError):
        found.read(str(log))
    steps = [one.step for one in found.values["loss"] if one.step is not None]
    assert found.cut and steps == sorted(steps) and (steps[0], steps[-1]) == (0, 19_999)
    assert max(after - before for before, after in pairwise(steps)) < 4000
    assert found.progress == {"step": 19_999, "total": None, "epoch": None, "epochs": None}


def test_each_line_of_a_log_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece ends within a line as well as between two: none is lost, halved or read twice."""
    log = tmp_path / "stdout.log"
    log.write_text("".join(f"step {number} loss 1\n" for number in range(300)) + "step 300 loss 1")
    for size in (64, 100, 101, 4096):
        monkeypatch.setattr(scalars, "PIECE", size)
        found = LogScalars({})
        found.read(str(log))
        assert [one.step for one in found.values["loss"]] == list(range(301))


def test_thinned_values_keep_both_ends() -> None:
    """The last one is what everybody looks for."""
    values = [scalars.Scalar(float(number), number, float(number)) for number in range(1000)]
    kept = thin_scalars(values, 10)
    assert len(kept) == 10 and kept[0].step == 0 and kept[-1].step == 999


def test_only_logs_of_the_run_are_read(tmp_path: Path) -> None:
    """The lowest rank's; a record that another node wrote leads nowhere else."""
    ranks = {
        "3": {"stdout": "a/3.log", "stderr": None},
        "2": {"stdout": "a/2.log", "stderr": "../../etc/passwd"},
    }
    assert log_files(str(tmp_path), [ranks, {}]) == [str(tmp_path / "a/2.log")]


def varint(number: int) -> bytes:
    """Write a number as protobuf does."""
    written = b""
    while number > 127:
        written += bytes([number & 127 | 128])
        number >>= 7
    return written + bytes([number])


def block(number: int, content: bytes) -> bytes:
    """Write a field of bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(time: float, step: int, tag: str, value: float, *, tensor: bool = False) -> bytes:
    """Write a record with one scalar, as TensorBoard's writers do."""
    number = struct.pack("<f", value)
    inner = block(8, b"\x08\x01" + block(4, number)) if tensor else b"\x15" + number
    summary = block(1, block(1, tag.encode()) + inner)
    message = b"\x09" + struct.pack("<d", time) + b"\x10" + varint(step) + block(5, summary)
    return struct.pack("<Q", len(message)) + bytes(4) + message + bytes(4)


def test_scalars_of_tensorboard() -> None:
    """Old and new kinds of values, by tag; a record that is cut off ends the file."""
    content = event(5.0, 1, "train/loss", 2.0) + event(6.0, 300, "train/loss", 1.5, tensor=True)
    found = scalars.read_event_file(content + event(7.0, 3, "x", 1.0)[:-9])
    assert found == {"train/loss": [scalars.Scalar(5.0, 1, 2.0), scalars.Scalar(6.0, 300, 1.5)]}


def test_a_file_that_is_anything_costs_little() -> None:
    """Noise, lies about lengths, and spoiled records: values or nothing, never an error."""
    honest = b"".join(event(float(step), step, "loss", 1.0) for step in range(20))
    chance = random.Random(7)
    for _ in range(300):
        content = bytearray(honest)
        for _ in range(chance.randrange(1, 12)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        scalars.read_event_file(bytes(content))
        scalars.read_event_file(chance.randbytes(200))
    assert scalars.read_event_file(struct.pack("<Q", 1 << 62) + bytes(40)) == {}


def test_event_files_are_found_below_the_outputs(tmp_path: Path) -> None:
    """Also in folders within; a link to elsewhere is none."""
    inside = tmp_path / "runs" / "one"
    inside.mkdir(parents=True)
    (inside / "events.out.tfevents.1.host").write_bytes(event(5.0, 1, "loss", 1.0))
    (inside / "events.out.tfevents.2.link").symlink_to("/etc/passwd")
    assert scalars.find_event_files([str(tmp_path), "/nonexistent"]) == [
        str(inside / "events.out.tfevents.1.host")
    ]
