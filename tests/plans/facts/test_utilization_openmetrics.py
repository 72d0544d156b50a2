"""Samples as OpenMetrics: the names of dcgm-exporter, labels that are escaped, and nothing for what is not known."""

from __future__ import annotations

from clusterctl.plans.facts.utilization import NodeUsage, render_openmetrics
from clusterctl.protocol.messages.facts import GpuUsage, Sample, Traffic
from clusterctl.specs.inventory.parse import parse_inventory

NODES = parse_inventory("cluster: c\nnodes: [{host: a}, {host: b}]\n", "inventory.yaml").nodes


def test_samples_as_openmetrics() -> None:
    """One family after the other, each with its help; a node that does not answer is down."""
    gpu = GpuUsage(index=0, name='H"100\\\n', busy=97, memory_used=1000, memory=81559, power=455.5)
    sample = Sample(
        cpu=0.25, memory=100, memory_free=40, nics={"eth0": Traffic(received=5.0, sent=7.0)}, gpus=(gpu,)
    )
    text = render_openmetrics([NodeUsage(NODES[0]).with_sample(sample, 1.0), NodeUsage(NODES[1])])
    lines = text.splitlines()
    assert lines[-1] == "# EOF"
    labels = 'gpu="0",modelName="H\\"100\\\\\\n",Hostname="a"'
    assert f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 97" in lines
    assert f"DCGM_FI_DEV_FB_FREE{{{labels}}} 80559" in lines
    assert 'clusterctl_nic_sent_bytes_per_second{Hostname="a",device="eth0"} 7' in lines
    assert 'clusterctl_node_up{Hostname="a"} 1' in lines and 'clusterctl_node_up{Hostname="b"} 0' in lines
    assert "GPU_TEMP" not in text and text.count("# TYPE") == text.count("# HELP") == 10
