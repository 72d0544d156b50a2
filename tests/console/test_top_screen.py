"""Busy nodes: samples read with distrust, histories, silence, folding, and how they look on the screen."""

from __future__ import annotations

import json
import math
from typing import Any

from clusterctl.console.top import (
    TopLayout,
    UtilizationView,
    render_top,
    render_traffic,
    sparkline,
    top_to_json,
)
from clusterctl.plans.facts.utilization import NodeUsage, group_alike, is_silent, parse_sample
from clusterctl.protocol.messages.facts import Traffic
from clusterctl.specs.inventory.model import Node, Ssh


def node(number: int, *nics: str) -> Node:
    """Make a node of an inventory."""
    return Node(name=f"gpu{number:03}", index=number, host=f"10.0.0.{number}", ssh=Ssh(), nic=nics)


def gauged(number: int, busy: int = 97, heard: float = 100.0, **more: object) -> NodeUsage:
    """Make a node with two GPUs of which a sample was received."""
    gpus = [
        {
            "index": index,
            "busy": busy,
            "memory": 81920,
            "memory_used": 40960 * index,
            "temperature": 60 + index,
        }
        for index in (0, 1)
    ]
    raw = {"cpu": 0.12, "memory": 1 << 36, "memory_free": 1 << 35, "gpus": gpus, **more}
    sample = parse_sample(raw)
    assert sample is not None
    return NodeUsage(node(number)).with_sample(sample, heard)


