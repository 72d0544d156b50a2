"""Samples of the nodes as a text in the OpenMetrics format, for the textfile collector of node_exporter.

Quantities of GPUs have the names that dcgm-exporter gives them, so that its dashboards show them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from clusterctl.plans.facts.utilization import GpuUsage, NodeUsage

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
