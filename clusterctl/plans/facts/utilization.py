"""How busy nodes are: samples read with distrust, nodes alike put together, and the text for OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from clusterctl.plans.facts.untrusted import clean_text, read_clean
from clusterctl.protocol.messages.facts import GpuUsage, Sample, Traffic
from clusterctl.specs.inventory.model import Node

HISTORY_LENGTH = 24  # samples
BUSY_BANDS = (5.0, 50.0, 90.0)  # per cent: idle, little, much, full


@dataclass(frozen=True)
class NodeUsage:
    """All that is known of one node: its newest sample and the shares before, or why there is none."""

    node: Node
    sample: Sample | None = None
    updated_at: float | None = None  # by our clock
    history: tuple[float, ...] = ()
    error: str = ""

    def with_sample(self, sample: Sample, now: float) -> NodeUsage:
        """Take a new sample in; the history is of the GPUs where there are some, else of the processors."""
        busy = sample.gpu_busy if sample.gpus else None if sample.cpu is None else sample.cpu * 100
        history = (*self.history, *(() if busy is None else (busy,)))[-HISTORY_LENGTH:]
        return NodeUsage(self.node, sample, now, history)

    def with_error(self, error: str) -> NodeUsage:
        """Note that nothing comes; the last sample stays."""
        return NodeUsage(self.node, self.sample, self.updated_at, self.history, clean_text(error))

    @property
    def traffic(self) -> Traffic:
        """What the training NICs carry, or without `nic` in the inventory all NICs together."""
        nics = self.sample.nics if self.sample else {}
        chosen = [nics[name] for name in self.node.nic if name in nics] or list(nics.values())
        received, sent = (
            sum(traffic.received for traffic in chosen),
            sum(traffic.sent for traffic in chosen),
        )
        return Traffic(received=received, sent=sent)


def parse_sample(raw: object) -> Sample | None:
    """Read what a node sent; None if it is no sample."""
    return read_clean(Sample, raw)


def group_alike(
    nodes: Sequence[NodeUsage], now: float, silence_limit: float, most_rows: int
) -> list[tuple[NodeUsage, ...]]:
    """Put nodes that look alike together where there are more than `most_rows`; else each is for itself.

    Alike are nodes with the same trouble, the same number of GPUs, and GPUs and processors about as busy.
    """
    if len(nodes) <= most_rows:
        return [(usage,) for usage in nodes]
    groups: dict[object, list[NodeUsage]] = {}
    for usage in nodes:
        groups.setdefault(_similarity_key(usage, now, silence_limit), []).append(usage)
    return [tuple(group) for group in groups.values()]


def _similarity_key(usage: NodeUsage, now: float, silence_limit: float) -> object:
    if usage.sample is None or is_silent(usage, now, silence_limit):
        return "silent", bool(usage.error)
    sample = usage.sample
    shares = sample.gpu_busy, None if sample.cpu is None else sample.cpu * 100
    return len(sample.gpus), sample.gpu_problem, tuple(_busy_band(share) for share in shares)


def _busy_band(share: float | None) -> int | None:
    return None if share is None else sum(share >= bound for bound in BUSY_BANDS)


def is_silent(usage: NodeUsage, now: float, silence_limit: float) -> bool:
    """Return whether a node has sent nothing for `silence_limit` seconds, or cannot be reached."""
    return bool(usage.error) or (usage.updated_at is not None and now - usage.updated_at > silence_limit)


# OpenMetrics, for the textfile collector of node_exporter. Quantities of GPUs have the names that dcgm-exporter gives
# them, so that its dashboards show them.
METRICS: Mapping[str, str] = {  # name: what it is
    "DCGM_FI_DEV_GPU_UTIL": "GPU utilization (in %).",
    "DCGM_FI_DEV_FB_USED": "Framebuffer memory used (in MiB).",
    "DCGM_FI_DEV_FB_FREE": "Framebuffer memory free (in MiB).",
    "DCGM_FI_DEV_GPU_TEMP": "GPU temperature (in C).",
    "DCGM_FI_DEV_POWER_USAGE": "Power draw (in W).",
    "clusterctl_cpu_busy_ratio": "Share of the processors that worked.",
    "clusterctl_memory_used_bytes": "Memory in use.",
    "clusterctl_memory_bytes": "Memory of the machine.",
    "clusterctl_nic_received_bytes_per_second": "What a NIC received.",
    "clusterctl_nic_sent_bytes_per_second": "What a NIC sent.",
    "clusterctl_node_up": "Whether the node answered.",
}
Row = tuple[str, Mapping[str, str], float | None]


def render_openmetrics(nodes: Sequence[NodeUsage]) -> str:
    """Write the newest sample of every node; a quantity that is not known is left out."""
    rows = [row for usage in nodes for row in _rows(usage)]
    lines = []
    for name, text in METRICS.items():
        own = [(labels, value) for metric, labels, value in rows if metric == name and value is not None]
        if own:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
            lines += [f"{name}{{{_render_labels(labels)}}} {value:.10g}" for labels, value in own]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _rows(usage: NodeUsage) -> Iterator[Row]:
    host, sample = {"Hostname": usage.node.name}, usage.sample
    yield "clusterctl_node_up", host, float(sample is not None and not usage.error)
    if sample is None:
        return
    for gpu in sample.gpus:
        yield from _gpu_rows(gpu, host)
    yield "clusterctl_cpu_busy_ratio", host, sample.cpu
    yield "clusterctl_memory_used_bytes", host, sample.memory_used
    yield "clusterctl_memory_bytes", host, sample.memory
    for name, traffic in sample.nics.items():
        yield "clusterctl_nic_received_bytes_per_second", {**host, "device": name}, traffic.received
        yield "clusterctl_nic_sent_bytes_per_second", {**host, "device": name}, traffic.sent


def _gpu_rows(gpu: GpuUsage, host: Mapping[str, str]) -> Iterator[Row]:
    labels = {"gpu": str(gpu.index), "modelName": gpu.name or "", **host}
    free = None if gpu.memory is None or gpu.memory_used is None else gpu.memory - gpu.memory_used
    yield "DCGM_FI_DEV_GPU_UTIL", labels, gpu.busy
    yield "DCGM_FI_DEV_FB_USED", labels, gpu.memory_used
    yield "DCGM_FI_DEV_FB_FREE", labels, free
    yield "DCGM_FI_DEV_GPU_TEMP", labels, gpu.temperature
    yield "DCGM_FI_DEV_POWER_USAGE", labels, gpu.power


def _render_labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