def shown(nodes: list[NodeUsage], now: float = 101.0, most: int = 40, **layout: Any) -> list[str]:
    """Render, and give the lines without their padding."""
    from io import StringIO

    from rich.console import Console

    console = Console(file=StringIO(), width=160)
    for part in render_top(nodes, now, 5.0, TopLayout(max_rows=most, **layout)):
        console.print(part)
    assert isinstance(console.file, StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_nonsense_is_dropped() -> None:
    """What a node sends is another machine's text."""
    sample = parse_sample(
        {"cpu": "much", "gpus": [{"busy": "\x1b[2J"}, 5], "nics": {"a\x1b": {"sent": 1e999}}, "memory": -1}
    )
    assert sample is not None
    assert (sample.cpu, sample.gpus[0].busy, sample.gpu_busy) == (None, None, None)
    assert "\x1b" not in json.dumps(list(sample.nics))
    assert not math.isinf(sample.nics["a\\x1b"].sent)
    assert parse_sample("text") is None and parse_sample(None) is None


def test_the_training_nics_count() -> None:
    """Those of the inventory where it names some, else all together."""
    sample = parse_sample(
        {"nics": {"eth0": {"received": 5.0, "sent": 1.0}, "ib0": {"received": 7.0, "sent": 2.0}}}
    )
    assert sample is not None
    assert NodeUsage(node(1, "ib0")).with_sample(sample, 0.0).traffic == Traffic(received=7.0, sent=2.0)
    assert NodeUsage(node(1)).with_sample(sample, 0.0).traffic == Traffic(received=12.0, sent=3.0)


def test_silence_and_trouble() -> None:
    """A node that reports nothing keeps its last sample and is reported to be silent."""
    quiet = gauged(1)
    assert not is_silent(quiet, 104.0, 5.0) and is_silent(quiet, 106.0, 5.0)
    assert quiet.with_error("gone").sample == quiet.sample and is_silent(quiet.with_error("gone"), 100.0, 5.0)
    assert not is_silent(NodeUsage(node(1)), 100.0, 5.0)
    lines = shown(
        [gauged(1), gauged(2, heard=90.0), NodeUsage(node(3)), gauged(4).with_error("CC-SSH-016 silent")]
    )
    assert lines[3] == "gpu003"
    assert lines[5:8] == ["gpu002: silent for 11 s", "gpu003: no answer yet", "gpu004: CC-SSH-016 silent"]
    assert lines[-1] == "4 nodes, 2 GPUs: 97 % busy; no answer: gpu[002-004]"


def test_a_row_shows_what_matters() -> None:
    """Mean and each GPU, the fullest memory, the hottest, the host."""
    lines = shown([gauged(1, nics={"e": {"received": 1.25e9, "sent": 5e3}})])
    assert lines[0] == "NODE GPU ▁0 █100 % EACH GPU GPU MEMORY °C CPU MEMORY IN OUT"
    assert lines[1] == "gpu001 █ 97 % 97 97 40/80 GiB 61 12 % 32/64 GiB 1.25 GB/s 5 kB/s"


def test_the_run_of_each_node_is_shown() -> None:
    """Between node and GPUs; alike nodes that have several runs report it; what no one runs takes no column."""
    runs = {"gpu001": "a017 r0-1", "gpu002": "a017 r2-3"}
    lines = shown([gauged(1), gauged(2), gauged(3)], runs=runs)
    assert lines[0].startswith("NODE RUN GPU")
    assert [line.split(" █ ")[0] for line in lines[1:4]] == ["gpu001 a017 r0-1", "gpu002 a017 r2-3", "gpu003"]
    assert "several" in shown([gauged(number) for number in range(1, 4)], most=1, runs=runs)[1]


def test_keys_sort_hide_and_quit() -> None:
    """Each of the two works again in the other direction; others mean nothing."""
    view = UtilizationView(5.0, "lab-a", 2.0)
    assert view.press("s") and view.press("xG")
    assert (view._layout.busiest_first, view._layout.shows_each) == (True, False)
    assert view.press("gs")
    assert (view._layout.busiest_first, view._layout.shows_each) == (False, True)
    assert not view.press("q")

    nodes = [gauged(1, busy=0), gauged(2, busy=97)]
    assert [line.split()[0] for line in shown(nodes, busiest_first=True)[1:3]] == ["gpu002", "gpu001"]
    assert "EACH GPU" not in shown(nodes, shows_each=False)[0]


def test_a_live_screen_has_a_title_and_a_lab_an_explanation() -> None:
    """Cluster, clock and keys above; below, why all nodes of a lab show the same processors."""
    lines = shown([gauged(1)], title="clusterctl top lab-a 07:00:12 every 2 s", shares_machine=True)
    assert lines[0] == "clusterctl top lab-a 07:00:12 every 2 s q quit s sort by use g each GPU"
    assert lines[-1].startswith("the nodes of a lab share this machine")


def test_many_nodes_are_folded() -> None:
    """200 nodes fit on a screen; the odd ones stand out."""
    nodes = [gauged(number, busy=95 + number % 5) for number in range(1, 201)]
    nodes[6], nodes[8] = gauged(7, busy=0), gauged(9, gpu_problem="nvidia-smi gave no answer within 5 s")
    groups = group_alike(nodes, 101.0, 5.0, 40)
    assert [len(group) for group in groups] == [198, 1, 1]
    lines = shown(nodes)
    assert lines[1].startswith("gpu[001-006,008,010-200] 95-99 % 198 nodes")
    assert lines[4] == "gpu009: nvidia-smi gave no answer within 5 s"
    assert len(group_alike(nodes[:40], 101.0, 5.0, 40)) == 40


def test_sparks_and_rates() -> None:
    """From nothing to full; beyond the bounds they stay at them."""
    assert sparkline([0, 50, 100, 400, -3]).strip() == "▁▅██▁"
    assert [render_traffic(rate) for rate in (0, 12, 4200, 1.18e10)] == [
        "0",
        "12 B/s",
        "4.2 kB/s",
        "11.8 GB/s",
    ]


def test_json_has_all() -> None:
    """Every node, also one that never answered."""
    document = top_to_json([gauged(1), NodeUsage(node(2)).with_error("no")], 101.0)
    assert [(one["name"], one["answered"], one["error"]) for one in document["nodes"]] == [
        ("gpu001", True, None),
        ("gpu002", False, "no"),
    ]
    assert json.loads(json.dumps(document))["nodes"][0]["sample"]["gpus"][1]["temperature"] == 61
