"""How fast a run is, by plain values: each part of the sentence, each reason, and each evidence that is too thin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from clusterctl.plans.diagnose.evidence import BusyProcess, Frame, NodeEvidence, RankEvidence
from clusterctl.plans.diagnose.hang import Judgement
from clusterctl.plans.diagnose.slow import Lateness, Slowness
from clusterctl.plans.runs.history import History, Launched, Machine, NodeRecord, ScalarPoint, Scalars, shift
from clusterctl.plans.runs.judge_speed import judge_speed, name_rate
from clusterctl.plans.runs.speed import SpeedVerdict, render_rate, speed_to_json
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import SUCCEEDED
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import use_language

RUN = RunId("digits-20261123T070708-923c")
BEGAN, SECONDS = 1_800_000_000.0, 600
NAMES = ("gpu01", "gpu02", "gpu03")
LOADER = Frame("/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 700, "__next__")


@contextmanager
def in_chinese() -> Iterator[None]:
    """Speak Chinese meanwhile."""
    use_language("zh")
    try:
        yield
    finally:
        use_language("en")


def make_parts(seconds: float = SECONDS, state: str = "SUCCEEDED") -> dict[str, NodeState | None]:
    """Make three nodes with one rank each."""
    raw = {"run": RUN, "job": "digits", "nnodes": 3, "state": state, "began": BEGAN, "since": BEGAN + seconds}
    return {
        name: parse_state(
            Untrusted({**raw, "node": name, "node_rank": number, "ranks": {str(number): {"local_rank": 0}}})
        )
        for number, name in enumerate(NAMES)
    }


def make_record(
    name: str, gpu: Mapping[str, float] | None = None, cpu: float = 0.3, **changes: Any
) -> NodeRecord:
    """Make samples of a node with one GPU; in the first minute, while it warms up, that does nothing."""
    times = tuple(BEGAN + 2 * number for number in range(SECONDS // 2))
    values = {"busy": 93.0, "power": 640.0, "lanes": 16.0, "heat": 0.0, "brake": 0.0, **(gpu or {})}
    columns = {
        ("gpu", "0", quantity): tuple(0.0 if time < BEGAN + 60 else value for time in times)
        for quantity, value in values.items()
    }
    history = History(
        times, {**columns, ("node", "", "cpu"): (cpu,) * len(times)}, 2.0, Machine(64, lanes={0: 16})
    )
    return replace(NodeRecord(name, history, launched=Launched(gpus=(0,), nproc=1)), **changes)


def make_records(**changes: Any) -> dict[str, NodeRecord]:
    """Make three nodes of which the second has something else."""
    return {name: make_record(name, **(changes if name == "gpu02" else {})) for name in NAMES}


def make_scalars(name: str, value: float, step: int | None = None) -> Scalars:
    """Write a number every ten seconds, in the first minute ten times as much; `step` is how many steps apart."""
    points = tuple(
        ScalarPoint(BEGAN + 10 * at, None if step is None else at * step, value if at > 6 else 10 * value)
        for at in range(60)
    )
    return Scalars(name, "log", len(points), points)


def make_slow(waits: Sequence[float], suspects: Sequence[int] = (), **changes: Any) -> Slowness:
    """Make the judgement of 200 collectives in which ranks waited so much, and are late if they are suspects."""
    rows = tuple(Lateness(rank, f"gpu{rank + 1:02}", 0.9, 0.1, 0.3) for rank in range(len(waits)))
    judgement = Judgement("CC-HANG-011" if suspects else "CC-HANG-012", "", {}, tuple(suspects))
    return replace(Slowness(judgement, rows, 200, 20.0, dict(enumerate(waits))), **changes)


def sentence_of(
    records: Mapping[str, NodeRecord] | None = None, slow: Slowness | None = None, **parts: Any
) -> str:
    """Return the sentence; empty if there is none."""
    state = parts.get("state", SUCCEEDED)
    verdict = judge_speed(state, make_parts(**parts), records or make_records(), slow, {}, BEGAN + SECONDS)
    return verdict.sentence if verdict else ""


LATE = make_slow((0.31, 0.0, 0.31), [1])
BUSIEST = BusyProcess("stress", 4711, 32.0)


def with_evidence(**ranks: Any) -> NodeEvidence:
    """Make what the agent of the second node has kept of its rank."""
    busiest = ranks.pop("busiest", None)
    return NodeEvidence("gpu02", (RankEvidence(1, "gpu02", **ranks),), 0.1, busiest=busiest)


REASONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "heat": (
        {"gpu": {"heat": 0.6}},
        ", whose clocks were lowered by heat in 60 % of the time",
        "，其时钟在 60 % 的时间里因过热而降低",
    ),
    "hardware": (
        {"gpu": {"brake": 0.5}},
        ", whose clocks were lowered by the hardware in 50 % of the time",
        "，其时钟在 50 % 的时间里被硬件降低",
    ),
    "pcie": (
        {"gpu": {"lanes": 8.0}},
        ", whose GPU uses 8 of 16 PCIe lanes",
        "，其 GPU 只用了 16 条 PCIe 通道中的 8 条",
    ),
    "loader": (
        {"collectives": with_evidence(frames=(LOADER,))},
        ", which was waiting for its data loader",
        "，它当时在等待数据加载器（DataLoader）",
    ),
    "process": (
        {"collectives": with_evidence(busiest=BUSIEST)},
        ", where another program, stress (pid 4711), uses 32.0 cores",
        "，该节点上的其他程序 stress (pid 4711) 占用 32.0 个核",
    ),
    "cpu": ({"cpu": 0.97}, ", whose CPU was 97 % busy", "，其 CPU 占用率为 97 %"),
}


@pytest.mark.parametrize("kind", REASONS)
def test_a_slow_rank_is_named_with_its_reason(kind: str) -> None:
    """In both languages; JSON has the English and the kind."""
    changes, english, chinese = REASONS[kind]
    records = make_records(**changes)
    text = sentence_of(records, LATE)
    assert text.startswith(f"speed: ranks waited 31 % of each step for rank 1 (gpu02){english}; GPUs ")
    with in_chinese():
        assert f"等待 rank 1 (gpu02){chinese}" in sentence_of(records, LATE)
        found = judge_speed(SUCCEEDED, make_parts(), records, LATE, {}, BEGAN + SECONDS)
        assert found is not None
        document = speed_to_json(found)
    assert (document["sentence"], document["reason"], document["reason_node"]) == (text, kind, "gpu02")
    assert (document["waited"], document["waited_for"], document["waited_nodes"]) == (0.31, [1], ["gpu02"])


@pytest.mark.parametrize("kind", REASONS)
def test_what_all_nodes_have_is_no_reason(kind: str) -> None:
    """All GPUs are hot, all processors busy, all ranks load: none of that makes one of them slow."""
    changes = REASONS[kind][0]
    records = {name: make_record(name, **changes) for name in NAMES}
    if kind == "loader":
        ranks = tuple(RankEvidence(rank, name, frames=(LOADER,)) for rank, name in enumerate(NAMES))
        records = {name: make_record(name, collectives=NodeEvidence(name, ranks, 0.1)) for name in NAMES}
    assert sentence_of(records, LATE).startswith(
        "speed: ranks waited 31 % of each step for rank 1 (gpu02); GPUs "
    )


@pytest.mark.parametrize("clock", [-0.4, 0.4, 3600.0])
def test_how_a_clock_was_measured_changes_nothing(clock: float) -> None:
    """Each command measures the clocks of nodes anew; the same samples count, also at the end of the first minute."""
    points = tuple(ScalarPoint(BEGAN + 10 * at, at * at, 1.0) for at in range(60))
    records = {name: make_record(name, scalars=(Scalars("loss", "log", 60, points),)) for name in NAMES}
    moved = {name: shift(record, clock) for name, record in records.items()}
    assert sentence_of(moved, LATE) == sentence_of(records, LATE) != ""


def test_a_healthy_run_is_not_accused() -> None:
    """The rates of the log, the GPUs after the first minute, and how little was waited."""
    scalars = (make_scalars("tokens_per_second", 412_000.0), make_scalars("loss", 1.0, step=24))
    records = make_records()
    records["gpu01"] = make_record("gpu01", scalars=scalars)
    text = sentence_of(records, make_slow((0.04, 0.03, 0.05), [1]))
    assert text == "speed: 412 k tokens/s, 2.4 steps/s; GPUs 93 % busy, 640 W; ranks waited 4 % of each step"
    with in_chinese():
        text = sentence_of(records, make_slow((0.04, 0.03, 0.05)))
    assert (
        text == "速度：412 k tokens/s，2.4 steps/s；GPU 占用率 93 %，640 W；每步中各 rank 有 4 % 的时间在等待"
    )


def test_waiting_that_is_uneven_on_gpus_or_for_nobody_in_particular() -> None:
    """The worst is named where it is far from the median; what GPUs wait is not known; no rank is named by chance."""
    assert "waited 10 % (at most 40 %) of each step for rank 1" in sentence_of(
        slow=make_slow((0.1, 0.0, 0.1, 0.4), [1])
    )
    on_gpu = make_slow((0.04, 0.04, 0.04), on_gpu=True)
    assert sentence_of(slow=on_gpu).endswith("ranks waited 4 % of each step (GPU time not included)")
    by_turns = make_slow((0.2, 0.21, 0.19))
    assert sentence_of(slow=by_turns).endswith("ranks waited 20 % of each step, each time for another")
    both = make_slow((0.3, 0.0, 0.0), [1, 2])
    assert "for ranks 1-2 (gpu[02-03])" in sentence_of(slow=both)


@pytest.mark.parametrize(
    ("gpu", "text"),
    [
        ({"heat": 0.6}, "the clocks of a GPU of gpu02 were lowered by heat in 60 % of the time"),
        ({"brake": 0.6}, "the clocks of a GPU of gpu02 were lowered by the hardware in 60 % of the time"),
        ({"lanes": 4.0}, "a GPU of gpu02 uses 4 of 16 PCIe lanes"),
    ],
)
def test_a_gpu_unlike_the_others_is_named_where_no_rank_is_known_to_wait(
    gpu: dict[str, float], text: str
) -> None:
    """What NCCL waits for on GPUs is in no record of collectives."""
    assert sentence_of(make_records(gpu=gpu)) == f"speed: GPUs 93 % busy, 640 W; {text}"
    assert sentence_of({name: make_record(name, gpu) for name in NAMES}) == "speed: GPUs 93 % busy, 640 W"


def test_thin_evidence_gives_no_sentence() -> None:
    """A run of less than 30 s, samples of fewer than half of the nodes, a run of which nothing is known."""
    assert sentence_of(seconds=29.0) == "" and sentence_of(seconds=31.0) != ""
    assert sentence_of({"gpu01": make_record("gpu01")}, LATE) == ""
    assert sentence_of({name: NodeRecord(name) for name in NAMES}, LATE) == ""
    nothing = {name: replace(make_record(name), launched=Launched()) for name in NAMES}
    assert sentence_of(nothing) == ""
    assert sentence_of(nothing, LATE) == "speed: ranks waited 31 % of each step for rank 1 (gpu02)"
    assert (
        sentence_of(nothing, replace(LATE, collectives=19)) == ""
        and sentence_of(nothing, replace(LATE, waits={})) == ""
    )
    assert judge_speed(SUCCEEDED, dict.fromkeys(NAMES), make_records(), LATE, {}, BEGAN) is None


@pytest.mark.parametrize("state", ["FAILED", "LOST", "STALLED", "TIMEOUT"])
def test_a_run_that_failed_or_stalls_has_no_speed(state: str) -> None:
    """In no command: there the cause is what counts; one that was stopped has one."""
    assert sentence_of(state=state) == ""
    assert sentence_of(state="STOPPED") == sentence_of() != ""


def test_rates_are_those_of_rank_0() -> None:
    """Its node alone reads its logs for `status`; a report has those of the others too, and tells the same."""
    records = make_records(scalars=(make_scalars("tokens_per_second", 412_000.0),))
    assert sentence_of(records) == "speed: GPUs 93 % busy, 640 W"
    records["gpu01"] = make_record("gpu01", scalars=(make_scalars("tokens_per_second", 9.0),))
    assert sentence_of(records) == "speed: 9 tokens/s; GPUs 93 % busy, 640 W"


def test_a_run_without_scalars_has_the_rest() -> None:
    """And numbers that are no rates, of the warm-up alone, or without order change nothing."""
    for points in ((), (ScalarPoint(BEGAN + 5, 1, 9.0),) * 9, (ScalarPoint(BEGAN + 500, 9, None),) * 9):
        records = make_records()
        records["gpu01"] = make_record("gpu01", scalars=(Scalars("tok/s", "log", 9, points),))
        assert sentence_of(records) == "speed: GPUs 93 % busy, 640 W"
    records["gpu01"] = make_record("gpu01", scalars=(make_scalars("loss", 2.0, step=-3),))
    assert sentence_of(records) == "speed: GPUs 93 % busy, 640 W"


def test_a_live_run_is_judged_until_now() -> None:
    """What came last counts."""
    assert sentence_of(state="RUNNING") == "speed: GPUs 93 % busy, 640 W"


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("tokens_per_second", "tokens/s"),
        ("train/tokens_per_sec", "tokens/s"),
        ("tok/s", "tokens/s"),
        ("throughput/tokens/s", "tokens/s"),
        ("tps", "tokens/s"),
        ("train_samples_per_second", "samples/s"),
        ("samples/s", "samples/s"),
        ("img/s", "images/s"),
        ("it/s", "steps/s"),
        ("train_steps_per_second", "steps/s"),
        ("eval_samples_per_second", None),
        ("eval/tokens_per_second", None),
        ("tokens_per_second_per_gpu", "tokens/s/GPU"),
        ("tok/s/gpu", "tokens/s/GPU"),
        ("loss", None),
        ("throughput", None),
    ],
)
def test_names_of_rates(name: str, unit: str | None) -> None:
    """What a log calls a rate of its training."""
    assert name_rate(name) == unit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0312, "0.031"),
        (2.44, "2.4"),
        (9.96, "10"),
        (42.4, "42.4"),
        (412.0, "412"),
        (999.9, "1 k"),
        (7_240.0, "7.24 k"),
        (412_000.0, "412 k"),
        (3_140_000.0, "3.14 M"),
        (5e12, "5000000 M"),
    ],
)
def test_rates_are_short(value: float, text: str) -> None:
    """Two or three digits."""
    assert render_rate(value) == text


def test_hostile_records_are_survived() -> None:
    """Ranks, GPUs and lanes that are none, and names with control characters."""
    evil = replace(
        make_record("gpu02", {"lanes": -5.0, "heat": 1e30, "busy": 1e30}),
        launched=Launched(gpus=(0, 7, 10**9)),
        collectives=with_evidence(busiest=BusyProcess("\x1b[31m\n", 1, 1e5)),
    )
    assert isinstance(
        sentence_of({**make_records(), "gpu02": evil}, make_slow((9e9, float("inf"), 0.1), [77])), str
    )
    assert SpeedVerdict().rates == {}
