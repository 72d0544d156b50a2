"""Numbers in logs and event files: what trainers print, patterns of a job, and files that anybody may have written."""

from __future__ import annotations

import math
import random
import re
import struct
from pathlib import Path

import pytest

from clusterctl.node.history import scalars
from clusterctl.node.history.scalars import (
    LogScalars,
    compile_patterns,
    find_values,
    log_files,
    thin_scalars,
)
from clusterctl.node.runtime.time_limit import TooSlowError, time_limit

LINES = [
    ("{'loss': 0.6931, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.1}",
     {"loss": 0.6931, "grad_norm": 1.25, "learning_rate": 5e-05}),
    ("Epoch 0: 100%|##| 8/8 [00:01<00:00, 12.5it/s, v_num=3, train_loss=0.12, val_loss=2]",
     {"train_loss": 0.12, "val_loss": 2.0, "it/s": 12.5}),
    (" iteration      100/  5000 | learning rate: 1.5E-04 | lm loss: 6.7E+00 | grad norm: 1.2 |",
     {"learning_rate": 1.5e-04, "lm_loss": 6.7, "grad_norm": 1.2}),
    ("step 12 loss=0.5", {"loss": 0.5}),
    ("loss: 0.25 acc: 93", {"loss": 0.25, "acc": 93.0}),
    ("epoch 1/3  loss 1.10  1234.5 tokens/s", {"loss": 1.1, "tokens/s": 1234.5}),
    ("{'learning_rate': 0.0003360331834572238, 'loss': 12.345678901234567}",
     {"learning_rate": 0.0003360331834572238, "loss": 12.345678901234567}),
    ("loss 0.5.", {"loss": 0.5}),
    ("it was lossless and glossy", {}),
    ("loss 0.5s lr 1.2.3 acc 0." + "1" * 40, {}),
    ("loss of node gpu01", {}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_what_trainers_print(line: str, expected: dict[str, float]) -> None:
    """HF, Lightning, Megatron and plain lines, without a pattern of the job."""
    assert find_values(line, {}) == expected


def test_a_number_that_is_none() -> None:
    """NaN is what a loss becomes when training has failed: it is found and kept."""
    assert math.isnan(find_values("loss: nan", {})["loss"])


def test_patterns_of_the_job_come_first() -> None:
    """What is no pattern, or has no group, is left out; the others name what they find."""
    patterns = compile_patterns({"reward": r"R=([-.\d]+)", "loss": r"L=(\d+)", "bad": "(", "none": "x"})
    assert set(patterns) == {"reward", "loss"}
    assert find_values("loss: 1.0 L=7 R=-2.5", patterns) == {"reward": -2.5, "loss": 7.0}


def test_a_pattern_that_takes_forever_is_ended() -> None:
    """The timer ends a match that would take years."""
    with pytest.raises(TooSlowError), time_limit(0.1):
        re.search(r"(a+)+$", "a" * 60 + "b")


def test_a_log_is_read_with_steps_and_times(tmp_path: Path) -> None:
    """Each value has its step; of a bar that redraws itself each state counts; very long lines do not."""
    log = tmp_path / "stdout.log"
    log.write_text("step 1 loss 3.0\n" + "x" * 3000 + " loss 9\n" + "step 2 loss 2.0\rstep 3 loss 1.0\nend\n")
    found = LogScalars({})
    found.read(str(log))
    assert [(one.step, one.value) for one in found.values["loss"]] == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert all(one.time > 1e9 for one in found.values["loss"])


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
    assert found == {"train/loss": [(5.0, 1, 2.0), (6.0, 300, 1.5)]}


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
