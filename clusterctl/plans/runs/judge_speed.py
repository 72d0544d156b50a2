"""Judges how fast a run is, by what its nodes have on record of it.

A part of the verdict is there only where its evidence is: rates by the numbers in the log of the first rank, GPUs by
the samples of the nodes, waiting by the collectives that ranks have recorded. The first part of the time, in which a
run warms up, counts for none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from clusterctl.plans.diagnose.evidence import RankEvidence
from clusterctl.plans.diagnose.slow import MIN_WAITS, Slowness, judge_slowness
from clusterctl.plans.runs.history import NodeRecord, ScalarPoint, Scalars, pick
from clusterctl.plans.runs.speed import MIN_WAIT, UNITS, Reason, ReasonKind, SpeedVerdict, Wait
from clusterctl.plans.runs.state import NO_OFFSETS, Parts, run_ended, run_seconds, taking_part
from clusterctl.protocol.states import LOST, RUNNING, STOPPED, SUCCEEDED, UNKNOWN, RunState

JUDGED_STATES = (RUNNING, SUCCEEDED, STOPPED)
MIN_SECONDS = 30.0  # seconds of running
MIN_NODES = 0.5  # of the nodes
MIN_SAMPLES, MIN_VALUES = 3, 3
MIN_SPAN = 10.0  # seconds between the first and the last step
WARM_UP, MAX_WARM_UP = 0.2, 60.0  # of the time; seconds
MIN_LOWERED = 0.2  # of the time: how much more than on other GPUs
MIN_BUSY = 0.9  # of the processors
MIN_USED = 0.25  # of the processors
LOADER = "torch/utils/data/dataloader.py"

# What a name in a log is a rate of. Those of an evaluation are left out.
_SECOND = r"(?:/s|/sec|_s|_per_s|_per_sec|_per_second)"
RATES: Mapping[str, str] = {
    "tokens/s": rf"(?:tokens?|toks?){_SECOND}|tps",
    "tokens/s/GPU": rf"(?:tokens?|toks?){_SECOND}(?:/|_per_)(?:gpu|device)",
    "samples/s": rf"(?:samples?|examples?|sequences?|seqs?){_SECOND}",
    "images/s": rf"(?:images?|imgs?){_SECOND}",
    "steps/s": rf"(?:steps?|its?|iters?|iterations?|batch|batches){_SECOND}",
}
EVALUATION = re.compile(r"(?:^|[/_.])(?:eval|val|valid|validation|test|predict)[/_.]")


@dataclass(frozen=True)
class Gpu:
    """What the samples have of a GPU of the run, on average; `lowered` is which share of the time its clocks were."""

    node: str
    rank: int | None
    busy: float | None
    watts: float | None
    lowered: Mapping[ReasonKind, float]
    lanes: tuple[int, int] | None


@dataclass(frozen=True)
class Spans:
    """When each node ran after it had warmed up, by our clock."""

    by_node: Mapping[str, tuple[float, float]]

    def choose(self, node: str, times: Sequence[float]) -> list[int]:
        """Return the indices of the times that count."""
        begin, end = self.by_node.get(node, (0.0, 0.0))
        return [index for index, time in enumerate(times) if begin <= time <= end]


def has_speed(state: RunState, parts: Parts, offsets: Mapping[str, float], now: float) -> bool:
    """Return whether the speed of a run counts, not the cause of its end or stall, and it ran long enough for that."""
    seconds = run_seconds(parts, now, offsets) if state in JUDGED_STATES else None
    return seconds is not None and seconds >= MIN_SECONDS


def judge_waiting(records: Mapping[str, NodeRecord]) -> Slowness | None:
    """Judge how the ranks arrived in the collectives that the nodes kept; None if they have kept none."""
    kept = [record.collectives for record in records.values() if record.collectives is not None]
    return judge_slowness(kept) if kept else None


def judge_speed(
    state: RunState,
    parts: Parts,
    records: Mapping[str, NodeRecord],
    slow: Slowness | None,
    offsets: Mapping[str, float] = NO_OFFSETS,
    now: float = 0.0,
) -> SpeedVerdict | None:
    """Judge how fast a run is; None where `has_speed` is not, too few nodes have samples, or nothing is known.

    `now` counts for a run that lives; `offsets` are the nodes' clocks minus ours.
    """
    if not has_speed(state, parts, offsets, now):
        return None
    spans = _find_spans(parts, records, now)
    sampled = [
        name
        for name, record in records.items()
        if len(spans.choose(name, record.history.times)) >= MIN_SAMPLES
    ]
    if len(sampled) < MIN_NODES * len(taking_part(parts)) or not sampled:
        return None
    gpus = [gpu for name in sampled for gpu in _read_gpus(parts, records[name], spans)]
    busy, watts = pick([gpu.busy for gpu in gpus]), pick([gpu.watts for gpu in gpus])
    wait = _judge_wait(slow)
    verdict = SpeedVerdict(
        rates=_find_rates(parts, records, spans),
        gpus=len(gpus),
        busy=mean(busy) if busy else None,
        watts=mean(watts) if watts else None,
        wait=wait,
        reason=_find_reason(wait, gpus, records, spans),
    )
    return verdict if verdict.rates or busy or wait is not None else None


def _find_spans(parts: Parts, records: Mapping[str, NodeRecord], now: float) -> Spans:
    """Find when each node ran, by the clock that its samples are given in: so each command finds the same samples."""
    last_end = run_ended(parts)
    found = {}
    for name, record in records.items():
        part = parts.get(name)
        if part is None or part.began is None:
            continue
        begin, end = part.began + record.clock, now if last_end is None else last_end + record.clock
        if last_end is not None and part.state not in (LOST, UNKNOWN):
            end = part.since + record.clock
        found[name] = begin + min(MAX_WARM_UP, WARM_UP * (end - begin)), end
    return Spans(found)


# rates


def name_rate(name: str) -> str | None:
    """Return the unit of a rate by its name in a log; None if it is no rate of the training."""
    lower = name.lower()
    if EVALUATION.search(lower):
        return None
    last = re.sub(r"^train_", "", re.split(r"[/.](?!s|gpu|device)", lower)[-1])
    return next((unit for unit, pattern in RATES.items() if re.fullmatch(pattern, last)), None)


def _find_rates(parts: Parts, records: Mapping[str, NodeRecord], spans: Spans) -> dict[str, float]:
    """Return each rate once, of the node of rank 0, which each command asks; steps by their numbers where these are."""
    first = [name for name, part in parts.items() if part and any(rank.rank == 0 for rank in part.ranks)]
    found: dict[str, float] = {}
    for name in filter(records.__contains__, first):
        if (steps := _count_steps(records[name].scalars, name, spans)) is not None:
            found.setdefault("steps/s", steps)
        for scalars in records[name].scalars:
            unit, values = name_rate(scalars.name), _settled(scalars, name, spans)
            known = [value for point in values if (value := point.value) is not None and value > 0]
            if unit is not None and len(known) >= MIN_VALUES:
                found.setdefault(unit, median(known))
    return {unit: found[unit] for unit in UNITS if unit in found}


def _settled(scalars: Scalars, node: str, spans: Spans) -> list[ScalarPoint]:
    return [scalars.points[index] for index in spans.choose(node, [point.time for point in scalars.points])]


def _count_steps(all_scalars: Iterable[Scalars], node: str, spans: Spans) -> float | None:
    """Return the steps per second by the numbers of steps; None where they do not rise for long enough."""
    found: list[tuple[int, float]] = []
    for scalars in all_scalars:
        steps = [
            (point.time, point.step) for point in _settled(scalars, node, spans) if point.step is not None
        ]
        if len(steps) >= MIN_VALUES:
            (begin, first), (end, last) = steps[0], steps[-1]
            if end - begin >= MIN_SPAN and last > first and steps == sorted(steps):
                found.append((len(steps), (last - first) / (end - begin)))
    return max(found)[1] if found else None


# GPUs


def _read_gpus(parts: Parts, record: NodeRecord, spans: Spans) -> list[Gpu]:
    """Read the GPUs that the run was given on a node."""
    history, part = record.history, parts.get(record.node)
    indices = spans.choose(record.node, history.times)
    ranks = {rank.local_rank: rank.rank for rank in part.ranks} if part else {}
    chosen = record.launched.gpus
    has_ranks = len(chosen) == len(ranks)

    def average(index: int, quantity: str) -> float | None:
        values = history.values("gpu", str(index), quantity)
        known = pick([values[index] for index in indices]) if values else []
        return mean(known) if known else None

    found = []
    for number, index in enumerate(chosen):
        lanes, most = average(index, "lanes"), history.machine.lanes.get(index)
        busy = average(index, "busy")
        found.append(
            Gpu(
                node=record.node,
                rank=ranks.get(number) if has_ranks else None,
                busy=None if busy is None else busy / 100,
                watts=average(index, "power"),
                lowered={"heat": average(index, "heat") or 0.0, "hardware": average(index, "brake") or 0.0},
                lanes=(round(lanes), most) if lanes and most else None,
            )
        )
    return found


# waiting


def _judge_wait(slow: Slowness | None) -> Wait | None:
    if slow is None or slow.collectives < MIN_WAITS or len(slow.waits) < 2:
        return None
    suspects = slow.judgement.suspects
    shares = [share for rank, share in slow.waits.items() if rank not in suspects] or [*slow.waits.values()]
    share, worst = median(shares), max(shares)
    if share < MIN_WAIT:
        suspects = ()
    nodes = tuple(dict.fromkeys(row.node for row in slow.rows if row.rank in suspects))
    return Wait(share, worst, suspects, nodes, slow.on_gpu)


# reasons


def _find_reason(
    wait: Wait | None, gpus: Sequence[Gpu], records: Mapping[str, NodeRecord], spans: Spans
) -> Reason | None:
    """Find what is wrong with the node that is waited for, or else with a GPU that is unlike the others."""
    if wait is None or not wait.ranks:
        return _find_unlike(gpus)
    own = [gpu for gpu in gpus if gpu.rank in wait.ranks]
    own = own or [gpu for gpu in gpus if gpu.node in wait.nodes]
    others = [gpu for gpu in gpus if gpu not in own]
    reasons = [_compare_gpus(own, others)] if own else []
    reasons.append(_find_loader(wait, records))
    reasons += [_find_load(node, records, spans) for node in wait.nodes]
    return next((reason for reason in reasons if reason is not None), None)


def _find_unlike(gpus: Sequence[Gpu]) -> Reason | None:
    reasons = [_compare_gpus([gpu], [other for other in gpus if other is not gpu]) for gpu in gpus]
    return max((reason for reason in reasons if reason), key=lambda reason: reason.share, default=None)


def _compare_gpus(own: Sequence[Gpu], others: Sequence[Gpu]) -> Reason | None:
    """Return why GPUs are slower than the others: lowered clocks, or fewer PCIe lanes than they have."""
    kinds: tuple[ReasonKind, ReasonKind] = ("heat", "hardware")
    for kind in kinds:
        worst = max(own, key=lambda gpu: gpu.lowered[kind])
        usual = median(gpu.lowered[kind] for gpu in others) if others else 0.0
        if worst.lowered[kind] - usual >= MIN_LOWERED:
            return Reason(kind, worst.node, worst.lowered[kind])
    for gpu in own:
        if gpu.lanes is not None and gpu.lanes[0] < gpu.lanes[1]:
            usual_lanes = [other.lanes[0] for other in others if other.lanes is not None]
            if not usual_lanes or gpu.lanes[0] < median(usual_lanes):
                return Reason("pcie", gpu.node, lanes=gpu.lanes)
    return None


def _find_loader(wait: Wait, records: Mapping[str, NodeRecord]) -> Reason | None:
    """Return whether the ranks were in their data loader when all were asked, and most others were not."""
    ranks = [rank for record in records.values() if record.collectives for rank in record.collectives.ranks]
    named = [rank for rank in ranks if rank.rank in wait.ranks]
    others = [rank for rank in ranks if rank.rank not in wait.ranks]
    if not named or not all(map(_loads, named)) or sum(map(_loads, others)) * 2 > len(others):
        return None
    return Reason("loader", named[0].node)


def _loads(rank: RankEvidence) -> bool:
    return any(frame.file.endswith(LOADER) for frame in rank.frames)


def _find_load(node: str, records: Mapping[str, NodeRecord], spans: Spans) -> Reason | None:
    """Return whether another program, or the run itself, takes the processors of a node, and not of most others."""
    found = {name: _name_load(record, spans) for name, record in records.items()}
    own, others = found.get(node), [reason for name, reason in found.items() if name != node]
    same = sum(own is not None and other is not None and other.kind == own.kind for other in others)
    return None if 2 * same > len(others) else own


def _name_load(record: NodeRecord, spans: Spans) -> Reason | None:
    """Return what takes the processors of a node, if anything does."""
    busiest, cores = record.collectives.busiest if record.collectives else None, record.history.machine.cores
    if busiest is not None and cores and busiest.cores >= max(1.0, MIN_USED * cores):
        return Reason("process", record.node, process=busiest)
    load = _measure_load(record, spans)
    return Reason("cpu", record.node, load) if load is not None and load >= MIN_BUSY else None


def _measure_load(record: NodeRecord, spans: Spans) -> float | None:
    values = record.history.values("node", "", "cpu")
    known = (
        pick([values[index] for index in spans.choose(record.node, record.history.times)]) if values else []
    )
    return mean(known) if known else None
