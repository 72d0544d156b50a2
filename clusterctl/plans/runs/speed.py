"""How fast a run is, in one sentence: its rates, how busy its GPUs are, and for which rank the others wait, and why.

Not here: how that is found out (`judge_speed`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Literal

from clusterctl.plans.diagnose.evidence import BusyProcess
from clusterctl.plans.diagnose.hang import name_ranks
from clusterctl.specs.nodeset import fold_names
from clusterctl.translation import english_of, to_translate, tr, trn

if TYPE_CHECKING:
    from clusterctl.plans.runs.documents import SpeedEntry

MIN_WAIT = 0.05  # of a step, from which the rank that is waited for is named
UNEVEN = 0.1  # of a step: how much more than the others a rank waits
MORE, MUCH_MORE = 1e3, 1e6
UNITS = (
    "tokens/s",
    "tokens/s/GPU",
    "samples/s",
    "images/s",
    "steps/s",
)  # of rates, in the order in which they are shown

ReasonKind = Literal["heat", "hardware", "pcie", "loader", "process", "cpu"]


@dataclass(frozen=True)
class Wait:
    """Which share of a step ranks waited: the median, the worst, and for which ranks, if it is always the same.

    `on_gpu`: only what Python waited with is known, not what GPUs did.
    """

    share: float
    worst: float
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    on_gpu: bool = False


@dataclass(frozen=True)
class Reason:
    """Why a node is slow; `share` is of the time or the processors, `lanes` are those in use and the most."""

    kind: ReasonKind
    node: str
    share: float = 0.0
    lanes: tuple[int, int] = (0, 0)
    process: BusyProcess | None = None


@dataclass(frozen=True)
class SpeedVerdict:
    """How fast a run is; rates by their unit, `busy` from 0 to 1 and watts are of one GPU on average."""

    rates: Mapping[str, float] = field(default_factory=dict)
    gpus: int = 0
    busy: float | None = None
    watts: float | None = None
    wait: Wait | None = None
    reason: Reason | None = None

    @property
    def sentence(self) -> str:
        """Return it in the user's language, as a terminal shows it."""
        return tr("speed: {text}", text=self.text)

    @property
    def names_rank(self) -> bool:
        """Return whether it is known for which ranks the others wait."""
        return self.wait is not None and bool(self.wait.ranks)

    @property
    def text(self) -> str:
        """Return what is known in the user's language: the rank that is waited for first, if there is one."""
        waited = [] if self.wait is None else [_describe_wait(self.wait, self.reason)]
        parts = [*_describe_rates(self.rates), *_describe_gpus(self)]
        if self.reason is not None and not self.names_rank:
            parts.append(_describe_reason(self.reason))
        parts = [*waited, *parts] if self.names_rank else [*parts, *waited]
        return _join(parts, to_translate("{first}; {more}"))


def _join(texts: Sequence[str], form: str) -> str:
    """Join texts so that their English stays known."""
    return reduce(lambda first, more: tr(form, first=first, more=more), texts)


def _describe_rates(rates: Mapping[str, float]) -> list[str]:
    texts = [f"{render_rate(value)} {unit}" for unit, value in rates.items()]
    return [_join(texts, to_translate("{first}, {more}"))] if texts else []


def render_rate(value: float) -> str:
    """Write a number with two or three digits: `412 k`, `2.4`, `0.031`."""
    for limit, unit in ((MUCH_MORE, " M"), (MORE, " k")):
        if value >= limit * 0.9995:
            return f"{value / limit:.3g}{unit}" if value < limit * MORE else f"{value / limit:.0f}{unit}"
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _describe_gpus(verdict: SpeedVerdict) -> list[str]:
    if verdict.busy is None:
        return []
    facts = {"busy": _percent(verdict.busy), "watts": f"{verdict.watts or 0.0:.0f} W"}
    if verdict.watts is None:
        return [trn("GPU {busy} busy", "GPUs {busy} busy", verdict.gpus, **facts)]
    return [trn("GPU {busy} busy, {watts}", "GPUs {busy} busy, {watts}", verdict.gpus, **facts)]


def _describe_wait(wait: Wait, reason: Reason | None) -> str:
    share = _percent(wait.share)
    if wait.worst - wait.share >= UNEVEN:
        share = tr("{share} (at most {worst})", share=share, worst=_percent(wait.worst))
    if wait.ranks:
        ranks = f"{name_ranks(list(wait.ranks))} ({fold_names(wait.nodes)})"
        waited = tr("ranks waited {share} of each step for {ranks}", share=share, ranks=ranks)
        return waited if reason is None else _describe_cause(waited, reason)
    if wait.share >= MIN_WAIT:
        waited = tr("ranks waited {share} of each step, each time for another", share=share)
    else:
        waited = tr("ranks waited {share} of each step", share=share)
    return tr("{waited} (GPU time not included)", waited=waited) if wait.on_gpu else waited


def _describe_cause(waited: str, reason: Reason) -> str:
    """Return for whom the ranks waited, and why."""
    facts = {"waited": waited, **_facts(reason)}
    texts: Mapping[ReasonKind, Callable[[], str]] = {
        "heat": lambda: tr("{waited}, whose clocks were lowered by heat in {share} of the time", **facts),
        "hardware": lambda: tr(
            "{waited}, whose clocks were lowered by the hardware in {share} of the time", **facts
        ),
        "pcie": lambda: tr("{waited}, whose GPU uses {lanes} of {most} PCIe lanes", **facts),
        "loader": lambda: tr("{waited}, which was waiting for its data loader", **facts),
        "process": lambda: tr("{waited}, where another program, {process}, uses {cores} cores", **facts),
        "cpu": lambda: tr("{waited}, whose CPU was {share} busy", **facts),
    }
    return texts[reason.kind]()


def _describe_reason(reason: Reason) -> str:
    """Return what is wrong with a node, of which is not known whether ranks wait for it."""
    facts = _facts(reason)
    if reason.kind == "pcie":
        return tr("a GPU of {node} uses {lanes} of {most} PCIe lanes", **facts)
    if reason.kind == "hardware":
        return tr(
            "the clocks of a GPU of {node} were lowered by the hardware in {share} of the time", **facts
        )
    return tr("the clocks of a GPU of {node} were lowered by heat in {share} of the time", **facts)


def _facts(reason: Reason) -> dict[str, object]:
    process = reason.process
    return {
        "node": reason.node,
        "share": _percent(reason.share),
        "lanes": reason.lanes[0],
        "most": reason.lanes[1],
        "process": f"{process.name} (pid {process.pid})" if process else "",
        "cores": f"{process.cores:.1f}" if process else "",
    }


def speed_to_json(speed: SpeedVerdict) -> SpeedEntry:
    """Return its place in JSON; shares from 0 to 1."""
    wait, reason = speed.wait, speed.reason
    return {
        "sentence": english_of(speed.sentence),
        "rates": {unit: round(value, 4) for unit, value in speed.rates.items()},
        "gpu_busy": None if speed.busy is None else round(speed.busy, 3),
        "gpu_watts": None if speed.watts is None else round(speed.watts, 1),
        "waited": None if wait is None else round(wait.share, 3),
        "waited_most": None if wait is None else round(wait.worst, 3),
        "waited_for": list(wait.ranks) if wait else [],
        "waited_nodes": list(wait.nodes) if wait else [],
        "reason": reason.kind if reason else None,
        "reason_node": reason.node if reason else None,
    }
